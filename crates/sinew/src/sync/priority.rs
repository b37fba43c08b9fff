//! Who comes first at a [`RwLock`](super::RwLock) for which readers and writers wait.
//!
//! A part of the lock's type: a lock has one order for as long as it lives, so that its word need not
//! tell, and the ways in and out of a lock that nobody waits for are the same instructions for all.
//!
//! Next: `raw`, which lets waiters in by it.

use core::fmt;

/// Who comes first at a [`RwLock`](super::RwLock) for which both readers and writers wait.
///
/// [`InTurn`] unless something else is asked for, by [`RwLock::with_priority`](super::RwLock::with_priority)
/// or in the type. There are no others than those of this module.
///
/// # Examples
/// ```
/// use sinew::sync::{Priority, ReadersFirst, RwLock};
///
/// struct Cache<P: Priority>(RwLock<Vec<u32>, P>);
///
/// let cache: Cache<ReadersFirst> = Cache(RwLock::default());
/// cache.0.write().push(7);
/// assert_eq!(*cache.0.read(), [7]);
/// ```
pub trait Priority: order::Order + Copy + Default + fmt::Debug + Send + Sync + 'static {}

/// First come, first served, and those who read and stand beside each other are served together.
///
/// Who comes to read while somebody waits to write stands behind that one. Nobody waits for ever.
///
/// # Examples
/// ```
/// use sinew::sync::{InTurn, RwLock};
///
/// let lock: RwLock<u32, InTurn> = RwLock::new(7); // the same as RwLock<u32>
/// assert_eq!(*lock.read(), 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InTurn;

/// Who reads comes before who writes: it gets in whenever nobody writes, however many wait to.
///
/// So a fiber that reads may read again without a deadlock. Whoever waits to write, or to
/// [upgrade](super::RwLockUpgradableReadGuard), waits until for once nobody reads, and may do so for ever
/// if there are always some who do.
///
/// # Examples
/// ```
/// use sinew::sync::{ReadersFirst, RwLock};
/// use std::sync::Arc;
///
/// let lock = Arc::new(RwLock::with_priority(1, ReadersFirst));
/// let first = lock.read();
/// let theirs = lock.clone();
/// let writer = sinew::spawn(move || *theirs.write() = 2);
/// sinew::wait_until(|| writer.fiber().waits_for().is_some(), None);
/// assert_eq!(*first, *lock.read()); // although somebody waits to write
/// drop(first);
/// writer.join().unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadersFirst;

/// Who writes comes before who reads, also before those who have waited for longer.
///
/// Nobody new reads while somebody waits to write, and who unlocks hands the lock over to the first of
/// those. Who waits to read does so for ever if there are always some who wait to write.
///
/// # Examples
/// ```
/// use sinew::sync::{RwLock, WritersFirst};
/// use std::sync::Arc;
///
/// let lock = Arc::new(RwLock::with_priority(1, WritersFirst));
/// let reading = lock.read();
/// let theirs = lock.clone();
/// let writer = sinew::spawn(move || *theirs.write() = 2);
/// sinew::wait_until(|| writer.fiber().waits_for().is_some(), None);
/// assert!(lock.try_read().is_none());
/// drop(reading);
/// assert_eq!(*lock.read(), 2);
/// writer.join().unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WritersFirst;

pub(super) mod order {
    /// What the lock has to know of a [`Priority`](super::Priority).
    pub trait Order {
        const READERS_FIRST: bool = false;
        const WRITERS_FIRST: bool = false;
    }
}

impl order::Order for InTurn {}

impl order::Order for ReadersFirst {
    const READERS_FIRST: bool = true;
}

impl order::Order for WritersFirst {
    const WRITERS_FIRST: bool = true;
}

impl Priority for InTurn {}
impl Priority for ReadersFirst {}
impl Priority for WritersFirst {}
