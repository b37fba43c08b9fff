//! A counter that fibers and threads can wait for: the building block for other conditions.
//!
//! Uses `park::table` for its waiters. `WaitGroup`, `CancellationToken`, and the broadcast and
//! watch channels are built on it.

use super::moment;
use crate::clock;
use crate::fiber::WaitKind;
use crate::park::list::{Ended, Terms, Wakes};
use crate::park::table::{self, Bucket, Entry, Key};
use crate::primitive::{AtomicU64, Ordering};
use core::hint::spin_loop;
use core::time::Duration;

/// Set if there may be waiters.
const WAITERS: u64 = 1;
/// One step of the counter, which lies above the mark.
const ONE: u64 = 2;

/// How often a newcomer pauses before it waits, if there is no other waiter.
const SPINS: u32 = if crate::primitive::IS_MODEL { 0 } else { 16 };

/// A counter that fibers and threads wait for: a building block for other conditions, like the
/// Linux call of that name.
///
/// A waiter reads the counter, checks its condition, and waits for the counter's next value. A
/// fiber that has changed the condition increments the counter. The waiter misses no change between
/// its check and its wait: after such a change the counter has reached the value, and the wait
/// returns at once.
///
/// # Examples
/// ```
/// use sinew::sync::Futex;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// let (ready, changed) = (AtomicBool::new(false), Futex::new());
/// sinew::scope(|s| {
///     s.spawn(|| {
///         loop {
///             let token = changed.get();
///             if ready.load(Ordering::Acquire) {
///                 break;
///             }
///             changed.wait(token + 1);
///         }
///     });
///     ready.store(true, Ordering::Release);
///     changed.post();
/// });
/// ```
//
// One word: the upper 63 bits are the counter, and the lowest bit marks that there are waiters. A
// waiter sets the mark under the lock of the bucket, as it enters the table, by a compare-exchange
// that fails if the counter has reached the waiter's value. A poster increments the counter and
// clears the mark in one exchange, then takes the lock of the bucket. So the poster finds the
// waiter, or the waiter finds the counter changed.
#[derive(Debug)]
pub struct Futex(AtomicU64);

const _: () = assert!(crate::primitive::IS_MODEL || size_of::<Futex>() == 8);

impl Futex {
    /// Creates a counter at zero.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::sync::Futex::new().get(), 0);
    /// ```
    pub const fn new() -> Futex {
        Futex(AtomicU64::new(0))
    }

    /// Returns the counter: the number of posts.
    ///
    /// # Examples
    /// ```
    /// let futex = sinew::sync::Futex::new();
    /// futex.post();
    /// assert_eq!(futex.get(), 1);
    /// ```
    #[inline]
    pub fn get(&self) -> u64 {
        // ORDERING: Acquire shows the writes before the post; pairs with the Release in `post`.
        self.0.load(Ordering::Acquire) / ONE
    }

    /// Waits until the counter is at least `token`.
    ///
    /// # Examples
    /// ```
    /// let futex = sinew::sync::Futex::new();
    /// futex.post();
    /// futex.wait(1); // returns at once
    /// ```
    #[track_caller]
    pub fn wait(&self, token: u64) {
        self.wait_till(token, clock::NEVER);
    }

    /// Waits for the next post.
    ///
    /// # Examples
    /// ```
    /// let futex = sinew::sync::Futex::new();
    /// sinew::scope(|s| {
    ///     let waiter = s.spawn(|| futex.wait_next());
    ///     while !waiter.is_finished() {
    ///         futex.post();
    ///         sinew::yield_now();
    ///     }
    /// });
    /// ```
    #[track_caller]
    pub fn wait_next(&self) {
        self.wait(self.get() + 1);
    }

    /// Waits until the counter is at least `token`, but at most for `timeout`. Returns false if the
    /// time runs out.
    ///
    /// # Examples
    /// ```
    /// let futex = sinew::sync::Futex::new();
    /// assert!(!futex.wait_timeout(1, std::time::Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, token: u64, timeout: Duration) -> bool {
        self.wait_till(token, moment(timeout))
    }

    #[track_caller]
    pub(super) fn wait_till(&self, token: u64, deadline: u64) -> bool {
        let entry = Entry::new(Key::of(self), false, token as usize);
        let mut spins = 0;
        loop {
            // ORDERING: Acquire; as in `get`.
            let word = self.0.load(Ordering::Acquire);
            if word / ONE >= token {
                return true;
            }
            if spins < SPINS && word & WAITERS == 0 {
                spins += 1;
                spin_loop();
                continue;
            }
            let still = |_: &mut Bucket| self.mark(token);
            let terms = Terms::new(WaitKind::Event, self, deadline);
            // A mark that is left without a waiter costs the next post one look at the table.
            if table::wait(&entry, terms, still, |_| Wakes::none()) == Ended::TimedOut {
                return self.get() >= token;
            }
        }
    }

    /// Sets the mark, under the lock of the bucket. Returns false if the counter is at least
    /// `token`.
    pub(super) fn mark(&self, token: u64) -> bool {
        let mark = |word| (word / ONE < token).then_some(word | WAITERS);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mark).is_ok()
    }

    /// Increments the counter and wakes all waiters. A waiter for a higher value waits again.
    ///
    /// # Examples
    /// ```
    /// let futex = sinew::sync::Futex::new();
    /// futex.post();
    /// futex.post();
    /// assert_eq!(futex.get(), 2);
    /// ```
    #[inline]
    pub fn post(&self) {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let new = (word & !WAITERS).wrapping_add(ONE);
            // ORDERING: Release publishes the caller's writes; pairs with the Acquire in `get`.
            match self.0.compare_exchange_weak(word, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if word & WAITERS != 0 {
            table::release(Key::of(self), usize::MAX);
        }
    }

    /// Increments the counter and wakes one waiter whose value the counter has reached. Other
    /// waiters whose value the counter has reached stay asleep until another post.
    ///
    /// # Examples
    /// ```
    /// let futex = sinew::sync::Futex::new();
    /// sinew::scope(|s| {
    ///     s.spawn(|| futex.wait(1));
    ///     futex.post_one();
    /// });
    /// ```
    pub fn post_one(&self) {
        // ORDERING: Release; as in `post`.
        let word = self.0.fetch_add(ONE, Ordering::Release);
        let counter = (word / ONE + 1) as usize;
        if word & WAITERS == 0 {
            return;
        }
        let key = Key::of(self);
        let mut wakes = Wakes::none();
        {
            let mut bucket = table::bucket(key).lock();
            if let Some(mut queue) = bucket.queue(key) {
                queue.grant_one(&mut wakes, |entry| entry.word.get() <= counter);
            }
            if bucket.queue(key).is_none() {
                self.0.fetch_and(!WAITERS, Ordering::Relaxed);
            }
        }
        wakes.resume();
    }
}

impl Default for Futex {
    fn default() -> Self {
        Futex::new()
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
