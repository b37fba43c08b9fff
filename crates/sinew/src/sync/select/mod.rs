//! Waiting for the first of several operations, the *arms* of a `select`.
//!
//! # Protocol
//!
//! 1. *Try.* A quick look tells which arms seem ready. `select` picks one of these arms, each with
//!    the same chance, and tries it first. Then it tries the other arms that seem ready.
//! 2. *Enter.* If no operation is possible, `select` begins one wait, and every arm enters this
//!    wait into the list of its object. A granter has to claim the wait by an exchange before it
//!    grants an arm, so at most one arm is granted. An arm may find its operation possible while
//!    arms are being entered. It then claims the wait for its own fiber before it acts, because an
//!    arm that was entered earlier may have been granted. If the operation needs a waiter on the
//!    other side, the arm claims that waiter first. If the wait of this `select` has ended in the
//!    meantime, the arm wakes the other waiter without a grant, and that waiter waits again.
//! 3. *Leave.* Each entered arm leaves its list, under the lock of that list. A granted arm needs
//!    no lock. `select` selects the granted arm. If no arm was granted, it selects an arm whose
//!    operation has become possible and stays possible, such as a timer.
//!
//! A `select` with `Patience::None` begins no wait; `attempt_now` describes how it decides.
//!
//! Uses `park` for its one wait. Channels, futures, semaphores, tokens and `spawn::arm` implement
//! arms. `key.rs` has the arms that wait in the table of `park::table`, `timer.rs` has the arms for
//! time, and `macros.rs` has `select!`.

mod key;
mod macros;
mod timer;

pub(crate) use key::{Departure, KeyArm, SignalArm, done};
pub use timer::{TimerArm, after, at};

use crate::carrier::{Claimed, random};
use crate::clock;
use crate::fiber::WaitKind;
use crate::fiber::state::Outcome;
use crate::park::Wait;
use crate::park::raise;
use crate::report::NeverUnwinds;
use core::time::Duration;

pub(crate) mod sealed {
    use crate::park::Wait;

    /// The wait that all arms share. Only this crate can make one.
    #[derive(Clone, Copy)]
    #[expect(missing_debug_implementations, reason = "only this crate can make one")]
    pub struct Joint<'a>(pub(crate) &'a Wait);

    /// The result of entering an arm.
    #[derive(Debug)]
    pub enum Entered {
        /// The arm waits.
        Linked,
        /// The operation becomes possible at this moment.
        Until(u64),
        /// The operation was done at once.
        Done,
        /// The wait had ended before: for another arm, or by a cancellation.
        Lost,
        /// The object allows one waiter, and already has another one.
        Misused,
    }

    /// The state of an arm when it leaves the wait.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Left {
        /// Nothing was done for the arm.
        Nothing,
        /// The operation is possible. It has not been done, so nothing is lost if another arm is
        /// selected.
        Ready,
        /// The operation was done.
        Granted,
    }

    /// The interface of `select` to an arm. `select` calls `leave` after each `enter`, before it
    /// returns.
    pub trait Arm {
        /// Does the operation if it is possible at once; returns whether it was done.
        fn attempt(&mut self) -> bool;
        /// Returns whether an attempt seems worthwhile, by a quick look. If the operation is
        /// possible and no other thread changes the object, it returns true.
        fn seems_ready(&self) -> bool;
        /// Returns a number that changes when the operation stops being possible. An arm whose
        /// operation stays possible, once it is, always returns 0.
        fn version(&self) -> usize {
            0
        }
        /// Does the operation at once, or enters the wait. The arm does not move until it has left.
        fn enter(&mut self, wait: Joint<'_>) -> Entered;
        /// Leaves the wait.
        fn leave(&mut self) -> Left;
    }
}

use sealed::{Entered, Joint, Left};

/// An operation that [`select!`](crate::select) can wait for together with others.
///
/// Arms are made by `arm` methods, such as [`Receiver::arm`](super::channel::Receiver::arm) and
/// [`FiberFuture::arm`](super::FiberFuture::arm), and by [`after`] and [`at`].
///
/// # Examples
/// ```
/// use sinew::sync::{Arm, FiberFuture, Patience, channel, select};
///
/// /// Whether an operation is possible at once.
/// fn is_possible(arm: &mut dyn Arm) -> bool {
///     select(&mut [arm], Patience::None).is_some()
/// }
///
/// let (sender, receiver) = channel::bounded(1);
/// assert!(!is_possible(&mut receiver.arm()));
/// assert!(is_possible(&mut sender.arm(7))); // sends the message
/// assert!(!is_possible(&mut FiberFuture::<u32>::new().arm()));
/// ```
pub trait Arm: sealed::Arm {}

/// How long [`select()`] waits for an arm.
///
/// # Examples
/// ```
/// use sinew::sync::{Patience, channel, select};
/// use std::time::Duration;
///
/// let (sender, receiver) = channel::unbounded();
/// assert_eq!(select(&mut [&mut receiver.arm()], Patience::None), None);
/// let soon = Patience::For(Duration::from_millis(1));
/// assert_eq!(select(&mut [&mut receiver.arm()], soon), None);
/// sinew::spawn(move || sender.send(7).unwrap());
/// assert_eq!(select(&mut [&mut receiver.arm()], Patience::Forever), Some(0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Waits until an operation is done.
    Forever,
    /// Does not wait.
    None,
    /// Waits at most this long.
    For(Duration),
}

/// Waits until one of several operations is possible, does it, and returns the index of its arm.
/// Returns `None` if `patience` runs out first. If several operations are possible, `select` picks
/// one at random. The method `take` of the arm then returns the result.
///
/// Prefer the macro [`select!`](crate::select). Use this function if the number of arms is known
/// only at run time.
///
/// # Panics
/// Panics if there are no arms and `patience` is `Forever`, since the wait would never end. Panics
/// if an arm waits for a future that already has a waiter or a callback.
///
/// # Examples
/// ```
/// use sinew::sync::channel;
/// use sinew::sync::{Patience, select};
///
/// let channels: Vec<_> = (0..3).map(|_| channel::unbounded()).collect();
/// channels[1].0.send(7).unwrap();
/// let mut arms: Vec<_> = channels.iter().map(|(_, receiver)| receiver.arm()).collect();
/// let mut borrowed: Vec<_> = arms.iter_mut().map(|arm| arm as _).collect();
/// assert_eq!(select(&mut borrowed, Patience::Forever), Some(1));
/// assert_eq!(arms[1].take(), Ok(7));
/// ```
#[track_caller]
pub fn select(arms: &mut [&mut dyn Arm], patience: Patience) -> Option<usize> {
    let count = arms.len();
    let deadline = match patience {
        Patience::None => return attempt_now(arms),
        Patience::For(timeout) => clock::after(clock::now(), timeout),
        Patience::Forever => {
            assert!(count > 0, "select without an arm and without a timeout would wait for ever");
            clock::NEVER
        }
    };
    if let Some(index) = attempt_one(arms) {
        return Some(index);
    }
    let mut first = if count > 1 { random(count) } else { 0 };
    let address = core::ptr::from_ref(arms).addr();
    loop {
        let mut earliest = deadline;
        let wait = Wait::begin(WaitKind::Select, address);
        let who = wait.who();
        // From here on, granters may have pointers to the arms. A panic must not drop the arms
        // before they have left.
        let guard = NeverUnwinds("select panicked in the middle of a wait; aborting");
        let mut entered = 0;
        let (mut done, mut misused) = (None, false);
        for index in in_turn(first, count, count) {
            entered += 1;
            match arms[index].enter(Joint(&wait)) {
                Entered::Linked => {}
                Entered::Until(moment) => earliest = earliest.min(moment),
                Entered::Done => {
                    done = Some(index);
                    break;
                }
                Entered::Lost => break,
                Entered::Misused => {
                    misused = true;
                    break;
                }
            }
        }
        // An arm that was done at once has ended the wait, so the fiber must not suspend.
        let outcome = if done.is_some() || misused && wait.claim_for_itself() {
            Outcome::Notified
        } else {
            wait.suspend(earliest)
        };
        let (mut granted, mut ready) = (done, None);
        for index in in_turn(first, count, entered) {
            match arms[index].leave() {
                Left::Nothing => {}
                Left::Ready => ready = ready.or(Some(index)),
                Left::Granted => granted = Some(index),
            }
        }
        core::mem::forget(guard);
        if let Some(index) = granted.or(ready) {
            return Some(index);
        }
        assert!(!misused, "select waits for a future that already has a waiter or a callback");
        raise::settle(who, outcome);
        if outcome == Outcome::TimedOut && deadline <= clock::now() {
            return None;
        }
        // Woken without a result: wait again. A new random order keeps two selects from claiming
        // each other in vain again and again.
        first = random(count);
    }
}

/// Does one of the operations that seem possible at once, each with the same chance. Returns the
/// index of its arm.
fn attempt_one(arms: &mut [&mut dyn Arm]) -> Option<usize> {
    let count = arms.len();
    let ready = arms.iter().filter(|arm| arm.seems_ready()).count();
    let skip = match ready {
        0 => return None,
        1 => 0,
        _ => random(ready),
    };
    let mut ready = (0..count).filter(|index| arms[*index].seems_ready());
    let first = ready.nth(skip).unwrap_or(0);
    in_turn(first, count, count).find(|&index| arms[index].seems_ready() && arms[index].attempt())
}

/// Does one of the operations that are possible at this moment, without waiting. Returns the index
/// of its arm. Tries again if an arm has changed during the attempts: some operation may have been
/// possible at every moment, although each attempt came too early or too late. Gives up after 100
/// rounds, since arms may change without end.
fn attempt_now(arms: &mut [&mut dyn Arm]) -> Option<usize> {
    let mut before = versions(arms);
    for _ in 0..100 {
        if let Some(index) = attempt_one(arms) {
            return Some(index);
        }
        let now = versions(arms);
        if now == before || arms.len() == 1 {
            return None;
        }
        before = now;
    }
    None
}

/// Returns a number that changes when the version of an arm changes.
fn versions(arms: &[&mut dyn Arm]) -> usize {
    arms.iter().fold(0, |sum, arm| sum.wrapping_add(arm.version()))
}

/// Returns the indices of `most` of `count` arms, counting up from `first`. After the last index
/// comes index 0.
#[inline(always)]
fn in_turn(first: usize, count: usize, most: usize) -> impl Iterator<Item = usize> {
    let mut next = first;
    (0..most).map(move |_| {
        let index = next;
        next = if index + 1 == count { 0 } else { index + 1 };
        index
    })
}

/// Resumes the waiter that an arm has claimed, such as the receiver that waits for a message of a
/// sending arm.
pub(super) fn resume(claimed: Option<Claimed>) {
    if let Some(claimed) = claimed {
        claimed.resume();
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
