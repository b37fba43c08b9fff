//! Tickets: a fiber takes its turn at a `FairMutex` now, and waits for it later.
//!
//! Uses the turns of `raw`. `FairMutex::enter` makes tickets.

use super::raw::{Lock, Turn};
use super::{FairMutexGuard, RawFairMutex};
use crate::clock;
use crate::sync::future::word::{Word, WordArm};
use crate::sync::future::{Waitable, sealed_waitable};
use crate::sync::moment;
use crate::sync::select::Arm;
use crate::sync::select::sealed::{self, Entered, Joint, Left};
use core::fmt;
use core::marker::PhantomData;
use core::pin::Pin;
use core::time::Duration;

/// The memory of a turn at a [`FairMutex`](super::FairMutex); see
/// [`enter`](super::FairMutex::enter).
///
/// Dropping the place gives the turn up, and the next waiter gets the mutex.
///
/// # Examples
/// ```
/// use sinew::sync::{FairMutex, FairMutexPlace};
/// use std::pin::pin;
///
/// let mutex = FairMutex::new(());
/// {
///     let place = pin!(FairMutexPlace::new());
///     let ticket = mutex.enter(place); // the mutex was free, so the turn has come
///     assert!(mutex.try_lock().is_none());
/// }
/// assert!(mutex.try_lock().is_some());
/// ```
///
/// The mutex must outlive the place:
/// ```compile_fail,E0597
/// let mut place = std::pin::pin!(sinew::sync::FairMutexPlace::new());
/// let mutex = sinew::sync::FairMutex::new(());
/// let ticket = mutex.enter(place.as_mut());
/// ```
pub struct FairMutexPlace<'m>(Turn<'m>);

impl<'m> FairMutexPlace<'m> {
    /// Creates a place without a turn.
    ///
    /// # Examples
    /// ```
    /// let place = std::pin::pin!(sinew::sync::FairMutexPlace::new());
    /// # drop(place);
    /// ```
    pub const fn new() -> FairMutexPlace<'m> {
        FairMutexPlace(Turn::new())
    }
}

impl Default for FairMutexPlace<'_> {
    fn default() -> Self {
        FairMutexPlace::new()
    }
}

impl fmt::Debug for FairMutexPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairMutexPlace").finish_non_exhaustive()
    }
}

/// A ticket for a turn at a [`FairMutex`](super::FairMutex). Turns come in the order in which
/// tickets were taken.
///
/// A ticket, like a guard, cannot be sent to another fiber. Dropping the ticket does not give the
/// turn up. Dropping its [place](FairMutexPlace) does.
///
/// # Examples
/// ```
/// use sinew::sync::{FairMutex, FairMutexPlace};
/// use std::pin::pin;
///
/// let mutex = FairMutex::new(7);
/// let place = pin!(FairMutexPlace::new());
/// let ticket = mutex.enter(place); // takes the turn, and does not wait for it
/// let prepared = 1; // work that needs no lock
/// assert_eq!(*ticket.wait() + prepared, 8);
/// ```
///
/// The ticket stays with its fiber:
/// ```compile_fail,E0277
/// let mutex = sinew::sync::FairMutex::new(());
/// let place = std::pin::pin!(sinew::sync::FairMutexPlace::new());
/// let ticket = mutex.enter(place);
/// sinew::scope(|s| {
///     s.spawn(move || drop(ticket));
/// });
/// ```
pub struct FairMutexTicket<'a, 'm, T: ?Sized> {
    mutex: &'m lock_api::Mutex<RawFairMutex, T>,
    turn: Pin<&'a Turn<'m>>,
    stays: PhantomData<*const ()>,
}

impl<'a, 'm, T: ?Sized> FairMutexTicket<'a, 'm, T> {
    #[track_caller]
    pub(super) fn new(
        mutex: &'m lock_api::Mutex<RawFairMutex, T>,
        lock: &'m Lock,
        place: Pin<&'a mut FairMutexPlace<'m>>,
    ) -> Self {
        // SAFETY: the turn is a field of the pinned place, and is pinned with it.
        let mut turn = unsafe { place.map_unchecked_mut(|place| &mut place.0) };
        turn.as_mut().enter(lock);
        FairMutexTicket { mutex, turn: turn.into_ref(), stays: PhantomData }
    }

    /// Waits for the turn, and returns the guard of the mutex.
    ///
    /// # Panics
    /// If the caller already holds the mutex.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FairMutex, FairMutexPlace};
    /// use std::pin::pin;
    ///
    /// let mutex = FairMutex::new(7);
    /// let place = pin!(FairMutexPlace::new());
    /// assert_eq!(*mutex.enter(place).wait(), 7);
    /// ```
    #[track_caller]
    pub fn wait(self) -> FairMutexGuard<'m, T> {
        self.turn.wait(clock::NEVER);
        // SAFETY: without a deadline, `wait` returns only with the lock; a cancelled wait unwinds
        // before the guard is made.
        unsafe { self.mutex.make_guard_unchecked() }
    }

    /// Waits for the turn, but at most for `timeout`, and returns the guard of the mutex.
    ///
    /// # Errors
    /// Returns the ticket if the time runs out. The ticket keeps its turn.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FairMutex, FairMutexPlace};
    /// use std::pin::pin;
    /// use std::time::Duration;
    ///
    /// let mutex = FairMutex::new(7);
    /// let place = pin!(FairMutexPlace::new());
    /// let guard = mutex.enter(place).wait_timeout(Duration::from_millis(1)).unwrap();
    /// assert_eq!(*guard, 7);
    /// ```
    #[track_caller]
    pub fn wait_timeout(self, timeout: Duration) -> Result<FairMutexGuard<'m, T>, Self> {
        if self.turn.wait(moment(timeout)) {
            // SAFETY: `wait` returned true, so the caller holds the lock.
            Ok(unsafe { self.mutex.make_guard_unchecked() })
        } else {
            Err(self)
        }
    }

    /// Returns whether the turn has come, so that [`wait`](Self::wait) returns at once.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FairMutex, FairMutexPlace};
    /// use std::pin::pin;
    ///
    /// let mutex = FairMutex::new(7);
    /// let place = pin!(FairMutexPlace::new());
    /// assert!(mutex.enter(place).has_come());
    /// ```
    pub fn has_come(&self) -> bool {
        self.turn.word().is_set()
    }

    /// Returns an arm for [`select`](crate::sync::select) that waits for the turn. After it was
    /// selected, [`wait`](Self::wait) returns at once.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FairMutex, FairMutexPlace};
    /// use std::pin::pin;
    ///
    /// let mutex = FairMutex::new(7);
    /// let place = pin!(FairMutexPlace::new());
    /// let ticket = mutex.enter(place);
    /// sinew::select! {
    ///     wait(ticket) -> () => assert_eq!(*ticket.wait(), 7),
    /// }
    /// ```
    pub fn arm(&self) -> TicketArm<'a> {
        TicketArm(WordArm::new(self.turn.get_ref().word()))
    }
}

impl<T: ?Sized> Waitable for FairMutexTicket<'_, '_, T> {}

impl<T: ?Sized> sealed_waitable::Waitable for FairMutexTicket<'_, '_, T> {
    fn word(&self) -> &Word {
        self.turn.get_ref().word()
    }
}

impl<T: ?Sized> fmt::Debug for FairMutexTicket<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairMutexTicket").field("has_come", &self.has_come()).finish()
    }
}

/// An arm that waits for a turn; see [`FairMutexTicket::arm`].
///
/// # Examples
/// ```
/// use sinew::sync::{FairMutex, FairMutexPlace};
/// use std::pin::pin;
/// use std::time::Duration;
///
/// let mutex = FairMutex::new(7);
/// let place = pin!(FairMutexPlace::new());
/// let guard = mutex.lock();
/// let ticket = mutex.enter(place); // the mutex is locked, so its turn does not come
/// sinew::select! {
///     wait(ticket) -> () => unreachable!(),
///     after(Duration::from_millis(1)) => {}
/// }
/// drop(guard);
/// assert_eq!(*ticket.wait(), 7);
/// ```
#[derive(Debug)]
pub struct TicketArm<'a>(WordArm<'a>);

impl TicketArm<'_> {
    /// Does nothing: after this arm was selected, [`FairMutexTicket::wait`] returns the guard.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FairMutex, FairMutexPlace};
    /// use std::pin::pin;
    ///
    /// let mutex = FairMutex::new(7);
    /// let place = pin!(FairMutexPlace::new());
    /// mutex.enter(place).arm().take();
    /// ```
    pub fn take(&mut self) {}
}

impl Arm for TicketArm<'_> {}

impl sealed::Arm for TicketArm<'_> {
    fn attempt(&mut self) -> bool {
        self.0.attempt()
    }

    fn seems_ready(&self) -> bool {
        self.0.attempt()
    }

    fn enter(&mut self, wait: Joint<'_>) -> Entered {
        self.0.enter(wait)
    }

    fn leave(&mut self) -> Left {
        self.0.leave()
    }
}
