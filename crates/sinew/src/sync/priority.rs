//! The order in which a [`RwLock`](super::RwLock) serves readers and writers.
//!
//! The order is a type parameter of the lock. It is fixed for the lock's lifetime, so the lock word
//! does not store it. If there are no waiters, locking and unlocking take the same instructions
//! with every order. `README.md` of this folder gives the reasons.
//!
//! Next: `raw`, which lets waiters in according to this order.

use core::fmt;

/// The order in which a [`RwLock`](super::RwLock) serves waiting readers and writers.
///
/// [`InTurn`] is the default. [`RwLock::with_priority`](super::RwLock::with_priority) or the lock's
/// type selects another order. The trait is sealed: the three types of this module are the only
/// orders.
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

/// Serves readers and writers in their order of arrival. Readers that are adjacent in the queue are
/// let in together.
///
/// A reader that arrives while a writer waits queues behind that writer. No waiter starves.
///
/// # Examples
/// ```
/// use sinew::sync::{InTurn, RwLock};
///
/// let lock: RwLock<u32, InTurn> = RwLock::new(7); // equal to RwLock<u32>
/// assert_eq!(*lock.read(), 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InTurn;

/// Serves readers before writers: a reader gets in whenever no writer holds the lock, even while
/// writers wait.
///
/// So a reader may lock for reading again without a deadlock. A writer, or a reader that
/// [upgrades](super::RwLockUpgradableReadGuard), waits until no other reader holds the lock. If new
/// readers keep arriving, that waiter may wait for ever.
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
/// sinew::wait_until(|| writer.fiber().waits_for().is_some());
/// assert_eq!(*first, *lock.read()); // although a writer waits
/// drop(first);
/// writer.join().unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadersFirst;

/// Serves writers before readers, even before readers that have waited longer.
///
/// No new reader gets in while a writer waits. An unlock hands the lock to the first waiting
/// writer. If new writers keep arriving, a reader may wait for ever.
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
/// sinew::wait_until(|| writer.fiber().waits_for().is_some());
/// assert!(lock.try_read().is_none());
/// drop(reading);
/// assert_eq!(*lock.read(), 2);
/// writer.join().unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WritersFirst;

pub(super) mod order {
    /// The constants by which the lock implements a [`Priority`](super::Priority).
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
