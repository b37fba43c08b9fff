//! One direction of a descriptor: how often it was reported ready, so that nobody misses it.
//!
//! Whoever wants something of the descriptor reads the tick, tries, and enters the list of waiters
//! under the lock only if the tick is still the same. Whoever reports an event advances the tick under
//! that lock, and takes who is in the list. So an event that comes after the attempt is seen by one of
//! the two.

use crate::park::list::{List, Node};
use crate::primitive::{AtomicU32, Ordering};
use core::pin::Pin;

/// How often a direction was reported ready. Changed under the lock of the slot.
pub(super) struct Gate(AtomicU32);

/// A tick that was read before an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick(pub(super) u32);

impl Tick {
    /// That of a direction that was never reported.
    pub(super) const START: Tick = Tick(0);

    /// A number that tells it from others, and is not zero for most.
    pub(super) fn mark(self) -> u32 {
        self.0.wrapping_add(1)
    }
}

impl Gate {
    /// To be read before an attempt.
    #[inline(always)]
    pub(super) fn tick(&self) -> Tick {
        // ORDERING: Acquire: what the reporter wrote before; pairs with the Release in `advance`.
        Tick(self.0.load(Ordering::Acquire))
    }

    /// Counts an event. The caller holds the lock.
    #[inline(always)]
    pub(super) fn advance(&self) {
        // ORDERING: Release; pairs with the Acquire in `tick`.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Enters the list, unless there was an event since `tick`; true if it did. The caller holds the
    /// lock.
    ///
    /// # Safety
    /// As for [`List::push`].
    #[inline(always)]
    pub(super) unsafe fn enter<P>(
        &self,
        tick: Tick,
        list: &mut List<P>,
        node: Pin<&Node<P>>,
    ) -> bool {
        let entered = self.tick() == tick;
        if entered {
            // SAFETY: as the caller promised.
            unsafe { list.push(node) };
        }
        entered
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
