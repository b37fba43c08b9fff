//! Lets in waiters when the lock is free for them, and computes the marks of those that are left.
//!
//! The lock of the bucket guards the queues. The [`Priority`] decides the order of the queues. The
//! page of `raw` has the word and the rules. Next: `shared`.

use super::shared::more;
use super::{
    EXCLUSIVE, EXCLUSIVE_WAITERS, HANDED, HEIR, ONE, RIGHT, RawLock, SHARED_WAITERS, STARVED,
    UPGRADABLE, WAITERS,
};
use crate::park::list::Wakes;
use crate::park::table::{self, Bucket, Entry, Key, Queue};
use crate::primitive::Ordering;
use crate::sync::priority::Priority;
use core::ptr;

impl<P: Priority> RawLock<P> {
    /// Returns the key of the queue for an upgradable reader that wants to become the owner. The
    /// queue is in the bucket of `key`.
    pub(super) fn upgrade_key(&self) -> Key {
        Key::with_generation(ptr::from_ref(self).addr(), 1)
    }

    /// Returns the key of the queue for waiting readers. With `InTurn`, that is also the writers'
    /// queue. The queue is in the bucket of `key`.
    pub(super) fn sharing_key(&self) -> Key {
        let generation = if Self::PRIORITY { 2 } else { 0 };
        Key::with_generation(ptr::from_ref(self).addr(), generation)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn wake_waiters(&self) {
        while {
            let mut wakes = self.settle(&mut table::bucket(self.key()).lock());
            wakes.resume()
        } {}
    }

    pub(super) fn settle(&self, bucket: &mut Bucket) -> Wakes {
        let mut wakes = Wakes::none();
        self.settle_into(bucket, &mut wakes);
        wakes
    }

    /// Lets in the waiters that may come in, and computes the marks anew. Runs under the lock of
    /// the bucket.
    pub(super) fn settle_into(&self, bucket: &mut Bucket, wakes: &mut Wakes) {
        loop {
            // The marks must go into the very word that keeps the remaining waiters out. In a later
            // word they might come too late: the holder may have unlocked already, without seeing
            // them.
            let word = self.let_in(bucket, wakes);
            if word & EXCLUSIVE != 0 && word & WAITERS == WAITERS {
                // The lock has an owner and both marks, as after a handover. The next unlock
                // computes the marks anew.
                return;
            }
            let new = word & !WAITERS | self.marks(bucket);
            if word == new || self.change(word, new) {
                return;
            }
        }
    }

    /// Lets in the waiters that may come in. Returns the word that keeps out all others.
    fn let_in(&self, bucket: &mut Bucket, wakes: &mut Wakes) -> usize {
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if wakes.is_full() {
                return word;
            }
            let holders = word & !WAITERS;
            if word & EXCLUSIVE != 0 {
                // The owner lets waiters in when it unlocks.
                return word;
            }
            if P::READERS_FIRST && self.let_one_share(bucket, wakes, word) {
                continue;
            }
            if let Some(mut queue) = bucket.queue(self.upgrade_key()) {
                if holders == ONE | UPGRADABLE {
                    if P::WRITERS_FIRST {
                        self.hand_over(&mut queue, wakes, word);
                        continue;
                    }
                    if !queue.grant_first(wakes, |_| ()) {
                        continue;
                    }
                }
                return word;
            }
            let Some(mut queue) = bucket.queue(self.key()) else {
                if P::WRITERS_FIRST && self.let_one_share(bucket, wakes, word) {
                    continue;
                }
                return word;
            };
            let Some(first) = queue.first() else { return word };
            let entry = first.payload();
            let what = match entry.word.get() {
                RIGHT => ONE | UPGRADABLE,
                _ => ONE,
            };
            if !entry.shares && what == ONE {
                // The first waiter is a writer.
                if holders != 0 {
                    return word;
                }
                if P::WRITERS_FIRST {
                    self.hand_over(&mut queue, wakes, word);
                    continue;
                }
                // The writer is woken, and newcomers may overtake it, but not for too long.
                let owned = entry.heir.get() | EXCLUSIVE | WAITERS;
                let others = queue.count(false) + queue.count(true) > 1;
                let give = |entry: &Entry| {
                    // ORDERING: AcqRel; as in `take_free`.
                    if entry.word.get() == STARVED
                        && self
                            .0
                            .compare_exchange(word, owned, Ordering::AcqRel, Ordering::Relaxed)
                            .is_ok()
                    {
                        entry.word.set(HANDED);
                    } else if others {
                        // A woken thread may lock and unlock before `settle_into` sets the marks,
                        // so it sets them itself.
                        entry.word.set(HEIR);
                    }
                };
                if !queue.grant_first(wakes, give) {
                    continue;
                }
                return word;
            }
            if what & holders & UPGRADABLE != 0 {
                return word;
            }
            // ORDERING: Acquire on behalf of the waiter that is let in; as in `take_free`.
            let counted = self.0.compare_exchange(
                word,
                more(word, what),
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if counted.is_ok() && !queue.grant_first(wakes, |_| ()) {
                self.0.fetch_sub(what, Ordering::Relaxed);
            }
        }
    }

    /// Makes the first waiter of a queue the owner of a free lock, or of one that only this waiter
    /// holds. Does nothing if the word has changed or the waiter has left.
    ///
    /// The waiter becomes the owner before its wait ends, so no newcomer overtakes it.
    fn hand_over(&self, queue: &mut Queue<'_>, wakes: &mut Wakes, word: usize) {
        let Some(first) = queue.first() else { return };
        let owned = first.payload().heir.get() | EXCLUSIVE | WAITERS;
        // ORDERING: AcqRel; as in `take_free`.
        let taken = self.0.compare_exchange(word, owned, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() && !queue.grant_first(wakes, |entry| entry.word.set(HANDED)) {
            // The waiter has left. No other thread changes the word of an owned lock without the
            // lock of the bucket.
            // ORDERING: Release passes the writes that the Acquire above has seen to the next
            // holder.
            self.0.store(word, Ordering::Release);
        }
    }

    /// Lets in one waiter of the readers' queue, unless the word has changed. Returns false if no
    /// waiter of that queue may come in. A reader that is upgradable keeps out only the waiters for
    /// the right to upgrade.
    fn let_one_share(&self, bucket: &mut Bucket, wakes: &mut Wakes, word: usize) -> bool {
        let Some(mut queue) = bucket.queue(self.sharing_key()) else { return false };
        let shares = queue.count(true) > 0;
        if !shares && word & UPGRADABLE != 0 {
            return false;
        }
        let what = if shares { ONE } else { ONE | UPGRADABLE };
        let new = more(word, what);
        // ORDERING: Acquire on behalf of the waiter that is let in; as in `take_free`.
        let counted = self.0.compare_exchange(word, new, Ordering::Acquire, Ordering::Relaxed);
        if counted.is_ok() && !queue.grant_one(wakes, |entry| entry.shares == shares) {
            self.0.fetch_sub(what, Ordering::Relaxed);
        }
        true
    }

    /// Computes the marks from the queues.
    pub(super) fn marks(&self, bucket: &mut Bucket) -> usize {
        let (mut alone, mut share) = (0, 0);
        if let Some(queue) = bucket.queue(self.key()) {
            (alone, share) = (queue.count(false), queue.count(true));
        }
        if Self::PRIORITY
            && let Some(queue) = bucket.queue(self.sharing_key())
        {
            // Waiters for the right to upgrade are in this queue.
            alone += queue.count(false);
            share += queue.count(true);
        }
        if let Some(queue) = bucket.queue(self.upgrade_key()) {
            alone += queue.count(false);
        }
        marks(alone, share)
    }
}

/// Returns the marks for these numbers of waiting writers and readers.
fn marks(alone: usize, share: usize) -> usize {
    let mark = |count: usize, mark| if count > 0 { mark } else { 0 };
    mark(alone, EXCLUSIVE_WAITERS) | mark(share, SHARED_WAITERS)
}
