//! Mutual exclusion in the order of coming.

use super::after;
use super::raw::{MUST, anyhow};
use super::semaphore::Semaphore;
use crate::clock;
use core::time::Duration;
use lock_api::GuardNoSend;
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
//
// One permit of a semaphore, which serves in the order of coming: who unlocks gives it to the first
// who waits, and nobody who comes later takes it before. A waiter that leaves passes its turn.
#[derive(Debug)]
pub struct RawFairMutex(Semaphore);

// SAFETY: there is one permit.
unsafe impl lock_api::RawMutex for RawFairMutex {
    const INIT: RawFairMutex = RawFairMutex(Semaphore::new(1));
    type GuardMarker = GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        if !self.0.try_take(1) {
            anyhow(|| self.0.take(1, MUST));
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_take(1)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.add(1);
    }

    fn is_locked(&self) -> bool {
        self.0.available() == 0
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexFair for RawFairMutex {
    unsafe fn unlock_fair(&self) {
        self.0.add(1);
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawFairMutex {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.0.take(1, after(timeout))
    }

    #[track_caller]
    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.0.take(1, clock::at(timeout))
    }
}

/// Data that one fiber or thread uses at a time, in the order in which they come.
///
/// Slower than [`Mutex`](super::Mutex) if it is contended: the lock goes from hand to hand, and
/// nobody takes it while the next one wakes up. Locking what the caller itself has locked waits for
/// ever.
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
pub type FairMutex<T> = lock_api::Mutex<RawFairMutex, T>;

/// The right to the data of a [`FairMutex`], until it is dropped.
pub type FairMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFairMutex, T>;
