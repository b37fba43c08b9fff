//! Waiting for the first of several.
//!
//! # Protocol
//!
//! One of the arms that seem ready, by a look without locks, is tried, each as likely as the others, and
//! then the rest of them. If none can be done, one wait is begun and entered into every arm's list; who
//! grants one of them has to claim the wait, by an exchange, so exactly one does. An
//! arm that can be done while the arms are being entered claims the wait as well, for its own fiber,
//! before it does it: the arms that were entered before may have been granted already. If it takes
//! somebody on the other side for it, that one is claimed first; should it turn out then that the
//! wait has been granted elsewhere, the other side is woken empty-handed and waits again.
//!
//! Then all arms are left, under their locks but for one that was granted, and that one is known.
//!
//! Who does not wait has to be sure: see `attempt_now`.

mod key;
mod macros;
mod timer;

pub(crate) use key::{Departure, KeyArm, SignalArm, done};
pub use timer::{TimerArm, after, at};

use crate::cancel;
use crate::carrier::{Claimed, current};
use crate::clock;
use crate::fiber::WaitKind;
use crate::fiber::state::Outcome;
use crate::park::Wait;
use crate::park::list::NeverUnwinds;
use crate::primitive::{AtomicU64, Ordering};
use core::time::Duration;

pub(crate) mod sealed {
    use crate::park::Wait;

    /// The wait that all arms share. Only this crate can have one.
    #[derive(Clone, Copy)]
    #[expect(missing_debug_implementations, reason = "nobody can have one")]
    pub struct Joint<'a>(pub(crate) &'a Wait);

    /// What came of entering an arm.
    #[derive(Debug)]
    pub enum Entered {
        /// It waits.
        Linked,
        /// It can be done at that moment.
        Until(u64),
        /// It was done at once.
        Done,
        /// The wait has been ended for another arm.
        Lost,
        /// Somebody else waits where only one can.
        Misused,
    }

    /// What an arm found when it was left.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Left {
        /// Nothing was done for it.
        Nothing,
        /// It can be done, whether or not the wait was ended for it, and nothing is lost if not.
        Ready,
        /// It was done.
        Granted,
    }

    /// What `select` does with an arm. It calls `leave` after each `enter`, before it returns.
    pub trait Arm {
        /// Does it if that is possible at once.
        fn attempt(&mut self) -> bool;
        /// Whether it is worth an attempt, by a quick look. If it can be done at a moment when nothing
        /// changes, this is true.
        fn seems_ready(&self) -> bool;
        /// A number that changes when it can be done no longer. For what can be done for ever once it
        /// can be, none is needed.
        fn version(&self) -> usize {
            0
        }
        /// Does it at once or enters the wait. The arm stays where it is until it was left.
        fn enter(&mut self, wait: Joint<'_>) -> Entered;
        /// Leaves the wait.
        fn leave(&mut self) -> Left;
    }
}

use sealed::{Entered, Joint, Left};

/// An operation that [`select!`](crate::select) can wait for with others.
///
/// Made by the `arm` methods of what can be waited for, such as
/// [`Receiver::arm`](super::channel::Receiver::arm) and
/// [`FiberFuture::arm`](super::FiberFuture::arm), and by [`after`] and [`at`].
pub trait Arm: sealed::Arm {}

/// How long to wait for an arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Until one is done.
    Forever,
    /// Not at all.
    None,
    /// So long.
    For(Duration),
}

/// Does the first of several operations that can be done, chosen at random if there are several;
/// returns its index, or `None` if patience ran out.
///
/// [`select!`](crate::select) is the form to use; this is for arms whose number is not known before.
///
/// # Panics
/// Without arms and for ever: that would never end.
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
            assert!(count > 0, "select without an arm would wait for ever");
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
        // Arms are linked from here on: they must not go before they were left.
        let guard = NeverUnwinds("select");
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
        // Done at once, the wait has been ended, and is not suspended on.
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
        assert!(!misused, "select waits for a future that somebody waits for already");
        cancel::settle(who, outcome);
        if outcome == Outcome::TimedOut && deadline <= clock::now() {
            return None;
        }
        // Woken for something else: wait again, in another order. Two that take each other in vain do
        // not go on so.
        first = random(count);
    }
}

/// Does one of those that can be done at once, any of them as likely as the others.
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

/// Does one of those that can be done at this moment. Tries again as long as something has changed
/// while the arms were tried one after the other: if one could be done at every moment, though not the
/// same one, it is found. Not for ever, since what changes all the time tells nobody anything.
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

/// A number that changes with the version of any arm.
fn versions(arms: &[&mut dyn Arm]) -> usize {
    arms.iter().fold(0, |sum, arm| sum.wrapping_add(arm.version()))
}

/// The first `most` of `count` arms, in turn, beginning with `first`.
#[inline(always)]
fn in_turn(first: usize, count: usize, most: usize) -> impl Iterator<Item = usize> {
    let mut next = first;
    (0..most).map(move |_| {
        let index = next;
        next = if index + 1 == count { 0 } else { index + 1 };
        index
    })
}

/// A random number below `end`, good enough for fairness.
#[cfg(not(sinew_loom))]
fn random(end: usize) -> usize {
    static STATE: AtomicU64 = AtomicU64::new(0);
    let number = match current::running() {
        Some((carrier, _)) => carrier.random(),
        None => {
            let mut number = STATE.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            number ^ number >> 31
        }
    };
    ((u128::from(number) * end as u128) >> 64) as usize
}

/// In a model everything is repeatable.
#[cfg(sinew_loom)]
use crate::model::random;

/// Makes whoever was claimed on the other side run.
pub(super) fn resume(claimed: Option<Claimed>) {
    if let Some(claimed) = claimed {
        claimed.resume();
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
