//! Where one waits for a value of a sequencer.

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
/// Dropping it cancels the wait.
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
/// The sequencer lives longer than the place:
/// ```compile_fail,E0597
/// let mut place = std::pin::pin!(sinew::sync::SequencerWait::new());
/// let sequencer = sinew::sync::Sequencer::new();
/// let turn = sequencer.enter(1, place.as_mut());
/// ```
pub struct SequencerWait<'s> {
    pub(super) future: FiberFuture<Reached>,
    pub(super) token: Cell<u64>,
    pub(super) word: AtomicU32,
    /// The sequencer that it was entered into. With its lifetime: the destructor needs it.
    pub(super) home: Cell<Option<&'s Sequencer>>,
    /// In the stack of requests, then in the list of those to be told.
    pub(super) link: Cell<Link>,
    pub(super) cancel_link: Cell<Link>,
    /// In the heap: the first child, the next sibling, and the previous sibling or the parent.
    pub(super) child: Cell<Link>,
    pub(super) next: Cell<Link>,
    pub(super) previous: Cell<Link>,
    _pinned: PhantomPinned,
}

/// A node as others see it, whatever its lifetime: it is left before that ends.
pub(super) type Node = SequencerWait<'static>;
pub(super) type Link = *const Node;

// SAFETY: the atomics decide who touches the rest: the owner, until it is entered and after it was
// told; the stacks and the combiner between.
unsafe impl Sync for SequencerWait<'_> {}
// SAFETY: the same.
unsafe impl Send for SequencerWait<'_> {}

impl<'s> SequencerWait<'s> {
    /// A place that was not entered.
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

    /// As others see it.
    pub(super) fn node(&self) -> &Node {
        // SAFETY: the lifetime is that of a reference which only the owner uses; others use the
        // node until they have told it, and the destructor waits for that.
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
            // Whoever has taken it out is about to tell it. Not to be cut short: others have a
            // pointer to it.
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
    /// Waits until the counter has the value, or the wait was cancelled.
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

    /// Waits, at most for `timeout`.
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

    /// Whether the wait is over, in one way or the other.
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

    /// Ends the wait, unless the value was reached. May be called while another waits for it.
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

    /// Waiting as one of several operations, for [`select`](crate::sync::select).
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
