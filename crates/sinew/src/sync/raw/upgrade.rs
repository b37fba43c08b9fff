//! The upgradable reader, and the changes of a holder between reader and writer.
//!
//! The page of `raw` has the word and the rules.

use super::{
    EXCLUSIVE, EXCLUSIVE_WAITERS, HANDED, Limit, NORMAL, ONE, RawLock, UPGRADABLE, WAITERS, anyhow,
    me,
};
use crate::park::list::Ended;
use crate::park::table::{self, Entry};
use crate::primitive::Ordering;
use crate::sync::priority::Priority;

impl<P: Priority> RawLock<P> {
    pub(in crate::sync) fn try_lock_upgradable(&self) -> bool {
        self.try_share(Self::CLOSED | UPGRADABLE, ONE | UPGRADABLE)
    }

    /// Locks as the upgradable reader. Returns false if the deadline passes first.
    #[track_caller]
    pub(in crate::sync) fn lock_upgradable(&self, deadline: u64) -> bool {
        self.share_with_right(Limit::till(deadline))
    }

    /// Locks as the upgradable reader. Like [`lock_anyhow`](Self::lock_anyhow), neither unwinds nor
    /// gives up.
    #[track_caller]
    pub(in crate::sync) fn lock_upgradable_anyhow(&self) {
        anyhow(|| self.share_with_right(Limit::NONE));
    }

    #[track_caller]
    fn share_with_right(&self, limit: Limit) -> bool {
        let unless = Self::CLOSED | UPGRADABLE;
        let what = ONE | UPGRADABLE;
        self.try_share(unless, what) || self.share_slow(limit, unless, what)
    }

    /// # Safety
    /// The caller holds the lock as the upgradable reader.
    pub(in crate::sync) unsafe fn unlock_upgradable(&self) {
        if self.is_exclusive() {
            // The fiber holds the lock exclusively, through a write guard that it has forgotten. So
            // there is no upgradable read lock to give up.
            return;
        }
        // SAFETY: the caller is the upgradable reader.
        unsafe { self.share_less(ONE | UPGRADABLE) };
    }

    /// Gives up the right to become the owner, and stays a reader.
    ///
    /// # Safety
    /// The caller is the upgradable reader.
    pub(in crate::sync) unsafe fn downgrade_upgradable(&self) {
        if self.is_exclusive() {
            // As in `unlock_upgradable`.
            return;
        }
        // SAFETY: the caller is the upgradable reader.
        unsafe { self.share_less(UPGRADABLE) };
    }

    /// Turns the upgradable reader into the owner, if it is the only reader.
    ///
    /// # Safety
    /// The caller is the upgradable reader.
    pub(in crate::sync) unsafe fn try_upgrade(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & !WAITERS == ONE | UPGRADABLE {
            let mine = me() | EXCLUSIVE | word & WAITERS;
            // ORDERING: Acquire keeps the reads of earlier readers before it; pairs with the
            // Release in `share_less`. Release; as in `take_free`.
            match self.0.compare_exchange_weak(word, mine, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Turns the upgradable reader into the owner, waiting until it is the only reader. Returns
    /// false if the deadline passes first; the caller is then still the upgradable reader.
    ///
    /// # Safety
    /// The caller is the upgradable reader.
    #[track_caller]
    pub(in crate::sync) unsafe fn upgrade(&self, deadline: u64) -> bool {
        let entry = Entry::new(self.upgrade_key(), false, NORMAL);
        entry.heir.set(me());
        loop {
            // SAFETY: the caller is the upgradable reader.
            if unsafe { self.try_upgrade() } {
                return true;
            }
            // The mark keeps new readers out while the caller waits, unless readers come first.
            let blocked = |word| word & !WAITERS != ONE | UPGRADABLE;
            let still = || self.mark(EXCLUSIVE_WAITERS, blocked);
            match self.wait(&entry, Limit::till(deadline), still) {
                Ended::Granted if entry.word.get() == HANDED => return true,
                Ended::Granted | Ended::AtOnce(()) => {}
                Ended::TimedOut => return false,
            }
        }
    }

    /// Turns the owner into a reader, an upgradable one if `upgradable`.
    ///
    /// # Safety
    /// The caller is the owner.
    pub(in crate::sync) unsafe fn downgrade(&self, upgradable: bool) {
        let what = if upgradable { ONE | UPGRADABLE } else { ONE };
        let mut bucket = table::bucket(self.key()).lock();
        // ORDERING: Release; as in `unlock_slow`.
        self.0.store(what | self.marks(&mut bucket), Ordering::Release);
        drop(bucket);
        self.wake_waiters();
    }
}
