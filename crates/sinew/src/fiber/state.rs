//! The wake word, which decides which waker ends a wait.
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
//! | `WAITING` | the wait of this epoch has begun and has not ended |
//! | `NOTIFIED` | ended by a waker: the awaited event has happened |
//! | `TIMED_OUT` | ended by its deadline |
//! | `INTERRUPTED` | ended by a cancellation |
//!
//! # Transitions
//!
//! Only the waiter begins a wait. It does so by a plain store of the next epoch as `WAITING`, which
//! is legal because no other thread changes an ended word. Any holder of the epoch may end the
//! wait, by one compare-exchange from `WAITING`. Only the thread that succeeds makes the waiter
//! runnable.
//!
//! Epochs only grow, also when the control block goes to another fiber. So an epoch that was kept
//! too long matches nothing, and a late wake does nothing.

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

/// The number of one wait of one control block, in the form of the word that says `WAITING`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Epoch(u64);

impl Epoch {
    /// An epoch that never comes.
    pub(crate) const NEVER: Epoch = Epoch(u64::MAX);

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Returns the number of the wait. The first wait of a block has number one.
    pub(crate) fn number(self) -> u64 {
        self.0 / STEP
    }

    /// Rebuilds an epoch from its [`bits`](Self::bits). Any other number gives an epoch that never
    /// comes.
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

    /// Returns the number of waits so far, for [`restart`](Self::restart).
    pub(crate) fn epochs(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / STEP
    }

    /// Continues the numbering after `epochs` waits. The block is vacant, and has had no more waits
    /// than that.
    pub(crate) fn restart(&self, epochs: u64) {
        self.0.store((epochs * STEP) | NOTIFIED, Ordering::Relaxed);
    }

    /// Begins the next wait. Only the waiter calls this, while it is in no other wait.
    #[inline(always)]
    pub(crate) fn begin(&self) -> Epoch {
        let old = self.0.load(Ordering::Relaxed);
        if old & PHASE == WAITING {
            nested();
        }
        let epoch = (old & !PHASE).wrapping_add(STEP) | WAITING;
        // ORDERING: Release publishes the waiter's earlier writes, such as the wait's record; pairs
        // with the Acquire in `claim` and `waiting`. Wakers learn the epoch through a registration,
        // which is published later still.
        self.0.store(epoch, Ordering::Release);
        Epoch(epoch)
    }

    /// Ends the wait `epoch`, unless it was ended before. Returns true to exactly one caller.
    #[inline(always)]
    pub(crate) fn claim(&self, epoch: Epoch, outcome: Outcome) -> bool {
        // ORDERING: AcqRel. The winner sees the waiter's writes before the wait; pairs with the
        // Release in `begin`. The waiter sees the winner's writes before the wake, through the
        // queue that the winner puts it in.
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
    /// The caller runs on the waiter's carrier, and knows that no other thread can end this wait.
    #[inline(always)]
    pub(crate) fn claim_alone(&self, epoch: Epoch, outcome: Outcome) -> bool {
        if self.0.load(Ordering::Relaxed) != epoch.0 {
            return false;
        }
        self.0.store(epoch.0 & !PHASE | outcome.phase(), Ordering::Relaxed);
        true
    }

    /// Returns the epoch of the wait under way, if there is one.
    #[inline(always)]
    pub(crate) fn waiting(&self) -> Option<Epoch> {
        // ORDERING: Acquire; pairs with the Release in `begin`.
        let word = self.0.load(Ordering::Acquire);
        (word & PHASE == WAITING).then_some(Epoch(word))
    }

    /// Returns whether the wait `epoch` is still under way.
    #[inline(always)]
    pub(crate) fn is_waiting(&self, epoch: Epoch) -> bool {
        // ORDERING: Acquire; pairs with the AcqRel in `claim`, for a thread that checks its own
        // wait.
        self.0.load(Ordering::Acquire) == epoch.0
    }

    /// Returns the low 32 bits of the number of waits so far.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) / STEP) as u32
    }

    /// Returns how the last wait ended.
    #[inline(always)]
    pub(crate) fn outcome(&self) -> Outcome {
        match self.0.load(Ordering::Relaxed) & PHASE {
            NOTIFIED => Outcome::Notified,
            TIMED_OUT => Outcome::TimedOut,
            INTERRUPTED => Outcome::Interrupted,
            _ => unreachable!("a fiber runs although its wait was not ended"),
        }
    }

    /// Returns the half of the word that a thread can sleep on, and the function that gives its
    /// value for an epoch. The half changes when the wait ends.
    pub(crate) fn futex(&self) -> (*const u32, fn(Epoch) -> u32) {
        let low = (&raw const self.0).cast::<u32>();
        let low = if cfg!(target_endian = "big") { low.wrapping_add(1) } else { low };
        (low, |epoch| epoch.0 as u32)
    }
}

/// Aborts the process, because a wait begins while another wait of the same fiber is under way. For
/// instance, a wait has begun, and a foreign lock waits in its unlock. The fiber would be in two
/// places at once.
#[cold]
#[inline(never)]
fn nested() -> ! {
    crate::report::abort(format_args!("a wait begins inside another; aborting"));
}

#[cfg(all(test, sinew_loom))]
mod loom;
#[cfg(all(test, not(sinew_loom)))]
mod tests;
