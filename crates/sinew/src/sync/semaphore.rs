//! A semaphore: a number of permits that fibers and threads take and give back.
//!
//! The waiters are in `park::table`. `arm.rs` has the permits as an arm of `select!`.

mod arm;

pub use arm::SemaphoreArm;

use super::moment;
use crate::clock;
use crate::fiber::WaitKind;
use crate::park::list::{Ended, Terms, Wakes};
use crate::park::table::{self, Bucket, Entry, Key};
use crate::primitive::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

/// The bit of the word that marks that there are waiters.
const WAITERS: usize = 1;
/// One permit, in the bits above the mark.
const ONE: usize = 2;

/// A number of permits, which limits how many fibers or threads do something at a time.
///
/// The semaphore is fair: it serves waiters in their order of arrival. A waiter that wants many
/// permits is not overtaken by later waiters that want few.
///
/// # Examples
/// ```
/// use sinew::sync::Semaphore;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let (permits, busy) = (Semaphore::new(3), AtomicUsize::new(0));
/// sinew::scope(|s| {
///     for _ in 0..20 {
///         s.spawn(|| {
///             let _permit = permits.acquire();
///             assert!(busy.fetch_add(1, Ordering::Relaxed) < 3);
///             sinew::yield_now();
///             busy.fetch_sub(1, Ordering::Relaxed);
///         });
///     }
/// });
/// ```
//
// One word: the lowest bit tells whether there are waiters, and the other bits count permits. While
// there are waiters, the caller that adds permits serves the waiters, under the lock of the table.
// It serves them with the added permits first (its *hand*), and then with permits from the word.
// Only the rest of the hand goes into the word.
pub struct Semaphore(AtomicUsize);

impl core::fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish_non_exhaustive()
    }
}

const _: () = assert!(crate::primitive::IS_MODEL || size_of::<Semaphore>() <= 16);

impl Semaphore {
    /// The largest number of permits of a semaphore.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::Semaphore;
    ///
    /// assert_eq!(Semaphore::new(Semaphore::MAX_PERMITS).available(), Semaphore::MAX_PERMITS);
    /// ```
    pub const MAX_PERMITS: usize = usize::MAX / ONE / 2;

    /// Creates a semaphore with `permits` permits.
    ///
    /// # Panics
    /// Panics if `permits` is more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    ///
    /// # Examples
    /// ```
    /// static PERMITS: sinew::sync::Semaphore = sinew::sync::Semaphore::new(10);
    /// assert_eq!(PERMITS.available(), 10);
    /// ```
    pub const fn new(permits: usize) -> Semaphore {
        assert!(permits <= Semaphore::MAX_PERMITS, "more permits than `Semaphore::MAX_PERMITS`");
        Semaphore(AtomicUsize::new(permits * ONE))
    }

    /// Returns the number of permits that are not taken.
    ///
    /// # Examples
    /// ```
    /// let permits = sinew::sync::Semaphore::new(2);
    /// let _one = permits.acquire();
    /// assert_eq!(permits.available(), 1);
    /// ```
    pub fn available(&self) -> usize {
        self.0.load(Ordering::Relaxed) / ONE
    }

    /// Takes a permit, waiting until there is one.
    ///
    /// # Examples
    /// ```
    /// let permits = sinew::sync::Semaphore::new(1);
    /// let permit = permits.acquire();
    /// assert!(permits.try_acquire().is_none());
    /// drop(permit);
    /// assert!(permits.try_acquire().is_some());
    /// ```
    #[inline]
    #[track_caller]
    pub fn acquire(&self) -> Permits<'_> {
        self.acquire_many(1)
    }

    /// Takes `count` permits at once, waiting until there are enough. Waits for ever if there are
    /// never enough.
    ///
    /// # Panics
    /// Panics if `count` is more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    ///
    /// # Examples
    /// ```
    /// let permits = sinew::sync::Semaphore::new(3);
    /// let two = permits.acquire_many(2);
    /// assert!(permits.try_acquire_many(2).is_none());
    /// drop(two);
    /// ```
    #[inline]
    #[track_caller]
    pub fn acquire_many(&self, count: usize) -> Permits<'_> {
        self.take(count, clock::NEVER);
        Permits { semaphore: self, count }
    }

    /// Takes a permit if there is one, without waiting.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::sync::Semaphore::new(0).try_acquire().is_none());
    /// ```
    pub fn try_acquire(&self) -> Option<Permits<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `count` permits if there are enough, without waiting.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::sync::Semaphore::new(5).try_acquire_many(5).is_some());
    /// ```
    pub fn try_acquire_many(&self, count: usize) -> Option<Permits<'_>> {
        self.try_take(count).then(|| Permits { semaphore: self, count })
    }

    /// Takes `count` permits, waiting at most `timeout`. Returns `None` if there were not enough in
    /// time.
    ///
    /// # Panics
    /// Panics if `count` is more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let permits = sinew::sync::Semaphore::new(1);
    /// assert!(permits.acquire_timeout(2, Duration::from_millis(1)).is_none());
    /// ```
    #[track_caller]
    pub fn acquire_timeout(&self, count: usize, timeout: Duration) -> Option<Permits<'_>> {
        let taken = self.try_take(count) || self.take(count, moment(timeout));
        taken.then(|| Permits { semaphore: self, count })
    }

    /// Takes `count` permits, waiting until `deadline` at most. Returns `None` if there were not
    /// enough in time.
    ///
    /// # Panics
    /// Panics if `count` is more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let permits = sinew::sync::Semaphore::new(1);
    /// assert!(permits.acquire_deadline(1, Instant::now()).is_some());
    /// assert!(permits.acquire_deadline(2, Instant::now()).is_none());
    /// ```
    #[track_caller]
    pub fn acquire_deadline(&self, count: usize, deadline: Instant) -> Option<Permits<'_>> {
        let taken = self.try_take(count) || self.take(count, clock::at(deadline));
        taken.then(|| Permits { semaphore: self, count })
    }

    /// Takes `count` permits, waiting until there are enough. The permits keep the semaphore alive,
    /// so they can move to another fiber.
    ///
    /// # Panics
    /// Panics if `count` is more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::Semaphore;
    /// use std::sync::Arc;
    ///
    /// let permits = Arc::new(Semaphore::new(1));
    /// let permit = Semaphore::acquire_owned(&permits, 1);
    /// sinew::spawn(move || drop(permit));
    /// drop(permits.acquire());
    /// ```
    #[track_caller]
    pub fn acquire_owned(this: &Arc<Semaphore>, count: usize) -> OwnedPermits {
        this.take(count, clock::NEVER);
        OwnedPermits { semaphore: this.clone(), count }
    }

    #[inline(always)]
    fn try_take(&self, count: usize) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & WAITERS != 0 || word / ONE < count {
                return false;
            }
            // ORDERING: Acquire shows the writes of the fiber that gave the permits back; pairs
            // with the Release in `add` and `settle`.
            match self.0.compare_exchange_weak(
                word,
                word - count * ONE,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    #[inline(always)]
    #[track_caller]
    fn take(&self, count: usize, deadline: u64) -> bool {
        self.try_take(count) || self.take_slow(count, deadline)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn take_slow(&self, count: usize, deadline: u64) -> bool {
        assert!(
            count <= Semaphore::MAX_PERMITS,
            "{count} permits are more than `Semaphore::MAX_PERMITS`"
        );
        let entry = Entry::new(Key::of(self), false, count);
        loop {
            if self.try_take(count) {
                return true;
            }
            let still = |bucket: &mut Bucket| self.mark(bucket, count);
            let terms = Terms::new(WaitKind::Semaphore, self, deadline);
            match table::wait(&entry, terms, still, |bucket| self.left(bucket)) {
                Ended::Granted => return true,
                Ended::AtOnce(()) => {}
                Ended::TimedOut => return false,
            }
        }
    }

    /// Returns whether a new waiter for `count` permits has to wait, and sets the mark if it has
    /// to. Only the first waiter looks at the permits; others queue behind it. The caller holds the
    /// lock of the table.
    fn mark(&self, bucket: &mut Bucket, count: usize) -> bool {
        let first = bucket.queue(Key::of(self)).is_none();
        let mark = |word| (!first || word / ONE < count).then_some(word | WAITERS);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mark).is_ok()
    }

    /// Adds `count` permits, and gives them to waiters first.
    ///
    /// # Panics
    /// Panics if the semaphore would have more than [`MAX_PERMITS`](Self::MAX_PERMITS) permits.
    ///
    /// # Examples
    /// ```
    /// let permits = sinew::sync::Semaphore::new(0);
    /// permits.add(2);
    /// assert_eq!(permits.available(), 2);
    /// ```
    #[inline]
    pub fn add(&self, count: usize) {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let permits = (word / ONE).checked_add(count);
            assert!(
                permits.is_some_and(|permits| permits <= Semaphore::MAX_PERMITS),
                "adding {count} permits would exceed `Semaphore::MAX_PERMITS`"
            );
            if word & WAITERS != 0 {
                return self.serve(count);
            }
            // ORDERING: Release publishes the caller's earlier writes; pairs with the Acquire in
            // `try_take` and `settle`.
            match self.0.compare_exchange_weak(
                word,
                word + count * ONE,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Serves the waiters with `hand` permits, and adds the remaining permits to the word.
    #[cold]
    #[inline(never)]
    fn serve(&self, hand: usize) {
        let count = hand;
        let mut hand = hand;
        let mut wakes = Wakes::none();
        let mut fits = true;
        while {
            fits &= self.settle(&mut table::bucket(Key::of(self)).lock(), &mut wakes, hand);
            hand = 0;
            wakes.resume()
        } {}
        assert!(fits, "adding {count} permits would exceed `Semaphore::MAX_PERMITS`");
    }

    /// Serves the waiters behind a waiter that has left.
    fn left(&self, bucket: &mut Bucket) -> Wakes {
        let mut wakes = Wakes::none();
        self.settle(bucket, &mut wakes, 0);
        wakes
    }

    /// Serves waiters in order, as long as there are enough permits for the first waiter. Uses the
    /// caller's `hand` permits first, and adds the remaining permits to the word. Returns false if
    /// the word has no room for the remaining permits, which are then lost. The caller holds the
    /// lock of the table.
    #[inline(always)]
    fn settle(&self, bucket: &mut Bucket, wakes: &mut Wakes, mut hand: usize) -> bool {
        let mut empty = true;
        if let Some(mut queue) = bucket.queue(Key::of(self)) {
            while !wakes.is_full()
                && let Some(first) = queue.first()
            {
                let count = first.payload().word.get();
                if hand < count {
                    // While the mark is set, permits leave the word only here, so `available`
                    // cannot fall before the subtraction.
                    let more = count - hand;
                    if self.available() < more {
                        break;
                    }
                    // ORDERING: Acquire on behalf of the served waiter; pairs with the Release in
                    // `add` and `settle`.
                    self.0.fetch_sub(more * ONE, Ordering::Acquire);
                    hand = count;
                }
                if queue.grant_first(wakes, |_| ()) {
                    hand -= count;
                }
            }
            empty = queue.first().is_none();
        }
        let fits = hand <= Semaphore::MAX_PERMITS - self.available();
        if !fits {
            hand = 0;
        }
        // The mark changes only under the lock of the table, which the caller holds.
        let gone = if empty { self.0.load(Ordering::Relaxed) & WAITERS } else { 0 };
        let change = (hand * ONE).wrapping_sub(gone);
        if change != 0 {
            // ORDERING: Release pairs with the Acquire in `try_take` and with the Acquire above, as
            // in `add`.
            self.0.fetch_add(change, Ordering::Release);
        }
        fits
    }
}

/// Permits of a [`Semaphore`], given back when this value is dropped.
///
/// # Examples
/// ```
/// let semaphore = sinew::sync::Semaphore::new(3);
/// let permits = semaphore.acquire_many(2);
/// assert_eq!(semaphore.available(), 1);
/// drop(permits);
/// assert_eq!(semaphore.available(), 3);
/// ```
#[derive(Debug)]
#[must_use = "the permits are given back at once if they are not kept"]
pub struct Permits<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Permits<'_> {
    /// Removes the permits from the semaphore: they are never given back.
    ///
    /// # Examples
    /// ```
    /// let permits = sinew::sync::Semaphore::new(2);
    /// permits.acquire().forget();
    /// assert_eq!(permits.available(), 1);
    /// ```
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for Permits<'_> {
    fn drop(&mut self) {
        self.semaphore.add(self.count);
    }
}

/// Permits that keep their [`Semaphore`] alive, given back when this value is dropped.
///
/// # Examples
/// ```
/// use sinew::sync::Semaphore;
/// use std::sync::Arc;
///
/// let semaphore = Arc::new(Semaphore::new(2));
/// // At most two connections at a time: each fiber keeps its permit.
/// for _connection in 0..5 {
///     let permit = Semaphore::acquire_owned(&semaphore, 1);
///     sinew::spawn(move || {
///         sinew::yield_now();
///         drop(permit);
///     });
/// }
/// let _all = semaphore.acquire_many(2); // waits until all have ended
/// assert_eq!(semaphore.available(), 0);
/// ```
#[derive(Debug)]
#[must_use = "the permits are given back at once if they are not kept"]
pub struct OwnedPermits {
    semaphore: Arc<Semaphore>,
    count: usize,
}

impl Drop for OwnedPermits {
    fn drop(&mut self) {
        self.semaphore.add(self.count);
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
