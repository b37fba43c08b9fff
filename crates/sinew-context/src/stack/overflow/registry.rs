//! Finds the stack that an address belongs to.
//!
//! Two callers need this. The fault handler must not wait for anything. The slow paths of
//! [`FiberContext`](crate::FiberContext) (`unwind`, dropping a suspended fiber) must know whether a
//! frame lies on a stack of this crate or on the stack of an OS thread.
//!
//! # Protocol
//!
//! Spans of addresses (one stack, or one region of a pool) are cut into chunks of 2 MiB. Each span
//! has a node for each of its chunks, in the bucket that the chunk's number selects. Writers hold
//! the lock. They make the version odd, change the lists, and make the version even again. A reader
//! in ordinary code takes the lock too. The fault handler does not: it walks the lists as they are,
//! and believes the result if the version was even and is unchanged afterwards (a sequence lock).
//! Nodes are recycled and never freed. So a walk that races with a change may read nonsense, but
//! never freed memory. A walk stops after a bounded number of steps, because a recycled node can
//! lead it in circles.
//!
//! The handler may have interrupted a writer of its own thread, near the end of a fiber's stack.
//! Then the version stays odd, and after many tries the handler takes the last stack that a try has
//! found. Every list is complete after each single store, so the handler misses at most the span
//! being changed.

use crate::primitive::{
    AtomicPtr, AtomicUsize, IS_MODEL, Mutex, Ordering, fence, lock, spin_loop, try_box,
};
use core::ptr;
use std::io;

#[cfg_attr(sinew_loom, path = "registry/absent.rs")]
mod of_process;

pub(crate) use of_process::{find, find_in_handler, insert, remove};

/// Addresses that hold one or more stacks of equal size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The distance of the slots. Each slot begins with its guard.
    pub(crate) stride: usize,
    pub(crate) guard: usize,
}

/// One stack of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// The lowest address of the guard.
    pub(crate) guard: usize,
    /// The lowest usable address.
    pub(crate) low: usize,
    /// The first address above the stack.
    pub(crate) high: usize,
}

impl Span {
    fn slot_at(&self, address: usize) -> Option<Slot> {
        if !(self.start..self.end).contains(&address) || self.stride == 0 {
            return None;
        }
        let guard = self.start + (address - self.start) / self.stride * self.stride;
        let slot = Slot { guard, low: guard + self.guard, high: guard + self.stride };
        // A region may end in a piece that is too small for a slot.
        (slot.high <= self.end).then_some(slot)
    }

    fn chunks(&self) -> core::ops::RangeInclusive<usize> {
        self.start / CHUNK..=(self.end - 1) / CHUNK
    }
}

const CHUNK: usize = 2 * 1024 * 1024;

const BUCKETS: usize = if IS_MODEL { 2 } else { 4096 };

/// The number of steps after which a walk without the lock gives up. It is longer than any list in
/// practice: a million stacks of 256 KiB make about forty nodes in a bucket.
const MAX_STEPS: usize = if IS_MODEL { 6 } else { 100_000 };

/// A node of a bucket. All fields are atomic because the handler reads them without the lock. They
/// change only under the lock.
struct Node {
    chunk: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    stride: AtomicUsize,
    guard: AtomicUsize,
    next: AtomicPtr<Node>,
}

impl Node {
    fn span(&self) -> Span {
        Span {
            start: self.start.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
            stride: self.stride.load(Ordering::Relaxed),
            guard: self.guard.load(Ordering::Relaxed),
        }
    }
}

/// The lists. They are in a struct, so that a model can have its own.
pub(crate) struct Registry {
    version: AtomicUsize,
    buckets: [AtomicPtr<Node>; BUCKETS],
    /// Unused nodes, linked by `next`. Writers hold this lock.
    free: Mutex<Free>,
}

struct Free {
    first: *mut Node,
    len: usize,
}

// SAFETY: the pointer is followed only under the lock, and nodes belong to no thread.
unsafe impl Send for Free {}

impl Registry {
    fn bucket(&self, chunk: usize) -> &AtomicPtr<Node> {
        &self.buckets[chunk % BUCKETS]
    }

    /// Adds a span, or nothing if there is no memory for its nodes.
    pub(crate) fn insert(&self, span: Span) -> io::Result<()> {
        let mut free = lock(&self.free);
        // Allocate before the version becomes odd, because the allocator is foreign code.
        for _ in span.chunks().skip(free.len) {
            free.put(new_node()?);
        }
        let writing = Writing::begin(&self.version);
        for chunk in span.chunks() {
            let Some(node) = free.take() else { break };
            let bucket = self.bucket(chunk);
            // SAFETY: nodes are never freed.
            let node_ref = unsafe { &*node };
            node_ref.chunk.store(chunk, Ordering::Relaxed);
            node_ref.start.store(span.start, Ordering::Relaxed);
            node_ref.end.store(span.end, Ordering::Relaxed);
            node_ref.stride.store(span.stride, Ordering::Relaxed);
            node_ref.guard.store(span.guard, Ordering::Relaxed);
            node_ref.next.store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
            // ORDERING: Release publishes the fields; pairs with the Acquire loads in `walk`.
            bucket.store(node, Ordering::Release);
        }
        drop(writing);
        Ok(())
    }

    pub(crate) fn remove(&self, start: usize) {
        let mut free = lock(&self.free);
        let Some(span) = self.walk(start, usize::MAX).0 else {
            return;
        };
        let writing = Writing::begin(&self.version);
        for chunk in span.chunks() {
            let mut link = self.bucket(chunk);
            loop {
                let node = link.load(Ordering::Relaxed);
                if node.is_null() {
                    break;
                }
                // SAFETY: nodes are never freed.
                let node_ref = unsafe { &*node };
                if node_ref.chunk.load(Ordering::Relaxed) == chunk && node_ref.span() == span {
                    // ORDERING: Release keeps the next node's fields, published earlier, visible to
                    // a walk that reaches it by this link; pairs with the Acquire loads in `walk`.
                    link.store(node_ref.next.load(Ordering::Relaxed), Ordering::Release);
                    free.put(node);
                    break;
                }
                link = &node_ref.next;
            }
        }
        drop(writing);
    }

    /// Finds the stack at an address, under the lock. The result is exact.
    pub(crate) fn find(&self, address: usize) -> Option<Slot> {
        let _held = lock(&self.free);
        self.walk(address, usize::MAX).0.and_then(|span| span.slot_at(address))
    }

    /// Finds the stack at an address without waiting: for the fault handler.
    pub(crate) fn find_unlocked(&self, address: usize) -> Option<Slot> {
        self.find_believed(address).0
    }

    /// Finds the stack at an address. Also returns whether the result can be believed: the lists
    /// did not change during the walk. If they change during every try, uses the result of any try
    /// that found a stack, because each walk may have lost its way.
    fn find_believed(&self, address: usize) -> (Option<Slot>, bool) {
        const TRIES: usize = if IS_MODEL { 2 } else { 4096 };
        let mut last_resort = None;
        for attempt in 1..=TRIES {
            // ORDERING: Acquire keeps the walk after this load; pairs with the Release that ends a
            // change.
            let before = self.version.load(Ordering::Acquire);
            let (span, complete) = self.walk(address, MAX_STEPS);
            let found = span.and_then(|span| span.slot_at(address));
            // ORDERING: the Acquire fence keeps the walk before the load below; pairs with the
            // Release fence in `Writing::begin`.
            fence(Ordering::Acquire);
            let after = self.version.load(Ordering::Relaxed);
            if complete && before == after && before.is_multiple_of(2) {
                return (found, true);
            }
            last_resort = found.or(last_resort);
            if attempt.is_multiple_of(64) && !IS_MODEL {
                // The writer may wait for this processor.
                // SAFETY: `sched_yield` is allowed in a signal handler.
                unsafe { libc::sched_yield() };
            } else {
                spin_loop();
            }
        }
        (last_resort, false)
    }

    /// Returns the span that holds the address, and whether the walk ended within `steps`.
    fn walk(&self, address: usize, steps: usize) -> (Option<Span>, bool) {
        let chunk = address / CHUNK;
        // ORDERING: Acquire makes the node's fields visible; pairs with the Release in `insert`.
        let mut node = self.bucket(chunk).load(Ordering::Acquire);
        for _ in 0..steps {
            if node.is_null() {
                return (None, true);
            }
            // SAFETY: nodes are never freed.
            let node_ref = unsafe { &*node };
            if node_ref.chunk.load(Ordering::Relaxed) == chunk {
                let span = node_ref.span();
                if (span.start..span.end).contains(&address) {
                    return (Some(span), true);
                }
            }
            // ORDERING: Acquire makes the node's fields visible; pairs with the Release in `insert`
            // and in `remove`.
            node = node_ref.next.load(Ordering::Acquire);
        }
        (None, false)
    }
}

impl Free {
    const fn new() -> Free {
        Free { first: ptr::null_mut(), len: 0 }
    }

    fn take(&mut self) -> Option<*mut Node> {
        let node = self.first;
        if node.is_null() {
            return None;
        }
        // SAFETY: nodes are never freed.
        self.first = unsafe { &*node }.next.load(Ordering::Relaxed);
        self.len -= 1;
        Some(node)
    }

    fn put(&mut self, node: *mut Node) {
        // SAFETY: nodes are never freed.
        unsafe { &*node }.next.store(self.first, Ordering::Relaxed);
        self.first = node;
        self.len += 1;
    }
}

/// A change in progress. The version is odd while this value lives.
struct Writing<'a>(&'a AtomicUsize);

impl<'a> Writing<'a> {
    fn begin(version: &'a AtomicUsize) -> Self {
        version.fetch_add(1, Ordering::Relaxed);
        // ORDERING: the Release fence ensures that a walk that sees a change also sees the odd
        // version; pairs with the Acquire fence in `find_believed`.
        fence(Ordering::Release);
        Writing(version)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // ORDERING: Release makes the change visible to a reader of the even version; pairs with
        // the Acquire load in `find_believed`.
        self.0.fetch_add(1, Ordering::Release);
    }
}

fn new_node() -> io::Result<*mut Node> {
    let node = try_box(Node {
        chunk: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        stride: AtomicUsize::new(0),
        guard: AtomicUsize::new(0),
        next: AtomicPtr::new(ptr::null_mut()),
    })?;
    Ok(Box::into_raw(node))
}

#[cfg(all(test, sinew_loom))]
#[path = "registry/loom.rs"]
mod model;

#[cfg(all(test, not(sinew_loom)))]
#[path = "registry/tests.rs"]
mod tests;
