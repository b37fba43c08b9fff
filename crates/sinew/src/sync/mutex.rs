//! Mutual exclusion.

use super::after;
use super::raw::RawLock;
use crate::clock;
use core::time::Duration;
use lock_api::GuardNoSend;
use std::time::Instant;

/// A lock without data: the algorithm of [`Mutex`], for those who build their own with `lock_api`.
///
/// Unfair: who comes may be faster than who was woken, but overtakes it once at most.
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
        self.0.try_lock() || self.0.lock(after(timeout))
    }

    #[track_caller]
    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.0.try_lock() || self.0.lock(clock::at(timeout))
    }
}

/// Data that one fiber or thread uses at a time.
///
/// As [`std::sync::Mutex`], but who waits for it is suspended, if it is a fiber, and it is never
/// [poisoned](crate::sync#poisoning). Locking what the caller itself has locked panics. A fiber that
/// waits in `lock` is not cancelled before it has the lock; in the timed forms it is.
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
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// The right to the data of a [`Mutex`], until it is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// The right to a part of the data of a [`Mutex`].
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
