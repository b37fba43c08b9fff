//! A lock that one fiber or thread holds at a time. It serves waiters in their order of arrival.
//!
//! The algorithm is in `raw`, and `sync::forward` has the methods of a mutex. `ticket` separates
//! taking a turn from waiting for it.

mod raw;
mod ticket;

pub use ticket::{FairMutexPlace, FairMutexTicket, TicketArm};

use super::forward::{mutex, raw_mutex};
use core::pin::Pin;
use raw::Lock;

/// A lock without data: the algorithm of [`FairMutex`], for building other locks with `lock_api`.
///
/// # Examples
/// ```
/// use sinew::sync::RawFairMutex;
///
/// static COUNT: lock_api::Mutex<RawFairMutex, u32> = lock_api::Mutex::new(0);
/// *COUNT.lock() += 1;
/// ```
#[derive(Debug)]
pub struct RawFairMutex(Lock);

raw_mutex!(RawFairMutex(Lock));

/// Data that one fiber or thread uses at a time, in the order of arrival.
///
/// Slower than [`Mutex`](super::Mutex) under contention: each unlock hands the lock to the next
/// waiter, and the lock is idle until that waiter has woken up. As with `Mutex`, locking a mutex
/// that the caller already holds panics, waits in methods of this type can be cancelled, and there
/// is no poisoning. A waiter that leaves passes its turn on.
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
#[derive(Default)]
pub struct FairMutex<T: ?Sized>(lock_api::Mutex<RawFairMutex, T>);

/// Access to the data of a [`FairMutex`]. Dropping the guard unlocks the mutex.
///
/// # Examples
/// ```
/// use sinew::sync::{FairMutex, FairMutexGuard};
///
/// fn longest<'a>(words: &'a FairMutex<Vec<String>>) -> Option<FairMutexGuard<'a, Vec<String>>> {
///     let guard = words.lock();
///     (!guard.is_empty()).then_some(guard)
/// }
/// assert!(longest(&FairMutex::new(Vec::new())).is_none());
/// ```
pub type FairMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFairMutex, T>;

mutex!(FairMutex(RawFairMutex) with FairMutexGuard, waits until "it is the caller's turn");

impl<T: ?Sized> FairMutex<T> {
    /// Takes a ticket without waiting. All later arrivals are behind it, including later calls of
    /// the caller.
    ///
    /// Wait for the ticket before you call `lock`: a caller of `lock` that has not yet waited for
    /// its own ticket waits for ever.
    ///
    /// # Panics
    /// If the place has a turn that was not used.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FairMutex, FairMutexPlace};
    /// use std::pin::pin;
    ///
    /// let mutex = FairMutex::new(7);
    /// let guard = mutex.lock();
    /// let place = pin!(FairMutexPlace::new());
    /// let ticket = mutex.enter(place);
    /// drop(guard);
    /// assert!(mutex.try_lock().is_none()); // it is the ticket's turn
    /// *ticket.wait() += 1;
    /// assert_eq!(*mutex.lock(), 8);
    /// ```
    #[track_caller]
    pub fn enter<'m: 'a, 'a>(
        &'m self,
        place: Pin<&'a mut FairMutexPlace<'m>>,
    ) -> FairMutexTicket<'a, 'm, T> {
        // SAFETY: only the turn that owns the lock unlocks it. The guard of the turn does so, or
        // the place of the turn if the turn is given up.
        let lock = unsafe { &self.0.raw().0 };
        FairMutexTicket::new(&self.0, lock, place)
    }
}
