//! Lists of waiters in their order of arrival, with entries on the waiters' own stacks.
//!
//! # Protocol
//!
//! A lock of the awaited object guards the list. The waiter *begins* its wait, takes the lock,
//! links its [`Node`] unless there is nothing to wait for, and suspends.
//!
//! A granter is a fiber or thread that has something to give. Under the lock it takes a node out of
//! the list, *claims* its wait, and only then gives: it writes to the payload and, as its last
//! access to the node, marks the node as granted. If the claim fails, the waiter is leaving,
//! because of its deadline or a cancellation. It gets nothing, and the granter tries the next node.
//! So nothing that was given is lost, and nothing has to be passed on. The granter makes the waiter
//! run after it has released the lock.
//!
//! A waiter that finds its node granted needs no lock. A thread may see that its wait was claimed
//! before its node is granted. It then takes the lock, like a waiter that leaves for another
//! reason, and finds one of three cases: its node is granted; or the node is still linked, and the
//! waiter unlinks it; or a granter has unlinked it and then failed to claim the wait. The waiter
//! returns or raises only after that, so nodes never dangle.

use super::{Wait, Waiter, raise};
use crate::carrier::Claimed;
use crate::clock;
use crate::fiber::WaitKind;
use crate::fiber::state::Outcome;
use crate::primitive::{AtomicBool, Cell, Ordering, SpinLock};
use core::marker::PhantomPinned;
use core::mem::{self, MaybeUninit};
use core::pin::{Pin, pin};
use core::ptr;

/// One waiter in a list.
pub(crate) struct Node<P> {
    /// Data that the waiter and the granter exchange. The granter touches it under the lock.
    payload: *const P,
    waiter: Waiter,
    /// Whether the wait is registered in other lists too.
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

    /// Creates one of several nodes of a wait. Claiming it takes a compare-exchange, because a
    /// granter in another list may end the wait.
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

    /// Creates a node that stands in a list without a wait. It is never claimed.
    pub(crate) fn marker(payload: &P) -> Node<P> {
        Node::of(Waiter::NONE, payload, false)
    }

    /// Returns the waiter's payload.
    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        // SAFETY: the payload outlives the node: both belong to the waiter, which made the payload
        // first.
        unsafe { &*self.payload }
    }

    pub(crate) fn waiter(&self) -> Waiter {
        self.waiter
    }

    /// Ends the wait of a node that was taken out of its list, unless the wait was ended before.
    #[inline(always)]
    pub(crate) fn claim(&self) -> Option<Claimed> {
        if self.several { self.waiter.claim() } else { self.waiter.claim_alone() }
    }

    /// Marks a claimed node: its waiter has been served. After this the granter touches neither the
    /// node nor the payload.
    #[inline(always)]
    pub(crate) fn grant(&self) {
        // ORDERING: Release publishes the gift; pairs with the Acquire in `is_granted`.
        self.granted.store(true, Ordering::Release);
    }

    /// Returns whether a granter has served the waiter.
    #[inline(always)]
    pub(crate) fn is_granted(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `grant`.
        self.granted.load(Ordering::Acquire)
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.linked.get()
    }
}

/// Waiters in their order of arrival.
///
/// The list is one word, a pointer to the first node. `previous` of the first node points to the
/// last node.
pub(crate) struct List<P> {
    pub(super) first: *const Node<P>,
}

// SAFETY: nodes are touched under the lock of the object. The owner of the list decides whether its
// payloads may go from thread to thread.
unsafe impl<P> Send for List<P> {}

impl<P> List<P> {
    pub(crate) const fn new() -> List<P> {
        List { first: ptr::null() }
    }

    /// Appends a node.
    ///
    /// # Safety
    /// The node is in no list. It stays where it is until it is taken out of this list.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, node: Pin<&Node<P>>) {
        let node = node.get_ref();
        node.linked.set(true);
        node.next.set(ptr::null());
        // SAFETY: linked nodes are alive.
        match unsafe { self.first.as_ref() } {
            Some(first) => {
                let last = first.previous.replace(node);
                node.previous.set(last);
                // SAFETY: linked nodes are alive.
                unsafe { (*last).next.set(node) };
            }
            None => {
                node.previous.set(node);
                self.first = node;
            }
        }
    }

    /// Puts a node before all others.
    ///
    /// # Safety
    /// The node is in no list. It stays where it is until it is taken out of this list.
    pub(crate) unsafe fn push_first(&mut self, node: Pin<&Node<P>>) {
        let node = node.get_ref();
        node.linked.set(true);
        node.next.set(self.first);
        // SAFETY: linked nodes are alive.
        let last = match unsafe { self.first.as_ref() } {
            Some(first) => first.previous.replace(node),
            None => node,
        };
        node.previous.set(last);
        self.first = node;
    }

    /// Takes out the first node.
    #[inline(always)]
    pub(crate) fn pop<'a>(&mut self) -> Option<&'a Node<P>> {
        // SAFETY: a linked node is alive, and stays alive while the lock is held: its waiter takes
        // the lock before it leaves.
        let first = unsafe { self.first.as_ref()? };
        self.remove(first);
        Some(first)
    }

    /// Takes out a node of this list.
    #[inline(always)]
    pub(crate) fn remove(&mut self, node: &Node<P>) {
        debug_assert!(node.linked.get());
        node.linked.set(false);
        let (previous, next) = (node.previous.get(), node.next.get());
        // SAFETY: linked nodes are alive, and a list that is not empty has a first node.
        unsafe {
            if ptr::eq(self.first, node) {
                self.first = next;
            } else {
                (*previous).next.set(next);
            }
            // The first node points to the last.
            if let Some(after) = next.as_ref().or(self.first.as_ref()) {
                after.previous.set(previous);
            }
        }
    }

    /// Returns the first node without taking it out.
    pub(crate) fn first(&self) -> Option<&Node<P>> {
        // SAFETY: linked nodes are alive.
        unsafe { self.first.as_ref() }
    }

    /// Counts the nodes.
    pub(crate) fn count(&self) -> usize {
        let mut count = 0;
        self.find(|_| {
            count += 1;
            false
        });
        count
    }

    /// Returns the first node of which `is` is true, without taking it out.
    pub(crate) fn find(&self, mut is: impl FnMut(&P) -> bool) -> Option<&Node<P>> {
        let mut next = self.first;
        // SAFETY: linked nodes are alive.
        while let Some(node) = unsafe { next.as_ref() } {
            if is(node.payload()) {
                return Some(node);
            }
            next = node.next.get();
        }
        None
    }

    /// Takes out nodes until the wait of one can be ended, ends that wait, and calls `give` to
    /// serve the waiter. The caller makes the waiter run after it has released the lock.
    #[inline(always)]
    pub(crate) fn grant_one<R>(&mut self, give: impl FnOnce(&P) -> R) -> Option<(Claimed, R)> {
        let (node, claimed) = self.claim_one()?;
        let given = give(node.payload());
        node.grant();
        Some((claimed, given))
    }

    /// Takes out nodes until the wait of one can be ended, and ends that wait. The caller must
    /// grant the node: a waiter that runs without a grant waits again.
    #[inline(always)]
    fn claim_one<'a>(&mut self) -> Option<(&'a Node<P>, Claimed)> {
        while let Some(node) = self.pop() {
            if let Some(claimed) = node.claim() {
                return Some((node, claimed));
            }
        }
        None
    }

    /// Takes out nodes until the wait of one can be ended, and ends that wait. Skips the nodes of
    /// the caller, which waits in `wait`.
    pub(crate) fn claim_another<'a>(&mut self, wait: &Wait) -> Option<(&'a Node<P>, Claimed)> {
        let mut next = self.first;
        // SAFETY: a linked node is alive, and stays alive while the lock is held.
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

/// Waiters that were claimed under a lock, to be made to run after its release.
pub(crate) struct Wakes {
    /// The first `len` elements are initialized.
    claimed: [MaybeUninit<Claimed>; Wakes::MOST],
    len: usize,
}

impl Wakes {
    /// The capacity.
    const MOST: usize = 16;

    #[inline(always)]
    pub(crate) const fn none() -> Wakes {
        Wakes { claimed: [const { MaybeUninit::uninit() }; Wakes::MOST], len: 0 }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == Wakes::MOST
    }

    /// Adds a waiter. The caller has checked that there is room.
    pub(crate) fn push(&mut self, claimed: Claimed) {
        self.claimed[self.len].write(claimed);
        self.len += 1;
    }

    /// Empties the set and makes its waiters run after the fibers that are ready.
    #[inline(always)]
    pub(crate) fn resume_in_turn(&mut self) {
        for claimed in &self.claimed[..mem::take(&mut self.len)] {
            // SAFETY: one of the first `len` elements.
            unsafe { claimed.assume_init() }.resume_in_turn();
        }
    }

    /// Empties the set and makes its waiters run. Returns whether the set was full: then there may
    /// be more waiters to wake.
    //
    // By reference: moving the whole array would cost more than waking one waiter.
    #[inline(always)]
    pub(crate) fn resume(&mut self) -> bool {
        let full = self.is_full();
        for claimed in &self.claimed[..mem::take(&mut self.len)] {
            // SAFETY: one of the first `len` elements.
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
    /// A granter has served the waiter. With [`Begin::Begun`], the waiter may also have been woken
    /// for another reason.
    Granted,
    /// The deadline passed.
    TimedOut,
}

/// The object and the limits of a wait.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) kind: WaitKind,
    pub(crate) address: usize,
    pub(crate) deadline: u64,
    /// Whether the wait must not be left by unwinding. Such a wait blocks the thread where a fiber
    /// may not be suspended. The caller masks cancellation as well.
    pub(crate) must: bool,
}

impl Terms {
    pub(crate) fn new<T: ?Sized>(kind: WaitKind, object: &T, deadline: u64) -> Terms {
        Terms { kind, address: ptr::from_ref(object).cast::<()>().addr(), deadline, must: false }
    }
}

/// The way in which a wait in a list begins, and whether the wait is repeated.
//
// With a tag, the compiler knows the variant where `wait_in` is inlined. Without one, null in the
// wait would be the tag, and every caller would contain the code for both variants.
#[repr(u8)]
pub(crate) enum Begin {
    /// [`wait_in`] begins the wait. A waiter that is woken for another reason waits again.
    Anew,
    /// The caller has begun the wait. It is not repeated: a waiter that is woken for another reason
    /// gets [`Ended::Granted`] as well.
    Begun(Wait),
}

/// Waits in a list.
///
/// `enter` takes the lock, and links the node or returns a result if there is nothing to wait for.
/// It may do more after it has released the lock; a panic must not leave it once the node is
/// linked. `leave` is called under the lock with a node that is still linked, and takes it out. It
/// may also end the waits of other waiters, which it returns. While it returns as many as fit,
/// `leave` is called again, without a node.
///
/// Raises if the waiter is cancelled, unless a granter has served it: then its next wait raises the
/// cancellation. Code under the lock must neither panic nor run user code.
#[inline(always)]
#[track_caller]
pub(crate) fn wait_in<S, P, R>(
    mut begin: Begin,
    lock: &SpinLock<S>,
    terms: Terms,
    payload: &P,
    mut enter: impl FnMut(Pin<&Node<P>>) -> Option<R>,
    leave: impl Fn(&mut S, Option<&Node<P>>) -> Wakes,
) -> Ended<R> {
    let once = matches!(begin, Begin::Begun(_));
    loop {
        let wait = match mem::replace(&mut begin, Begin::Anew) {
            Begin::Begun(wait) => wait,
            Begin::Anew if terms.must => Wait::begin_anyhow(terms.kind, terms.address),
            Begin::Anew => Wait::begin(terms.kind, terms.address),
        };
        let who = wait.who();
        let node = pin!(Node::new(&wait, payload));
        let node = node.into_ref();
        if let Some(result) = enter(node) {
            wait.abandon();
            return Ended::AtOnce(result);
        }
        let outcome = wait.suspend(terms.deadline);
        if outcome == Outcome::Notified && node.is_granted() {
            return Ended::Granted;
        }
        if leave_list(lock, node.get_ref(), &leave) {
            return Ended::Granted;
        }
        if !terms.must {
            raise::settle(who, outcome);
        }
        if outcome == Outcome::TimedOut && terms.deadline <= clock::now() {
            return Ended::TimedOut;
        }
        if once {
            return Ended::Granted;
        }
    }
}

/// Takes the node out of the list, if it is still there. Returns whether it was granted.
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
