//! Sleeping, and waiting for conditions that nothing announces.

use crate::cancel;
use crate::carrier::current;
use crate::clock;
use crate::fiber::state::Outcome;
use crate::fiber::{Flags, WaitKind};
use crate::park::{Wait, without_waiting};
use core::time::Duration;
use std::time::Instant;

/// Suspends the running fiber for at least `duration`.
///
/// Its carrier runs other fibers meanwhile; a plain thread sleeps. `Duration::ZERO` lets other
/// fibers run once, and `Duration::MAX` sleeps forever. A cancelled fiber is unwound from here.
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
/// once.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(1);
/// sinew::sleep_until(deadline);
/// assert!(Instant::now() >= deadline);
/// ```
#[track_caller]
pub fn sleep_until(deadline: Instant) {
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
        // The record of the wait has the deadline, for inspection.
        let wait = Wait::begin(WaitKind::Sleep, deadline as usize);
        let who = wait.who();
        let outcome = wait.suspend(deadline);
        cancel::settle(who, outcome);
        // Outside of deadline scopes, a timeout can only be the end of the sleep.
        let own = outcome == Outcome::TimedOut && !who.flags().has(Flags::DEADLINE);
        if own || deadline <= clock::now() {
            return;
        }
    }
}

/// Waits until `predicate` is true, and returns whether it became true within `timeout`. Without a
/// timeout it waits forever.
///
/// For conditions that nothing announces: memory that another process writes, a file that appears.
/// The predicate is asked at once, then whenever the carrier looks after its duties, and once more
/// at the deadline. It runs in the waiting fiber and should be short. While all fibers of a carrier
/// wait like this, the carrier sleeps between the questions, up to 10 ms at a time.
///
/// A panic in the predicate unwinds the fiber, and waiting in it is an error. A plain thread sleeps
/// between the questions.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::time::Duration;
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
///     assert!(sinew::wait_until(|| count.load(Ordering::Relaxed) == 3, None));
///     let in_time = sinew::wait_until(|| false, Some(Duration::from_millis(1)));
///     assert!(!in_time);
/// });
/// ```
#[track_caller]
pub fn wait_until(mut predicate: impl FnMut() -> bool, timeout: Option<Duration>) -> bool {
    let deadline = timeout.map_or(clock::NEVER, |timeout| clock::after(clock::now(), timeout));
    let mut pause = Duration::from_micros(50);
    loop {
        if without_waiting(&mut predicate) {
            return true;
        }
        let now = clock::now();
        if deadline <= now {
            return false;
        }
        let fiber = current::fiber();
        // Skips the yield before a wait that `sinew_force_yield` adds in tests: nothing announces
        // the condition, so there is no race to provoke.
        let wait = Wait::begin_of(fiber, WaitKind::Predicate, 0);
        let who = wait.who();
        let mut until = deadline;
        match fiber {
            Some((carrier, control)) if core::ptr::eq(control, wait.waiter().control()) => {
                let waiter = wait.waiter();
                // SAFETY: this is the carrier's thread, and nothing here uses the list meanwhile.
                unsafe { (*carrier.pollers.get()).push((waiter.control(), waiter.epoch())) };
            }
            _ => {
                until = deadline.min(clock::after(now, pause));
                pause = (pause * 2).min(Duration::from_millis(10));
            }
        }
        let outcome = wait.suspend(until);
        cancel::settle(who, outcome);
        cancel::check_here(who);
    }
}
