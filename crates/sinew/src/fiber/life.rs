//! The word that counts the users of a control block, and says how far its fiber has come.
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
//! | `CANCELLED` | any thread | its next wait shall unwind it |
//! | `JOINING` | the holder of the join handle | `joiner` names the joiner to wake |
//! | `WATCHED` | any thread | the waiter table has waiters for the end |
//! | `POLLED` | the holder of the join handle | a future's waker is to be woken |
//! | `DETACHED` | the holder of the join handle | the result will not be taken |
//! | `FINISHED` | the fiber | the result is in place |
//! | `FAILED` | the fiber, before `FINISHED` | a panic ended it, other than a cancellation |
//!
//! # References
//!
//! One reference belongs to the runtime, from the submission until the fiber has finished; one to
//! the join handle; the rest to `Fiber` handles, wakers and messages. The holder that drops the
//! last one frees the block. A free block has no reference, and `try_acquire` refuses it.
//!
//! The end of a fiber is one compare-exchange: it sets `FINISHED` and drops the runtime's
//! reference. The fiber reads the joiner before that. If a joiner registers in between, the
//! exchange fails and is tried again. Registrations are counted in the word, so that the exchange
//! also notices a joiner that left and registered again.

use crate::primitive::{AtomicU64, Ordering};

const ONE: u64 = 1;
const REFERENCES: u64 = 0xFFFF_FFFF;
/// Far more references than memory can hold handles for, unless handles are forgotten in a loop.
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
        // ORDERING: Release publishes the block's fields to threads that scan the slab; pairs with
        // the Acquire in `is_vacant` and `try_acquire`.
        self.0.store(references, Ordering::Release);
    }

    /// Returns the marks, as far as a racy look tells.
    #[inline(always)]
    pub(crate) fn marks(&self) -> u64 {
        self.0.load(Ordering::Relaxed) & !REFERENCES
    }

    /// Returns whether the fiber is bound to a carrier.
    pub(crate) fn has_started(&self) -> bool {
        // ORDERING: Acquire shows the carrier; pairs with the Release in `set`.
        self.0.load(Ordering::Acquire) & STARTED != 0
    }

    /// Returns whether the block has no fiber, or one that has ended.
    pub(crate) fn is_vacant(&self) -> bool {
        // ORDERING: Acquire shows the block's fields; pairs with the Release in `begin`.
        let word = self.0.load(Ordering::Acquire);
        word & REFERENCES == 0 || word & FINISHED != 0
    }

    /// Returns whether the block has no reference, so that it has neither a fiber nor a result.
    pub(crate) fn is_unused(&self) -> bool {
        self.0.load(Ordering::Relaxed) & REFERENCES == 0
    }

    /// Returns whether the result is there to be read.
    #[inline(always)]
    pub(crate) fn is_finished(&self) -> bool {
        // ORDERING: Acquire shows the result; pairs with the exchange in `finish`.
        self.0.load(Ordering::Acquire) & FINISHED != 0
    }

    /// Returns whether a panic has ended the fiber.
    pub(crate) fn has_failed(&self) -> bool {
        // ORDERING: Acquire shows the fiber's writes; pairs with the exchange in `finish`.
        self.0.load(Ordering::Acquire) & (FINISHED | FAILED) == FINISHED | FAILED
    }

    /// Sets `marks`. Returns the marks that were set before.
    #[inline(always)]
    pub(crate) fn set(&self, marks: u64) -> u64 {
        // ORDERING: AcqRel. Publishes the caller's writes to the threads that act on the mark, and
        // shows the writes that were published with earlier marks.
        self.0.fetch_or(marks, Ordering::AcqRel) & !REFERENCES
    }

    /// Sets `JOINING`, which must not be set. Returns the marks that were set before. Only the
    /// holder of the join handle calls this.
    #[inline(always)]
    pub(crate) fn register_joiner(&self) -> u64 {
        // ORDERING: as in `set`.
        self.0.fetch_add(JOINING + REGISTRATION, Ordering::AcqRel) & !REFERENCES
    }

    /// Clears `marks`. Returns the marks that were set before.
    #[inline(always)]
    pub(crate) fn clear(&self, marks: u64) -> u64 {
        // ORDERING: as in `set`.
        self.0.fetch_and(!marks, Ordering::AcqRel) & !REFERENCES
    }

    /// Ends the fiber and drops the runtime's reference.
    ///
    /// `look` gets the marks and reads the fields that belong to them. It is called again if the
    /// word has changed meanwhile. Returns its last result, and whether no reference is left.
    #[inline(always)]
    pub(crate) fn finish<R>(&self, mut look: impl FnMut(u64) -> R) -> (R, bool) {
        // ORDERING: Acquire shows the writes that were published with the marks; pairs with the
        // Release in `set`.
        let mut old = self.0.load(Ordering::Acquire);
        loop {
            let seen = look(old & !REFERENCES);
            // If `look` has added a reference, the exchange fails and is tried again.
            let new = (old | FINISHED) - ONE;
            // ORDERING: AcqRel. Release publishes the result; Acquire as above. The thread that
            // drops the last reference sees all writes of the earlier holders.
            match self.0.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (seen, new & REFERENCES == 0),
                Err(now) => old = now,
            }
        }
    }

    /// Adds a reference. The caller has one already.
    pub(crate) fn acquire(&self) {
        let old = self.0.fetch_add(ONE, Ordering::Relaxed);
        if old & REFERENCES >= TOO_MANY {
            // As `Arc` does: a count that wraps around would free a block in use.
            std::process::abort();
        }
    }

    /// Adds a reference, unless the block is free or its fiber has finished.
    pub(crate) fn try_acquire(&self) -> bool {
        // ORDERING: Acquire shows the block's fields; pairs with the Release in `begin`.
        self.0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |old| {
                let alive = old & REFERENCES != 0 && old & FINISHED == 0;
                (alive && old & REFERENCES < TOO_MANY).then_some(old + ONE)
            })
            .is_ok()
    }

    /// Drops a reference. Returns true if it was the last, and the caller must free the block.
    #[inline(always)]
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        // The last reference to a finished fiber: no other can appear, since `try_acquire` refuses
        // a finished fiber. This saves the exchange in the common case of a join.
        // ORDERING: Acquire shows the writes of the earlier holders; pairs with the Release in
        // `finish` and below.
        if self.0.load(Ordering::Acquire) & (REFERENCES | FINISHED) == ONE | FINISHED {
            self.0.store(0, Ordering::Relaxed);
            return true;
        }
        // ORDERING: AcqRel; as in `finish`.
        self.0.fetch_sub(ONE, Ordering::AcqRel) & REFERENCES == ONE
    }
}
