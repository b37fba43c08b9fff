//! A turn that is taken now and waited for later.

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

/// Where a turn of a [`FairMutex`](super::FairMutex) is kept; see
/// [`enter`](super::FairMutex::enter).
///
/// Dropping it gives the turn up: the next one has it.
///
/// # Examples
/// ```
/// use sinew::sync::{FairMutex, FairMutexPlace};
/// use std::pin::pin;
///
/// let mutex = FairMutex::new(());
/// {
///     let place = pin!(FairMutexPlace::new());
///     let ticket = mutex.enter(place); // nobody has it: the turn has come
///     assert!(mutex.try_lock().is_none());
/// }
/// assert!(mutex.try_lock().is_some());
/// ```
///
/// The mutex lives longer than the place:
/// ```compile_fail,E0597
/// let mut place = std::pin::pin!(sinew::sync::FairMutexPlace::new());
/// let mutex = sinew::sync::FairMutex::new(());
/// let ticket = mutex.enter(place.as_mut());
/// ```
pub struct FairMutexPlace<'m>(Turn<'m>);

impl<'m> FairMutexPlace<'m> {
    /// A place without a turn.
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

/// A turn of a [`FairMutex`](super::FairMutex), which comes in the order in which tickets were taken.
///
/// It stays with the fiber that took it, as a guard does. Dropped, it leaves the turn to its place.
///
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
        // SAFETY: a part of what is pinned, pinned with it.
        let mut turn = unsafe { place.map_unchecked_mut(|place| &mut place.0) };
        turn.as_mut().enter(lock);
        FairMutexTicket { mutex, turn: turn.into_ref(), stays: PhantomData }
    }

    /// Waits until the turn has come.
    ///
    /// # Panics
    /// If the caller has the mutex locked.
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
        // SAFETY: locked, or unwound from.
        unsafe { self.mutex.make_guard_unchecked() }
    }

    /// Waits until the turn has come, at most for `timeout`.
    ///
    /// # Errors
    /// If that was over before: the ticket, which has kept its turn.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FairMutex, FairMutexPlace};
    /// use std::pin::pin;
    /// use std::time::Duration;
    ///
    /// let mutex = FairMutex::new(7);
    /// let place = pin!(FairMutexPlace::new());
    /// let guard = mutex.enter(place).wait_for(Duration::from_millis(1)).unwrap();
    /// assert_eq!(*guard, 7);
    /// ```
    #[track_caller]
    pub fn wait_for(self, timeout: Duration) -> Result<FairMutexGuard<'m, T>, Self> {
        if self.turn.wait(moment(timeout)) {
            // SAFETY: locked.
            Ok(unsafe { self.mutex.make_guard_unchecked() })
        } else {
            Err(self)
        }
    }

    /// Whether the turn has come, so that [`wait`](Self::wait) returns at once.
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

    /// Waiting for the turn as one of several operations, for [`select`](crate::sync::select). When
    /// it was selected, [`wait`](Self::wait) returns at once.
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

/// Waiting for a turn as one of several operations; see [`FairMutexTicket::arm`].
#[derive(Debug)]
pub struct TicketArm<'a>(WordArm<'a>);

impl TicketArm<'_> {
    /// Nothing: the ticket gives the guard.
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
