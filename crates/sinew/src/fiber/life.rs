//! The word that counts who still needs a control block, and says how far its fiber has come.
//!
//! # Layout
//!
//! ```text
//!  63         40 39       32 31            0
//! | registrations |  marks  |  references   |
//! ```
//!
//! | mark | set by | meaning |
//! | --- | --- | --- |
//! | `STARTED` | the carrier that runs it first | the fiber is bound to that carrier, until it ends or rests |
//! | `CANCELLED` | anybody | its next wait shall unwind it |
//! | `JOINING` | the holder of the join handle | `joiner` names whom to wake |
//! | `WATCHED` | anybody | somebody waits for the end in the waiter table |
//! | `POLLED` | the holder of the join handle | a future's waker is to be woken |
//! | `DETACHED` | the holder of the join handle | nobody will take the result |
//! | `FINISHED` | the fiber | the result is in place |
//! | `FAILED` | the fiber, before `FINISHED` | a panic ended it, other than a cancellation |
//!
//! # References
//!
//! One belongs to the runtime, from the submission until the fiber has finished; one to the join
//! handle; the rest to `Fiber` handles, wakers and messages. Who drops the last one frees the
//! block. A block that is free has no reference, and `try_acquire` refuses it.
//!
//! The end of a fiber is one compare-exchange: it sets `FINISHED` and drops the runtime's
//! reference. Whom to wake is read before it; if somebody registers in between, the exchange
//! fails and is done again. Registrations are counted in the word, so that one that came and went
//! and came again is noticed.

use crate::primitive::{AtomicU64, Ordering};

const ONE: u64 = 1;
const REFERENCES: u64 = 0xFFFF_FFFF;
/// Far more references than memory can hold handles for, unless they are forgotten in a loop.
const TOO_MANY: u64 = 1 << 31;

pub(crate) const STARTED: u64 = 1 << 32;
pub(crate) const CANCELLED: u64 = 1 << 33;
pub(crate) const JOINING: u64 = 1 << 34;
pub(crate) const WATCHED: u64 = 1 << 35;
pub(crate) const FINISHED: u64 = 1 << 36;
pub(crate) const POLLED: u64 = 1 << 37;
pub(crate) const DETACHED: u64 = 1 << 38;
pub(crate) const FAILED: u64 = 1 << 39;

/// One registration of a joiner.
const REGISTRATION: u64 = 1 << 40;

/// The word; see the page of this module.
#[derive(Debug)]
pub(crate) struct Life(AtomicU64);

impl Life {
    pub(crate) const fn free() -> Life {
        Life(AtomicU64::new(0))
    }

    /// Brings a free block to life with `references`.
    #[inline(always)]
    pub(crate) fn begin(&self, references: u64) {
        // ORDERING: Release publishes the block's fields to whoever scans the slab.
        self.0.store(references, Ordering::Release);
    }

    /// The marks that are set, as far as a look tells.
    #[inline(always)]
    pub(crate) fn marks(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & !REFERENCES
    }

    /// Whether the fiber is bound to a carrier.
    pub(crate) fn has_started(&self) -> bool {
        // ORDERING: Acquire: the carrier; pairs with the Release in `set`.
        self.0.load(Ordering::Acquire) & STARTED != 0
    }

    /// Whether there is no fiber, or one that has ended.
    pub(crate) fn is_vacant(&self) -> bool {
        // ORDERING: Acquire: the block's fields; pairs with the Release in `begin`.
        let word = self.0.load(Ordering::Acquire);
        word & REFERENCES == 0 || word & FINISHED != 0
    }

    /// Whether nothing refers to the block: it has neither a fiber nor the result of one.
    pub(crate) fn is_unused(&self) -> bool {
        self.0.load(Ordering::Relaxed) & REFERENCES == 0
    }

    /// Whether the result is there to be read.
    #[inline(always)]
    pub(crate) fn is_finished(&self) -> bool {
        // ORDERING: Acquire: the result; pairs with the exchange in `finish`.
        self.0.load(Ordering::Acquire) & FINISHED != 0
    }

    /// Whether the fiber has ended, by a panic.
    pub(crate) fn has_failed(&self) -> bool {
        // ORDERING: Acquire: what the fiber wrote until its end; pairs with the exchange in `finish`.
        self.0.load(Ordering::Acquire) & (FINISHED | FAILED) == FINISHED | FAILED
    }

    /// Sets `marks`; returns those that were set before.
    #[inline(always)]
    pub(crate) fn set(&self, marks: u64) -> u64 {
        // ORDERING: AcqRel: publishes what was written for whoever acts on the mark, and shows
        // what was published with the marks that were there.
        self.0.fetch_or(marks, Ordering::AcqRel) & !REFERENCES
    }

    /// Sets `JOINING`, which is not set; returns the marks that were set before. Only the holder of
    /// the join handle calls this.
    #[inline(always)]
    pub(crate) fn register_joiner(&self) -> u64 {
        // ORDERING: as in `set`.
        self.0.fetch_add(JOINING + REGISTRATION, Ordering::AcqRel) & !REFERENCES
    }

    /// Takes `marks` back; returns those that were set before.
    #[inline(always)]
    pub(crate) fn clear(&self, marks: u64) -> u64 {
        // ORDERING: as in `set`.
        self.0.fetch_and(!marks, Ordering::AcqRel) & !REFERENCES
    }

    /// Ends the fiber and drops the runtime's reference. `look` is told the marks, to read what
    /// belongs to them, and is called again if they changed.
    ///
    /// Returns what `look` returned last, and whether no reference is left.
    #[inline(always)]
    pub(crate) fn finish<R>(&self, mut look: impl FnMut(u64) -> R) -> (R, bool) {
        // ORDERING: Acquire: what was published with the marks.
        let mut old = self.0.load(Ordering::Acquire);
        loop {
            let seen = look(old & !REFERENCES);
            // `look` may have added a reference.
            let new = (old | FINISHED) - ONE;
            // ORDERING: AcqRel: Release publishes the result, Acquire as above. Whoever finds
            // itself the last sees everything that the others did.
            match self.0.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (seen, new & REFERENCES == 0),
                Err(now) => old = now,
            }
        }
    }

    /// Adds a reference to what the caller has one of.
    pub(crate) fn acquire(&self) {
        let old = self.0.fetch_add(ONE, Ordering::Relaxed);
        if old & REFERENCES >= TOO_MANY {
            // As `Arc` does: a count that wraps round would free what is in use.
            std::process::abort();
        }
    }

    /// Adds a reference unless the block is free or its fiber has finished.
    pub(crate) fn try_acquire(&self) -> bool {
        // ORDERING: Acquire: the block's fields; pairs with the Release in `begin`.
        self.0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |old| {
                let alive = old & REFERENCES != 0 && old & FINISHED == 0;
                (alive && old & REFERENCES < TOO_MANY).then_some(old + ONE)
            })
            .is_ok()
    }

    /// Drops a reference; true if it was the last, and the caller must free the block.
    #[inline(always)]
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        // The last reference to a fiber that has finished: nobody else can come, since
        // `try_acquire` refuses those. It saves the exchange in the common case of a join.
        // ORDERING: Acquire: what the others did before they left.
        if self.0.load(Ordering::Acquire) & (REFERENCES | FINISHED) == ONE | FINISHED {
            self.0.store(0, Ordering::Relaxed);
            return true;
        }
        // ORDERING: AcqRel: as in `finish`.
        self.0.fetch_sub(ONE, Ordering::AcqRel) & REFERENCES == ONE
    }
}
