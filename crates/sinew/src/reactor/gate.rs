//! Counts the events of one direction of a descriptor, so that no waiter misses one.
//!
//! A waiter reads the tick and tries its operation. It enters the list of waiters, under the lock
//! of the slot, only if the tick has not changed. The reporter of an event advances the tick under
//! that lock, and takes the waiters out of the list. So for an event after the attempt, either the
//! waiter sees the changed tick, or the reporter finds the waiter in the list.

use crate::park::list::{List, Node};
use crate::primitive::{AtomicU32, Ordering};
use core::pin::Pin;

/// Counts how often a direction was reported ready. Changed under the lock of the slot.
pub(super) struct Gate(AtomicU32);

/// The tick of a direction, read before an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick(pub(super) u32);

impl Tick {
    /// The tick of a direction that was never reported.
    pub(super) const START: Tick = Tick(0);

    /// Returns a number that identifies the tick. It is zero only for the last tick before the
    /// count wraps.
    pub(super) fn mark(self) -> u32 {
        self.0.wrapping_add(1)
    }
}

impl Gate {
    /// Returns the tick, to be read before an attempt.
    #[inline(always)]
    pub(super) fn tick(&self) -> Tick {
        // ORDERING: Acquire shows the reporter's earlier writes; pairs with the Release in
        // `advance`.
        Tick(self.0.load(Ordering::Acquire))
    }

    /// Counts an event. The caller holds the lock.
    #[inline(always)]
    pub(super) fn advance(&self) {
        // ORDERING: Release publishes the reporter's earlier writes; pairs with the Acquire in
        // `tick`.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Appends `node` to `list` and returns true, unless an event came since `tick`. The caller
    /// holds the lock of the slot.
    ///
    /// # Safety
    /// The node is in no list. It stays where it is until it is taken out of `list`.
    #[inline(always)]
    pub(super) unsafe fn enter<P>(
        &self,
        tick: Tick,
        list: &mut List<P>,
        node: Pin<&Node<P>>,
    ) -> bool {
        let entered = self.tick() == tick;
        if entered {
            // SAFETY: the caller fulfils the conditions of `List::push`.
            unsafe { list.push(node) };
        }
        entered
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
