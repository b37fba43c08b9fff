//! One who writes, or many who read.

use super::after;
use super::raw::RawLock;
use crate::clock;
use core::time::Duration;
use lock_api::GuardNoSend;
use std::time::Instant;

/// A lock without data: the algorithm of [`RwLock`], for those who build their own with `lock_api`.
///
/// While somebody waits to write, nobody new reads; otherwise waiters come first in, first out.
///
/// # Examples
/// ```
/// use sinew::sync::RawRwLock;
///
/// static COUNT: lock_api::RwLock<RawRwLock, u32> = lock_api::RwLock::new(0);
/// *COUNT.write() += 1;
/// assert_eq!(*COUNT.read(), 1);
/// ```
#[derive(Debug)]
pub struct RawRwLock(RawLock);

// SAFETY: the lock has one owner at a time, or is shared.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: RawRwLock = RawRwLock(RawLock::new());
    type GuardMarker = GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock_shared(&self) {
        self.0.lock_shared_anyhow(false);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.0.try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock_shared() };
    }

    #[inline]
    #[track_caller]
    fn lock_exclusive(&self) {
        self.0.lock_anyhow();
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.is_exclusive()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockFair for RawRwLock {
    unsafe fn unlock_shared_fair(&self) {
        // Those who wait are let in first come, first served, whenever the last reader leaves.
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock_shared() };
    }

    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock_fair() };
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.downgrade(false) };
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockRecursive for RawRwLock {
    #[track_caller]
    fn lock_shared_recursive(&self) {
        self.0.lock_shared_anyhow(true);
    }

    fn try_lock_shared_recursive(&self) -> bool {
        self.0.try_lock_shared_again()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_shared() || self.0.lock_shared(after(timeout), false)
    }

    #[track_caller]
    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_shared() || self.0.lock_shared(clock::at(timeout), false)
    }

    #[track_caller]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.0.try_lock() || self.0.lock(after(timeout))
    }

    #[track_caller]
    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.0.try_lock() || self.0.lock(clock::at(timeout))
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockUpgrade for RawRwLock {
    #[track_caller]
    fn lock_upgradable(&self) {
        self.0.lock_upgradable_anyhow();
    }

    fn try_lock_upgradable(&self) -> bool {
        self.0.try_lock_upgradable()
    }

    unsafe fn unlock_upgradable(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock_upgradable() };
    }

    #[track_caller]
    unsafe fn upgrade(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.upgrade(clock::NEVER) };
    }

    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.try_upgrade() }
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockUpgradeDowngrade for RawRwLock {
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.downgrade_upgradable() };
    }

    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.downgrade(true) };
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockUpgradeTimed for RawRwLock {
    #[track_caller]
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_upgradable() || self.0.lock_upgradable(after(timeout))
    }

    #[track_caller]
    fn try_lock_upgradable_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_upgradable() || self.0.lock_upgradable(clock::at(timeout))
    }

    #[track_caller]
    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.try_upgrade() || self.0.upgrade(after(timeout)) }
    }

    #[track_caller]
    unsafe fn try_upgrade_until(&self, timeout: Instant) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.try_upgrade() || self.0.upgrade(clock::at(timeout)) }
    }
}

/// Data that one writes at a time, or many read.
///
/// As [`std::sync::RwLock`], but who waits for it is suspended, if it is a fiber, and it is never
/// [poisoned](crate::sync#poisoning). A fiber that reads already and reads again may wait for a
/// writer that waits for it; `read_recursive` does not. A fiber that waits for the lock is not
/// cancelled before it has it; in the timed forms it is.
///
/// # Examples
/// ```
/// use sinew::sync::RwLock;
///
/// let table = RwLock::new(vec![1, 2, 3]);
/// sinew::scope(|s| {
///     for _ in 0..3 {
///         s.spawn(|| assert!(table.read().len() >= 3));
///     }
///     s.spawn(|| table.write().push(4));
/// });
/// assert_eq!(table.read().len(), 4);
/// ```
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// The right to read the data of a [`RwLock`], until it is dropped.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// The right to the data of a [`RwLock`], until it is dropped.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// The right to read the data of a [`RwLock`], and to be the next who writes it.
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;

/// The right to read a part of the data of a [`RwLock`].
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;

/// The right to a part of the data of a [`RwLock`].
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;
