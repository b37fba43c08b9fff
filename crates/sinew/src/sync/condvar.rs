//! Waiting until data under a lock has changed.
//!
//! A waiter enters the list before it unlocks, so it misses no notification that follows a change.
//! `guard` says which locks a condition variable works with. `park::list` has the list and the
//! wait.

use super::guard::Guard;
use super::moment;
use crate::clock;
use crate::fiber::WaitKind;
use crate::park::list::{Begin, Ended, List, Terms, Wakes, wait_in};
use crate::primitive::{Cell, SpinLock};
use crate::report::NeverUnwinds;
use core::time::Duration;
use std::time::Instant;

/// A condition variable, for the [guards](Guard) of any lock.
///
/// Works like [`std::sync::Condvar`], but takes the guard by reference. With a read guard, "locks"
/// in the pages of the methods means "locks for reading". A wait may end without a notification,
/// and other fibers may change the data before the waiter has locked again. So check the condition
/// in a loop, or use [`wait_while`](Self::wait_while).
///
/// # Examples
/// ```
/// use sinew::sync::{Condvar, Mutex};
///
/// let (queue, changed) = (Mutex::new(Vec::new()), Condvar::new());
/// sinew::scope(|s| {
///     s.spawn(|| {
///         let mut queue = queue.lock();
///         changed.wait_while(&mut queue, |queue| queue.is_empty());
///         assert_eq!(queue.pop(), Some(7));
///     });
///     queue.lock().push(7);
///     changed.notify_one();
/// });
/// ```
pub struct Condvar {
    waiting: SpinLock<Waiting>,
}

struct Waiting {
    list: List<Cell<u64>>,
    /// Counts the calls of `notify_all`. A waiter notes the number when it enters the list, so that
    /// a call does not wake waiters that enter while the call is under way.
    round: u64,
}

impl Condvar {
    /// Creates a condition variable without waiters.
    ///
    /// # Examples
    /// ```
    /// static CHANGED: sinew::sync::Condvar = sinew::sync::Condvar::new();
    /// CHANGED.notify_all();
    /// ```
    pub const fn new() -> Condvar {
        Condvar { waiting: SpinLock::new(Waiting { list: List::new(), round: 0 }) }
    }

    /// Unlocks, waits for a notification, and locks again.
    ///
    /// A cancelled fiber locks again before it is unwound.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Condvar, Mutex};
    ///
    /// let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// sinew::scope(|s| {
    ///     s.spawn(|| {
    ///         *ready.lock() = true;
    ///         changed.notify_one();
    ///     });
    ///     let mut ready = ready.lock();
    ///     while !*ready {
    ///         changed.wait(&mut ready);
    ///     }
    /// });
    /// ```
    #[track_caller]
    pub fn wait<G: Guard>(&self, guard: &mut G) {
        self.wait_till(guard, clock::NEVER);
    }

    /// Waits as [`wait`](Self::wait) does, but at most for `timeout`. Returns false if the time
    /// runs out.
    ///
    /// A waiter that times out or is cancelled uses up no notification: the notification goes to
    /// the next waiter.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// assert!(!changed.wait_timeout(&mut ready.lock(), Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_timeout<G: Guard>(&self, guard: &mut G, timeout: Duration) -> bool {
        self.wait_till(guard, moment(timeout))
    }

    /// Waits as [`wait`](Self::wait) does, but until `deadline` at the latest. Returns false if the
    /// deadline passes.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Condvar, Mutex};
    /// use std::time::Instant;
    ///
    /// let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// assert!(!changed.wait_deadline(&mut ready.lock(), Instant::now()));
    /// ```
    #[track_caller]
    pub fn wait_deadline<G: Guard>(&self, guard: &mut G, deadline: Instant) -> bool {
        self.wait_till(guard, clock::at(deadline))
    }

    /// Waits as long as `condition` returns true for the data.
    ///
    /// If the guard does not allow changes of the data, or has no data, `condition` gets the guard
    /// instead of the data.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Condvar, Mutex};
    ///
    /// let (count, changed) = (Mutex::new(0), Condvar::new());
    /// sinew::scope(|s| {
    ///     for _ in 0..3 {
    ///         s.spawn(|| {
    ///             *count.lock() += 1;
    ///             changed.notify_all();
    ///         });
    ///     }
    ///     changed.wait_while(&mut count.lock(), |count| *count < 3);
    /// });
    /// ```
    #[track_caller]
    pub fn wait_while<G: Guard>(
        &self,
        guard: &mut G,
        mut condition: impl FnMut(&mut G::Seen) -> bool,
    ) {
        while condition(guard.seen()) {
            self.wait(guard);
        }
    }

    /// Waits as long as `condition` returns true for the data, but at most for `timeout`. Returns
    /// false if the time runs out and `condition` still returns true.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (count, changed) = (Mutex::new(0), Condvar::new());
    /// let three = changed.wait_while_timeout(
    ///     &mut count.lock(),
    ///     |count| *count < 3,
    ///     Duration::from_millis(1),
    /// );
    /// assert!(!three);
    /// ```
    #[track_caller]
    pub fn wait_while_timeout<G: Guard>(
        &self,
        guard: &mut G,
        mut condition: impl FnMut(&mut G::Seen) -> bool,
        timeout: Duration,
    ) -> bool {
        let deadline = moment(timeout);
        while condition(guard.seen()) {
            if !self.wait_till(guard, deadline) {
                return !condition(guard.seen());
            }
        }
        true
    }

    #[track_caller]
    fn wait_till<G: Guard>(&self, guard: &mut G, deadline: u64) -> bool {
        /// Locks again when it is dropped, also when the wait unwinds. The wait for the lock cannot
        /// be cut short, because the owner of the guard relies on holding the lock.
        struct Relock<'a, G: Guard>(&'a G, bool);
        impl<G: Guard> Drop for Relock<'_, G> {
            fn drop(&mut self) {
                if self.1 {
                    self.0.relock();
                }
            }
        }
        let guard = &*guard;
        let mut relock = Relock(guard, false);
        let ended = wait_in(
            Begin::Anew,
            &self.waiting,
            Terms::new(WaitKind::Condvar, self, deadline),
            &Cell::new(0),
            |node| -> Option<()> {
                {
                    let mut waiting = self.waiting.lock();
                    node.payload().set(waiting.round);
                    // SAFETY: `wait_in` pins the node, and takes it out of the list before the
                    // node's frame ends.
                    unsafe { waiting.list.push(node) };
                }
                // The node is linked, so this frame must not unwind before the node is taken out of
                // the list.
                let linked = NeverUnwinds(
                    "a lock that was unlocked panicked in the middle of a wait; aborting",
                );
                if !relock.1 {
                    relock.1 = true;
                    // SAFETY: `relock` locks again before this function returns or unwinds. Until
                    // then nothing uses the guard: the caller has lent it exclusively.
                    unsafe { guard.unlock() };
                }
                core::mem::forget(linked);
                None
            },
            |waiting, node| {
                if let Some(node) = node {
                    waiting.list.remove(node);
                }
                Wakes::none()
            },
        );
        drop(relock);
        ended != Ended::TimedOut
    }

    /// Wakes one waiter. Returns whether there was a waiter.
    ///
    /// # Examples
    /// ```
    /// let changed = sinew::sync::Condvar::new();
    /// assert!(!changed.notify_one());
    /// ```
    pub fn notify_one(&self) -> bool {
        let granted = self.waiting.lock().list.grant_one(|_| ());
        granted.map(|(claimed, ())| claimed.resume()).is_some()
    }

    /// Wakes all fibers and threads that wait at this moment. Returns their number.
    ///
    /// # Examples
    /// ```
    /// let changed = sinew::sync::Condvar::new();
    /// assert_eq!(changed.notify_all(), 0);
    /// ```
    pub fn notify_all(&self) -> usize {
        let mut count = 0;
        let mut round = None;
        loop {
            let mut wakes = Wakes::none();
            {
                let mut waiting = self.waiting.lock();
                let round = *round.get_or_insert_with(|| {
                    waiting.round += 1;
                    waiting.round
                });
                let is_due = |list: &List<Cell<u64>>| {
                    list.first().is_some_and(|first| first.payload().get() < round)
                };
                while !wakes.is_full() && is_due(&waiting.list) {
                    if let Some(first) = waiting.list.pop()
                        && let Some(claimed) = first.claim()
                    {
                        first.grant();
                        wakes.push(claimed);
                        count += 1;
                    }
                }
            }
            if !wakes.resume() {
                return count;
            }
        }
    }
}

// A condition variable holds no data of the user that a panic could leave half changed.
impl std::panic::UnwindSafe for Condvar {}
impl std::panic::RefUnwindSafe for Condvar {}

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

impl core::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
