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
///     assert!(!changed.wait_timeout(&mut guard, Duration::from_micros(1)));
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

/// Implements [`Guard`] for guards of `lock_api`. Each line names the type of the guard, its
/// function that returns the lock, and the argument of a condition. Then it names the functions of
/// the lock without data that try to lock, lock and unlock as the guard does.
macro_rules! guards {
    ($(
        $Guard:ident<$Raw:ident>, $of:ident, sees $Seen:ty:
            $try_lock:ident, $lock:ident, $unlock:ident;
    )*) => { $(
        impl<R: $Raw, T: ?Sized> Guard for $Guard<'_, R, T> {}

        // SAFETY: both functions use the guard's own lock, which protects all of the data. They
        // lock and unlock it in the way in which the guard holds it.
        unsafe impl<R: $Raw, T: ?Sized> sealed::Guard for $Guard<'_, R, T> {
            type Seen = $Seen;

            fn seen(&mut self) -> &mut $Seen {
                self
            }

            unsafe fn unlock(&self) {
                // SAFETY: the guard holds the lock, and the caller locks again before it uses the
                // guard.
                unsafe { $Guard::$of(self).raw().$unlock() };
            }

            fn relock(&self) {
                // SAFETY: `raw` is used only to lock, never to unlock under the guard.
                let raw = unsafe { $Guard::$of(self).raw() };
                relock(|| raw.$try_lock(), || raw.$lock());
            }
        }
    )* };
}

guards! {
    MutexGuard<RawMutex>, mutex, sees T:
        try_lock, lock, unlock;
    RwLockWriteGuard<RawRwLock>, rwlock, sees T:
        try_lock_exclusive, lock_exclusive, unlock_exclusive;
    RwLockReadGuard<RawRwLock>, rwlock, sees Self:
        try_lock_shared, lock_shared, unlock_shared;
    RwLockUpgradableReadGuard<RawRwLockUpgrade>, rwlock, sees Self:
        try_lock_upgradable, lock_upgradable, unlock_upgradable;
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
