//! A lock that one writer or many readers hold at a time.
//!
//! The algorithm is in `raw`. The order in which waiters are served is in `priority`. The
//! `lock_api` crate supplies the guards.
//!
//! Next: `raw`.

use super::moment;
use super::priority::{InTurn, Priority};
use super::raw::RawLock;
use crate::clock;
use core::fmt;
use core::ops::Deref;
use core::time::Duration;
use lock_api::GuardNoSend;
use std::time::Instant;

/// A lock without data: the algorithm of [`RwLock`], for building other locks with `lock_api`.
///
/// `P` decides whether waiting readers or waiting writers come first: see [`Priority`].
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

// SAFETY: the lock has either one exclusive holder or shared holders, as `raw` explains.
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

    // # Safety: as in the trait.
    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds the lock for reading.
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

    // # Safety: as in the trait.
    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.0.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.is_exclusive()
    }
}

// SAFETY: fair unlocking gives up only the lock that the caller holds.
unsafe impl<P: Priority> lock_api::RawRwLockFair for RawRwLock<P> {
    // # Safety: as in the trait.
    unsafe fn unlock_shared_fair(&self) {
        // The last reader to leave always lets waiters in by their order.
        // SAFETY: the caller holds the lock for reading.
        unsafe { self.0.unlock_shared() };
    }

    // # Safety: as in the trait.
    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.0.unlock_fair() };
    }
}

// SAFETY: `downgrade` turns exclusive access into shared access in one step.
unsafe impl<P: Priority> lock_api::RawRwLockDowngrade for RawRwLock<P> {
    // # Safety: as in the trait.
    unsafe fn downgrade(&self) {
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.0.downgrade(false) };
    }
}

// SAFETY: recursive reading still excludes a writer that holds the lock.
unsafe impl<P: Priority> lock_api::RawRwLockRecursive for RawRwLock<P> {
    #[track_caller]
    fn lock_shared_recursive(&self) {
        self.0.lock_shared_anyhow(true);
    }

    fn try_lock_shared_recursive(&self) -> bool {
        self.0.try_lock_shared_again()
    }
}

// SAFETY: each function returns true only if the caller holds the lock.
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

// SAFETY: at most one holder is upgradable, and it upgrades only when it is the last reader.
unsafe impl<P: Priority> lock_api::RawRwLockUpgrade for RawRwLock<P> {
    #[track_caller]
    fn lock_upgradable(&self) {
        self.0.lock_upgradable_anyhow();
    }

    fn try_lock_upgradable(&self) -> bool {
        self.0.try_lock_upgradable()
    }

    // # Safety: as in the trait.
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: the caller holds the upgradable read lock.
        unsafe { self.0.unlock_upgradable() };
    }

    // # Safety: as in the trait.
    #[track_caller]
    unsafe fn upgrade(&self) {
        // SAFETY: the caller holds the upgradable read lock.
        unsafe { self.0.upgrade(clock::NEVER) };
    }

    // # Safety: as in the trait.
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller holds the upgradable read lock.
        unsafe { self.0.try_upgrade() }
    }
}

// SAFETY: both functions give up only rights that the caller has.
unsafe impl<P: Priority> lock_api::RawRwLockUpgradeDowngrade for RawRwLock<P> {
    // # Safety: as in the trait.
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: the caller holds the upgradable read lock.
        unsafe { self.0.downgrade_upgradable() };
    }

    // # Safety: as in the trait.
    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.0.downgrade(true) };
    }
}

// SAFETY: each function returns true only if the caller holds the lock in the requested way.
unsafe impl<P: Priority> lock_api::RawRwLockUpgradeTimed for RawRwLock<P> {
    #[track_caller]
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        self.0.try_lock_upgradable() || self.0.lock_upgradable(moment(timeout))
    }

    #[track_caller]
    fn try_lock_upgradable_until(&self, timeout: Instant) -> bool {
        self.0.try_lock_upgradable() || self.0.lock_upgradable(clock::at(timeout))
    }

    // # Safety: as in the trait.
    #[track_caller]
    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        // SAFETY: the caller holds the upgradable read lock.
        unsafe { self.0.try_upgrade() || self.0.upgrade(moment(timeout)) }
    }

    // # Safety: as in the trait.
    #[track_caller]
    unsafe fn try_upgrade_until(&self, timeout: Instant) -> bool {
        // SAFETY: the caller holds the upgradable read lock.
        unsafe { self.0.try_upgrade() || self.0.upgrade(clock::at(timeout)) }
    }
}

/// Data that one writer or many readers use at a time.
///
/// Works like [`std::sync::RwLock`], with two differences: a fiber that waits for the lock is
/// suspended, and the lock is never [poisoned](crate::sync#poisoning). A reader that calls
/// [`read`](Self::read) again may deadlock: if a writer has begun to wait in between, the reader
/// waits for the writer, and the writer waits for the reader.
/// [`read_recursive`](Self::read_recursive) cannot deadlock in this way.
///
/// By default ([`InTurn`]) no new reader gets in while a writer waits, and waiters are served first
/// in, first out. [`with_priority`](Self::with_priority) selects
/// [`ReadersFirst`](super::ReadersFirst) or [`WritersFirst`](super::WritersFirst) instead.
///
/// A wait in a method of this type can be cancelled, and [`timeout`](crate::timeout()) cuts it
/// short. The guards and the `Deref` target are types of `lock_api`. **Through the `Deref`, or in
/// code that is generic over `lock_api`, a wait without a timeout cannot be cancelled**: guards
/// that unlock for a while (`unlocked`, `bump`) rely on holding the lock when they continue.
/// `RwLockUpgradableReadGuard::upgrade` can be cancelled; its guard still holds the read lock while
/// it unwinds.
///
/// A fiber that holds the lock for writing and locks it again panics. The lock counts its readers
/// but does not know them. So a reader that locks for writing waits for itself, for ever. The
/// holder of the upgradable read lock also waits for itself if it requests that lock again.
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
    /// Creates an unlocked lock that serves readers and writers [`InTurn`].
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
    /// Creates an unlocked lock that serves readers and writers by the given [`Priority`].
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

    /// Consumes the lock and returns its data.
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
    /// Locks for reading, waiting until that is possible.
    ///
    /// # Panics
    /// If the caller already holds the lock for writing.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert_eq!(*lock.read(), 7);
    /// ```
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T, P> {
        // SAFETY: `lock_shared` with deadline `NEVER` returns only when the caller holds the lock;
        // a cancelled wait unwinds before the guard is made.
        unsafe {
            self.0.raw().0.lock_shared(clock::NEVER, false);
            self.0.make_read_guard_unchecked()
        }
    }

    /// Locks for reading if that is possible at once. Does not wait.
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

    /// Locks for reading, waiting at most `timeout`. Returns `None` if the time runs out.
    ///
    /// # Panics
    /// If the caller already holds the lock for writing.
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

    /// Locks for reading, waiting until `deadline` at the latest. Returns `None` if the deadline
    /// passes.
    ///
    /// # Panics
    /// If the caller already holds the lock for writing.
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

    /// Locks for reading even while a writer waits, so a caller that already reads can lock again.
    ///
    /// Waits while a writer holds the lock.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// let (first, second) = (lock.read(), lock.read_recursive());
    /// assert_eq!(*first, *second);
    /// ```
    #[track_caller]
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T, P> {
        // SAFETY: as in `read`.
        unsafe {
            self.0.raw().0.lock_shared(clock::NEVER, true);
            self.0.make_read_guard_unchecked()
        }
    }

    /// Locks for writing, waiting until that is possible.
    ///
    /// # Panics
    /// If the caller already holds the lock for writing.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert_eq!(*lock.write(), 7);
    /// ```
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T, P> {
        // SAFETY: `lock` with deadline `NEVER` returns only when the caller holds the lock; a
        // cancelled wait unwinds before the guard is made.
        unsafe {
            self.0.raw().0.lock(clock::NEVER);
            self.0.make_write_guard_unchecked()
        }
    }

    /// Locks for writing if that is possible at once. Does not wait.
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

    /// Locks for writing, waiting at most `timeout`. Returns `None` if the time runs out.
    ///
    /// # Panics
    /// If the caller already holds the lock for writing.
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

    /// Locks for writing, waiting until `deadline` at the latest. Returns `None` if the deadline
    /// passes.
    ///
    /// # Panics
    /// If the caller already holds the lock for writing.
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

    /// Locks for reading with the right to upgrade to writing, waiting until that is possible.
    ///
    /// At most one reader at a time has this right. Other readers may read meanwhile.
    ///
    /// # Panics
    /// If the caller already holds the lock for writing.
    ///
    /// # Examples
    /// ```
    /// let lock = sinew::sync::RwLock::new(7);
    /// assert_eq!(*lock.upgradable_read(), 7);
    /// ```
    #[inline]
    #[track_caller]
    pub fn upgradable_read(&self) -> RwLockUpgradableReadGuard<'_, T, P> {
        // SAFETY: `lock_upgradable` with deadline `NEVER` returns only when the caller holds the
        // lock; a cancelled wait unwinds before the guard is made.
        unsafe {
            self.0.raw().0.lock_upgradable(clock::NEVER);
            self.0.make_upgradable_guard_unchecked()
        }
    }

    /// Locks for reading with the right to upgrade to writing, if that is possible at once. Does
    /// not wait.
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

    /// Locks for reading with the right to upgrade to writing, waiting at most `timeout`. Returns
    /// `None` if the time runs out.
    ///
    /// # Panics
    /// If the caller already holds the lock for writing.
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

    /// Locks for reading with the right to upgrade to writing, waiting until `deadline` at the
    /// latest. Returns `None` if the deadline passes.
    ///
    /// # Panics
    /// If the caller already holds the lock for writing.
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

    /// Returns a mutable reference to the data. Does not lock: `&mut self` excludes other users.
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

/// Access to read the data of a [`RwLock`]. Dropping the guard unlocks the lock.
///
/// # Examples
/// ```
/// use sinew::sync::{RwLock, RwLockReadGuard};
///
/// let words = RwLock::new(vec!["one"]);
/// let readers: [RwLockReadGuard<'_, _>; 2] = [words.read(), words.read()];
/// assert_eq!(*readers[0], *readers[1]);
/// ```
pub type RwLockReadGuard<'a, T, P = InTurn> = lock_api::RwLockReadGuard<'a, RawRwLock<P>, T>;

/// Access to write the data of a [`RwLock`]. Dropping the guard unlocks the lock.
///
/// # Examples
/// ```
/// use sinew::sync::{RwLock, RwLockWriteGuard};
///
/// let words = RwLock::new(vec!["one"]);
/// let mut guard: RwLockWriteGuard<'_, _> = words.write();
/// guard.push("two");
/// assert_eq!(RwLockWriteGuard::downgrade(guard).len(), 2); // readers may read again
/// ```
pub type RwLockWriteGuard<'a, T, P = InTurn> = lock_api::RwLockWriteGuard<'a, RawRwLock<P>, T>;

/// Access to read the data of a [`RwLock`], with the right to upgrade to writing.
///
/// # Examples
/// ```
/// use sinew::sync::{RwLock, RwLockUpgradableReadGuard};
///
/// let count = RwLock::new(0);
/// let guard: RwLockUpgradableReadGuard<'_, i32> = count.upgradable_read();
/// if *guard == 0 {
///     *RwLockUpgradableReadGuard::upgrade(guard) = 1; // no writer came in between
/// }
/// assert_eq!(*count.read(), 1);
/// ```
pub type RwLockUpgradableReadGuard<'a, T, P = InTurn> =
    lock_api::RwLockUpgradableReadGuard<'a, RawRwLock<P>, T>;

/// Access to read a part of the data of a [`RwLock`].
///
/// # Examples
/// ```
/// use sinew::sync::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
///
/// let pair = RwLock::new((1, "one"));
/// let name: MappedRwLockReadGuard<'_, &str> = RwLockReadGuard::map(pair.read(), |pair| &pair.1);
/// assert_eq!(*name, "one");
/// ```
pub type MappedRwLockReadGuard<'a, T, P = InTurn> =
    lock_api::MappedRwLockReadGuard<'a, RawRwLock<P>, T>;

/// Access to write a part of the data of a [`RwLock`].
///
/// # Examples
/// ```
/// use sinew::sync::{MappedRwLockWriteGuard, RwLock, RwLockWriteGuard};
///
/// let pair = RwLock::new((1, "one"));
/// let mut name: MappedRwLockWriteGuard<'_, &str> =
///     RwLockWriteGuard::map(pair.write(), |pair| &mut pair.1);
/// *name = "two";
/// drop(name);
/// assert_eq!(*pair.read(), (1, "two"));
/// ```
pub type MappedRwLockWriteGuard<'a, T, P = InTurn> =
    lock_api::MappedRwLockWriteGuard<'a, RawRwLock<P>, T>;
