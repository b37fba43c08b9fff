//! The readers' path: locking and unlocking for a reader that shares the lock.
//!
//! The page of `raw` has the word and the rules. Next: `upgrade`.

use super::{
    EXCLUSIVE, EXCLUSIVE_WAITERS, Limit, NORMAL, ONE, RIGHT, RawLock, SHARED_WAITERS, SPINS,
    UPGRADABLE, WAITERS, anyhow, me, worth_spinning,
};
use crate::carrier::current;
use crate::park::list::Ended;
use crate::park::table::Entry;
use crate::primitive::Ordering;
use crate::sync::priority::Priority;
use core::hint::spin_loop;

/// How often a reader pauses after it has lost a race for the word.
const PAUSES: u32 = 8;

impl<P: Priority> RawLock<P> {
    /// Bits that keep a new reader out.
    pub(super) const CLOSED: usize =
        if P::READERS_FIRST { EXCLUSIVE } else { EXCLUSIVE | EXCLUSIVE_WAITERS };

    #[inline(always)]
    pub(in crate::sync) fn try_lock_shared(&self) -> bool {
        self.try_share(Self::CLOSED, ONE)
    }

    /// Locks for reading if no writer holds the lock, even if writers wait: the caller may already
    /// be a reader.
    pub(in crate::sync) fn try_lock_shared_again(&self) -> bool {
        self.try_share(EXCLUSIVE, ONE)
    }

    /// Locks for reading, unless one of the bits of `unless` is set.
    #[inline(always)]
    pub(super) fn try_share(&self, unless: usize, what: usize) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & unless != 0 {
                // If there is an owner, the highest bit belongs to its address; the result is false
                // either way.
                return false;
            }
            let new = more(word, what);
            // ORDERING: Acquire; as in `take_free`.
            match self.0.compare_exchange(word, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(_) => word = self.look_again(),
            }
        }
    }

    /// Returns the word after a pause. If all readers retried at once, every retry would move the
    /// cache line to another processor.
    #[cold]
    fn look_again(&self) -> usize {
        for _ in 0..PAUSES {
            spin_loop();
        }
        self.0.load(Ordering::Relaxed)
    }

    /// Locks for reading. Returns false if the deadline passes first.
    ///
    /// With `again`, the caller may already be a reader, and waiting writers do not keep it out.
    #[inline(always)]
    #[track_caller]
    pub(in crate::sync) fn lock_shared(&self, deadline: u64, again: bool) -> bool {
        let unless = if again { EXCLUSIVE } else { Self::CLOSED };
        self.try_share(unless, ONE) || self.share_slow(Limit::till(deadline), unless, ONE)
    }

    /// Locks for reading. Like [`lock_anyhow`](Self::lock_anyhow), neither unwinds nor gives up.
    #[inline(always)]
    #[track_caller]
    pub(in crate::sync) fn lock_shared_anyhow(&self, again: bool) {
        let unless = if again { EXCLUSIVE } else { Self::CLOSED };
        if !self.try_share(unless, ONE) {
            anyhow(|| self.share_slow(Limit::NONE, unless, ONE));
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn share_slow(&self, limit: Limit, unless: usize, what: usize) -> bool {
        // In the queue, a waiter for the right to upgrade counts as one that does not share.
        let shares = what == ONE;
        let mark = if shares { SHARED_WAITERS } else { EXCLUSIVE_WAITERS };
        let state = if shares { NORMAL } else { RIGHT };
        let entry = Entry::new(self.sharing_key(), shares, state);
        entry.ahead.set(current::is_host());
        let blocked = |word: usize| word & unless != 0;
        let mut spins = 0;
        loop {
            // ORDERING: Acquire, as in `lock_slow`.
            let word = self.0.load(Ordering::Acquire);
            if !blocked(word) {
                if self.try_share(unless, what) {
                    return true;
                }
                continue;
            }
            if spins < SPINS && worth_spinning(word) {
                spins += 1;
                spin_loop();
                continue;
            }
            self.forbid_relocking(me(), word, limit);
            match self.wait(&entry, limit, || self.mark(mark, blocked)) {
                Ended::Granted => return true,
                Ended::AtOnce(()) => {}
                Ended::TimedOut => return false,
            }
        }
    }

    /// # Safety
    /// The caller holds the lock as a reader.
    #[inline(always)]
    pub(in crate::sync) unsafe fn unlock_shared(&self) {
        // SAFETY: the caller is a reader.
        unsafe { self.share_less(ONE) };
    }

    /// Takes `what` off the word: [`ONE`] reader, the right to upgrade, or both.
    ///
    /// # Safety
    /// The caller holds what it takes off.
    #[inline(always)]
    pub(super) unsafe fn share_less(&self, what: usize) {
        // ORDERING: Release keeps the caller's reads before it; pairs with the Acquire of the next
        // owner.
        let word = self.0.fetch_sub(what, Ordering::Release) - what;
        // Readers that stay keep all waiters out, with two exceptions: the upgradable reader can
        // upgrade when it is the last, and another waiter can get the right when it is given up.
        let few = word & !WAITERS == 0 || word & !WAITERS == ONE | UPGRADABLE;
        if word & WAITERS != 0 && (few || what & UPGRADABLE != 0) {
            self.wake_waiters();
        }
    }
}

/// Adds a reader to the word. Aborts if the count is about to overflow.
#[inline(always)]
pub(super) fn more(word: usize, what: usize) -> usize {
    if word << 1 >> (usize::BITS - 1) != 0 {
        // The count gets here only if guards are forgotten in a loop.
        std::process::abort();
    }
    word + what
}
