//! One who writes, or many who read.

use super::moment;
use super::priority::{InTurn, Priority};
use super::raw::RawLock;
use crate::clock;
use core::fmt;
use core::ops::Deref;
use core::time::Duration;
use lock_api::GuardNoSend;
use std::time::Instant;

/// A lock without data: the algorithm of [`RwLock`], for those who build their own with `lock_api`.
///
/// `P` says who comes first if both readers and writers wait: see [`Priority`].
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
pub struct RawRwLock<P: Priority = InTurn>(RawLock<P>);

// SAFETY: the lock has one owner at a time, or is shared.
unsafe impl<P: Priority> lock_api::RawRwLock for RawRwLock<P> {
    const INIT: RawRwLock<P> = RawRwLock(RawLock::new());
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
unsafe impl<P: Priority> lock_api::RawRwLockFair for RawRwLock<P> {
    unsafe fn unlock_shared_fair(&self) {
        // Those who wait are let in, by their order, whenever the last reader leaves.
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock_shared() };
    }

    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.unlock_fair() };
    }
}

// SAFETY: as above.
unsafe impl<P: Priority> lock_api::RawRwLockDowngrade for RawRwLock<P> {
    unsafe fn downgrade(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.0.downgrade(false) };
    }
}

// SAFETY: as above.
unsafe impl<P: Priority> lock_api::RawRwLockRecursive for RawRwLock<P> {
    #[track_caller]
    fn lock_shared_recursive(&self) {
        self.0.lock_shared_anyhow(true);
    }

    fn try_lock_shared_recursive(&self) -> bool {
        self.0.try_lock_shared_again()
    }
}

// SAFETY: as above.
unsafe impl<P: Priority> lock_api::RawRwLockTimed for RawRwLock<P> {
    type Duration = Duration;
    type Instant = Instant;

    #[track_caller]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_shared() || self.0.lock_shared(moment(timeout), false)
    }

    #[track_caller]
    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_shared() || self.0.lock_shared(clock::at(timeout), false)
    }

    #[track_caller]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.0.try_lock() || self.0.lock(moment(timeout))
    }

    #[track_caller]
    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.0.try_lock() || self.0.lock(clock::at(timeout))
    }
}

// SAFETY: as above.
unsafe impl<P: Priority> lock_api::RawRwLockUpgrade for RawRwLock<P> {
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
unsafe impl<P: Priority> lock_api::RawRwLockUpgradeDowngrade for RawRwLock<P> {
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
unsafe impl<P: Priority> lock_api::RawRwLockUpgradeTimed for RawRwLock<P> {
    #[track_caller]
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_upgradable() || self.0.lock_upgradable(moment(timeout))
    }

    #[track_caller]
    fn try_lock_upgradable_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_upgradable() || self.0.lock_upgradable(clock::at(timeout))
    }

    #[track_caller]
    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        // SAFETY: as the caller promised.
        unsafe { self.0.try_upgrade() || self.0.upgrade(moment(timeout)) }
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
/// writer that waits for it; [`read_recursive`](Self::read_recursive) does not.
///
/// While somebody waits to write, nobody new reads; otherwise waiters come first in, first out. That
/// is [`InTurn`]; [`ReadersFirst`](super::ReadersFirst) and [`WritersFirst`](super::WritersFirst) put
/// one kind before the other, by [`with_priority`](Self::with_priority).
///
/// A wait in a method of this type can be cancelled, and is cut short by
/// [`timeout`](crate::timeout()). The guards are those of `lock_api`, and so is what this derefs to:
/// **through the `Deref`, or code that is generic over `lock_api`, a wait for the lock cannot be
/// cancelled**, because guards that unlock for a while (`unlocked`, `bump`) rely on having the lock
/// when they go on.
/// `RwLockUpgradableReadGuard::upgrade` can be, and has the right to read when it is unwound.
///
/// A fiber that has it locked to write and locks it again panics. One that reads and then waits to
/// write, or that has the right to write next and wants it again, waits for itself, for ever: who
/// reads is counted, not known.
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
#[derive(Default)]
pub struct RwLock<T: ?Sized, P: Priority = InTurn>(lock_api::RwLock<RawRwLock<P>, T>);

impl<T> RwLock<T> {
    /// An unlocked one.
    ///
    /// # Examples
    /// ```
    /// static COUNT: sinew::sync::RwLock<u32> = sinew::sync::RwLock::new(0);
    /// *COUNT.write() += 1;
    /// ```
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(lock_api::RwLock::new(value))
    }
}

impl<T, P: Priority> RwLock<T, P> {
    /// An unlocked one at which readers come before writers, or writers before readers: see
    /// [`Priority`].
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{ReadersFirst, RwLock};
    ///
    /// static ROUTES: RwLock<Vec<u32>, ReadersFirst> = RwLock::with_priority(Vec::new(), ReadersFirst);
    /// let (first, second) = (ROUTES.read(), ROUTES.read());
    /// assert_eq!(first.len(), second.len());
    /// ```
    pub const fn with_priority(value: T, _priority: P) -> RwLock<T, P> {
        RwLock(lock_api::RwLock::new(value))
    }

    /// The data.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::sync::RwLock::new(7).into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized, P: Priority> RwLock<T, P> {
    /// Locks to read, and waits until that is possible.
    ///
    /// # Panics
    /// If the caller has it locked to write.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert_eq!(*lock.read(), 7);
    /// ```
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T, P> {
        // SAFETY: locked, or unwound from.
        unsafe {
            self.0.raw().0.lock_shared(clock::NEVER, false);
            self.0.make_read_guard_unchecked()
        }
    }

    /// Locks to read if that is possible at once.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// let writer = lock.write();
    /// assert!(lock.try_read().is_none());
    /// ```
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, P>> {
        self.0.try_read()
    }

    /// Locks to read; `None` if `timeout` is over before.
    ///
    /// # Panics
    /// If the caller has it locked to write.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert!(lock.try_read_for(Duration::from_millis(1)).is_some());
    /// ```
    #[track_caller]
    pub fn try_read_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, T, P>> {
        self.0.try_read_for(timeout)
    }

    /// Locks to read; `None` if `deadline` has passed before.
    ///
    /// # Panics
    /// If the caller has it locked to write.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert!(lock.try_read_until(Instant::now()).is_some());
    /// ```
    #[track_caller]
    pub fn try_read_until(&self, deadline: Instant) -> Option<RwLockReadGuard<'_, T, P>> {
        self.0.try_read_until(deadline)
    }

    /// Locks to read, also if somebody waits to write: the caller may be reading already.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// let (first, second) = (lock.read(), lock.read_recursive());
    /// assert_eq!(*first, *second);
    /// ```
    #[track_caller]
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T, P> {
        // SAFETY: locked, or unwound from.
        unsafe {
            self.0.raw().0.lock_shared(clock::NEVER, true);
            self.0.make_read_guard_unchecked()
        }
    }

    /// Locks to write, and waits until that is possible.
    ///
    /// # Panics
    /// If the caller has it locked to write.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert_eq!(*lock.write(), 7);
    /// ```
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, P> {
        // SAFETY: locked, or unwound from.
        unsafe {
            self.0.raw().0.lock(clock::NEVER);
            self.0.make_write_guard_unchecked()
        }
    }

    /// Locks to write if that is possible at once.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// let writer = lock.write();
    /// assert!(lock.try_write().is_none());
    /// ```
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, P>> {
        self.0.try_write()
    }

    /// Locks to write; `None` if `timeout` is over before.
    ///
    /// # Panics
    /// If the caller has it locked to write.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert!(lock.try_write_for(Duration::from_millis(1)).is_some());
    /// ```
    #[track_caller]
    pub fn try_write_for(&self, timeout: Duration) -> Option<RwLockWriteGuard<'_, T, P>> {
        self.0.try_write_for(timeout)
    }

    /// Locks to write; `None` if `deadline` has passed before.
    ///
    /// # Panics
    /// If the caller has it locked to write.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert!(lock.try_write_until(Instant::now()).is_some());
    /// ```
    #[track_caller]
    pub fn try_write_until(&self, deadline: Instant) -> Option<RwLockWriteGuard<'_, T, P>> {
        self.0.try_write_until(deadline)
    }

    /// Locks to read, and to be the next who writes, and waits until that is possible.
    ///
    /// # Panics
    /// If the caller has it locked to write.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert_eq!(*lock.upgradable_read(), 7);
    /// ```
    #[inline]
    #[track_caller]
    pub fn upgradable_read(&self) -> RwLockUpgradableReadGuard<'_, T, P> {
        // SAFETY: locked, or unwound from.
        unsafe {
            self.0.raw().0.lock_upgradable(clock::NEVER);
            self.0.make_upgradable_guard_unchecked()
        }
    }

    /// Locks to read, and to be the next who writes if that is possible at once.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// let writer = lock.write();
    /// assert!(lock.try_upgradable_read().is_none());
    /// ```
    #[inline]
    pub fn try_upgradable_read(&self) -> Option<RwLockUpgradableReadGuard<'_, T, P>> {
        self.0.try_upgradable_read()
    }

    /// Locks to read, and to be the next who writes; `None` if `timeout` is over before.
    ///
    /// # Panics
    /// If the caller has it locked to write.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert!(lock.try_upgradable_read_for(Duration::from_millis(1)).is_some());
    /// ```
    #[track_caller]
    pub fn try_upgradable_read_for(
        &self,
        timeout: Duration,
    ) -> Option<RwLockUpgradableReadGuard<'_, T, P>> {
        self.0.try_upgradable_read_for(timeout)
    }

    /// Locks to read, and to be the next who writes; `None` if `deadline` has passed before.
    ///
    /// # Panics
    /// If the caller has it locked to write.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert!(lock.try_upgradable_read_until(Instant::now()).is_some());
    /// ```
    #[track_caller]
    pub fn try_upgradable_read_until(
        &self,
        deadline: Instant,
    ) -> Option<RwLockUpgradableReadGuard<'_, T, P>> {
        self.0.try_upgradable_read_until(deadline)
    }

    /// The data: nobody can have it locked.
    ///
    /// # Examples
    /// ```
    /// let mut lock = sinew::sync::RwLock::new(7);
    /// *lock.get_mut() += 1;
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug, P: Priority> fmt::Debug for RwLock<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        RwLock::new(value)
    }
}

impl<T: ?Sized, P: Priority> Deref for RwLock<T, P> {
    type Target = lock_api::RwLock<RawRwLock<P>, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The right to read the data of a [`RwLock`], until it is dropped.
pub type RwLockReadGuard<'a, T, P = InTurn> = lock_api::RwLockReadGuard<'a, RawRwLock<P>, T>;

/// The right to the data of a [`RwLock`], until it is dropped.
pub type RwLockWriteGuard<'a, T, P = InTurn> = lock_api::RwLockWriteGuard<'a, RawRwLock<P>, T>;

/// The right to read the data of a [`RwLock`], and to be the next who writes it.
pub type RwLockUpgradableReadGuard<'a, T, P = InTurn> =
    lock_api::RwLockUpgradableReadGuard<'a, RawRwLock<P>, T>;

/// The right to read a part of the data of a [`RwLock`].
pub type MappedRwLockReadGuard<'a, T, P = InTurn> =
    lock_api::MappedRwLockReadGuard<'a, RawRwLock<P>, T>;

/// The right to a part of the data of a [`RwLock`].
pub type MappedRwLockWriteGuard<'a, T, P = InTurn> =
    lock_api::MappedRwLockWriteGuard<'a, RawRwLock<P>, T>;
