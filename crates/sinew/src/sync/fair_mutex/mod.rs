//! A lock that one fiber or thread holds at a time, served in the order of arrival.
//!
//! The algorithm is in `raw`. `ticket` separates taking a turn from waiting for it.

mod raw;
mod ticket;

pub use ticket::{FairMutexPlace, FairMutexTicket, TicketArm};

use super::moment;
use crate::clock;
use core::fmt;
use core::ops::Deref;
use core::pin::Pin;
use core::time::Duration;
use lock_api::GuardNoSend;
use raw::Lock;
use std::time::Instant;

/// A lock without data: the algorithm of [`FairMutex`], for building other locks with `lock_api`.
///
/// # Examples
/// ```
/// use sinew::sync::RawFairMutex;
///
/// static COUNT: lock_api::Mutex<RawFairMutex, u32> = lock_api::Mutex::new(0);
/// *COUNT.lock() += 1;
/// ```
#[derive(Debug)]
pub struct RawFairMutex(Lock);

// SAFETY: the lock has one owner at a time, as `raw` explains.
unsafe impl lock_api::RawMutex for RawFairMutex {
    const INIT: RawFairMutex = RawFairMutex(Lock::new());
    type GuardMarker = GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        if !self.0.try_lock() {
            self.0.lock_anyhow();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: every unlock of this lock is fair.
unsafe impl lock_api::RawMutexFair for RawFairMutex {
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() };
    }
}

// SAFETY: both functions return true only if the caller holds the lock.
unsafe impl lock_api::RawMutexTimed for RawFairMutex {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.try_lock() || self.0.lock_slow(moment(timeout))
    }

    #[track_caller]
    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.0.try_lock() || self.0.lock_slow(clock::at(timeout))
    }
}

/// Data that one fiber or thread uses at a time, in the order of arrival.
///
/// Slower than [`Mutex`](super::Mutex) under contention: each unlock hands the lock to the next
/// waiter, and the lock is idle until that waiter has woken up. As with `Mutex`, locking a mutex
/// that the caller already holds panics, waits in methods of this type can be cancelled, and there
/// is no poisoning. A waiter that leaves passes its turn on.
///
/// # Examples
/// ```
/// use sinew::sync::FairMutex;
///
/// let total = FairMutex::new(0);
/// sinew::scope(|s| {
///     for number in 1..=10 {
///         let total = &total;
///         s.spawn(move || *total.lock() += number);
///     }
/// });
/// assert_eq!(*total.lock(), 55);
/// ```
#[derive(Default)]
pub struct FairMutex<T: ?Sized>(lock_api::Mutex<RawFairMutex, T>);

/// Access to the data of a [`FairMutex`]. Dropping the guard unlocks the mutex.
pub type FairMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFairMutex, T>;

impl<T> FairMutex<T> {
    /// Creates an unlocked mutex.
    ///
    /// # Examples
    /// ```
    /// static COUNT: sinew::sync::FairMutex<u32> = sinew::sync::FairMutex::new(0);
    /// *COUNT.lock() += 1;
    /// ```
    pub const fn new(value: T) -> FairMutex<T> {
        FairMutex(lock_api::Mutex::new(value))
    }

    /// Consumes the mutex and returns its data.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::sync::FairMutex::new(7).into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> FairMutex<T> {
    /// Locks the mutex, waiting for the caller's turn.
    ///
    /// # Panics
    /// If the caller already holds the lock.
    ///
    /// # Examples
    /// ```
    /// let mutex = sinew::sync::FairMutex::new(7);
    /// *mutex.lock() += 1;
    /// assert_eq!(mutex.into_inner(), 8);
    /// ```
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> FairMutexGuard<'_, T> {
        // SAFETY: the lock is held here: a wait without a deadline returns only with the lock, and
        // a cancelled wait unwinds before the guard is made.
        unsafe {
            let lock = &self.0.raw().0;
            if !lock.try_lock() {
                lock.lock_slow(clock::NEVER);
            }
            self.0.make_guard_unchecked()
        }
    }

    /// Locks the mutex if it is free. Does not wait.
    ///
    /// # Examples
    /// ```
    /// let mutex = sinew::sync::FairMutex::new(7);
    /// let guard = mutex.lock();
    /// assert!(mutex.try_lock().is_none());
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<FairMutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Locks the mutex, waiting at most `timeout` for the caller's turn. Returns `None` if the time
    /// runs out.
    ///
    /// # Panics
    /// If the caller already holds the lock.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let mutex = sinew::sync::FairMutex::new(7);
    /// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_some());
    /// ```
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<FairMutexGuard<'_, T>> {
        self.0.try_lock_for(timeout)
    }

    /// Locks the mutex, waiting until `deadline` at the latest. Returns `None` if the deadline
    /// passes before the caller's turn.
    ///
    /// # Panics
    /// If the caller already holds the lock.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let mutex = sinew::sync::FairMutex::new(7);
    /// assert!(mutex.try_lock_until(Instant::now()).is_some());
    /// ```
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<FairMutexGuard<'_, T>> {
        self.0.try_lock_until(deadline)
    }

    /// Takes a ticket without waiting. All later arrivals are behind it, including later calls of
    /// the caller.
    ///
    /// A caller that has a ticket for which it has not waited, and calls `lock`, waits for ever.
    ///
    /// # Panics
    /// If the place has a turn that was not used.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FairMutex, FairMutexPlace};
    /// use std::pin::pin;
    ///
    /// let mutex = FairMutex::new(7);
    /// let guard = mutex.lock();
    /// let place = pin!(FairMutexPlace::new());
    /// let ticket = mutex.enter(place);
    /// drop(guard);
    /// assert!(mutex.try_lock().is_none()); // it is the ticket's turn
    /// *ticket.wait() += 1;
    /// assert_eq!(*mutex.lock(), 8);
    /// ```
    #[track_caller]
    pub fn enter<'m: 'a, 'a>(
        &'m self,
        place: Pin<&'a mut FairMutexPlace<'m>>,
    ) -> FairMutexTicket<'a, 'm, T> {
        // SAFETY: the lock is unlocked only by a turn that owns it: its guard unlocks it, or its
        // place when the turn is given up.
        let lock = unsafe { &self.0.raw().0 };
        FairMutexTicket::new(&self.0, lock, place)
    }

    /// Returns a mutable reference to the data. Does not lock: `&mut self` excludes other users.
    ///
    /// # Examples
    /// ```
    /// let mut mutex = sinew::sync::FairMutex::new(7);
    /// *mutex.get_mut() += 1;
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for FairMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> From<T> for FairMutex<T> {
    fn from(value: T) -> Self {
        FairMutex::new(value)
    }
}

impl<T: ?Sized> Deref for FairMutex<T> {
    type Target = lock_api::Mutex<RawFairMutex, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
