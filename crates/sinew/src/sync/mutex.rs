//! A lock that one fiber or thread holds at a time.
//!
//! The algorithm is in `raw`, and `forward` has the methods. The `lock_api` crate supplies the
//! guards. Next: `fair_mutex`, which serves waiters in their order of arrival.

use super::forward::{mutex, raw_mutex};
use super::raw::RawLock;

/// A lock without data: the algorithm of [`Mutex`], for building other locks with `lock_api`.
///
/// Unfair: a newcomer may take the lock before a woken waiter does. A waiter that was overtaken is
/// handed the lock at the next unlock on its own carrier, or at any unlock after a millisecond.
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

raw_mutex!(RawMutex(RawLock));

/// Data that one fiber or thread uses at a time.
///
/// Works like [`std::sync::Mutex`], with two differences: a fiber that waits for the lock is
/// suspended, and the lock is never [poisoned](crate::sync#poisoning). Locking a mutex that the
/// caller already holds panics.
///
/// A wait in a method of this type can be cancelled, and [`timeout`](crate::timeout()) cuts it
/// short. The guards and the `Deref` target are types of `lock_api`. **Through the `Deref`, or in
/// code that is generic over `lock_api`, a wait without a timeout cannot be cancelled**: guards
/// that unlock for a while (`unlocked`, `bump`) rely on holding the lock when they continue.
///
/// Unfair: a newcomer may take the lock before a woken waiter does. A waiter that was overtaken is
/// handed the lock at the next unlock on its own carrier, or at any unlock after a millisecond.
/// [`FairMutex`](super::FairMutex) serves waiters in their order of arrival.
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
/// A guard cannot be sent to another fiber:
/// ```compile_fail,E0277
/// let mutex = Box::leak(Box::new(sinew::sync::Mutex::new(0)));
/// let guard = mutex.lock();
/// sinew::spawn(move || drop(guard));
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized>(lock_api::Mutex<RawMutex, T>);

mutex!(Mutex(RawMutex) with MutexGuard, waits until "it is free");

/// Access to the data of a [`Mutex`]. Dropping the guard unlocks the mutex.
///
/// # Examples
/// ```
/// use sinew::sync::{Mutex, MutexGuard};
///
/// fn add(total: &mut MutexGuard<'_, u32>) {
///     **total += 1;
/// }
/// let total = Mutex::new(1);
/// add(&mut total.lock());
/// assert_eq!(*total.lock(), 2);
/// ```
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// Access to a part of the data of a [`Mutex`]. Dropping the guard unlocks the mutex.
///
/// # Examples
/// ```
/// use sinew::sync::{MappedMutexGuard, Mutex, MutexGuard};
///
/// let pair = Mutex::new((1, 2));
/// let mut second: MappedMutexGuard<'_, i32> = MutexGuard::map(pair.lock(), |pair| &mut pair.1);
/// *second = 3;
/// drop(second);
/// assert_eq!(*pair.lock(), (1, 3));
/// ```
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
