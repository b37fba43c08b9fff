//! The lock under `FairMutex`.
//!
//! # Protocol
//!
//! The lock word is the address of the owner's control block. Its lowest bit marks that there are
//! waiters. A word of zero is unlocked. Each waiter has a *turn* in a list, which has a lock of its
//! own. An owner that unlocks while there are waiters makes the first waiter the owner, and then
//! *tells* it, by setting the word of its turn. So the lock is never free while there are waiters,
//! and no newcomer overtakes them.
//!
//! A waiter sets the mark under the lock of the list, by an exchange that fails if the lock has
//! become free. So the unlocker sees the mark, or the waiter sees that the lock is free.
//!
//! A turn stays in place until it is taken out of the list. If the unlocker took it out, the turn
//! also stays until it is told, which is the unlocker's last access to it. A waiter that gives its
//! turn up takes the turn out of the list. If the turn has become the owner by then, the waiter
//! unlocks.
//!
//! Uses `park::list` for the list, and `future::word` for the wait of a turn. Next: `ticket`.

use crate::carrier::current;
use crate::fiber::WaitKind;
use crate::park::list::{List, Node};
use crate::primitive::{AtomicUsize, Cell, Ordering, SpinLock};
use crate::sync::future::word::Word;
use crate::sync::raw::never_again;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::{Pin, pin};

/// The bit of the lock word that marks that there are waiters.
const WAITERS: usize = 1;
/// Stands for an owner whose control block is not known: the holder of a ticket that has not waited
/// for its turn yet.
const SOMEBODY: usize = 2;

/// The lock word and the list; see the page of this module. The word is the first field, because a
/// waiter records the address of the lock, and `inspect` reads the owner from that address.
#[repr(C)]
pub(super) struct Lock {
    word: AtomicUsize,
    turns: SpinLock<List<Told>>,
}

/// The part of a turn that other threads see.
struct Told {
    /// Set when the turn has come: its waiter owns the lock.
    word: Word,
    /// The control block of the waiter that has the turn, or `SOMEBODY`.
    who: Cell<usize>,
}

/// The place of one waiter in the order of arrival.
pub(super) struct Turn<'m> {
    /// The lock that the turn was entered into, until the turn is used up. The lifetime guarantees
    /// that the lock is alive in the destructor.
    home: Cell<Option<&'m Lock>>,
    told: Told,
    node: Option<Node<Told>>,
    _pinned: PhantomPinned,
}

// SAFETY: other threads touch the turn only under the lock of the list, or through atomics.
unsafe impl Send for Turn<'_> {}
// SAFETY: other threads touch the turn only under the lock of the list, or through atomics. Its
// owner uses the cells through `&mut`, or through a ticket, which is not `Send`.
unsafe impl Sync for Turn<'_> {}

/// Returns the address of the caller's control block, which names the caller in the lock word.
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

    /// Records the caller as the owner, in place of `SOMEBODY`.
    fn name_owner(&self) {
        let name = |word| Some(word & WAITERS | me());
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, name);
    }

    /// Locks when it is the caller's turn. Returns false if the deadline passes first.
    #[inline]
    #[track_caller]
    pub(super) fn lock(&self, deadline: u64) -> bool {
        self.try_lock() || self.lock_slow(deadline)
    }

    /// Locks when it is the caller's turn. Does not unwind, and has no deadline.
    #[inline]
    #[track_caller]
    pub(super) fn lock_anyhow(&self) {
        if !self.try_lock() {
            self.lock_anyhow_slow();
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_slow(&self, deadline: u64) -> bool {
        let mut turn = pin!(Turn::new());
        turn.as_mut().enter_as(self, me());
        turn.as_ref().wait(deadline)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_anyhow_slow(&self) {
        let mut turn = pin!(Turn::new());
        turn.as_mut().enter_as(self, me());
        if turn.waits_for_itself(self) {
            never_again(self);
        }
        turn.told.word.wait_anyhow(WaitKind::Lock, self.address());
        turn.use_up();
    }

    /// Unlocks: makes the first waiter the owner, if there is one.
    ///
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

    /// Unlocks. Every unlock of this lock is fair.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub(super) unsafe fn unlock_fair(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.unlock() };
    }

    /// Makes the first waiter the owner, and tells it. Unlocks if there is no waiter.
    #[cold]
    fn pass_on(&self) {
        let next = {
            let mut turns = self.turns.lock();
            let next = turns.pop();
            let mark = if turns.first().is_some() { WAITERS } else { 0 };
            let owner = next.map_or(0, |turn| turn.payload().who.get() | mark);
            // ORDERING: Release publishes the writes under the lock if there is no waiter, as in
            // `unlock`. A new owner sees them through the word of its turn, by the Release in
            // `Word::set`.
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
    /// If the turn was entered before and has not been used up.
    #[track_caller]
    pub(super) fn enter(self: Pin<&mut Self>, lock: &'m Lock) {
        // The ticket's holder becomes known when it waits for the turn.
        self.enter_as(lock, SOMEBODY);
    }

    #[track_caller]
    fn enter_as(self: Pin<&mut Self>, lock: &'m Lock, who: usize) {
        assert!(self.home.get().is_none(), "the place already has a turn that was not used");
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
            // SAFETY: the caller got the lock at once, so the turn is not in the list, and no other
            // thread has seen it.
            unsafe { Word::set(&raw const this.told.word) };
        }
    }

    pub(super) fn word(&self) -> &Word {
        &self.told.word
    }

    /// Waits until the turn has come, and uses it up: the caller then holds the lock. Returns false
    /// if the deadline passes first. The turn then keeps its place.
    #[track_caller]
    pub(super) fn wait(self: Pin<&Self>, deadline: u64) -> bool {
        let Some(home) = self.home.get() else { panic!("the turn of this ticket was used before") };
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

    /// Marks the turn as used up. The turn has come, and the caller holds the lock.
    pub(super) fn use_up(&self) {
        self.home.set(None);
    }

    /// Returns whether the caller already owns the lock, so that this turn would never come.
    ///
    /// The lock word also names the caller if this turn has just become the owner and is about to
    /// be told. In that case the turn is no longer in the list.
    fn waits_for_itself(&self, lock: &Lock) -> bool {
        let waits = || {
            let _turns = lock.turns.lock();
            self.node.as_ref().is_some_and(Node::is_linked)
        };
        lock.word.load(Ordering::Relaxed) & !WAITERS == me() && waits()
    }
}

impl Lock {
    /// Appends a turn to the list. If the lock is free, takes the lock instead, and returns true.
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
        // SAFETY: the turn is pinned, and its destructor takes the node out of the list.
        unsafe { turns.push(node) };
        false
    }

    /// Takes a turn out of the list. Returns false if it is not there, because the turn has come.
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
            // The turn owns the lock, and was told or is about to be told. This wait must not be
            // cut short: the unlocker has a pointer to the turn.
            self.told.word.wait_anyhow(WaitKind::Lock, home.address());
            // SAFETY: this turn owns the lock, and no guard was made for it.
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
