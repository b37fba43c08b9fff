//! Mutual exclusion in the order of coming.

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

/// A lock without data: the algorithm of [`FairMutex`], for those who build their own with
/// `lock_api`.
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

// SAFETY: the lock has one owner at a time.
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
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexFair for RawFairMutex {
    unsafe fn unlock_fair(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock() };
    }
}

// SAFETY: as above.
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

/// Data that one fiber or thread uses at a time, in the order in which they come.
///
/// Slower than [`Mutex`](super::Mutex) if it is contended: the lock goes from hand to hand, and
/// nobody takes it while the next one wakes up. As there, locking what the caller itself has locked
/// panics, waits in methods of this type can be cancelled, and there is no poisoning. A waiter that
/// leaves passes its turn.
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

/// The right to the data of a [`FairMutex`], until it is dropped.
pub type FairMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFairMutex, T>;

impl<T> FairMutex<T> {
    /// An unlocked one.
    ///
    /// # Examples
    /// ```
    /// static COUNT: sinew::sync::FairMutex<u32> = sinew::sync::FairMutex::new(0);
    /// *COUNT.lock() += 1;
    /// ```
    pub const fn new(value: T) -> FairMutex<T> {
        FairMutex(lock_api::Mutex::new(value))
    }

    /// The data.
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
    /// Locks when it is the caller's turn.
    ///
    /// # Panics
    /// If the caller has it locked.
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
        // SAFETY: locked, or unwound from.
        unsafe {
            let lock = &self.0.raw().0;
            if !lock.try_lock() {
                lock.lock_slow(clock::NEVER);
            }
            self.0.make_guard_unchecked()
        }
    }

    /// Locks if nobody has it locked.
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

    /// Locks when it is the caller's turn; `None` if `timeout` is over before.
    ///
    /// # Panics
    /// If the caller has it locked.
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

    /// Locks when it is the caller's turn; `None` if `deadline` has passed before.
    ///
    /// # Panics
    /// If the caller has it locked.
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

    /// Takes a ticket, and does not wait: who comes later is behind it, also if that is the caller. To
    /// `lock` while one has a ticket that one has not waited for is to wait for ever.
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
        // SAFETY: the turn is used or given up by its place.
        let lock = unsafe { &self.0.raw().0 };
        FairMutexTicket::new(&self.0, lock, place)
    }

    /// The data: nobody can have it locked.
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
