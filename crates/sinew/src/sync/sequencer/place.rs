//! The place of one waiter in a sequencer, and the turn, which is the handle to wait with.
//!
//! The page of `sequencer` has the protocol by which the combiner uses a place.

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

/// The memory of one wait for a value of a [`Sequencer`]. Enter the place with
/// [`Sequencer::enter`], and wait later, with the turn that it returns.
///
/// Dropping the place cancels the wait, and waits until the sequencer has let go of the place.
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
    /// Set when the place is told.
    pub(super) future: FiberFuture<Reached>,
    /// The value of the counter that the waiter waits for.
    pub(super) token: Cell<u64>,
    /// The marks `SORTED`, `CANCELLED` and `OUT`.
    pub(super) word: AtomicU32,
    /// The sequencer that the place was entered into. The lifetime guarantees that the sequencer is
    /// alive in the destructor.
    pub(super) home: Cell<Option<&'s Sequencer>>,
    /// The next node in the stack `requests`, and later in the list of nodes to tell.
    pub(super) link: Cell<Link>,
    /// The next node in the stack `cancels`.
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
/// A pointer to the next node in a stack, a list or the heap; null at the end.
pub(super) type Link = *const Node;

// SAFETY: the atomics decide which thread may touch the other fields. Before the place is entered
// and after it is told, only its owner touches them. In between, the thread that enters or cancels
// the place sets its links before it pushes the place, and then only the combiner touches them.
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
        // SAFETY: only the field `home` has the lifetime, and the sequencer does not use that
        // field. The sequencer does not touch the node after it has told it, and the destructor
        // waits until then.
        unsafe { &*ptr::from_ref(self).cast() }
    }

    /// Asks the combiner to take the place out, unless the place was told.
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
            // A combiner will tell this place, as cancelled or as reached. The wait must not be cut
            // short, because the combiner has a pointer to the place.
            self.future.word().wait_anyhow(WaitKind::Event, ptr::from_ref(self).addr());
        }
    }
}

/// A wait for a value of a [`Sequencer`] that was entered with [`Sequencer::enter`] or
/// [`Event::enter`](crate::sync::Event::enter).
///
/// # Examples
/// ```
/// use sinew::sync::{Reached, Sequencer, SequencerWait};
/// use std::pin::pin;
///
/// let sequencer = Sequencer::new();
/// let place = pin!(SequencerWait::new());
/// let turn = sequencer.enter(1, place);
/// assert!(!turn.is_told());
/// sinew::scope(|s| {
///     s.spawn(|| sequencer.increment());
///     assert_eq!(turn.wait(), Reached::Yes);
/// });
/// ```
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

    /// Waits at most `timeout` until the counter reaches the value. Returns `None` if the time runs
    /// out; the place stays entered.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Sequencer, SequencerWait};
    /// use std::pin::pin;
    /// use std::time::Duration;
    ///
    /// let sequencer = Sequencer::new();
    /// let place = pin!(SequencerWait::new());
    /// assert_eq!(sequencer.enter(1, place).wait_timeout(Duration::from_millis(1)), None);
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Reached> {
        self.place.get_ref().future.wait_timeout(timeout).copied()
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

    /// Cancels the wait, unless the counter has reached the value. Another fiber may wait for this
    /// turn during the call.
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
