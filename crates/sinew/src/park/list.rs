//! Who waits for one thing, in order: a list whose entries lie on the waiters' own stacks.
//!
//! # Protocol
//!
//! The list is guarded by a lock of the object that is waited for. The waiter *begins* its wait,
//! takes the lock, links its [`Node`] unless there is nothing to wait for, and suspends.
//!
//! Whoever has something to give takes a node out of the list, *claims* its wait, and only then
//! gives: it writes to the payload and, as the last thing it does to the node, marks it as granted,
//! all under the lock. A claim that fails means that the waiter leaves for another reason, by its
//! deadline or because it was cancelled, and gets nothing: the next one is tried. So nothing that
//! was given is lost, and nothing has to be passed on. The waiter is made to run when the lock was
//! released.
//!
//! A waiter that finds itself granted needs no lock. A thread may see that its wait was claimed
//! before it was given anything; like one that leaves for another reason it takes the lock, and then
//! knows: it was granted, or it unlinks itself, or somebody who tried in vain has done that. It
//! returns, or raises, after that: nodes never dangle.

use super::{Wait, Waiter};
use crate::cancel;
use crate::carrier::Claimed;
use crate::clock;
use crate::fiber::WaitKind;
use crate::fiber::state::Outcome;
use crate::primitive::{AtomicBool, Cell, Ordering, SpinLock};
use core::marker::PhantomPinned;
use core::mem::MaybeUninit;
use core::pin::{Pin, pin};
use core::ptr;

/// One waiter in a list.
pub(crate) struct Node<P> {
    /// What the two sides have to say to each other. The granter touches it under the lock.
    payload: *const P,
    waiter: Waiter,
    /// Whether the wait is registered in other lists as well.
    several: bool,
    granted: AtomicBool,
    linked: Cell<bool>,
    next: Cell<*const Node<P>>,
    previous: Cell<*const Node<P>>,
    _pinned: PhantomPinned,
}

impl<P> Node<P> {
    pub(crate) fn new(wait: &Wait, payload: &P) -> Node<P> {
        Node::of(wait.waiter(), payload, false)
    }

    /// One of several nodes of the same wait: others may end it, so that it takes an exchange.
    pub(crate) fn one_of_several(wait: &Wait, payload: &P) -> Node<P> {
        Node::of(wait.waiter(), payload, true)
    }

    #[inline(always)]
    fn of(waiter: Waiter, payload: &P, several: bool) -> Node<P> {
        Node {
            payload,
            waiter,
            several,
            granted: AtomicBool::new(false),
            linked: Cell::new(false),
            next: Cell::new(ptr::null()),
            previous: Cell::new(ptr::null()),
            _pinned: PhantomPinned,
        }
    }

    /// A node that stands in a list and does not wait: it is never claimed.
    pub(crate) fn marker(payload: &P) -> Node<P> {
        Node::of(Waiter::NONE, payload, false)
    }

    /// What the waiter brought.
    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        // SAFETY: it outlives the node: both belong to the waiter, who made it first.
        unsafe { &*self.payload }
    }

    /// Who waits.
    pub(crate) fn waiter(&self) -> Waiter {
        self.waiter
    }

    /// Ends the wait of a node that was taken out of its list, if nobody has.
    #[inline(always)]
    pub(crate) fn claim(&self) -> Option<Claimed> {
        if self.several { self.waiter.claim() } else { self.waiter.claim_alone() }
    }

    /// Marks a node whose wait was claimed: the waiter has what it waited for. Nobody else touches
    /// the node after this, or the payload.
    #[inline(always)]
    pub(crate) fn grant(&self) {
        // ORDERING: Release: what was given; pairs with the Acquire in `is_granted`.
        self.granted.store(true, Ordering::Release);
    }

    /// Whether the waiter has what it waited for.
    #[inline(always)]
    pub(crate) fn is_granted(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `grant`.
        self.granted.load(Ordering::Acquire)
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.linked.get()
    }
}

/// Waiters in the order of their coming.
///
/// One word: the first one's link to its predecessor leads to the last.
pub(crate) struct List<P> {
    pub(super) first: *const Node<P>,
}

// SAFETY: nodes are touched under the lock of the object. Whether payloads may go from thread to
// thread is up to whoever has the list.
unsafe impl<P> Send for List<P> {}

impl<P> List<P> {
    pub(crate) const fn new() -> List<P> {
        List { first: ptr::null() }
    }

    /// Appends a node.
    ///
    /// # Safety
    /// The node is in no list, and stays where it is until it was taken out of this one.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, node: Pin<&Node<P>>) {
        let node = node.get_ref();
        node.linked.set(true);
        node.next.set(ptr::null());
        // SAFETY: what is linked is alive.
        match unsafe { self.first.as_ref() } {
            Some(first) => {
                let last = first.previous.replace(node);
                node.previous.set(last);
                // SAFETY: the same.
                unsafe { (*last).next.set(node) };
            }
            None => {
                node.previous.set(node);
                self.first = node;
            }
        }
    }

    /// Puts a node before the others.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    pub(crate) unsafe fn push_first(&mut self, node: Pin<&Node<P>>) {
        let node = node.get_ref();
        node.linked.set(true);
        node.next.set(self.first);
        // SAFETY: what is linked is alive.
        let last = match unsafe { self.first.as_ref() } {
            Some(first) => first.previous.replace(node),
            None => node,
        };
        node.previous.set(last);
        self.first = node;
    }

    /// Takes out the first.
    #[inline(always)]
    pub(crate) fn pop<'a>(&mut self) -> Option<&'a Node<P>> {
        // SAFETY: what is linked is alive, and stays so while the lock is held: its waiter has to
        // take that before it leaves.
        let first = unsafe { self.first.as_ref()? };
        self.remove(first);
        Some(first)
    }

    /// Takes out a node that is in this list.
    #[inline(always)]
    pub(crate) fn remove(&mut self, node: &Node<P>) {
        debug_assert!(node.linked.get());
        node.linked.set(false);
        let (previous, next) = (node.previous.get(), node.next.get());
        // SAFETY: what is linked is alive, and a list with something in it has a first.
        unsafe {
            if ptr::eq(self.first, node) {
                self.first = next;
            } else {
                (*previous).next.set(next);
            }
            // The last one is known to the first.
            if let Some(after) = next.as_ref().or(self.first.as_ref()) {
                after.previous.set(previous);
            }
        }
    }

    /// The first one, which stays.
    pub(crate) fn first(&self) -> Option<&Node<P>> {
        // SAFETY: what is linked is alive.
        unsafe { self.first.as_ref() }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        let mut count = 0;
        self.find(|_| {
            count += 1;
            false
        });
        count
    }

    /// The first one of which `is` is true, which stays.
    pub(crate) fn find(&self, mut is: impl FnMut(&P) -> bool) -> Option<&Node<P>> {
        let mut next = self.first;
        // SAFETY: what is linked is alive.
        while let Some(node) = unsafe { next.as_ref() } {
            if is(node.payload()) {
                return Some(node);
            }
            next = node.next.get();
        }
        None
    }

    /// Takes out the first whose wait can be ended, and ends it; `give` then gives it what it waits
    /// for. The caller makes it run when it has released the lock.
    #[inline(always)]
    pub(crate) fn grant_one<R>(&mut self, give: impl FnOnce(&P) -> R) -> Option<(Claimed, R)> {
        let (node, claimed) = self.claim_one()?;
        let given = give(node.payload());
        node.grant();
        Some((claimed, given))
    }

    /// Takes out the first whose wait can be ended, and ends it. Made to run without being granted
    /// anything, it waits again.
    #[inline(always)]
    fn claim_one<'a>(&mut self) -> Option<(&'a Node<P>, Claimed)> {
        while let Some(node) = self.pop() {
            if let Some(claimed) = node.claim() {
                return Some((node, claimed));
            }
        }
        None
    }

    /// The same, but for nodes of the wait of the caller itself.
    pub(crate) fn claim_another<'a>(&mut self, wait: &Wait) -> Option<(&'a Node<P>, Claimed)> {
        let mut next = self.first;
        // SAFETY: what is linked is alive, and stays so while the lock is held.
        while let Some(node) = unsafe { next.as_ref() } {
            next = node.next.get();
            if node.waiter.control() == wait.waiter().control() {
                continue;
            }
            self.remove(node);
            if let Some(claimed) = node.claim() {
                return Some((node, claimed));
            }
        }
        None
    }
}

/// Waiters whose waits have ended under a lock, to be made to run when it was released.
pub(crate) struct Wakes {
    /// The first `len` are there.
    claimed: [MaybeUninit<Claimed>; Wakes::MOST],
    len: usize,
}

impl Wakes {
    /// How many there is room for.
    const MOST: usize = 16;

    #[inline(always)]
    pub(crate) const fn none() -> Wakes {
        Wakes { claimed: [const { MaybeUninit::uninit() }; Wakes::MOST], len: 0 }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == Wakes::MOST
    }

    /// Adds one. There is room for it.
    pub(crate) fn push(&mut self, claimed: Claimed) {
        self.claimed[self.len].write(claimed);
        self.len += 1;
    }

    /// Makes all of them run, once, after those that are ready.
    #[inline(always)]
    pub(crate) fn resume_in_turn(&mut self) {
        for claimed in &self.claimed[..core::mem::take(&mut self.len)] {
            // SAFETY: one of the first.
            unsafe { claimed.assume_init() }.resume_in_turn();
        }
    }

    /// Makes all of them run, once. True if there was room for no more, and there may be others.
    //
    // By reference: there is room for many, and moving that would cost more than waking one.
    #[inline(always)]
    pub(crate) fn resume(&mut self) -> bool {
        let full = self.is_full();
        for claimed in &self.claimed[..core::mem::take(&mut self.len)] {
            // SAFETY: one of the first.
            unsafe { claimed.assume_init() }.resume();
        }
        full
    }
}

/// How a wait in a list ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended<R> {
    /// There was nothing to wait for.
    AtOnce(R),
    /// Somebody gave what was waited for.
    Granted,
    /// The deadline passed.
    TimedOut,
}

/// What a wait is for, until when it may last, and what else its end depends on.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) kind: WaitKind,
    pub(crate) address: usize,
    pub(crate) deadline: u64,
    /// Whether the wait must not be left by unwinding: it blocks the thread where a fiber may not
    /// wait. The caller masks it as well.
    pub(crate) must: bool,
}

impl Terms {
    pub(crate) fn new<T: ?Sized>(kind: WaitKind, object: &T, deadline: u64) -> Terms {
        Terms { kind, address: ptr::from_ref(object).cast::<()>().addr(), deadline, must: false }
    }
}

/// Waits in a list. `enter` is called under the lock: it finds that there is nothing to wait for,
/// or links the node. `leave` takes it out again, if nobody has, and may wake others for that; it is
/// called without a node as long as there may be more to wake.
///
/// Raises if the waiter is cancelled, but not if it has been given something: what was asked of it
/// meanwhile is then raised by its next wait. What runs under the lock must not panic, nor run code
/// of the user's.
#[inline(always)]
#[track_caller]
pub(crate) fn wait_in<S, P, R>(
    lock: &SpinLock<S>,
    terms: Terms,
    payload: &P,
    enter: impl FnMut(&mut S, Pin<&Node<P>>) -> Option<R>,
    leave: impl Fn(&mut S, Option<&Node<P>>) -> Wakes,
) -> Ended<R> {
    wait_after(lock, terms, payload, enter, || (), leave)
}

/// The same, with something to be done between entering the list and suspending.
#[inline(always)]
#[track_caller]
pub(crate) fn wait_after<S, P, R>(
    lock: &SpinLock<S>,
    terms: Terms,
    payload: &P,
    mut enter: impl FnMut(&mut S, Pin<&Node<P>>) -> Option<R>,
    mut then: impl FnMut(),
    leave: impl Fn(&mut S, Option<&Node<P>>) -> Wakes,
) -> Ended<R> {
    loop {
        let wait = if terms.must {
            Wait::begin_anyhow(terms.kind, terms.address)
        } else {
            Wait::begin(terms.kind, terms.address)
        };
        let ended = wait_begun(wait, lock, terms, payload, &mut enter, &mut then, &leave);
        if let Some(ended) = ended {
            return ended;
        }
    }
}

/// The same once, of a wait that has just begun: nothing if the waiter was woken for something else.
#[inline(always)]
#[track_caller]
pub(crate) fn wait_begun<S, P, R>(
    wait: Wait,
    lock: &SpinLock<S>,
    terms: Terms,
    payload: &P,
    enter: impl FnOnce(&mut S, Pin<&Node<P>>) -> Option<R>,
    then: impl FnOnce(),
    leave: impl Fn(&mut S, Option<&Node<P>>) -> Wakes,
) -> Option<Ended<R>> {
    let who = wait.who();
    let node = pin!(Node::new(&wait, payload));
    let node = node.into_ref();
    let entered = enter(&mut lock.lock(), node);
    if let Some(result) = entered {
        wait.abandon();
        return Some(Ended::AtOnce(result));
    }
    {
        // The node is linked, so that this frame must not go.
        let guard = NeverUnwinds("a lock that was unlocked");
        then();
        core::mem::forget(guard);
    }
    let outcome = wait.suspend(terms.deadline);
    if outcome == Outcome::Notified && node.is_granted() {
        return Some(Ended::Granted);
    }
    if leave_list(lock, node.get_ref(), &leave) {
        return Some(Ended::Granted);
    }
    if !terms.must {
        cancel::settle(who, outcome);
    }
    (outcome == Outcome::TimedOut && terms.deadline <= clock::now()).then_some(Ended::TimedOut)
}

/// Ends the process if something unwinds that must not: somebody has a pointer to its frame.
pub(crate) struct NeverUnwinds(pub(crate) &'static str);

impl Drop for NeverUnwinds {
    fn drop(&mut self) {
        crate::report::abort(format_args!("{} panicked in the middle of a wait; aborting", self.0));
    }
}

/// Takes the node out of the list, if it is there; true if it was granted.
#[cold]
fn leave_list<S, P>(
    lock: &SpinLock<S>,
    node: &Node<P>,
    leave: &impl Fn(&mut S, Option<&Node<P>>) -> Wakes,
) -> bool {
    let mut wakes = {
        let mut state = lock.lock();
        if !node.is_linked() {
            return node.is_granted();
        }
        leave(&mut state, Some(node))
    };
    while wakes.resume() {
        wakes = leave(&mut lock.lock(), None);
    }
    false
}
