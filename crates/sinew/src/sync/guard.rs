//! Guards that can unlock their lock and lock it again in place, which [`Condvar`](super::Condvar)
//! needs for waiting.

use super::multi_lock::MultiLockGuard;
use crate::cancel::masked;
use lock_api::{
    MutexGuard, RawMutex, RawRwLock, RawRwLockUpgrade, RwLockReadGuard, RwLockUpgradableReadGuard,
    RwLockWriteGuard,
};

/// A guard that a [`Condvar`](super::Condvar) can wait with.
///
/// Implemented by the guards of [`Mutex`](super::Mutex), [`FairMutex`](super::FairMutex) and
/// [`MultiLock`](super::MultiLock), by the read, write and upgradable guards of
/// [`RwLock`](super::RwLock), and by the guards of any other lock made with `lock_api`.
///
/// Guards of a *part* of the data, such as [`MappedMutexGuard`](super::MappedMutexGuard), do not
/// implement it: while the lock is free, another fiber may remove that part.
///
/// # Examples
/// ```
/// use sinew::sync::{Condvar, Guard, Mutex, RwLock};
/// use std::time::Duration;
///
/// fn pause(changed: &Condvar, mut guard: impl Guard) {
///     assert!(!changed.wait_for(&mut guard, Duration::from_micros(1)));
/// }
///
/// let changed = Condvar::new();
/// pause(&changed, Mutex::new(7).lock());
/// pause(&changed, RwLock::new(7).read());
/// ```
pub trait Guard: sealed::Guard {}

pub(super) mod sealed {
    /// # Safety
    /// `unlock` frees the lock that the guard holds, and `relock` locks that lock again. The guard
    /// gives access only to data that the lock protects, and to nothing that another fiber may
    /// remove while the lock is free.
    pub unsafe trait Guard {
        /// The argument of a condition: the data, or the guard itself if it may not change the
        /// data.
        type Seen: ?Sized;

        /// Returns the argument of a condition.
        fn seen(&mut self) -> &mut Self::Seen;

        /// Frees the lock.
        ///
        /// # Safety
        /// The caller calls [`relock`](Guard::relock) before it uses or drops the guard.
        unsafe fn unlock(&self);

        /// Locks again. The wait for the lock can be neither cancelled nor cut short.
        fn relock(&self);
    }
}

/// Locks with `try_lock`, or else with `lock` while cancellation is masked.
fn relock(try_lock: impl FnOnce() -> bool, lock: impl FnOnce()) {
    if !try_lock() {
        masked(lock);
    }
}

impl<R: RawMutex, T: ?Sized> Guard for MutexGuard<'_, R, T> {}

// SAFETY: both functions use the guard's own lock, which protects all of the data.
unsafe impl<R: RawMutex, T: ?Sized> sealed::Guard for MutexGuard<'_, R, T> {
    type Seen = T;

    fn seen(&mut self) -> &mut T {
        self
    }

    unsafe fn unlock(&self) {
        // SAFETY: the guard holds the lock, and the caller locks again before it uses the guard.
        unsafe { MutexGuard::mutex(self).raw().unlock() };
    }

    fn relock(&self) {
        // SAFETY: `raw` is used only to lock, never to unlock under the guard.
        let raw = unsafe { MutexGuard::mutex(self).raw() };
        relock(|| raw.try_lock(), || raw.lock());
    }
}

impl<R: RawRwLock, T: ?Sized> Guard for RwLockWriteGuard<'_, R, T> {}

// SAFETY: both functions use the guard's own lock, which protects all of the data.
unsafe impl<R: RawRwLock, T: ?Sized> sealed::Guard for RwLockWriteGuard<'_, R, T> {
    type Seen = T;

    fn seen(&mut self) -> &mut T {
        self
    }

    unsafe fn unlock(&self) {
        // SAFETY: the guard holds the lock for writing, and the caller locks again before it uses
        // the guard.
        unsafe { RwLockWriteGuard::rwlock(self).raw().unlock_exclusive() };
    }

    fn relock(&self) {
        // SAFETY: `raw` is used only to lock, never to unlock under the guard.
        let raw = unsafe { RwLockWriteGuard::rwlock(self).raw() };
        relock(|| raw.try_lock_exclusive(), || raw.lock_exclusive());
    }
}

impl<R: RawRwLock, T: ?Sized> Guard for RwLockReadGuard<'_, R, T> {}

// SAFETY: both functions use the guard's own lock, which protects all of the data.
unsafe impl<R: RawRwLock, T: ?Sized> sealed::Guard for RwLockReadGuard<'_, R, T> {
    type Seen = Self;

    fn seen(&mut self) -> &mut Self {
        self
    }

    unsafe fn unlock(&self) {
        // SAFETY: the guard holds the lock for reading, and the caller locks again before it uses
        // the guard.
        unsafe { RwLockReadGuard::rwlock(self).raw().unlock_shared() };
    }

    fn relock(&self) {
        // SAFETY: `raw` is used only to lock, never to unlock under the guard.
        let raw = unsafe { RwLockReadGuard::rwlock(self).raw() };
        relock(|| raw.try_lock_shared(), || raw.lock_shared());
    }
}

impl<R: RawRwLockUpgrade, T: ?Sized> Guard for RwLockUpgradableReadGuard<'_, R, T> {}

// SAFETY: both functions use the guard's own lock, which protects all of the data.
unsafe impl<R: RawRwLockUpgrade, T: ?Sized> sealed::Guard for RwLockUpgradableReadGuard<'_, R, T> {
    type Seen = Self;

    fn seen(&mut self) -> &mut Self {
        self
    }

    unsafe fn unlock(&self) {
        // SAFETY: the guard holds the upgradable read lock, and the caller locks again before it
        // uses the guard.
        unsafe { RwLockUpgradableReadGuard::rwlock(self).raw().unlock_upgradable() };
    }

    fn relock(&self) {
        // SAFETY: `raw` is used only to lock, never to unlock under the guard.
        let raw = unsafe { RwLockUpgradableReadGuard::rwlock(self).raw() };
        relock(|| raw.try_lock_upgradable(), || raw.lock_upgradable());
    }
}

impl Guard for MultiLockGuard<'_> {}

// SAFETY: both functions use the guard's own key. The guard gives access to no data.
unsafe impl sealed::Guard for MultiLockGuard<'_> {
    type Seen = Self;

    fn seen(&mut self) -> &mut Self {
        self
    }

    unsafe fn unlock(&self) {
        self.unlock_for_a_while();
    }

    fn relock(&self) {
        masked(|| self.lock_again());
    }
}
