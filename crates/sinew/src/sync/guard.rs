//! Guards that can be unlocked and locked again in their place: what a [`Condvar`](super::Condvar) waits with.

use super::multi_lock::MultiLockGuard;
use crate::cancel::masked;
use lock_api::{
    MutexGuard, RawMutex, RawRwLock, RawRwLockUpgrade, RwLockReadGuard, RwLockUpgradableReadGuard,
    RwLockWriteGuard,
};

/// A guard with which a [`Condvar`](super::Condvar) waits: of [`Mutex`](super::Mutex),
/// [`FairMutex`](super::FairMutex), [`MultiLock`](super::MultiLock), of [`RwLock`](super::RwLock) to write, to read, or
/// to read and upgrade; and of any other lock that is made with `lock_api`.
///
/// Guards of a *part* of the data, such as [`MappedMutexGuard`](super::MappedMutexGuard), are not among them: while
/// the lock is free others may remove the part.
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
    /// `unlock` frees a lock that the guard has, and `relock` takes the same one again. The guard gives access to
    /// what the lock guards, and to nothing that others may remove while it is free.
    pub unsafe trait Guard {
        /// What a condition looks at: the data; if the guard may not change them, the guard itself.
        type Seen: ?Sized;

        /// What a condition looks at.
        fn seen(&mut self) -> &mut Self::Seen;

        /// Frees the lock.
        ///
        /// # Safety
        /// The lock is taken again before the guard is used or dropped.
        unsafe fn unlock(&self);

        /// Takes the lock again. The wait for it cannot be cut short.
        fn relock(&self);
    }
}

/// Locks by `lock`, unless `try_lock` is enough; cannot be cancelled meanwhile.
fn relock(try_lock: impl FnOnce() -> bool, lock: impl FnOnce()) {
    if !try_lock() {
        masked(lock);
    }
}

impl<R: RawMutex, T: ?Sized> Guard for MutexGuard<'_, R, T> {}

// SAFETY: both work on the guard's own lock, which guards all the data.
unsafe impl<R: RawMutex, T: ?Sized> sealed::Guard for MutexGuard<'_, R, T> {
    type Seen = T;

    fn seen(&mut self) -> &mut T {
        self
    }

    unsafe fn unlock(&self) {
        // SAFETY: the guard has the lock; the rest is the caller's promise.
        unsafe { MutexGuard::mutex(self).raw().unlock() };
    }

    fn relock(&self) {
        // SAFETY: the lock stays locked for the guard.
        let raw = unsafe { MutexGuard::mutex(self).raw() };
        relock(|| raw.try_lock(), || raw.lock());
    }
}

impl<R: RawRwLock, T: ?Sized> Guard for RwLockWriteGuard<'_, R, T> {}

// SAFETY: both work on the guard's own lock, which guards all the data.
unsafe impl<R: RawRwLock, T: ?Sized> sealed::Guard for RwLockWriteGuard<'_, R, T> {
    type Seen = T;

    fn seen(&mut self) -> &mut T {
        self
    }

    unsafe fn unlock(&self) {
        // SAFETY: the guard has the lock; the rest is the caller's promise.
        unsafe { RwLockWriteGuard::rwlock(self).raw().unlock_exclusive() };
    }

    fn relock(&self) {
        // SAFETY: the lock stays locked for the guard.
        let raw = unsafe { RwLockWriteGuard::rwlock(self).raw() };
        relock(|| raw.try_lock_exclusive(), || raw.lock_exclusive());
    }
}

impl<R: RawRwLock, T: ?Sized> Guard for RwLockReadGuard<'_, R, T> {}

// SAFETY: both work on the guard's own lock, which guards all the data.
unsafe impl<R: RawRwLock, T: ?Sized> sealed::Guard for RwLockReadGuard<'_, R, T> {
    type Seen = Self;

    fn seen(&mut self) -> &mut Self {
        self
    }

    unsafe fn unlock(&self) {
        // SAFETY: the guard shares the lock; the rest is the caller's promise.
        unsafe { RwLockReadGuard::rwlock(self).raw().unlock_shared() };
    }

    fn relock(&self) {
        // SAFETY: the lock stays shared for the guard.
        let raw = unsafe { RwLockReadGuard::rwlock(self).raw() };
        relock(|| raw.try_lock_shared(), || raw.lock_shared());
    }
}

impl<R: RawRwLockUpgrade, T: ?Sized> Guard for RwLockUpgradableReadGuard<'_, R, T> {}

// SAFETY: both work on the guard's own lock, which guards all the data.
unsafe impl<R: RawRwLockUpgrade, T: ?Sized> sealed::Guard for RwLockUpgradableReadGuard<'_, R, T> {
    type Seen = Self;

    fn seen(&mut self) -> &mut Self {
        self
    }

    unsafe fn unlock(&self) {
        // SAFETY: the guard has the upgradable share; the rest is the caller's promise.
        unsafe { RwLockUpgradableReadGuard::rwlock(self).raw().unlock_upgradable() };
    }

    fn relock(&self) {
        // SAFETY: the upgradable share stays with the guard.
        let raw = unsafe { RwLockUpgradableReadGuard::rwlock(self).raw() };
        relock(|| raw.try_lock_upgradable(), || raw.lock_upgradable());
    }
}

impl Guard for MultiLockGuard<'_> {}

// SAFETY: both work on the guard's own key, which guards nothing that a reference leads to.
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
