//! The lock under `Mutex` and `RwLock`: one word, shared and exclusive.
//!
//! # Layout
//!
//! ```text
//!  63                                3 2 1 0
//! |  owner, or how many share it      |E|X|S|
//! ```
//!
//! `E`: held by one, whose control block the upper bits name (an address, whose low bits are zero).
//! Without it they are a number: how many share the lock, and in the highest bit whether one of them
//! may become the owner. `X`, `S` are marks: somebody waits to have it alone, to share it. Zero is
//! unlocked.
//!
//! # Rules
//!
//! - Locking is one compare-exchange. Who comes may be faster than who was woken. A waiter that was
//!   overtaken is *handed* the lock, that is, made the owner by the one who unlocks: at once if it is
//!   a fiber of the same carrier, since that is cheap, and after a millisecond if it is not, since the
//!   lock would be idle until its carrier has woken up.
//! - While somebody waits to have it alone, nobody new shares it. Waiters come first in, first out;
//!   those who share and stand beside each other get it together. That is the order [`InTurn`]; with
//!   another [`Priority`] those who share have a queue of their own, which comes first or last:
//!   - `ReadersFirst`: who shares does not stand back, and who unlocks lets all of those in, as one of
//!     them, before it leaves.
//!   - `WritersFirst`: who wants it alone is handed the lock.
//!
//!   Either way the lock is never free, nor without its mark, while somebody waits who comes first:
//!   nobody slips in between.
//! - A mark is set under the lock of the table, as the waiter is entered there, by a compare-exchange
//!   that fails if the lock has become free for it. Who unlocks a marked lock takes the lock of the
//!   table, wakes, and computes the marks anew from who is left. So a waiter is seen, or sees.
//! - Who unlocks for one who wants the lock alone leaves no marks behind: others who come and go
//!   need not look at the table as long as that one is on its way. It is the *heir* to the marks: it
//!   sets them when it locks, or as it waits again. If a lock is free and others wait, then an heir
//!   is on its way, or somebody who was woken with the marks in place.
//! - A waiter that leaves by its deadline or by cancellation computes the marks anew as well, and
//!   wakes those who stood back for it.
//! - A waiter spins for a little while before it stops if nobody waits yet and the owner runs on
//!   another carrier. Those who share are not known, so there is nothing to spin for.

use crate::cancel::masked;
use crate::carrier::current;
use crate::clock;
use crate::fiber::{Control, WaitKind};
use crate::park::list::{Ended, Terms, Wakes};
use crate::park::table::{self, Bucket, Entry, Key, Queue};
use crate::primitive::{AtomicUsize, Ordering};
use crate::report;
use crate::sync::priority::{InTurn, Priority};
use core::fmt;
use core::hint::spin_loop;
use core::marker::PhantomData;
use core::panic::Location;
use core::ptr;

const SHARED_WAITERS: usize = 1;
const EXCLUSIVE_WAITERS: usize = 1 << 1;
const EXCLUSIVE: usize = 1 << 2;
const WAITERS: usize = SHARED_WAITERS | EXCLUSIVE_WAITERS;
/// One who shares.
const ONE: usize = 1 << 3;
/// One of those who share may become the owner.
const UPGRADABLE: usize = 1 << (usize::BITS - 1);

/// Pauses before a waiter stops.
const SPINS: u32 = 16;

/// Pauses after somebody else was faster.
const PAUSES: u32 = 8;

/// What the word of a waiter's entry says when it is entered: that it waits, that it was overtaken, that
/// this has gone on for too long, or that it wants to share as the one who may become the owner.
const NORMAL: usize = 0;
const OVERTAKEN: usize = 1;
const STARVED: usize = 2;
const RIGHT: usize = 3;
/// And when its wait was granted: that it has the lock; or that it is to try, and sets the marks.
const HANDED: usize = 4;
const HEIR: usize = 5;

/// How long a waiter may be overtaken by others, in nanoseconds.
const PATIENCE: u64 = 1_000_000;

/// How long a lock may be waited for.
#[derive(Clone, Copy)]
struct Limit {
    deadline: u64,
    /// Whether the wait must not be left by unwinding: a guard relies on having the lock again.
    must: bool,
}

impl Limit {
    /// For ever, and it must not be left.
    const NONE: Limit = Limit { deadline: clock::NEVER, must: true };

    #[inline(always)]
    fn till(deadline: u64) -> Limit {
        Limit { deadline, must: false }
    }
}

/// A guard relies on having the lock again, and its own fiber has it: waiting would never end, and a
/// panic would leave a guard without its lock.
#[cold]
#[track_caller]
pub(super) fn never_again<T>(lock: &T) -> ! {
    let place = Location::caller();
    report::abort(format_args!(
        "deadlock: the lock at {lock:p} is to be locked again, at {place}, and was locked meanwhile \
         by the same fiber or thread, which keeps it; aborting"
    ));
}

/// Runs a wait that is not to be cut short, out of line.
#[cold]
#[inline(never)]
#[track_caller]
fn anyhow(wait: impl FnOnce() -> bool) {
    masked(wait);
}

/// The word; see the page of this module.
pub(super) struct RawLock<P = InTurn>(AtomicUsize, PhantomData<P>);

impl<P> fmt::Debug for RawLock<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawLock").field(&self.0).finish()
    }
}

/// Who tries to lock it: the block of the fiber or of the thread's proxy.
#[inline(always)]
fn me() -> usize {
    current::block().expose_provenance()
}

fn owner(word: usize) -> *const Control {
    ptr::with_exposed_provenance(word & !(ONE - 1))
}

/// One more who shares, as long as they can be counted.
#[inline(always)]
fn more(word: usize, what: usize) -> usize {
    if word << 1 >> (usize::BITS - 1) != 0 {
        // Only guards that are forgotten in a loop count so far.
        std::process::abort();
    }
    word + what
}

impl<P: Priority> RawLock<P> {
    /// Whether some come first, so that there are two queues.
    const PRIORITY: bool = P::READERS_FIRST || P::WRITERS_FIRST;

    /// What keeps out who would share the lock.
    const CLOSED: usize = if P::READERS_FIRST { EXCLUSIVE } else { EXCLUSIVE | EXCLUSIVE_WAITERS };

    pub(super) const fn new() -> RawLock<P> {
        RawLock(AtomicUsize::new(0), PhantomData)
    }

    pub(super) fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !WAITERS != 0
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.0.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    fn key(&self) -> Key {
        Key::of(self)
    }

    /// Where those wait who share the lock and want to become its owner. In the same bucket.
    fn upgrade_key(&self) -> Key {
        Key::with_generation(ptr::from_ref(self).addr(), 1)
    }

    /// Where those wait who would share the lock: with the others, if they come in turn. In the same
    /// bucket.
    fn sharing_key(&self) -> Key {
        let generation = if Self::PRIORITY { 2 } else { 0 };
        Key::with_generation(ptr::from_ref(self).addr(), generation)
    }

    #[inline(always)]
    pub(super) fn try_lock(&self) -> bool {
        let me = me();
        self.take_free(me, 0, 0) || self.try_lock_marked(me)
    }

    /// Makes the caller the owner if nobody has the lock, and others are on their way to it.
    #[cold]
    fn try_lock_marked(&self, me: usize) -> bool {
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & !WAITERS != 0 || self.take_free(me, word, 0) {
                return word & !WAITERS == 0;
            }
        }
    }

    /// Makes the caller the owner if nobody has the lock and the marks are `marks`; sets those of
    /// `duty` as well.
    #[inline(always)]
    fn take_free(&self, me: usize, marks: usize, duty: usize) -> bool {
        let mine = me | EXCLUSIVE | marks | duty;
        // ORDERING: Acquire: what was written under the lock; pairs with the Release of unlocking.
        self.0.compare_exchange(marks, mine, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Locks for the caller alone; false if the deadline passed before.
    #[inline(always)]
    #[track_caller]
    pub(super) fn lock(&self, deadline: u64) -> bool {
        let me = me();
        self.take_free(me, 0, 0) || self.lock_slow(me, Limit::till(deadline))
    }

    /// Locks for the caller alone, and neither unwinds nor gives up: guards that unlock for a while
    /// rely on having the lock when they go on.
    #[inline(always)]
    #[track_caller]
    pub(super) fn lock_anyhow(&self) {
        let me = me();
        if !self.take_free(me, 0, 0) {
            anyhow(|| self.lock_slow(me, Limit::NONE));
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_slow(&self, me: usize, limit: Limit) -> bool {
        let entry = Entry::new(self.key(), false, NORMAL);
        entry.heir.set(me);
        entry.ahead.set(current::is_host());
        let (mut spins, mut duty, mut overtaken_at) = (0, 0, None);
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & !WAITERS == 0 {
                if self.take_free(me, word, duty) {
                    return true;
                }
                continue;
            }
            if spins < SPINS && worth_spinning(word) {
                spins += 1;
                spin_loop();
                continue;
            }
            self.forbid_relocking(me, word, limit);
            let held = |word: usize| word & !WAITERS != 0;
            if duty != 0 {
                // At once: what a wait begins with may take a while, a report for instance.
                let _bucket = table::bucket(self.key()).lock();
                if !self.mark(WAITERS, held) {
                    continue;
                }
                duty = 0;
            }
            let still = || self.mark(EXCLUSIVE_WAITERS, held);
            match self.wait(&entry, limit, still) {
                Ended::Granted if entry.word.get() == HANDED => return true,
                Ended::Granted => {
                    duty = if entry.word.get() == HEIR { WAITERS } else { 0 };
                    spins = 0;
                    // If it has to wait again, it has not lost its place.
                    entry.ahead.set(true);
                    entry.word.set(OVERTAKEN);
                    if self.is_locked() {
                        let now = clock::now();
                        let since = *overtaken_at.get_or_insert(now);
                        if now - since > PATIENCE {
                            entry.word.set(STARVED);
                        }
                    }
                }
                Ended::AtOnce(()) => {}
                Ended::TimedOut => return false,
            }
        }
    }

    /// Sets a mark, unless `blocked` is not true of the word. Under the lock of the table.
    fn mark(&self, mark: usize, blocked: impl Fn(usize) -> bool) -> bool {
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if !blocked(word) {
                return false;
            }
            if word & mark == mark || self.change(word, word | mark) {
                return true;
            }
        }
    }

    #[track_caller]
    fn wait(&self, entry: &Entry, limit: Limit, mut still: impl FnMut() -> bool) -> Ended<()> {
        let Limit { deadline, must } = limit;
        let terms = Terms { must, ..Terms::new(WaitKind::Lock, self, deadline) };
        table::wait(entry, terms, |_| still(), |bucket| self.settle(bucket))
    }

    #[inline(always)]
    pub(super) fn try_lock_shared(&self) -> bool {
        self.try_share(Self::CLOSED, ONE)
    }

    /// The same, also if somebody waits to have the lock alone: the caller may share it already.
    pub(super) fn try_lock_shared_again(&self) -> bool {
        self.try_share(EXCLUSIVE, ONE)
    }

    pub(super) fn try_lock_upgradable(&self) -> bool {
        self.try_share(Self::CLOSED | UPGRADABLE, ONE | UPGRADABLE)
    }

    /// Shares the lock, unless one of the bits of `unless` is set.
    #[inline(always)]
    fn try_share(&self, unless: usize, what: usize) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & unless != 0 {
                // The highest bit of an owner's address means nothing.
                return false;
            }
            let new = more(word, what);
            // ORDERING: Acquire: as in `take_free`.
            match self.0.compare_exchange(word, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(_) => word = self.look_again(),
            }
        }
    }

    /// The word, after a moment: if all who share it tried again at once, it would change processors
    /// with every one of them.
    #[cold]
    fn look_again(&self) -> usize {
        for _ in 0..PAUSES {
            spin_loop();
        }
        self.0.load(Ordering::Relaxed)
    }

    /// Shares the lock; false if the deadline passed before. With `again`, the caller may share it
    /// already, and does not stand back for those who want it alone.
    #[inline(always)]
    #[track_caller]
    pub(super) fn lock_shared(&self, deadline: u64, again: bool) -> bool {
        let unless = if again { EXCLUSIVE } else { Self::CLOSED };
        self.try_share(unless, ONE) || self.share_slow(Limit::till(deadline), unless, ONE)
    }

    /// Shares the lock, as [`lock_anyhow`](Self::lock_anyhow) locks it.
    #[inline(always)]
    #[track_caller]
    pub(super) fn lock_shared_anyhow(&self, again: bool) {
        let unless = if again { EXCLUSIVE } else { Self::CLOSED };
        if !self.try_share(unless, ONE) {
            anyhow(|| self.share_slow(Limit::NONE, unless, ONE));
        }
    }

    /// Shares the lock as the one who may become its owner, as [`lock_anyhow`](Self::lock_anyhow)
    /// locks it.
    #[track_caller]
    pub(super) fn lock_upgradable_anyhow(&self) {
        anyhow(|| self.share_with_right(Limit::NONE));
    }

    /// Shares the lock as the one who may become its owner.
    #[track_caller]
    pub(super) fn lock_upgradable(&self, deadline: u64) -> bool {
        self.share_with_right(Limit::till(deadline))
    }

    #[track_caller]
    fn share_with_right(&self, limit: Limit) -> bool {
        let unless = Self::CLOSED | UPGRADABLE;
        let what = ONE | UPGRADABLE;
        self.try_share(unless, what) || self.share_slow(limit, unless, what)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn share_slow(&self, limit: Limit, unless: usize, what: usize) -> bool {
        // One who wants the right to become the owner stands alone in the queue.
        let shares = what == ONE;
        let mark = if shares { SHARED_WAITERS } else { EXCLUSIVE_WAITERS };
        let state = if shares { NORMAL } else { RIGHT };
        let entry = Entry::new(self.sharing_key(), shares, state);
        entry.ahead.set(current::is_host());
        let blocked = |word: usize| word & unless != 0;
        let mut spins = 0;
        loop {
            let word = self.0.load(Ordering::Relaxed);
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

    #[inline(always)]
    fn change(&self, old: usize, new: usize) -> bool {
        self.0.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Locking what one has locked oneself would never end.
    #[track_caller]
    fn forbid_relocking(&self, me: usize, word: usize, limit: Limit) {
        if word & EXCLUSIVE == 0 || owner(word).addr() != me {
            return;
        }
        if limit.must {
            never_again(self);
        }
        panic!(
            "deadlock: the lock at {self:p} is locked again by the fiber or thread that holds it"
        );
    }

    /// # Safety
    /// The caller is the owner.
    #[inline(always)]
    pub(super) unsafe fn unlock(&self) {
        let word = self.0.load(Ordering::Relaxed);
        if word & WAITERS != 0 {
            return self.unlock_slow(false);
        }
        if Self::PRIORITY {
            // ORDERING: Release: as below.
            if self.0.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_err() {
                // Somebody came to wait in between, and keeps its mark.
                self.unlock_slow(false);
            }
            return;
        }
        // ORDERING: Release: what was written under the lock; pairs with the Acquire of locking.
        if self.0.swap(0, Ordering::Release) & WAITERS != 0 {
            // Somebody came to wait in between, and its mark is gone.
            self.wake_waiters();
        }
    }

    /// Unlocks and hands the lock to the first waiter, if there is one.
    ///
    /// # Safety
    /// The caller is the owner.
    pub(super) unsafe fn unlock_fair(&self) {
        self.unlock_slow(true);
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self, fair: bool) {
        let mut wakes = Wakes::none();
        {
            let mut bucket = table::bucket(self.key()).lock();
            if P::READERS_FIRST && bucket.queue(self.sharing_key()).is_some() {
                drop(bucket);
                // SAFETY: the caller is the owner, and then one of those who share.
                return unsafe {
                    self.downgrade(false);
                    self.unlock_shared();
                };
            }
            if !self.pass_on(&mut bucket, &mut wakes, fair) {
                // Nobody but waiters changes the word of a lock that is held by one: a mark that is
                // overwritten here is missed by its waiter under the lock of the bucket.
                // ORDERING: Release: as in `unlock`.
                self.0.store(self.marks(&mut bucket), Ordering::Release);
                self.settle_into(&mut bucket, &mut wakes);
            }
        }
        if wakes.resume() {
            self.wake_waiters();
        }
    }

    /// Unlocks for the first waiter, if it wants the lock alone: it is woken, and may be overtaken;
    /// or it was before, and is handed the lock.
    fn pass_on(&self, bucket: &mut Bucket, wakes: &mut Wakes, fair: bool) -> bool {
        let Some(mut queue) = bucket.queue(self.key()) else { return false };
        while let Some(first) = queue.first() {
            let entry = first.payload();
            let state = entry.word.get();
            if entry.shares || state == RIGHT {
                return false;
            }
            let near = || is_near(first.waiter().control());
            let late = state == STARVED || state == OVERTAKEN && near();
            // The thread of a guest may be the next who wants the lock, and the guest cannot go on then.
            let handed =
                fair || P::WRITERS_FIRST || late && !current::is_guest(first.waiter().control());
            let (word, told) = if handed {
                // With both marks, whoever waits: a thread may go on as soon as it is granted the
                // lock, and they are computed anew when it unlocks.
                (entry.heir.get() | EXCLUSIVE | WAITERS, HANDED)
            } else if queue.count(false) + queue.count(true) > 1 {
                (0, HEIR)
            } else {
                (0, NORMAL)
            };
            let told = queue.grant_first(wakes, |entry| {
                entry.word.set(told);
                // Nobody but waiters changes the word of a lock that is held by one: as in
                // `unlock_slow`.
                // ORDERING: Release: as in `unlock`.
                self.0.store(word, Ordering::Release);
            });
            if told {
                return true;
            }
        }
        false
    }

    /// # Safety
    /// The caller shares the lock.
    #[inline(always)]
    pub(super) unsafe fn unlock_shared(&self) {
        // SAFETY: as the caller promised.
        unsafe { self.share_less(ONE) };
    }

    /// # Safety
    /// The caller shares the lock as the one who may become its owner.
    pub(super) unsafe fn unlock_upgradable(&self) {
        if self.is_exclusive() {
            // Locked alone by the same fiber, which forgot that guard: there is nothing to give up.
            return;
        }
        // SAFETY: as the caller promised.
        unsafe { self.share_less(ONE | UPGRADABLE) };
    }

    /// Gives up the right to become the owner, and goes on sharing.
    ///
    /// # Safety
    /// The caller has the right.
    pub(super) unsafe fn downgrade_upgradable(&self) {
        if self.is_exclusive() {
            // As in `unlock_upgradable`.
            return;
        }
        // SAFETY: as the caller promised.
        unsafe { self.share_less(UPGRADABLE) };
    }

    #[inline(always)]
    unsafe fn share_less(&self, what: usize) {
        // ORDERING: Release: what the caller read was read before; pairs with the Acquire of whoever
        // locks it alone.
        let word = self.0.fetch_sub(what, Ordering::Release) - what;
        // Others who share it keep everybody waiting, but for the one who may become the owner and
        // those who want that right.
        let few = word & !WAITERS == 0 || word & !WAITERS == ONE | UPGRADABLE;
        if word & WAITERS != 0 && (few || what & UPGRADABLE != 0) {
            self.wake_waiters();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_waiters(&self) {
        while {
            let mut wakes = self.settle(&mut table::bucket(self.key()).lock());
            wakes.resume()
        } {}
    }

    fn settle(&self, bucket: &mut Bucket) -> Wakes {
        let mut wakes = Wakes::none();
        self.settle_into(bucket, &mut wakes);
        wakes
    }

    /// Lets in whoever may come in, and computes the marks anew. Under the lock of the bucket.
    fn settle_into(&self, bucket: &mut Bucket, wakes: &mut Wakes) {
        loop {
            // The marks go into the very word because of which the others wait on. Into another they
            // might come too late: whoever had the lock has unlocked it without them.
            let word = self.let_in(bucket, wakes);
            if word & EXCLUSIVE != 0 && word & WAITERS == WAITERS {
                // Handed over with both marks; they are computed anew when it is unlocked.
                return;
            }
            let new = word & !WAITERS | self.marks(bucket);
            if word == new || self.change(word, new) {
                return;
            }
        }
    }

    /// Lets in whoever may come in; returns the word by which nobody else may.
    fn let_in(&self, bucket: &mut Bucket, wakes: &mut Wakes) -> usize {
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if wakes.is_full() {
                return word;
            }
            let holders = word & !WAITERS;
            if word & EXCLUSIVE != 0 {
                // The owner sees to them.
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
                // It wants the lock alone.
                if holders != 0 {
                    return word;
                }
                if P::WRITERS_FIRST {
                    self.hand_over(&mut queue, wakes, word);
                    continue;
                }
                // It is woken, and may be overtaken; but not for too long.
                let owned = entry.heir.get() | EXCLUSIVE | WAITERS;
                let others = queue.count(false) + queue.count(true) > 1;
                let give = |entry: &Entry| {
                    // ORDERING: Acquire: as in `take_free`.
                    if entry.word.get() == STARVED
                        && self
                            .0
                            .compare_exchange(word, owned, Ordering::Acquire, Ordering::Relaxed)
                            .is_ok()
                    {
                        entry.word.set(HANDED);
                    } else if others {
                        // A thread may have locked and unlocked before the marks are there.
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
            // ORDERING: Acquire, for the one who is let in: as in `take_free`.
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

    /// Makes the first of a queue the owner of a lock that nobody else has, unless the word has changed
    /// or that one has left: it is the owner before its wait ends, so that nobody is faster.
    fn hand_over(&self, queue: &mut Queue<'_>, wakes: &mut Wakes, word: usize) {
        let Some(first) = queue.first() else { return };
        let owned = first.payload().heir.get() | EXCLUSIVE | WAITERS;
        // ORDERING: Acquire: as in `take_free`.
        let taken = self.0.compare_exchange(word, owned, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() && !queue.grant_first(wakes, |entry| entry.word.set(HANDED)) {
            // It has left. Nobody else changes the word of a lock that is held by one.
            // ORDERING: Release: what the Acquire above has seen, for the next.
            self.0.store(word, Ordering::Release);
        }
    }

    /// Lets in one of the queue of those who would share, unless the word has changed; false if none
    /// of them may come in. The right to become the owner keeps out only those who want it as well.
    fn let_one_share(&self, bucket: &mut Bucket, wakes: &mut Wakes, word: usize) -> bool {
        let Some(mut queue) = bucket.queue(self.sharing_key()) else { return false };
        let shares = queue.count(true) > 0;
        if !shares && word & UPGRADABLE != 0 {
            return false;
        }
        let what = if shares { ONE } else { ONE | UPGRADABLE };
        let new = more(word, what);
        // ORDERING: Acquire, for the one who is let in: as in `take_free`.
        let counted = self.0.compare_exchange(word, new, Ordering::Acquire, Ordering::Relaxed);
        if counted.is_ok() && !queue.grant_one(wakes, |entry| entry.shares == shares) {
            self.0.fetch_sub(what, Ordering::Relaxed);
        }
        true
    }

    /// The marks that say who waits.
    fn marks(&self, bucket: &mut Bucket) -> usize {
        let (mut alone, mut share) = (0, 0);
        if let Some(queue) = bucket.queue(self.key()) {
            (alone, share) = (queue.count(false), queue.count(true));
        }
        if Self::PRIORITY
            && let Some(queue) = bucket.queue(self.sharing_key())
        {
            // Those who want the right to become the owner stand here.
            alone += queue.count(false);
            share += queue.count(true);
        }
        if let Some(queue) = bucket.queue(self.upgrade_key()) {
            alone += queue.count(false);
        }
        marks(alone, share)
    }

    /// The owner becomes one of those who share.
    ///
    /// # Safety
    /// The caller is the owner.
    pub(super) unsafe fn downgrade(&self, upgradable: bool) {
        let what = if upgradable { ONE | UPGRADABLE } else { ONE };
        let mut bucket = table::bucket(self.key()).lock();
        // ORDERING: Release: as in `unlock_slow`.
        self.0.store(what | self.marks(&mut bucket), Ordering::Release);
        drop(bucket);
        self.wake_waiters();
    }

    /// Becomes the owner, if nobody else shares the lock.
    ///
    /// # Safety
    /// The caller has the right to become the owner.
    pub(super) unsafe fn try_upgrade(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & !WAITERS == ONE | UPGRADABLE {
            let mine = me() | EXCLUSIVE | word & WAITERS;
            // ORDERING: Acquire: what the last of those who shared it read was read before.
            match self.0.compare_exchange_weak(word, mine, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Becomes the owner when nobody else shares the lock; false if the deadline passed before, and
    /// the caller still has the right.
    ///
    /// # Safety
    /// As for `try_upgrade`.
    #[track_caller]
    pub(super) unsafe fn upgrade(&self, deadline: u64) -> bool {
        let entry = Entry::new(self.upgrade_key(), false, NORMAL);
        entry.heir.set(me());
        loop {
            // SAFETY: as the caller promised.
            if unsafe { self.try_upgrade() } {
                return true;
            }
            // Nobody new shares it while this one waits, unless those come first.
            let blocked = |word| word & !WAITERS != ONE | UPGRADABLE;
            let still = || self.mark(EXCLUSIVE_WAITERS, blocked);
            match self.wait(&entry, Limit::till(deadline), still) {
                Ended::Granted if entry.word.get() == HANDED => return true,
                Ended::Granted | Ended::AtOnce(()) => {}
                Ended::TimedOut => return false,
            }
        }
    }
}

/// The marks that say that so many wait to have the lock alone, and to share it.
fn marks(alone: usize, share: usize) -> usize {
    let mark = |count: usize, mark| if count > 0 { mark } else { 0 };
    mark(alone, EXCLUSIVE_WAITERS) | mark(share, SHARED_WAITERS)
}

/// Whether a waiter is a fiber that runs on the same carrier as the caller, as far as a look tells.
fn is_near(waiter: *const Control) -> bool {
    let here = current::carrier();
    // SAFETY: control blocks are never unmapped.
    !here.is_null() && ptr::eq(unsafe { (*waiter).carrier() }, here)
}

/// Whether nobody waits yet, and the owner runs elsewhere at this moment.
fn worth_spinning(word: usize) -> bool {
    // SAFETY: the upper bits of an exclusive lock are the address of a block, and those are never
    // unmapped.
    word & EXCLUSIVE != 0
        && word & WAITERS == 0
        && unsafe { current::runs_elsewhere(&*owner(word)) }
}

#[cfg(all(test, sinew_loom))]
mod loom;
