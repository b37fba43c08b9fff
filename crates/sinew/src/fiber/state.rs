//! The word that decides who ends a wait.
//!
//! # Layout
//!
//! ```text
//!  63                                   2 1 0
//! |  epoch: the number of the wait       |phase|
//! ```
//!
//! | phase | meaning |
//! | --- | --- |
//! | `WAITING` | the wait of this epoch has begun, nobody has ended it |
//! | `NOTIFIED` | ended by what was waited for |
//! | `TIMED_OUT` | ended by its deadline |
//! | `INTERRUPTED` | ended by a cancellation |
//!
//! # Transitions
//!
//! Only the waiter begins a wait: a plain store of the next epoch as `WAITING`, legal because an
//! ended word is changed by nobody else. Anybody who holds the epoch may end it: one
//! compare-exchange from `WAITING`, and who succeeds makes the waiter runnable, alone.
//!
//! Epochs only grow, also when the control block goes to another fiber. So an epoch that somebody
//! kept too long matches nothing, and a late wake does nothing.

use crate::primitive::{AtomicU64, Ordering};

const PHASE: u64 = 0b11;
const WAITING: u64 = 0b11;
const NOTIFIED: u64 = 0b00;
const TIMED_OUT: u64 = 0b01;
const INTERRUPTED: u64 = 0b10;
const STEP: u64 = 0b100;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Notified,
    TimedOut,
    Interrupted,
}

impl Outcome {
    fn phase(self) -> u64 {
        match self {
            Outcome::Notified => NOTIFIED,
            Outcome::TimedOut => TIMED_OUT,
            Outcome::Interrupted => INTERRUPTED,
        }
    }
}

/// The number of one wait of one control block, as the word that says `WAITING`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Epoch(u64);

impl Epoch {
    /// One that never comes.
    pub(crate) const NEVER: Epoch = Epoch(u64::MAX);

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// How many waits there were before.
    pub(crate) fn number(self) -> u64 {
        self.0 / STEP
    }

    /// The epoch of which [`bits`](Self::bits) gave the number; any other number is an epoch that
    /// never comes.
    pub(crate) fn from_bits(bits: u64) -> Epoch {
        Epoch(bits | WAITING)
    }
}

/// The word; see the page of this module.
#[derive(Debug)]
pub(crate) struct WakeWord(AtomicU64);

impl WakeWord {
    pub(crate) fn new() -> WakeWord {
        WakeWord(AtomicU64::new(NOTIFIED))
    }

    /// How many waits there were, for [`restart`](Self::restart).
    pub(crate) fn epochs(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / STEP
    }

    /// Has the next wait be the one after so many. The block is vacant, and has had no more.
    pub(crate) fn restart(&self, epochs: u64) {
        self.0.store((epochs * STEP) | NOTIFIED, Ordering::Relaxed);
    }

    /// Begins the next wait. Only the waiter calls this, while no wait of its is under way.
    #[inline(always)]
    pub(crate) fn begin(&self) -> Epoch {
        let old = self.0.load(Ordering::Relaxed);
        if old & PHASE == WAITING {
            nested();
        }
        let epoch = (old & !PHASE).wrapping_add(STEP) | WAITING;
        // ORDERING: Release publishes what the waiter wrote before, as the wait's record; pairs
        // with the Acquire in `claim`. Whoever learns the epoch learns it through something that
        // is published later still.
        self.0.store(epoch, Ordering::Release);
        Epoch(epoch)
    }

    /// Ends the wait `epoch` if nobody has: true for exactly one caller.
    #[inline(always)]
    pub(crate) fn claim(&self, epoch: Epoch, outcome: Outcome) -> bool {
        // ORDERING: AcqRel: the winner sees what the waiter wrote before the wait, and the waiter
        // sees what the winner wrote before the wake, through the queue that the winner puts it in.
        self.0
            .compare_exchange(
                epoch.0,
                epoch.0 & !PHASE | outcome.phase(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Ends the wait `epoch` without an atomic read-modify-write.
    ///
    /// The caller runs on the waiter's carrier and knows that nobody on another thread can end
    /// this wait.
    #[inline(always)]
    pub(crate) fn claim_alone(&self, epoch: Epoch, outcome: Outcome) -> bool {
        if self.0.load(Ordering::Relaxed) != epoch.0 {
            return false;
        }
        self.0.store(epoch.0 & !PHASE | outcome.phase(), Ordering::Relaxed);
        true
    }

    /// The wait under way, if there is one.
    #[inline(always)]
    pub(crate) fn waiting(&self) -> Option<Epoch> {
        // ORDERING: Acquire: pairs with the Release in `begin`.
        let word = self.0.load(Ordering::Acquire);
        (word & PHASE == WAITING).then_some(Epoch(word))
    }

    /// Whether the wait `epoch` has not been ended.
    #[inline(always)]
    pub(crate) fn is_waiting(&self, epoch: Epoch) -> bool {
        // ORDERING: Acquire: pairs with the AcqRel in `claim`, for threads that look by themselves.
        self.0.load(Ordering::Acquire) == epoch.0
    }

    /// How many waits there were: the lower half of the number.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) / STEP) as u32
    }

    /// How the last wait ended.
    #[inline(always)]
    pub(crate) fn outcome(&self) -> Outcome {
        match self.0.load(Ordering::Relaxed) & PHASE {
            NOTIFIED => Outcome::Notified,
            TIMED_OUT => Outcome::TimedOut,
            INTERRUPTED => Outcome::Interrupted,
            _ => unreachable!("a fiber runs although its wait was not ended"),
        }
    }

    /// The half of the word that a thread can sleep on: it changes when the wait ends.
    #[cfg(not(sinew_loom))]
    pub(crate) fn futex(&self) -> (*const u32, fn(Epoch) -> u32) {
        let low = (&raw const self.0).cast::<u32>();
        let low = if cfg!(target_endian = "big") { low.wrapping_add(1) } else { low };
        (low, |epoch| epoch.0 as u32)
    }
}

/// Somebody waits between the beginning of a wait and its suspension: a lock of somebody else's that
/// waits when it is unlocked, for instance. The fiber would be in two places at once.
#[cold]
#[inline(never)]
fn nested() -> ! {
    #[cfg(not(sinew_loom))]
    crate::report::abort(format_args!("a wait begins inside another; aborting"));
    #[cfg(sinew_loom)]
    std::process::abort();
}

#[cfg(all(test, sinew_loom))]
mod loom;
#[cfg(all(test, not(sinew_loom)))]
mod tests;
