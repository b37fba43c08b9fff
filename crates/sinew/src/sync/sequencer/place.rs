//! The place of one waiter in a sequencer, and the handle to wait with.

use super::{Reached, Sequencer};
use crate::fiber::WaitKind;
use crate::primitive::{AtomicU32, Cell};
use crate::sync::future::sealed_waitable::Waitable as _;
use crate::sync::future::word::Word;
use crate::sync::future::{FiberFuture, FutureArm, Waitable, sealed_waitable};
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr;
use core::time::Duration;

/// A place to wait for a value of a [`Sequencer`]: enter it now, and wait later.
///
/// Dropping the place cancels the wait.
///
/// # Examples
/// ```
/// use sinew::sync::{Reached, Sequencer, SequencerWait};
/// use std::pin::pin;
///
/// let sequencer = Sequencer::new();
/// let place = pin!(SequencerWait::new());
/// let turn = sequencer.enter(1, place);
/// sequencer.increment();
/// assert_eq!(turn.wait(), Reached::Yes);
/// ```
///
/// The sequencer has to outlive the place:
/// ```compile_fail,E0597
/// let mut place = std::pin::pin!(sinew::sync::SequencerWait::new());
/// let sequencer = sinew::sync::Sequencer::new();
/// let turn = sequencer.enter(1, place.as_mut());
/// ```
pub struct SequencerWait<'s> {
    pub(super) future: FiberFuture<Reached>,
    pub(super) token: Cell<u64>,
    pub(super) word: AtomicU32,
    /// The sequencer that the place was entered into. The lifetime lets the destructor use it.
    pub(super) home: Cell<Option<&'s Sequencer>>,
    /// The next node in the stack of requests, and later in the list of nodes to tell.
    pub(super) link: Cell<Link>,
    pub(super) cancel_link: Cell<Link>,
    /// Links in the heap: the first child, the next sibling, and the previous sibling or the
    /// parent.
    pub(super) child: Cell<Link>,
    pub(super) next: Cell<Link>,
    pub(super) previous: Cell<Link>,
    _pinned: PhantomPinned,
}

/// A place as the sequencer sees it, with its lifetime erased. The sequencer lets go of the place
/// before that lifetime ends.
pub(super) type Node = SequencerWait<'static>;
pub(super) type Link = *const Node;

// SAFETY: the atomics decide which side may touch the other fields. The owner may until the place
// is entered and after it is told; the stacks and the combiner may in between.
unsafe impl Sync for SequencerWait<'_> {}
// SAFETY: as for `Sync`, the atomics decide which side may touch the fields, on any thread.
unsafe impl Send for SequencerWait<'_> {}

impl<'s> SequencerWait<'s> {
    /// Creates a place that has not been entered.
    ///
    /// # Examples
    /// ```
    /// let place = std::pin::pin!(sinew::sync::SequencerWait::new());
    /// # drop(place);
    /// ```
    pub const fn new() -> SequencerWait<'s> {
        SequencerWait {
            future: FiberFuture::new(),
            token: Cell::new(0),
            word: AtomicU32::new(0),
            home: Cell::new(None),
            link: Cell::new(ptr::null()),
            cancel_link: Cell::new(ptr::null()),
            child: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            previous: Cell::new(ptr::null()),
            _pinned: PhantomPinned,
        }
    }

    /// Returns the place as the sequencer sees it.
    pub(super) fn node(&self) -> &Node {
        // SAFETY: only the field `home` has the lifetime, and only the owner uses it. The sequencer
        // uses the node until it has told it, and the destructor waits for that.
        unsafe { &*ptr::from_ref(self).cast() }
    }

    fn cancel(&self) {
        if let Some(home) = self.home.get()
            && !self.future.is_set()
        {
            home.cancel(self.node());
        }
    }
}

impl Default for SequencerWait<'_> {
    fn default() -> Self {
        SequencerWait::new()
    }
}

impl Drop for SequencerWait<'_> {
    fn drop(&mut self) {
        if self.home.get().is_some() && !self.future.is_set() {
            self.cancel();
            // The combiner is about to tell this place. The wait must not be cut short, because the
            // combiner has a pointer to the place.
            self.future.word().wait_anyhow(WaitKind::Event, ptr::from_ref(self).addr());
        }
    }
}

/// A place that was entered into the wait for a value of a [`Sequencer`].
#[derive(Debug)]
pub struct SequencerTurn<'a, 's> {
    pub(super) place: Pin<&'a SequencerWait<'s>>,
}

impl<'a> SequencerTurn<'a, '_> {
    /// Waits until the counter reaches the value, or the wait is cancelled.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Reached, Sequencer, SequencerWait};
    /// use std::pin::pin;
    ///
    /// let sequencer = Sequencer::new();
    /// let place = pin!(SequencerWait::new());
    /// let turn = sequencer.enter(1, place);
    /// turn.cancel();
    /// assert_eq!(turn.wait(), Reached::Cancelled);
    /// ```
    #[track_caller]
    pub fn wait(&self) -> Reached {
        *self.place.get_ref().future.wait()
    }

    /// Waits at most `timeout`. Returns `None` if the wait was not over in time.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Sequencer, SequencerWait};
    /// use std::pin::pin;
    /// use std::time::Duration;
    ///
    /// let sequencer = Sequencer::new();
    /// let place = pin!(SequencerWait::new());
    /// assert_eq!(sequencer.enter(1, place).wait_for(Duration::from_millis(1)), None);
    /// ```
    #[track_caller]
    pub fn wait_for(&self, timeout: Duration) -> Option<Reached> {
        self.place.get_ref().future.wait_with_timeout(timeout).copied()
    }

    /// Returns whether the wait is over: the counter has reached the value, or the wait was
    /// cancelled.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Sequencer, SequencerWait};
    /// use std::pin::pin;
    ///
    /// let sequencer = Sequencer::new();
    /// let place = pin!(SequencerWait::new());
    /// assert!(sequencer.enter(0, place).is_told());
    /// ```
    pub fn is_told(&self) -> bool {
        self.place.future.is_set()
    }

    /// Cancels the wait, unless the value was reached. May be called while another fiber waits for
    /// this turn.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Reached, Sequencer, SequencerWait};
    /// use std::pin::pin;
    ///
    /// let sequencer = Sequencer::new();
    /// let place = pin!(SequencerWait::new());
    /// let turn = sequencer.enter(1, place);
    /// sequencer.increment();
    /// turn.cancel(); // too late
    /// assert_eq!(turn.wait(), Reached::Yes);
    /// ```
    pub fn cancel(&self) {
        self.place.cancel();
    }

    /// Returns an arm that waits for the value, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Reached, Sequencer, SequencerWait};
    /// use std::pin::pin;
    ///
    /// let sequencer = Sequencer::new();
    /// let place = pin!(SequencerWait::new());
    /// let turn = sequencer.enter(1, place);
    /// sequencer.increment();
    /// let reached = sinew::select! {
    ///     wait(turn) -> reached => *reached,
    /// };
    /// assert_eq!(reached, Reached::Yes);
    /// ```
    pub fn arm(&self) -> FutureArm<'a, Reached> {
        self.place.get_ref().future.arm()
    }
}

impl Waitable for SequencerTurn<'_, '_> {}

impl sealed_waitable::Waitable for SequencerTurn<'_, '_> {
    fn word(&self) -> &Word {
        self.place.get_ref().future.word()
    }
}

impl fmt::Debug for SequencerWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequencerWait").field("token", &self.token.get()).finish_non_exhaustive()
    }
}
