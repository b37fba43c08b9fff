//! The lock under `Mutex` and `RwLock`: one word, shared and exclusive.
//!
//! A *writer* wants the lock exclusively, a *reader* shares it. A mutex has writers only.
//!
//! # Layout
//!
//! ```text
//!  63                                3 2 1 0
//! |  owner, or number of readers      |E|X|S|
//! ```
//!
//! `E`: held by one owner. The upper bits are the address of the owner's control block, and the low
//! bits of that address are zero. Without `E`, the upper bits count the readers that hold the lock,
//! and the highest bit says that one of them is *upgradable*: it may become the owner. `X` and `S`
//! are marks: writers wait, readers wait. Zero is unlocked.
//!
//! # Rules
//!
//! - Locking is one compare-exchange. A newcomer may lock before a woken waiter does. A waiter that
//!   was overtaken is *handed* the lock: the unlocker makes it the owner. If the waiter is a fiber
//!   of the unlocker's carrier, this happens at the next unlock, since it is cheap there. Otherwise
//!   it happens after a millisecond, since a lock that is handed over is idle until the waiter's
//!   carrier has woken up.
//! - While a writer waits, no new reader gets in. Waiters are served first in, first out; readers
//!   that are adjacent in the queue are let in together. That is the order [`InTurn`]. With another
//!   [`Priority`], readers have a queue of their own, which comes first or last:
//!   - `ReadersFirst`: readers ignore waiting writers. An unlocker becomes a reader, lets in all
//!     waiting readers, and then leaves.
//!   - `WritersFirst`: an unlocker hands the lock to a waiting writer.
//!
//!   With either, while a waiter of the preferred kind waits, the lock is never free and never
//!   without its mark. So no newcomer slips in between.
//! - A waiter sets its mark under the lock of the bucket, as it enters the table, by a
//!   compare-exchange that fails if the lock has become free for it. The unlocker of a marked lock
//!   takes the lock of the bucket, wakes waiters, and computes the marks anew from the waiters that
//!   are left. So the unlocker sees the waiter, or the waiter sees the unlocked word.
//! - An unlocker that wakes a writer leaves no marks in the word. So newcomers that lock and unlock
//!   need not look at the table while that writer is on its way. The writer is the *heir* to the
//!   marks: it sets them when it locks, or when it waits again. If a lock is free and has waiters,
//!   then an heir is on its way, or a waiter that was woken with the marks in place.
//! - A waiter that leaves by its deadline or by cancellation also computes the marks anew, and
//!   wakes the waiters that it has kept out.
//! - A waiter spins briefly before it suspends, if there are no other waiters and the owner runs on
//!   another carrier. Readers are counted but not known, so nothing spins for them.

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
/// One reader.
const ONE: usize = 1 << 3;
/// One of the readers may become the owner.
const UPGRADABLE: usize = 1 << (usize::BITS - 1);

/// Pauses of a waiter before it suspends.
const SPINS: u32 = 16;

/// Pauses after a lost race for the word.
const PAUSES: u32 = 8;

/// States of a waiter in its entry's word when it enters: it waits; it was overtaken; it was
/// overtaken for too long; it wants to become the upgradable reader.
const NORMAL: usize = 0;
const OVERTAKEN: usize = 1;
const STARVED: usize = 2;
const RIGHT: usize = 3;
/// States in the entry's word after a grant: the waiter owns the lock; or it must try to lock, and
/// set the marks.
const HANDED: usize = 4;
const HEIR: usize = 5;

/// How long newcomers may overtake a waiter, in nanoseconds.
const PATIENCE: u64 = 1_000_000;

/// How long a caller waits for a lock.
#[derive(Clone, Copy)]
struct Limit {
    deadline: u64,
    /// Whether the wait must not be left by unwinding, because a guard relies on holding the lock
    /// again.
    must: bool,
}

impl Limit {
    /// Waits for ever, and must not be left.
    const NONE: Limit = Limit { deadline: clock::NEVER, must: true };

    #[inline(always)]
    fn till(deadline: u64) -> Limit {
        Limit { deadline, must: false }
    }
}

/// Aborts: a guard relies on locking again, and its own fiber holds the lock. Waiting would never
/// end, and a panic would leave the guard without its lock.
#[cold]
#[track_caller]
pub(super) fn never_again<T>(lock: &T) -> ! {
    let place = Location::caller();
    report::abort(format_args!(
        "deadlock: the lock at {lock:p} is to be locked again, at {place}, and was locked meanwhile \
         by the same fiber or thread, which keeps it; aborting"
    ));
}

/// Runs a wait, out of line, that must not be cut short.
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

/// Returns the caller as it is named in the word: the block of the fiber or of the thread's proxy.
#[inline(always)]
fn me() -> usize {
    current::block().expose_provenance()
}

fn owner(word: usize) -> *const Control {
    ptr::with_exposed_provenance(word & !(ONE - 1))
}

/// Adds a reader to the word. Aborts if the count is about to overflow.
#[inline(always)]
fn more(word: usize, what: usize) -> usize {
    if word << 1 >> (usize::BITS - 1) != 0 {
        // The count gets here only if guards are forgotten in a loop.
        std::process::abort();
    }
    word + what
}

impl<P: Priority> RawLock<P> {
    /// Whether one kind comes first, so that there are two queues.
    const PRIORITY: bool = P::READERS_FIRST || P::WRITERS_FIRST;

    /// Bits that keep a new reader out.
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

    /// Returns the key of the queue for an upgradable reader that wants to become the owner. It is
    /// in the bucket of `key`.
    fn upgrade_key(&self) -> Key {
        Key::with_generation(ptr::from_ref(self).addr(), 1)
    }

    /// Returns the key of the queue for waiting readers: the writers' queue if they come in turn.
    /// It is in the bucket of `key`.
    fn sharing_key(&self) -> Key {
        let generation = if Self::PRIORITY { 2 } else { 0 };
        Key::with_generation(ptr::from_ref(self).addr(), generation)
    }

    #[inline(always)]
    pub(super) fn try_lock(&self) -> bool {
        let me = me();
        self.take_free(me, 0, 0) || self.try_lock_marked(me)
    }

    /// Makes the caller the owner if the lock is free, also if there are marks.
    #[cold]
    fn try_lock_marked(&self, me: usize) -> bool {
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & !WAITERS != 0 || self.take_free(me, word, 0) {
                return word & !WAITERS == 0;
            }
        }
    }

    /// Makes the caller the owner if the lock is free and its marks are `marks`. Also sets the
    /// marks of `duty`.
    #[inline(always)]
    fn take_free(&self, me: usize, marks: usize, duty: usize) -> bool {
        let mine = me | EXCLUSIVE | marks | duty;
        // ORDERING: Acquire shows the writes under the lock; pairs with the Release of unlocking.
        // Release publishes the control block of the owner; pairs with the Acquire of a thread that
        // looks at the owner, in `lock_slow` and `share_slow`.
        self.0.compare_exchange(marks, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Locks exclusively. Returns false if the deadline passes first.
    #[inline(always)]
    #[track_caller]
    pub(super) fn lock(&self, deadline: u64) -> bool {
        let me = me();
        self.take_free(me, 0, 0) || self.lock_slow(me, Limit::till(deadline))
    }

    /// Locks exclusively. Neither unwinds nor gives up: guards that unlock for a while rely on
    /// holding the lock when they continue.
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
            // ORDERING: Acquire shows the control block of the owner, which `worth_spinning` reads;
            // pairs with the Release in `take_free`.
            let word = self.0.load(Ordering::Acquire);
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
                // Set the marks right away: beginning a wait may take a while, for instance to
                // report something.
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
                    // A woken waiter that has to wait again keeps its place.
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

    /// Sets a mark, under the lock of the bucket. Returns false if `blocked` is not true of the
    /// word.
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

    /// Locks for reading if no writer holds the lock, even if writers wait: the caller may already
    /// be a reader.
    pub(super) fn try_lock_shared_again(&self) -> bool {
        self.try_share(EXCLUSIVE, ONE)
    }

    pub(super) fn try_lock_upgradable(&self) -> bool {
        self.try_share(Self::CLOSED | UPGRADABLE, ONE | UPGRADABLE)
    }

    /// Locks for reading, unless one of the bits of `unless` is set.
    #[inline(always)]
    fn try_share(&self, unless: usize, what: usize) -> bool {
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
    pub(super) fn lock_shared(&self, deadline: u64, again: bool) -> bool {
        let unless = if again { EXCLUSIVE } else { Self::CLOSED };
        self.try_share(unless, ONE) || self.share_slow(Limit::till(deadline), unless, ONE)
    }

    /// Locks for reading. Like [`lock_anyhow`](Self::lock_anyhow), neither unwinds nor gives up.
    #[inline(always)]
    #[track_caller]
    pub(super) fn lock_shared_anyhow(&self, again: bool) {
        let unless = if again { EXCLUSIVE } else { Self::CLOSED };
        if !self.try_share(unless, ONE) {
            anyhow(|| self.share_slow(Limit::NONE, unless, ONE));
        }
    }

    /// Locks as the upgradable reader. Like [`lock_anyhow`](Self::lock_anyhow), neither unwinds nor
    /// gives up.
    #[track_caller]
    pub(super) fn lock_upgradable_anyhow(&self) {
        anyhow(|| self.share_with_right(Limit::NONE));
    }

    /// Locks as the upgradable reader. Returns false if the deadline passes first.
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

    #[inline(always)]
    fn change(&self, old: usize, new: usize) -> bool {
        self.0.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Panics or aborts if the caller is the owner: waiting for itself would never end.
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
            // ORDERING: Release; as below.
            if self.0.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_err() {
                // A waiter has set its mark in between, and the mark is still there.
                self.unlock_slow(false);
            }
            return;
        }
        // ORDERING: Release publishes the writes under the lock; pairs with the Acquire of locking.
        if self.0.swap(0, Ordering::Release) & WAITERS != 0 {
            // A waiter has set its mark in between, and the swap has removed the mark.
            self.wake_waiters();
        }
    }

    /// Unlocks, and hands the lock to the first waiter, if there is one.
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
                // SAFETY: the caller is the owner, and after `downgrade` it is a reader.
                return unsafe {
                    self.downgrade(false);
                    self.unlock_shared();
                };
            }
            if !self.pass_on(&mut bucket, &mut wakes, fair) {
                // Only waiters change the word of an owned lock, and only under the lock of the
                // bucket, which is held here. If this store removes the mark of an heir that has
                // not entered the table, the heir sets the mark again under that lock when it
                // enters.
                // ORDERING: Release; as in `unlock`.
                self.0.store(self.marks(&mut bucket), Ordering::Release);
                self.settle_into(&mut bucket, &mut wakes);
            }
        }
        if wakes.resume() {
            self.wake_waiters();
        }
    }

    /// Unlocks for the first waiter if that is a writer. Wakes the writer, and newcomers may
    /// overtake it; or hands it the lock if it was overtaken before. Returns false, without
    /// unlocking, if the first waiter is no writer.
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
            // A guest is a fiber in a foreign loop. The loop's thread may be the next to want the
            // lock; the guest could not go on then.
            let handed =
                fair || P::WRITERS_FIRST || late && !current::is_guest(first.waiter().control());
            let (word, told) = if handed {
                // With both marks, needed or not: a woken thread may go on as soon as it is granted
                // the lock. Its unlock computes the marks anew.
                (entry.heir.get() | EXCLUSIVE | WAITERS, HANDED)
            } else if queue.count(false) + queue.count(true) > 1 {
                (0, HEIR)
            } else {
                (0, NORMAL)
            };
            let told = queue.grant_first(wakes, |entry| {
                entry.word.set(told);
                // Only waiters change the word of an owned lock, and only under the lock of the
                // bucket: see `unlock_slow`.
                // ORDERING: Release; as in `unlock`.
                self.0.store(word, Ordering::Release);
            });
            if told {
                return true;
            }
        }
        false
    }

    /// # Safety
    /// The caller holds the lock as a reader.
    #[inline(always)]
    pub(super) unsafe fn unlock_shared(&self) {
        // SAFETY: the caller is a reader.
        unsafe { self.share_less(ONE) };
    }

    /// # Safety
    /// The caller holds the lock as the upgradable reader.
    pub(super) unsafe fn unlock_upgradable(&self) {
        if self.is_exclusive() {
            // The fiber holds the lock exclusively, and has forgotten that guard: there is nothing
            // to give up.
            return;
        }
        // SAFETY: the caller is the upgradable reader.
        unsafe { self.share_less(ONE | UPGRADABLE) };
    }

    /// Gives up the right to become the owner, and stays a reader.
    ///
    /// # Safety
    /// The caller is the upgradable reader.
    pub(super) unsafe fn downgrade_upgradable(&self) {
        if self.is_exclusive() {
            // As in `unlock_upgradable`.
            return;
        }
        // SAFETY: the caller is the upgradable reader.
        unsafe { self.share_less(UPGRADABLE) };
    }

    #[inline(always)]
    unsafe fn share_less(&self, what: usize) {
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

    /// Lets in the waiters that may come in, and computes the marks anew. Runs under the lock of
    /// the bucket.
    fn settle_into(&self, bucket: &mut Bucket, wakes: &mut Wakes) {
        loop {
            // The marks must go into the very word that keeps the remaining waiters out. In a later
            // word they might come too late: the holder may have unlocked already, without seeing
            // them.
            let word = self.let_in(bucket, wakes);
            if word & EXCLUSIVE != 0 && word & WAITERS == WAITERS {
                // Handed over with both marks. The next unlock computes them anew.
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

    /// Lets in one waiter of the readers' queue, unless the word has changed. Returns false if none
    /// of them may come in. An upgradable reader keeps out only the waiters for that right.
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
    fn marks(&self, bucket: &mut Bucket) -> usize {
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

    /// Turns the owner into a reader, an upgradable one if `upgradable`.
    ///
    /// # Safety
    /// The caller is the owner.
    pub(super) unsafe fn downgrade(&self, upgradable: bool) {
        let what = if upgradable { ONE | UPGRADABLE } else { ONE };
        let mut bucket = table::bucket(self.key()).lock();
        // ORDERING: Release; as in `unlock_slow`.
        self.0.store(what | self.marks(&mut bucket), Ordering::Release);
        drop(bucket);
        self.wake_waiters();
    }

    /// Turns the upgradable reader into the owner, if it is the only reader.
    ///
    /// # Safety
    /// The caller is the upgradable reader.
    pub(super) unsafe fn try_upgrade(&self) -> bool {
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
    pub(super) unsafe fn upgrade(&self, deadline: u64) -> bool {
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
}

/// Returns the marks for these numbers of waiting writers and readers.
fn marks(alone: usize, share: usize) -> usize {
    let mark = |count: usize, mark| if count > 0 { mark } else { 0 };
    mark(alone, EXCLUSIVE_WAITERS) | mark(share, SHARED_WAITERS)
}

/// Returns whether a waiter is a fiber of the caller's carrier, as far as a racy look tells.
fn is_near(waiter: *const Control) -> bool {
    let here = current::carrier();
    // SAFETY: control blocks are never unmapped.
    !here.is_null() && ptr::eq(unsafe { (*waiter).carrier() }, here)
}

/// Returns whether there are no waiters yet and the owner runs on another carrier at this moment.
fn worth_spinning(word: usize) -> bool {
    // SAFETY: the upper bits of an owned lock are the address of a control block, and blocks are
    // never unmapped. The caller has read the word with Acquire, so it sees an initialised block.
    word & EXCLUSIVE != 0
        && word & WAITERS == 0
        && unsafe { current::runs_elsewhere(&*owner(word)) }
}

#[cfg(all(test, sinew_loom))]
mod loom;
