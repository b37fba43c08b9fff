//! A lock that one fiber or thread holds at a time.
//!
//! The algorithm is in `raw`; the `lock_api` crate supplies the guards. Next: `fair_mutex`, which
//! serves waiters in their order of arrival.

use super::moment;
use super::raw::RawLock;
use crate::clock;
use core::fmt;
use core::ops::Deref;
use core::time::Duration;
use lock_api::GuardNoSend;
use std::time::Instant;

/// A lock without data: the algorithm of [`Mutex`], for building other locks with `lock_api`.
///
/// Unfair: a newcomer may take the lock before a woken waiter does. A waiter that was overtaken is
/// handed the lock at the next unlock on its own carrier, or at any unlock after a millisecond.
///
/// # Examples
/// ```
/// use sinew::sync::RawMutex;
///
/// static COUNT: lock_api::Mutex<RawMutex, u32> = lock_api::Mutex::new(0);
/// *COUNT.lock() += 1;
/// ```
#[derive(Debug)]
pub struct RawMutex(RawLock);

// SAFETY: a lock held exclusively excludes every other holder, as `raw` explains.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: RawMutex = RawMutex(RawLock::new());
    type GuardMarker = GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        self.0.lock_anyhow();
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

// SAFETY: `unlock_fair` also leaves the lock with at most one holder.
unsafe impl lock_api::RawMutexFair for RawMutex {
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock_fair() };
    }
}

// SAFETY: both functions return true only if the caller holds the lock.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.try_lock() || self.0.lock(moment(timeout))
    }

    #[track_caller]
    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.0.try_lock() || self.0.lock(clock::at(timeout))
    }
}

/// Data that one fiber or thread uses at a time.
///
/// Works like [`std::sync::Mutex`], with two differences: a fiber that waits for the lock is
/// suspended, and the lock is never [poisoned](crate::sync#poisoning). Locking a mutex that the
/// caller already holds panics.
///
/// A wait in a method of this type can be cancelled, and [`timeout`](crate::timeout()) cuts it
/// short. The guards and the `Deref` target are types of `lock_api`. **Through the `Deref`, or in
/// code that is generic over `lock_api`, a wait without a timeout cannot be cancelled**: guards
/// that unlock for a while (`unlocked`, `bump`) rely on holding the lock when they continue.
///
/// Unfair: a newcomer may take the lock before a woken waiter does. A waiter that was overtaken is
/// handed the lock at the next unlock on its own carrier, or at any unlock after a millisecond.
/// [`FairMutex`](super::FairMutex) serves waiters in their order of arrival.
///
/// # Examples
/// ```
/// use sinew::sync::Mutex;
/// use std::sync::Arc;
///
/// let total = Arc::new(Mutex::new(0));
/// let fibers: Vec<_> = (1..=10)
///     .map(|number| {
///         let total = total.clone();
///         sinew::spawn(move || *total.lock() += number)
///     })
///     .collect();
/// fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
/// assert_eq!(*total.lock(), 55);
/// ```
///
/// A guard cannot be sent to another fiber:
/// ```compile_fail,E0277
/// let mutex = Box::leak(Box::new(sinew::sync::Mutex::new(0)));
/// let guard = mutex.lock();
/// sinew::spawn(move || drop(guard));
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized>(lock_api::Mutex<RawMutex, T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    ///
    /// # Examples
    /// ```
    /// static COUNT: sinew::sync::Mutex<u32> = sinew::sync::Mutex::new(0);
    /// *COUNT.lock() += 1;
    /// ```
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(lock_api::Mutex::new(value))
    }

    /// Consumes the mutex and returns its data.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::sync::Mutex::new(7).into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, waiting until it is free.
    ///
    /// # Panics
    /// If the caller already holds the lock.
    ///
    /// # Examples
    /// ```
    /// let mutex = sinew::sync::Mutex::new(7);
    /// *mutex.lock() += 1;
    /// assert_eq!(mutex.into_inner(), 8);
    /// ```
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // SAFETY: `lock` with deadline `NEVER` returns only when the caller holds the lock; a
        // cancelled wait unwinds before the guard is made.
        unsafe {
            self.0.raw().0.lock(clock::NEVER);
            self.0.make_guard_unchecked()
        }
    }

    /// Locks the mutex if it is free. Does not wait.
    ///
    /// # Examples
    /// ```
    /// let mutex = sinew::sync::Mutex::new(7);
    /// let guard = mutex.lock();
    /// assert!(mutex.try_lock().is_none());
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Locks the mutex, waiting at most `timeout`. Returns `None` if the mutex did not become free
    /// in time.
    ///
    /// # Panics
    /// If the caller already holds the lock.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let mutex = sinew::sync::Mutex::new(7);
    /// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_some());
    /// ```
    #[track_caller]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock_for(timeout)
    }

    /// Locks the mutex, waiting until `deadline` at the latest. Returns `None` if the mutex did not
    /// become free in time.
    ///
    /// # Panics
    /// If the caller already holds the lock.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let mutex = sinew::sync::Mutex::new(7);
    /// assert!(mutex.try_lock_until(Instant::now()).is_some());
    /// ```
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock_until(deadline)
    }

    /// Returns a mutable reference to the data. Does not lock: `&mut self` excludes other users.
    ///
    /// # Examples
    /// ```
    /// let mut mutex = sinew::sync::Mutex::new(7);
    /// *mutex.get_mut() += 1;
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T: ?Sized> Deref for Mutex<T> {
    type Target = lock_api::Mutex<RawMutex, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Access to the data of a [`Mutex`]. Dropping the guard unlocks the mutex.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// Access to a part of the data of a [`Mutex`]. Dropping the guard unlocks the mutex.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
