//! The lock under `FairMutex`.
//!
//! # Protocol
//!
//! The lock word is the control block of the owner, with a mark in the lowest bit that there are
//! waiters; zero is unlocked. Each waiter has a *turn*, in a list under a lock of its own. An owner
//! that unlocks while there are waiters makes the first waiter the owner, and then tells it. So the
//! lock is never free while there are waiters, and no newcomer overtakes them.
//!
//! A waiter sets the mark under the lock of the list, by an exchange that fails if the lock has
//! become free. So the unlocker sees the mark, or the waiter sees that the lock is free.
//!
//! A turn stays in place until it is taken out of the list. If the unlocker took it out, the turn
//! also stays until it is told, which is the last access to it. A turn that is given up is taken
//! out of the list; if it has become the owner by then, it unlocks.

use crate::carrier::current;
use crate::fiber::WaitKind;
use crate::park::list::{List, Node};
use crate::primitive::{AtomicUsize, Cell, Ordering, SpinLock};
use crate::sync::future::word::Word;
use crate::sync::raw::never_again;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::{Pin, pin};

/// Set if there are waiters.
const WAITERS: usize = 1;
/// Stands for an owner that holds a ticket and has not been seen to wait for its turn.
const SOMEBODY: usize = 2;

/// The word and the list; see the page of this module. The word is first: a waiter records the
/// lock's address, and `inspect` finds the owner there.
#[repr(C)]
pub(super) struct Lock {
    word: AtomicUsize,
    turns: SpinLock<List<Told>>,
}

/// The part of a turn that other threads see.
struct Told {
    /// Set when the turn has come: its taker holds the lock.
    word: Word,
    /// The taker of the turn.
    who: Cell<usize>,
}

/// A place in the order of arrival.
pub(super) struct Turn<'m> {
    /// The lock that the turn was entered into, until the turn is used. It carries the lifetime of
    /// the lock, which the destructor needs.
    home: Cell<Option<&'m Lock>>,
    told: Told,
    node: Option<Node<Told>>,
    _pinned: PhantomPinned,
}

// SAFETY: other threads touch the turn only under the lock of the list, or through atomics.
unsafe impl Send for Turn<'_> {}
// SAFETY: other threads touch the turn only under the lock of the list, or through atomics. Its
// taker uses the cells through `&mut`, or through a ticket that stays with its fiber.
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
        // ORDERING: Acquire shows the writes under the lock; pairs with the Release in `unlock` and
        // `pass_on`.
        self.word.compare_exchange(0, who, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Records the caller as the owner, in the place of `SOMEBODY`.
    fn name_owner(&self) {
        let name = |word| Some(word & WAITERS | me());
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, name);
    }

    /// Locks when it is the caller's turn. Returns false if the deadline passes first.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn lock_slow(&self, deadline: u64) -> bool {
        let mut turn = pin!(Turn::new());
        turn.as_mut().enter_as(self, me());
        turn.as_ref().wait(deadline)
    }

    /// Locks when it is the caller's turn. Neither unwinds nor gives up.
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
    /// The caller holds the lock.
    #[inline]
    pub(super) unsafe fn unlock(&self) {
        let word = self.word.load(Ordering::Relaxed);
        // ORDERING: Release publishes the writes under the lock; pairs with the Acquire of locking.
        if word & WAITERS != 0
            || self.word.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_err()
        {
            self.pass_on();
        }
    }

    /// Makes the first waiter the owner, and tells it.
    #[cold]
    fn pass_on(&self) {
        let next = {
            let mut turns = self.turns.lock();
            let next = turns.pop();
            let mark = if turns.first().is_some() { WAITERS } else { 0 };
            let owner = next.map_or(0, |turn| turn.payload().who.get() | mark);
            // ORDERING: Release; as in `unlock`. For a new owner, the word of its turn publishes
            // the writes.
            self.word.store(owner, Ordering::Release);
            next.map(|turn| &raw const turn.payload().word)
        };
        if let Some(word) = next {
            // SAFETY: a turn exists until its word is set, and only this unlocker sets it.
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

    /// Takes a turn: the lock if it is free, or else the last place in the list.
    ///
    /// # Panics
    /// If the turn was entered before and not used.
    #[track_caller]
    pub(super) fn enter(self: Pin<&mut Self>, lock: &'m Lock) {
        // The ticket's holder becomes known when it waits for the turn.
        self.enter_as(lock, SOMEBODY);
    }

    #[track_caller]
    fn enter_as(self: Pin<&mut Self>, lock: &'m Lock, who: usize) {
        assert!(self.home.get().is_none(), "the place has a turn already, which was not used");
        // SAFETY: the value is not moved.
        let this = unsafe { self.get_unchecked_mut() };
        this.told.word.reset();
        this.told.who.set(who);
        this.home.set(Some(lock));
        let node = &*this.node.insert(Node::marker(&this.told));
        // SAFETY: the node is a field of the pinned turn.
        let node = unsafe { Pin::new_unchecked(node) };
        if lock.try_lock_for(who) || lock.enter(node) {
            this.told.word.begin_setting();
            // SAFETY: no other thread has seen the turn.
            unsafe { Word::set(&raw const this.told.word) };
        }
    }

    pub(super) fn word(&self) -> &Word {
        &self.told.word
    }

    /// Waits until the turn has come, and uses it up: the caller then holds the lock. Returns false
    /// if the deadline passes first; the turn is kept then.
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

    /// Marks the turn as used. It has come, and its taker holds the lock.
    pub(super) fn use_up(&self) {
        self.home.set(None);
    }

    /// Returns whether the caller is the owner, so that the turn would never come.
    ///
    /// The word also names the caller if this turn has just become the owner and is about to be
    /// told. In that case the turn is not in the list any more.
    fn waits_for_itself(&self, lock: &Lock) -> bool {
        let waits = || {
            let _turns = lock.turns.lock();
            self.node.as_ref().is_some_and(Node::is_linked)
        };
        lock.word.load(Ordering::Relaxed) & !WAITERS == me() && waits()
    }
}

impl Lock {
    /// Appends a turn. Returns true if the lock was free, and is the caller's now.
    fn enter(&self, node: Pin<&Node<Told>>) -> bool {
        let mut turns = self.turns.lock();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let new = if word == 0 { node.get_ref().payload().who.get() } else { word | WAITERS };
            // ORDERING: Acquire; as in `try_lock_for`.
            match self.word.compare_exchange_weak(word, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(0) => return true,
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        // SAFETY: the turn is pinned, and takes its node out before it is dropped.
        unsafe { turns.push(node) };
        false
    }

    /// Takes a turn out of the list. Returns false if the turn was taken out because it has come.
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
            // The turn is the owner, and is told in a moment. This wait must not be cut short: the
            // unlocker has a pointer to the turn.
            self.told.word.wait_anyhow(WaitKind::Lock, home.address());
            // SAFETY: this turn owns the lock, and there is no guard.
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
