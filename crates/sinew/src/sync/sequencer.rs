//! A counter that only grows, and those who wait for its values in order.
//!
//! # Protocol
//!
//! Those who wait have a node each, pinned where they keep it. Nodes come in through a stack without
//! a lock (`requests`), and are kept in a heap by their tokens (`waiting`), which belongs to the
//! *combiner*: whoever gets hold of the two low bits of `requests` first. Others leave their work
//! where the combiner finds it, note that there is some, and go on:
//!
//! | state | meaning |
//! | --- | --- |
//! | `FREE` | nobody is the combiner |
//! | `BUSY` | somebody is |
//! | `PENDING` | somebody is, and has more to do than it has seen |
//!
//! The combiner takes out the nodes that were cancelled, sorts the new ones in, and takes out those
//! whose tokens the counter has reached, until it can go from `BUSY` to `FREE` in one exchange. Only
//! then it tells those whom it has taken out: that may run a callback, which may come back here.
//!
//! *No value is missed.* Who enters pushes its node and then drains, and looks at the counter in
//! doing so; who increments looks for nodes after it has incremented. All four are SeqCst.
//!
//! *Cancellation.* A node has a word: `SORTED` while it is in the heap, `CANCELLED` once somebody asked
//! for that, `OUT` when it was taken out to be told. Who cancels a sorted node pushes it to a second
//! stack; one that is not sorted yet is found cancelled by the combiner when it sorts it in. A node
//! that is to be told that its token was reached, and turns out to be cancelled, is left for the second
//! stack, where it is or will be in a moment. So a node is in the hands of one side only when it is
//! told, and may go as soon as it was.

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

const FREE: usize = 0;
const BUSY: usize = 1;
const PENDING: usize = 2;
const STATE: usize = 3;

const SORTED: u32 = 1;
const CANCELLED: u32 = 1 << 1;
const OUT: u32 = 1 << 2;

/// How the wait for a value of a [`Sequencer`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    /// The counter has the value, or is beyond it.
    Yes,
    /// The wait was cancelled before.
    Cancelled,
}

/// From here on, an increment looks whether it is the last one. So many threads that have looked before and increment
/// at the same time do not reach the end.
const NEAR_THE_END: u64 = u64::MAX - (1 << 32);

/// A counter that only grows, and those who wait for its values.
///
/// Nothing increments it by itself: if fibers pass a turn on by number, one that may panic or be
/// cancelled in its turn increments in a destructor.
///
/// # Examples
/// ```
/// use sinew::sync::Sequencer;
/// use std::sync::Mutex;
///
/// // Fibers write in the order of their numbers, whoever is ready first.
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
    /// Nodes that came in, linked; and the state of the combiner in the low bits.
    requests: AtomicPtr<Node>,
    /// Nodes that were cancelled while they were sorted, linked.
    cancels: AtomicPtr<Node>,
    /// The heap. Changed by the combiner only.
    waiting: AtomicPtr<Node>,
}

impl Sequencer {
    /// A counter at zero.
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

    /// The counter.
    ///
    /// # Examples
    /// ```
    /// let sequencer = sinew::sync::Sequencer::new();
    /// sequencer.increment();
    /// assert_eq!(sequencer.get(), 1);
    /// ```
    #[inline]
    pub fn get(&self) -> u64 {
        // ORDERING: SeqCst: the page of this module; Acquire shows what was written before the counter
        // was changed.
        self.counter.load(Ordering::SeqCst)
    }

    /// Adds one; wakes the waiters whose turn it is. Returns the new value.
    ///
    /// The counter stays at `u64::MAX` once it has reached that.
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
        // ORDERING: SeqCst: the page of this module, here and in the two below; Release for `get`.
        let value = self.counter.fetch_add(1, Ordering::SeqCst) + 1;
        self.changed();
        value
    }

    /// Adds one, unless that would make the counter start anew.
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

    /// Brings the counter to `value`, if it is below that; wakes those whose turn it is. True if it
    /// was below.
    ///
    /// # Examples
    /// ```
    /// let sequencer = sinew::sync::Sequencer::new();
    /// assert!(sequencer.advance(5));
    /// assert!(!sequencer.advance(3));
    /// assert_eq!(sequencer.get(), 5);
    /// ```
    pub fn advance(&self, value: u64) -> bool {
        let below = self.counter.fetch_max(value, Ordering::SeqCst) < value;
        if below {
            self.changed();
        }
        below
    }

    /// Replaces the counter by a later value, if it is `old`.
    pub(super) fn advance_from(&self, old: u64, value: u64) -> bool {
        let changed =
            self.counter.compare_exchange(old, value, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if changed {
            self.changed();
        }
        changed
    }

    /// The counter has changed: looks whether that concerns anybody.
    #[inline(always)]
    fn changed(&self) {
        // SeqCst, after the change: whoever enters meanwhile is seen, or sees the change.
        if !self.requests.load(Ordering::SeqCst).is_null()
            || !self.waiting.load(Ordering::SeqCst).is_null()
        {
            self.drain(None);
        }
    }

    /// Waits until the counter is `token` at least.
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

    /// Waits until the counter is `token` at least, at most for `timeout`; false if that was over
    /// before.
    ///
    /// # Examples
    /// ```
    /// let sequencer = sinew::sync::Sequencer::new();
    /// assert!(!sequencer.wait_for(1, std::time::Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_for(&self, token: u64, timeout: Duration) -> bool {
        if self.get() >= token {
            return true;
        }
        let place = pin!(SequencerWait::new());
        // The loser is cancelled before this returns, by the destructor.
        self.enter(token, place).wait_for(timeout).is_some() || self.get() >= token
    }

    /// Enters a place into the wait for `token`: it is told when the counter is that at least.
    ///
    /// # Panics
    /// If the place was entered before, and its wait is not over.
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
            assert!(place.future.is_set(), "the place waits for a value of a sequencer already");
            // SAFETY: told, so that nobody else has a pointer to it; it is not moved.
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

    /// Hands in a node, or the news that something has changed, and becomes the combiner if nobody
    /// is.
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
            // The combiner takes the nodes in the same exchange.
            let new = if free {
                ptr::without_provenance_mut(BUSY)
            } else {
                all.map_addr(|address| address | PENDING)
            };
            // ORDERING: SeqCst: the page of this module; Release publishes the node, Acquire shows
            // those of others.
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

    /// What the combiner does, beginning with the nodes that it has taken.
    #[cold]
    fn combine(&self, mut requests: *mut Node) {
        let busy = ptr::without_provenance_mut(BUSY);
        // Those to be told, first come first served, and those that were cancelled.
        let (mut reached, mut cancelled) = (Told::new(), Told::new());
        loop {
            let mut cancels = self.cancels.load(Ordering::Relaxed);
            if !cancels.is_null() {
                // ORDERING: Acquire: pairs with the Release in `cancel`.
                cancels = self.cancels.swap(ptr::null_mut(), Ordering::Acquire);
            }
            // SAFETY: nodes in the stacks and in the heap stay where they are until they were told.
            unsafe {
                self.take_cancelled(cancels, &mut cancelled);
                self.sort_in(requests, &mut cancelled);
                self.take_reached(&mut reached);
            }
            // ORDERING: SeqCst: the heap is seen by whoever finds this free; and what changed before
            // it was PENDING is looked at in another round.
            let free = self.requests.compare_exchange(
                busy,
                ptr::null_mut(),
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if free.is_ok() {
                break;
            }
            // ORDERING: SeqCst: as in `drain`. It also shows what was cancelled before.
            requests = self.requests.swap(busy, Ordering::SeqCst).map_addr(|word| word & !STATE);
        }
        reached.tell(Reached::Yes);
        cancelled.tell(Reached::Cancelled);
    }

    unsafe fn take_cancelled(&self, mut node: Link, cancelled: &mut Told) {
        // SAFETY: as in `combine`.
        while let Some(one) = unsafe { node.as_ref() } {
            node = one.cancel_link.get();
            // ORDERING: Relaxed: the combiner's own bits.
            if one.word.fetch_or(OUT, Ordering::Relaxed) & OUT == 0 {
                self.remove(one);
            }
            cancelled.push(one);
        }
    }

    unsafe fn sort_in(&self, mut node: Link, cancelled: &mut Told) {
        // SAFETY: as in `combine`.
        while let Some(one) = unsafe { node.as_ref() } {
            node = one.link.get();
            // ORDERING: AcqRel: pairs with the one in `cancel`: either this sees the request, or
            // that sees that the node is sorted.
            let word = one.word.fetch_or(SORTED, Ordering::AcqRel);
            if word & CANCELLED != 0 {
                one.word.fetch_or(OUT, Ordering::Relaxed);
                cancelled.push(one);
            } else {
                one.child.set(ptr::null());
                let root = meld(self.waiting.load(Ordering::Relaxed), one);
                self.waiting.store(root.cast_mut(), Ordering::SeqCst);
            }
        }
    }

    unsafe fn take_reached(&self, reached: &mut Told) {
        // SAFETY: as in `combine`.
        while let Some(first) = unsafe { self.waiting.load(Ordering::Relaxed).as_ref() } {
            if first.token.get() > self.get() {
                break;
            }
            self.remove(first);
            // ORDERING: AcqRel: as in `sort_in`. One that is cancelled at the same time is in the
            // other stack, or will be in a moment.
            if first.word.fetch_or(OUT, Ordering::AcqRel) & CANCELLED == 0 {
                reached.push(first);
            }
        }
    }

    /// Takes a node out of the heap.
    fn remove(&self, node: &Node) {
        let children = merge_pairs(node.child.replace(ptr::null()));
        let root = self.waiting.load(Ordering::Relaxed).cast_const();
        let root = if ptr::eq(root, node) {
            children
        } else {
            cut(node);
            meld(root, children)
        };
        // ORDERING: SeqCst: whoever changes the counter looks whether anybody is here.
        self.waiting.store(root.cast_mut(), Ordering::SeqCst);
    }

    /// Asks for a node to be taken out.
    fn cancel(&self, node: &Node) {
        // ORDERING: AcqRel: as in `sort_in`.
        let word = node.word.fetch_or(CANCELLED, Ordering::AcqRel);
        if word & (CANCELLED | OUT) != 0 || word & SORTED == 0 {
            // It was asked for before, or it is too late, or the combiner finds it when it sorts.
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

/// Nodes to be told, in order, by their links.
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
        // SAFETY: nodes stay until they were told.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.link.set(node),
            None => self.first = node,
        }
        self.last = node;
    }

    fn tell(self, what: Reached) {
        let mut next = self.first;
        // SAFETY: as in `push`; nothing is read of a node after it was told.
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
