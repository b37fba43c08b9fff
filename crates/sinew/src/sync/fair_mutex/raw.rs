//! The lock under `FairMutex`.
//!
//! # Protocol
//!
//! One word: the block of the owner, and in the lowest bit whether somebody waits; zero is unlocked.
//! Those who wait have a *turn* each, in a list under a lock of its own. Who unlocks while somebody
//! waits makes the first one the owner, and then tells it: the lock is never free as long as somebody
//! waits, so nobody comes before the others.
//!
//! The mark is set under the lock of the list, by an exchange that fails if the lock has become free.
//! So who unlocks sees the mark, or is not seen to have the lock.
//!
//! A turn stays where it is until it was taken out of the list, and, if the one who unlocked did
//! that, until it was told: that is the last access to it. One that is given up is taken out of the
//! list; if it has become the owner by then, it unlocks.

use crate::carrier::current;
use crate::fiber::WaitKind;
use crate::park::list::{List, Node};
use crate::primitive::{AtomicUsize, Cell, Ordering, SpinLock};
use crate::sync::future::word::Word;
use crate::sync::raw::never_again;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::{Pin, pin};

/// Somebody waits.
const WAITERS: usize = 1;
/// In the place of an owner: one who has a ticket, and was not seen to wait for its turn.
const SOMEBODY: usize = 2;

/// The word and the list; see the page of this module. The word is first: who waits names its address, and
/// whoever looks finds the owner there.
#[repr(C)]
pub(super) struct Lock {
    word: AtomicUsize,
    turns: SpinLock<List<Told>>,
}

/// What others see of a turn.
struct Told {
    /// Set when the turn has come: whoever took it has the lock.
    word: Word,
    /// Who took it.
    who: Cell<usize>,
}

/// A place in the order of those who want the lock.
pub(super) struct Turn<'m> {
    /// The lock that it was entered into, until it was used. With its lifetime: the destructor needs
    /// it.
    home: Cell<Option<&'m Lock>>,
    told: Told,
    node: Option<Node<Told>>,
    _pinned: PhantomPinned,
}

// SAFETY: what others touch is under the lock of the list, or atomic.
unsafe impl Send for Turn<'_> {}
// SAFETY: the same; the cells are used by the one who has the turn, by `&mut` or through a ticket that
// stays with its fiber.
unsafe impl Sync for Turn<'_> {}

fn me() -> usize {
    current::block().expose_provenance()
}

impl Lock {
    pub(super) const fn new() -> Lock {
        Lock { word: AtomicUsize::new(0), turns: SpinLock::new(List::new()) }
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    pub(super) fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.try_lock_for(me())
    }

    #[inline]
    fn try_lock_for(&self, who: usize) -> bool {
        // ORDERING: Acquire: what was written under the lock; pairs with the Release of unlocking.
        self.word.compare_exchange(0, who, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The owner, of whom nothing was known, is the caller.
    fn name_owner(&self) {
        let name = |word| Some(word & WAITERS | me());
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, name);
    }

    /// Locks when it is the caller's turn; false if the deadline has passed before.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn lock_slow(&self, deadline: u64) -> bool {
        let mut turn = pin!(Turn::new());
        turn.as_mut().enter_as(self, me());
        turn.as_ref().wait(deadline)
    }

    /// The same, and neither unwinds nor gives up.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn lock_anyhow(&self) {
        let mut turn = pin!(Turn::new());
        turn.as_mut().enter_as(self, me());
        if turn.waits_for_itself(self) {
            never_again(self);
        }
        turn.told.word.wait_anyhow(WaitKind::Lock, self.address());
        turn.use_up();
    }

    /// # Safety
    /// The caller has the lock.
    #[inline]
    pub(super) unsafe fn unlock(&self) {
        let word = self.word.load(Ordering::Relaxed);
        // ORDERING: Release: what was written under the lock; pairs with the Acquire of locking.
        if word & WAITERS != 0
            || self.word.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_err()
        {
            self.pass_on();
        }
    }

    /// Makes the first who waits the owner, and tells it.
    #[cold]
    fn pass_on(&self) {
        let next = {
            let mut turns = self.turns.lock();
            let next = turns.pop();
            let mark = if turns.first().is_some() { WAITERS } else { 0 };
            let owner = next.map_or(0, |turn| turn.payload().who.get() | mark);
            // ORDERING: Release: as in `unlock`; for a heir the word of its turn does it.
            self.word.store(owner, Ordering::Release);
            next.map(|turn| &raw const turn.payload().word)
        };
        if let Some(word) = next {
            // SAFETY: a turn is there until its word was set, and nobody else sets it.
            unsafe {
                (*word).begin_setting();
                Word::set(word);
            }
        }
    }
}

impl<'m> Turn<'m> {
    pub(super) const fn new() -> Turn<'m> {
        Turn {
            home: Cell::new(None),
            told: Told { word: Word::new(), who: Cell::new(0) },
            node: None,
            _pinned: PhantomPinned,
        }
    }

    /// Takes a turn: the lock, if it is free, or the last place of those who wait.
    ///
    /// # Panics
    /// If it was taken before, and not used.
    #[track_caller]
    pub(super) fn enter(self: Pin<&mut Self>, lock: &'m Lock) {
        // The place may be given to others before the turn has come.
        self.enter_as(lock, SOMEBODY);
    }

    #[track_caller]
    fn enter_as(self: Pin<&mut Self>, lock: &'m Lock, who: usize) {
        assert!(self.home.get().is_none(), "the place has a turn already, which was not used");
        // SAFETY: it is not moved.
        let this = unsafe { self.get_unchecked_mut() };
        this.told.word.reset();
        this.told.who.set(who);
        this.home.set(Some(lock));
        let node = &*this.node.insert(Node::marker(&this.told));
        // SAFETY: a part of what is pinned.
        let node = unsafe { Pin::new_unchecked(node) };
        if lock.try_lock_for(who) || lock.enter(node) {
            this.told.word.begin_setting();
            // SAFETY: nobody else has seen the turn.
            unsafe { Word::set(&raw const this.told.word) };
        }
    }

    pub(super) fn word(&self) -> &Word {
        &self.told.word
    }

    /// Waits until the turn has come, and uses it up: the caller has the lock. False if the deadline
    /// has passed before; then the turn is kept.
    #[track_caller]
    pub(super) fn wait(self: Pin<&Self>, deadline: u64) -> bool {
        let Some(home) = self.home.get() else { panic!("the turn was used before") };
        assert!(
            !self.waits_for_itself(home),
            "deadlock: the lock at {home:p} is locked again by the fiber or thread that holds it"
        );
        self.told.word.wait_till(WaitKind::Lock, home.address(), deadline);
        let come = self.told.word.is_set();
        if come {
            self.use_up();
            if self.told.who.get() == SOMEBODY {
                home.name_owner();
            }
        }
        come
    }

    /// The turn has come, and whoever took it has the lock.
    pub(super) fn use_up(&self) {
        self.home.set(None);
    }

    /// Whether the owner is the caller, so that the turn would never come. The owner may also be this
    /// turn, which is told so in a moment: then it does not stand in the list any more.
    fn waits_for_itself(&self, lock: &Lock) -> bool {
        let waits = || {
            let _turns = lock.turns.lock();
            self.node.as_ref().is_some_and(Node::is_linked)
        };
        lock.word.load(Ordering::Relaxed) & !WAITERS == me() && waits()
    }
}

impl Lock {
    /// Appends a turn; true if the lock was free and is the caller's now.
    fn enter(&self, node: Pin<&Node<Told>>) -> bool {
        let mut turns = self.turns.lock();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let new = if word == 0 { node.get_ref().payload().who.get() } else { word | WAITERS };
            // ORDERING: Acquire: as in `try_lock`.
            match self.word.compare_exchange_weak(word, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(0) => return true,
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        // SAFETY: the turn is pinned, and takes its node out before it goes.
        unsafe { turns.push(node) };
        false
    }

    /// Takes a turn out; false if its time has come.
    fn leave(&self, node: &Node<Told>) -> bool {
        let mut turns = self.turns.lock();
        if !node.is_linked() {
            return false;
        }
        turns.remove(node);
        if turns.first().is_none() {
            self.word.fetch_and(!WAITERS, Ordering::Relaxed);
        }
        true
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(home) = self.home.get() else { return };
        let left = self.node.as_ref().is_some_and(|node| home.leave(node));
        if !left {
            // It is the owner, and is told in a moment. Not to be cut short: others have a pointer
            // to it.
            self.told.word.wait_anyhow(WaitKind::Lock, home.address());
            // SAFETY: whoever took the turn has the lock, and there is no guard.
            unsafe { home.unlock() };
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawFairMutex").field("locked", &self.is_locked()).finish_non_exhaustive()
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
