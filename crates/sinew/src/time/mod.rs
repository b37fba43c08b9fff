//! Sleeping, time limits, and waiting for conditions that nothing announces.
//!
//! | to | call |
//! | --- | --- |
//! | sleep | [`sleep`], [`sleep_deadline`] |
//! | limit the time of any code that waits | [`timeout`], [`deadline`] |
//! | limit the time of one wait | the timed form of the call: `*_timeout` takes a [`Duration`], `*_deadline` takes an [`Instant`] |
//! | wait for a condition that nothing announces | [`wait_until`], [`wait_until_timeout`], [`wait_until_deadline`] |
//!
//! Locks keep the names of `lock_api` for their timed forms: `try_lock_for` and `try_lock_until`.

use crate::carrier::current;
use crate::clock;
use crate::fiber::WaitKind;
use crate::park::raise::{check_here, settle};
use crate::park::{Wait, without_waiting};

pub use crate::cancel::{Elapsed, deadline, timeout};
pub use std::time::{Duration, Instant};

/// Suspends the running fiber for at least `duration`.
///
/// The fiber's carrier runs other fibers meanwhile. A plain thread sleeps. `Duration::ZERO` lets
/// other fibers run once, and `Duration::MAX` sleeps forever. A cancelled fiber is unwound from
/// here.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
///
/// sinew::run(|| {
///     let start = Instant::now();
///     sinew::sleep(Duration::from_millis(2));
///     assert!(start.elapsed() >= Duration::from_millis(2));
/// });
/// ```
#[track_caller]
pub fn sleep(duration: Duration) {
    if duration.is_zero() {
        return let_others_run();
    }
    sleep_till(clock::after(clock::now(), duration));
}

/// Suspends the running fiber until `deadline`. If the deadline has passed, lets other fibers run
/// once. A plain thread sleeps. A cancelled fiber is unwound from here.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(1);
/// sinew::sleep_deadline(deadline);
/// assert!(Instant::now() >= deadline);
/// ```
#[track_caller]
pub fn sleep_deadline(deadline: Instant) {
    if deadline <= Instant::now() {
        return let_others_run();
    }
    sleep_till(clock::at(deadline));
}

#[track_caller]
fn let_others_run() {
    if crate::can_yield() {
        crate::yield_now();
    }
}

#[track_caller]
fn sleep_till(deadline: u64) {
    loop {
        // The record of the wait contains the deadline, for inspection.
        let wait = Wait::begin(WaitKind::Sleep, deadline as usize);
        let who = wait.who();
        let outcome = wait.suspend_until(deadline);
        settle(who, outcome);
        // The outcome does not tell that the time has come: the deadline of a scope may have ended
        // the wait, or a stale timer of an earlier wait with equal low bits in its number. A
        // carrier that has ended a sleep has just looked at the clock, so this seldom does.
        let looked = current::owner().map_or(0, |owner| owner.now.get());
        if deadline <= looked || deadline <= clock::now() {
            return;
        }
    }
}

/// Waits until `predicate` is true.
///
/// Use it for conditions that nothing announces: memory that another process writes, a file that
/// appears. The predicate is called at once, and then each time the carrier looks at its timers and
/// events. It runs in the waiting fiber and should be short. If the carrier has nothing else to
/// run, it sleeps between the calls, up to 10 ms at a time.
///
/// A panic in the predicate unwinds the fiber. A predicate must not wait; in a fiber, a wait in it
/// panics. A plain thread sleeps between the calls. A cancelled fiber is unwound from here.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// sinew::run(|| {
///     let count = Arc::new(AtomicU32::new(0));
///     let counter = count.clone();
///     sinew::spawn(move || {
///         for _ in 0..3 {
///             counter.fetch_add(1, Ordering::Relaxed);
///             sinew::yield_now();
///         }
///     });
///     sinew::wait_until(|| count.load(Ordering::Relaxed) == 3);
/// });
/// ```
#[track_caller]
pub fn wait_until(predicate: impl FnMut() -> bool) {
    poll_predicate(predicate, clock::NEVER);
}

/// Waits until `predicate` is true, at most for `timeout`. Returns whether it became true.
///
/// The predicate is called once more when the time is over. Everything else is as in
/// [`wait_until`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// assert!(!sinew::wait_until_timeout(|| false, Duration::from_millis(1)));
/// ```
#[track_caller]
pub fn wait_until_timeout(predicate: impl FnMut() -> bool, timeout: Duration) -> bool {
    poll_predicate(predicate, clock::after(clock::now(), timeout))
}

/// Waits until `predicate` is true, at most until `deadline`. Returns whether it became true.
///
/// The predicate is called once more at the deadline. Everything else is as in [`wait_until`].
///
/// # Examples
/// ```
/// use std::time::Instant;
///
/// assert!(sinew::wait_until_deadline(|| true, Instant::now()));
/// ```
#[track_caller]
pub fn wait_until_deadline(predicate: impl FnMut() -> bool, deadline: Instant) -> bool {
    poll_predicate(predicate, clock::at(deadline))
}

#[track_caller]
fn poll_predicate(mut predicate: impl FnMut() -> bool, deadline: u64) -> bool {
    let mut pause = Duration::from_micros(50);
    loop {
        if without_waiting(&mut predicate) {
            return true;
        }
        let now = clock::now();
        if deadline <= now {
            return false;
        }
        // Skips the yield before a wait that `sinew_force_yield` adds in tests: nothing announces
        // the condition, so there is no race to provoke.
        let wait = Wait::begin_of(current::fiber(), WaitKind::Predicate, 0);
        let who = wait.who();
        let mut until = deadline;
        match wait.owner() {
            Some(owner) => {
                let waiter = wait.waiter();
                owner.pollers.borrow_mut().push((waiter.control(), waiter.epoch()));
            }
            None => {
                until = deadline.min(clock::after(now, pause));
                pause = (pause * 2).min(Duration::from_millis(10));
            }
        }
        let outcome = wait.suspend_until(until);
        settle(who, outcome);
        check_here(who);
    }
}

#[cfg(test)]
mod tests;
