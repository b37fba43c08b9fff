//! A counter that only grows, and waiters for its values.
//!
//! # Protocol
//!
//! Each waiter has a node, pinned in the waiter's memory. New nodes go to a lock-free stack
//! (`requests`). From there the combiner moves them to a heap that is ordered by their tokens
//! (`waiting`). The heap belongs to the *combiner*: the thread that has changed the two low bits of
//! `requests` from `FREE` to `BUSY`. Other threads leave their work where the combiner finds it,
//! set `PENDING`, and continue.
//!
//! | state | meaning |
//! | --- | --- |
//! | `FREE` | there is no combiner |
//! | `BUSY` | there is a combiner |
//! | `PENDING` | there is a combiner, and there is work that it has not seen |
//!
//! The combiner removes the cancelled nodes, sorts new nodes into the heap, and removes the nodes
//! with tokens that the counter has reached. It repeats this until it can change `BUSY` to `FREE`
//! in one exchange. Only then does it *tell* the removed nodes, by setting their futures, because
//! that may run a callback that uses the sequencer.
//!
//! *No value is missed.* A waiter pushes its node, and then the combiner looks at the counter. An
//! incrementer changes the counter, and then looks for nodes. All four accesses are SeqCst, so the
//! combiner sees the new value, or the incrementer sees the node.
//!
//! *Cancellation.* Each node has a word of marks. The combiner sets `SORTED` when it sorts the node
//! in, and `OUT` when it takes the node out of the heap. A canceller sets `CANCELLED`. If the node
//! is sorted, the canceller pushes it to a second stack (`cancels`). If it is not sorted yet, the
//! combiner finds the mark when it sorts the node in. The combiner may also find the mark when it
//! takes out a node with a reached token. It then leaves the node to the canceller, which has
//! pushed the node to the second stack or is about to. So each node is told once, and may be freed
//! as soon as it is told.
//!
//! The waits go through `future::word`. `heap.rs` has the heap, and `place.rs` has the node with
//! its public interface. `Event` is built on this counter.

mod heap;
mod place;

pub use place::{SequencerTurn, SequencerWait};

use crate::primitive::Ordering;
use crate::primitive::sc::{AtomicPtr, AtomicU64};
use core::fmt;
use core::pin::{Pin, pin};
use core::ptr;
use core::time::Duration;
use heap::{cut, meld, merge_pairs};
use place::{Link, Node};

/// States of the combiner, in the two low bits of `requests`; see the page of this module.
const FREE: usize = 0;
const BUSY: usize = 1;
const PENDING: usize = 2;
/// The bits of `requests` that hold the state.
const STATE: usize = 3;

/// Marks in the word of a node; see the page of this module.
const SORTED: u32 = 1;
const CANCELLED: u32 = 1 << 1;
const OUT: u32 = 1 << 2;

/// How the wait for a value of a [`Sequencer`] ended.
///
/// # Examples
/// ```
/// use sinew::sync::{Reached, Sequencer, SequencerWait};
/// use std::pin::pin;
///
/// let sequencer = Sequencer::new();
/// let place = pin!(SequencerWait::new());
/// let other_place = pin!(SequencerWait::new());
/// let (first, second) = (sequencer.enter(1, place), sequencer.enter(2, other_place));
/// sequencer.increment();
/// second.cancel();
/// assert_eq!((first.wait(), second.wait()), (Reached::Yes, Reached::Cancelled));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    /// The counter has reached the value.
    Yes,
    /// The wait was cancelled before the counter reached the value.
    Cancelled,
}

/// From this value on, `increment` checks for overflow. Below it, an overflow would need 2^32
/// threads that are all between the comparison and the increment.
const NEAR_THE_END: u64 = u64::MAX - (1 << 32);

/// A counter that only grows, and waiters for its values.
///
/// The counter grows only when a fiber or thread calls [`increment`](Self::increment) or
/// [`advance`](Self::advance). If fibers take turns by number, a fiber that may panic or be
/// cancelled during its turn should increment in a destructor.
///
/// # Examples
/// ```
/// use sinew::sync::Sequencer;
/// use std::sync::Mutex;
///
/// // Fibers write in the order of their numbers, whichever is ready first.
/// let (turn, text) = (Sequencer::new(), Mutex::new(String::new()));
/// sinew::scope(|s| {
///     for number in [2, 0, 1] {
///         let (turn, text) = (&turn, &text);
///         s.spawn(move || {
///             turn.wait(number);
///             text.lock().unwrap().push_str(&number.to_string());
///             turn.increment();
///         });
///     }
/// });
/// assert_eq!(text.into_inner().unwrap(), "012");
/// ```
pub struct Sequencer {
    counter: AtomicU64,
    /// The stack of new nodes, with the state of the combiner in the low bits.
    requests: AtomicPtr<Node>,
    /// The stack of nodes that were cancelled after they were sorted.
    cancels: AtomicPtr<Node>,
    /// The root of the heap. Only the combiner changes it.
    waiting: AtomicPtr<Node>,
}

impl Sequencer {
    /// Creates a counter at zero.
    ///
    /// # Examples
    /// ```
    /// static TURN: sinew::sync::Sequencer = sinew::sync::Sequencer::new();
    /// assert_eq!(TURN.get(), 0);
    /// ```
    pub const fn new() -> Sequencer {
        Sequencer {
            counter: AtomicU64::new(0),
            requests: AtomicPtr::new(ptr::null_mut()),
            cancels: AtomicPtr::new(ptr::null_mut()),
            waiting: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns the value of the counter.
    ///
    /// # Examples
    /// ```
    /// let sequencer = sinew::sync::Sequencer::new();
    /// sequencer.increment();
    /// assert_eq!(sequencer.get(), 1);
    /// ```
    #[inline]
    pub fn get(&self) -> u64 {
        // ORDERING: SeqCst: in `take_reached`, it comes after the exchange in `drain` that took the
        // nodes; pairs with the load of `requests` in `changed`. As an Acquire, it shows the writes
        // before an increment; pairs with `increment`, `advance` and `advance_from`.
        self.counter.load(Ordering::SeqCst)
    }

    /// Adds one, and wakes the waiters for the new value. Returns the new value.
    ///
    /// The counter stays at `u64::MAX` once it is there.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::sync::Sequencer::new().increment(), 1);
    /// ```
    #[inline]
    pub fn increment(&self) -> u64 {
        if self.counter.load(Ordering::Relaxed) >= NEAR_THE_END {
            return self.increment_near_the_end();
        }
        // ORDERING: SeqCst: comes before the loads in `changed`; pairs with the load in `get` of a
        // combiner. As a Release, it publishes the caller's writes; pairs with the Acquire in
        // `get`.
        let value = self.counter.fetch_add(1, Ordering::SeqCst) + 1;
        self.changed();
        value
    }

    /// Adds one, unless the counter is at its maximum.
    #[cold]
    #[inline(never)]
    fn increment_near_the_end(&self) -> u64 {
        loop {
            let old = self.get();
            if old == u64::MAX || self.advance_from(old, old + 1) {
                return old.saturating_add(1);
            }
        }
    }

    /// Raises the counter to `value`, and wakes the waiters for values up to `value`. Returns false
    /// and changes nothing if the counter is already at `value` or above.
    ///
    /// # Examples
    /// ```
    /// let sequencer = sinew::sync::Sequencer::new();
    /// assert!(sequencer.advance(5));
    /// assert!(!sequencer.advance(3));
    /// assert_eq!(sequencer.get(), 5);
    /// ```
    pub fn advance(&self, value: u64) -> bool {
        // ORDERING: SeqCst; as in `increment`.
        let below = self.counter.fetch_max(value, Ordering::SeqCst) < value;
        if below {
            self.changed();
        }
        below
    }

    /// Raises the counter from `old` to `value`. Returns false and changes nothing if the counter
    /// is not at `old`.
    pub(super) fn advance_from(&self, old: u64, value: u64) -> bool {
        // ORDERING: SeqCst; as in `increment`.
        let changed =
            self.counter.compare_exchange(old, value, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if changed {
            self.changed();
        }
        changed
    }

    /// Looks for waiters after a change of the counter.
    #[inline(always)]
    fn changed(&self) {
        // ORDERING: SeqCst, after the change of the counter. The load of `requests` pairs with the
        // exchanges in `drain` and `combine`, the load of `waiting` with the stores in `sort_in`
        // and `remove`. Either these loads see a new waiter's node, or the combiner's `get` in
        // `take_reached` sees the new value of the counter.
        if !self.requests.load(Ordering::SeqCst).is_null()
            || !self.waiting.load(Ordering::SeqCst).is_null()
        {
            self.drain(None);
        }
    }

    /// Waits until the counter is at least `token`.
    ///
    /// # Examples
    /// ```
    /// let sequencer = sinew::sync::Sequencer::new();
    /// sinew::scope(|s| {
    ///     s.spawn(|| sequencer.wait(2));
    ///     sequencer.advance(2);
    /// });
    /// ```
    #[track_caller]
    pub fn wait(&self, token: u64) {
        if self.get() < token {
            let place = pin!(SequencerWait::new());
            self.enter(token, place).wait();
        }
    }

    /// Waits at most `timeout` until the counter is at least `token`; returns whether it is.
    ///
    /// # Examples
    /// ```
    /// let sequencer = sinew::sync::Sequencer::new();
    /// assert!(!sequencer.wait_timeout(1, std::time::Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, token: u64, timeout: Duration) -> bool {
        if self.get() >= token {
            return true;
        }
        let place = pin!(SequencerWait::new());
        // If the timeout wins, the destructor of the place cancels the wait before this returns.
        self.enter(token, place).wait_timeout(timeout).is_some() || self.get() >= token
    }

    /// Enters a place into the wait for `token`, without waiting. The returned turn waits until the
    /// counter is at least `token`.
    ///
    /// # Panics
    /// Panics if the place was entered before and its wait is not over.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Sequencer, SequencerWait};
    /// use std::pin::pin;
    ///
    /// let sequencer = Sequencer::new();
    /// let place = pin!(SequencerWait::new());
    /// assert!(!sequencer.enter(1, place).is_told());
    /// ```
    pub fn enter<'s: 'a, 'a>(
        &'s self,
        token: u64,
        mut place: Pin<&'a mut SequencerWait<'s>>,
    ) -> SequencerTurn<'a, 's> {
        if place.home.get().is_some() {
            assert!(place.future.is_set(), "the place already waits for a value of a sequencer");
            // SAFETY: the place was told, so the sequencer has no pointer to it. The place is not
            // moved.
            let place = unsafe { place.as_mut().get_unchecked_mut() };
            place.future.reset();
            place.word.store(0, Ordering::Relaxed);
        }
        let place = place.into_ref();
        place.home.set(Some(self));
        place.token.set(token);
        if self.get() >= token {
            let _ = place.future.set(Reached::Yes);
        } else {
            self.drain(Some(place.node()));
        }
        SequencerTurn { place }
    }

    /// Hands a node to the combiner, or tells it of a change. The caller becomes the combiner if
    /// there is none.
    fn drain(&self, request: Option<&Node>) {
        let node = request.map_or(ptr::null(), ptr::from_ref);
        let mut word = self.requests.load(Ordering::Relaxed);
        loop {
            let list = word.map_addr(|word| word & !STATE);
            if let Some(request) = request {
                request.link.set(list);
            }
            let all = if request.is_some() { node.cast_mut() } else { list };
            let free = word.addr() & STATE == FREE;
            // The new combiner takes the nodes in this exchange.
            let new = if free {
                ptr::without_provenance_mut(BUSY)
            } else {
                all.map_addr(|address| address | PENDING)
            };
            // ORDERING: SeqCst: comes before `get` in `take_reached`; pairs with the load of
            // `requests` in `changed`. As a Release, it publishes the node, and a node in
            // `cancels`; pairs with this exchange in the next combiner, and with the swap in
            // `combine`. As an Acquire, it shows the nodes of other threads, and the heap of the
            // combiner before; pairs with this exchange in those threads, and with the last
            // exchange in `combine`.
            match self.requests.compare_exchange_weak(
                word,
                new,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) if free => return self.combine(all),
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Does the work of the combiner, beginning with `requests`, the nodes that the combiner took
    /// when it set `BUSY`.
    #[cold]
    fn combine(&self, mut requests: *mut Node) {
        let busy = ptr::without_provenance_mut(BUSY);
        // Nodes to tell, each list in the order in which its nodes were taken out.
        let (mut reached, mut cancelled) = (Told::new(), Told::new());
        loop {
            let mut cancels = self.cancels.load(Ordering::Relaxed);
            if !cancels.is_null() {
                // ORDERING: Acquire shows the links of the nodes; pairs with the Release in
                // `cancel`.
                cancels = self.cancels.swap(ptr::null_mut(), Ordering::Acquire);
            }
            // SAFETY: this thread is the combiner, and it has taken both lists out of their stacks.
            unsafe {
                self.take_cancelled(cancels, &mut cancelled);
                self.sort_in(requests, &mut cancelled);
                self.take_reached(&mut reached);
            }
            // ORDERING: SeqCst publishes the heap; pairs with the exchange in `drain` by which the
            // next combiner finds `FREE`. It comes after the stores to `waiting`; pairs with the
            // loads in `changed`. If another thread has set `PENDING`, this exchange fails, and the
            // combiner goes another round for the change of that thread.
            let free = self.requests.compare_exchange(
                busy,
                ptr::null_mut(),
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if free.is_ok() {
                break;
            }
            // ORDERING: SeqCst; as in `drain`. As an Acquire, it shows the new nodes, and the nodes
            // that were pushed to `cancels` before `PENDING` was set; pairs with the exchange in
            // `drain`.
            requests = self.requests.swap(busy, Ordering::SeqCst).map_addr(|word| word & !STATE);
        }
        reached.tell(Reached::Yes);
        cancelled.tell(Reached::Cancelled);
    }

    /// Takes the nodes of a list from `cancels` out of the heap, and adds them to `cancelled`.
    ///
    /// # Safety
    /// The caller is the combiner. It has taken the list that begins with `node` out of `cancels`.
    unsafe fn take_cancelled(&self, mut node: Link, cancelled: &mut Told) {
        // SAFETY: nodes in `cancels` stay in place until they are told.
        while let Some(one) = unsafe { node.as_ref() } {
            node = one.cancel_link.get();
            // ORDERING: Relaxed: only combiners set `OUT`.
            if one.word.fetch_or(OUT, Ordering::Relaxed) & OUT == 0 {
                self.remove(one);
            }
            cancelled.push(one);
        }
    }

    /// Sorts new nodes into the heap. Adds the nodes that are marked as cancelled to `cancelled`
    /// instead.
    ///
    /// # Safety
    /// The caller is the combiner. It has taken the list that begins with `node` out of `requests`.
    unsafe fn sort_in(&self, mut node: Link, cancelled: &mut Told) {
        // SAFETY: nodes in the stack of requests stay in place until they are told.
        while let Some(one) = unsafe { node.as_ref() } {
            node = one.link.get();
            // ORDERING: AcqRel; pairs with the AcqRel in `cancel`. Either this sees `CANCELLED`, or
            // the canceller sees `SORTED`.
            let word = one.word.fetch_or(SORTED, Ordering::AcqRel);
            if word & CANCELLED != 0 {
                // ORDERING: Relaxed: only combiners set `OUT`.
                one.word.fetch_or(OUT, Ordering::Relaxed);
                cancelled.push(one);
            } else {
                one.child.set(ptr::null());
                let root = meld(self.waiting.load(Ordering::Relaxed), one);
                // ORDERING: SeqCst; as in `remove`.
                self.waiting.store(root.cast_mut(), Ordering::SeqCst);
            }
        }
    }

    /// Takes the nodes whose tokens the counter has reached out of the heap. Adds the nodes that
    /// are not cancelled to `reached`.
    ///
    /// # Safety
    /// The caller is the combiner.
    unsafe fn take_reached(&self, reached: &mut Told) {
        // SAFETY: nodes in the heap stay in place until they are told.
        while let Some(first) = unsafe { self.waiting.load(Ordering::Relaxed).as_ref() } {
            if first.token.get() > self.get() {
                break;
            }
            self.remove(first);
            // ORDERING: AcqRel; pairs with the AcqRel in `cancel`. If the node is marked as
            // cancelled, its canceller has pushed it to `cancels` or is about to, and a later round
            // of a combiner tells it.
            if first.word.fetch_or(OUT, Ordering::AcqRel) & CANCELLED == 0 {
                reached.push(first);
            }
        }
    }

    /// Takes a node out of the heap. The caller is the combiner.
    fn remove(&self, node: &Node) {
        let children = merge_pairs(node.child.replace(ptr::null()));
        let root = self.waiting.load(Ordering::Relaxed).cast_const();
        let root = if ptr::eq(root, node) {
            children
        } else {
            cut(node);
            meld(root, children)
        };
        // ORDERING: SeqCst: comes before the exchange in `combine` that sets `FREE`; pairs with the
        // load of `waiting` in `changed`, which looks here for waiters.
        self.waiting.store(root.cast_mut(), Ordering::SeqCst);
    }

    /// Asks the combiner to take a node out.
    fn cancel(&self, node: &Node) {
        // ORDERING: AcqRel; pairs with the AcqRel in `sort_in` and `take_reached`. Either this sees
        // the mark that was set there, or the combiner sees `CANCELLED`.
        let word = node.word.fetch_or(CANCELLED, Ordering::AcqRel);
        if word & (CANCELLED | OUT) != 0 || word & SORTED == 0 {
            // The node was cancelled before; or the combiner has already taken it out; or the
            // combiner will find the mark when it sorts the node in.
            return;
        }
        let mut first = self.cancels.load(Ordering::Relaxed);
        loop {
            node.cancel_link.set(first);
            // ORDERING: Release publishes the link; pairs with the Acquire in `combine`.
            match self.cancels.compare_exchange_weak(
                first,
                ptr::from_ref(node).cast_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        self.drain(None);
    }
}

/// A list of nodes to tell, in order. The nodes are linked through their `link` fields.
struct Told {
    first: Link,
    last: Link,
}

impl Told {
    const fn new() -> Told {
        Told { first: ptr::null(), last: ptr::null() }
    }

    fn push(&mut self, node: &Node) {
        node.link.set(ptr::null());
        // SAFETY: nodes stay in place until they are told, and `last` has not been told.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.link.set(node),
            None => self.first = node,
        }
        self.last = node;
    }

    fn tell(self, what: Reached) {
        let mut next = self.first;
        // SAFETY: nodes stay in place until they are told. The link is read before the node is
        // told.
        while let Some(node) = unsafe { next.as_ref() } {
            next = node.link.get();
            let _ = node.future.set(what);
        }
    }
}

impl Default for Sequencer {
    fn default() -> Self {
        Sequencer::new()
    }
}

impl fmt::Debug for Sequencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequencer").field("counter", &self.get()).finish_non_exhaustive()
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
