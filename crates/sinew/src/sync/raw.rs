//! The lock under `Mutex` and `RwLock`: one word, shared and exclusive.
//!
//! A *writer* wants the lock exclusively, a *reader* shares it. A mutex has writers only.
//!
//! This file has the word and the writers' path: locking, unlocking, and passing the lock on to the
//! next writer. `settle` lets in waiters in all other cases, for instance when a waiter leaves. A
//! mutex uses nothing else. `shared` has the readers' path, and `upgrade` has the upgradable reader
//! and the changes between reader and writer.
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
//! - A waiter that finds the lock owned by a fiber of its own carrier counts as overtaken from the
//!   beginning. That owner waits or yields with the lock held, and will most likely do so again. If
//!   it locked again before the waiter runs, the waiter would have been woken in vain. The price: if
//!   that owner computes after it has unlocked, the lock is idle until the waiter's turn comes.
//! - While a writer waits, no new reader gets in. Waiters are served first in, first out; readers
//!   that are adjacent in the queue are let in together. That is the order [`InTurn`]. With another
//!   [`Priority`], readers have a queue of their own, which comes first or last:
//!   - `ReadersFirst`: readers ignore waiting writers. An unlocker becomes a reader, lets in all
//!     waiting readers, and then leaves.
//!   - `WritersFirst`: an unlocker hands the lock to a waiting writer.
//!
//!   With either of these two, the lock is never free while a waiter of the preferred kind waits,
//!   and the word always has the mark of that kind. So no newcomer slips in between.
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
//!   another carrier. The word counts the readers but does not name them, so no waiter spins for a
//!   reader.

mod settle;
mod shared;
mod upgrade;

use crate::cancel::masked;
use crate::carrier::current;
use crate::clock;
use crate::fiber::{Control, WaitKind};
use crate::park::list::{Ended, Terms, Wakes};
use crate::park::table::{self, Bucket, Entry, Key};
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

/// How often a waiter pauses before it suspends.
const SPINS: u32 = 16;

/// States of a waiter in its entry's word when it enters: it waits; it was overtaken, or will be; it
/// was overtaken for too long; it wants to become the upgradable reader.
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
        "deadlock: the lock at {lock:p} must be locked again, at {place}, but the same fiber or \
         thread has locked it in the meantime and keeps it; aborting"
    ));
}

/// Runs, out of line, a wait that must not be cut short.
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

/// Returns the address that names the caller in the word: the block of the fiber, or of the
/// thread's proxy.
#[inline(always)]
fn me() -> usize {
    current::block().expose_provenance()
}

fn owner(word: usize) -> *const Control {
    ptr::with_exposed_provenance(word & !(ONE - 1))
}

impl<P: Priority> RawLock<P> {
    /// Whether one kind comes first, so that there are two queues.
    const PRIORITY: bool = P::READERS_FIRST || P::WRITERS_FIRST;

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

    #[inline(always)]
    pub(super) fn try_lock(&self) -> bool {
        let me = me();
        self.take_free(me, 0, 0) || self.try_lock_marked(me)
    }

    /// Makes the caller the owner if the lock is free, even if there are marks.
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
            if entry.word.get() == NORMAL && is_suspended_here(word) {
                entry.word.set(OVERTAKEN);
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

    /// Sets a mark, under the lock of the bucket. Returns false, and does not set it, if `blocked`
    /// returns false for the word.
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
            // lock. While that thread waits, a guest that was handed the lock could not run to
            // unlock it.
            let handed =
                fair || P::WRITERS_FIRST || late && !current::is_guest(first.waiter().control());
            let (word, told) = if handed {
                // Set both marks, even if they are not needed: a woken thread may go on as soon as
                // it is granted the lock. Its unlock computes the marks anew.
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
}

/// Returns whether a waiter is a fiber of the caller's carrier, as far as a racy look tells.
fn is_near(waiter: *const Control) -> bool {
    let here = current::carrier();
    // SAFETY: control blocks are never unmapped.
    !here.is_null() && ptr::eq(unsafe { (*waiter).carrier() }, here)
}

/// Returns whether the owner is a fiber of the caller's carrier. That fiber does not run while the
/// caller does, so it waits or yields with the lock held.
fn is_suspended_here(word: usize) -> bool {
    word & EXCLUSIVE != 0 && is_near(owner(word))
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
