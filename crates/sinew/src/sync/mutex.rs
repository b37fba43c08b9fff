//! Mutual exclusion.

use super::moment;
use super::raw::RawLock;
use crate::clock;
use core::fmt;
use core::ops::Deref;
use core::time::Duration;
use lock_api::GuardNoSend;
use std::time::Instant;

/// A lock without data: the algorithm of [`Mutex`], for those who build their own with `lock_api`.
///
/// Unfair: who comes may be faster than who was woken, but not for longer than a millisecond, or than
/// once on one carrier.
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

// SAFETY: the lock has one owner at a time.
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
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexFair for RawMutex {
    unsafe fn unlock_fair(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock_fair() };
    }
}

// SAFETY: as above.
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
/// As [`std::sync::Mutex`], but who waits for it is suspended, if it is a fiber, and it is never
/// [poisoned](crate::sync#poisoning). Locking what the caller itself has locked panics.
///
/// A wait in a method of this type can be cancelled, and is cut short by
/// [`timeout`](crate::timeout()). The guards are those of `lock_api`, and so is what this derefs to:
/// **through the `Deref`, or code that is generic over `lock_api`, a wait for the lock cannot be
/// cancelled**, because guards that unlock for a while (`unlocked`, `bump`) rely on having the lock
/// when they go on.
///
/// Unfair: who comes may be faster than who was woken, but not for longer than a millisecond, or than
/// once on one carrier. [`FairMutex`](super::FairMutex) serves in the order of coming.
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
/// A guard stays with the fiber that locked:
/// ```compile_fail,E0277
/// let mutex = Box::leak(Box::new(sinew::sync::Mutex::new(0)));
/// let guard = mutex.lock();
/// sinew::spawn(move || drop(guard));
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized>(lock_api::Mutex<RawMutex, T>);

impl<T> Mutex<T> {
    /// An unlocked one.
    ///
    /// # Examples
    /// ```
    /// static COUNT: sinew::sync::Mutex<u32> = sinew::sync::Mutex::new(0);
    /// *COUNT.lock() += 1;
    /// ```
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(lock_api::Mutex::new(value))
    }

    /// The data.
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
    /// Locks, and waits until that is possible.
    ///
    /// # Panics
    /// If the caller has it locked.
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
        // SAFETY: locked, or unwound from.
        unsafe {
            self.0.raw().0.lock(clock::NEVER);
            self.0.make_guard_unchecked()
        }
    }

    /// Locks if nobody has it locked.
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

    /// Locks; `None` if `timeout` is over before.
    ///
    /// # Panics
    /// If the caller has it locked.
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

    /// Locks; `None` if `deadline` has passed before.
    ///
    /// # Panics
    /// If the caller has it locked.
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

    /// The data: nobody can have it locked.
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

/// The right to the data of a [`Mutex`], until it is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// The right to a part of the data of a [`Mutex`].
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
