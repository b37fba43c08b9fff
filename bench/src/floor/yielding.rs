//! Yields by hand: each context puts itself last and switches to the first.
//!
//! What a runtime has to have besides is left out: the queue never runs empty, nobody ends or waits,
//! nothing is asked. The floor keeps its contexts in a list, as whoever lets them come and go has
//! to. In the ring, which is there for orientation, even their order is fixed.

use crate::measure::{Lap, Timed};
use sinew_context::context::{self, Arrival, Context, Record};
use sinew_context::stack::{Stack, StackAllocator, StackCache, StackPool};
use std::cell::Cell;
use std::ptr;

pub(crate) const FIFO: &str = "by hand: an intrusive FIFO, direct switches, prefetch, no checks";
pub(crate) const RING: &str =
    "by hand: a ring in a fixed order, direct switches, prefetch, no checks";

struct Node {
    /// Where it goes on, if it does not run.
    context: Cell<Option<Context>>,
    next: Cell<*const Node>,
    /// Only the ring has it.
    previous: Cell<*const Node>,
}

/// Who is when.
trait Order {
    /// All nodes in turn, of which the first runs.
    fn new(nodes: &[Node]) -> Self;

    /// Puts the current node last and makes the first one current; returns its context.
    ///
    /// # Safety
    /// The nodes are alive, and all but the current one have a context.
    unsafe fn advance(&self) -> Context;

    /// Keeps the context of the one that was current before.
    ///
    /// # Safety
    /// The nodes are alive, and `context` is that of the one that called `advance` last.
    unsafe fn keep(&self, context: Context);
}

struct Fifo {
    current: Cell<*const Node>,
    first: Cell<*const Node>,
    last: Cell<*const Node>,
}

impl Order for Fifo {
    fn new(nodes: &[Node]) -> Fifo {
        for (node, next) in nodes.iter().zip(&nodes[1..]) {
            node.next.set(next);
        }
        Fifo {
            current: Cell::new(&nodes[0]),
            first: Cell::new(&nodes[1]),
            last: Cell::new(&nodes[nodes.len() - 1]),
        }
    }

    #[inline(always)]
    unsafe fn advance(&self) -> Context {
        // SAFETY: as the caller promised; with the current one in it the list is not empty.
        unsafe {
            let me = self.current.get();
            (*self.last.get()).next.set(me);
            self.last.set(me);
            let next = &*self.first.get();
            self.first.set(next.next.get());
            self.current.set(next);
            fetch(next.next.get());
            next.context.get().unwrap_unchecked()
        }
    }

    #[inline(always)]
    unsafe fn keep(&self, context: Context) {
        // SAFETY: who called `advance` is the last.
        unsafe { (*self.last.get()).context.set(Some(context)) };
    }
}

struct Ring {
    current: Cell<*const Node>,
}

impl Order for Ring {
    fn new(nodes: &[Node]) -> Ring {
        for (node, next) in nodes.iter().zip(nodes.iter().cycle().skip(1)) {
            node.next.set(next);
            next.previous.set(node);
        }
        Ring { current: Cell::new(&nodes[0]) }
    }

    #[inline(always)]
    unsafe fn advance(&self) -> Context {
        // SAFETY: as the caller promised.
        unsafe {
            let next = &*(*self.current.get()).next.get();
            self.current.set(next);
            fetch(next.next.get());
            next.context.get().unwrap_unchecked()
        }
    }

    #[inline(always)]
    unsafe fn keep(&self, context: Context) {
        // SAFETY: who called `advance` is the one before.
        unsafe { (*(*self.current.get()).previous.get()).context.set(Some(context)) };
    }
}

/// Fetches the frame of the one after the next while the next runs: those of many contexts are not
/// in the nearest cache.
///
/// # Safety
/// The node is alive.
#[inline(always)]
unsafe fn fetch(node: *const Node) {
    // SAFETY: as the caller promised. A prefetch changes nothing and never faults.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        if let Some(context) = (*node).context.get() {
            _mm_prefetch::<_MM_HINT_T0>(context.as_ptr().as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = node;
}

/// Lets the next one run; returns when it is the caller's turn again.
///
/// # Safety
/// The caller is the current node, and all others are suspended.
#[inline(always)]
unsafe fn pass_on(order: &impl Order) {
    // SAFETY: as the caller promised; nobody sends a message.
    unsafe {
        let arrival = context::switch(order.advance(), 0);
        order.keep(arrival.from_plain());
    }
}

/// What a context is started with.
#[repr(C)]
struct Launch<O> {
    record: Record,
    order: *const O,
}

unsafe extern "C-unwind" fn enter<O: Order>(
    first: *mut (),
    second: usize,
    record: *mut Record,
) -> ! {
    // SAFETY: these are the words of the first switch; the record is the first field of a launch,
    // which lives as long as the order.
    unsafe {
        let order = &*(*record.cast::<Launch<O>>()).order;
        order.keep(Arrival::begin(first, second).from_plain());
        loop {
            pass_on(order);
        }
    }
}

/// `count` contexts, at least two, switch in the order of a list.
pub(crate) fn fifo(count: u64) -> Timed {
    yielding::<Fifo>(count)
}

/// The same in the order of a ring.
pub(crate) fn ring(count: u64) -> Timed {
    yielding::<Ring>(count)
}

/// The caller is one of the contexts: the first.
fn yielding<O: Order + 'static>(count: u64) -> Timed {
    let pool = StackPool::new().expect("the default sizes are valid");
    let stacks = StackCache::new(&pool);
    let node = |_| Node {
        context: Cell::new(None),
        next: Cell::new(ptr::null()),
        previous: Cell::new(ptr::null()),
    };
    let nodes: Box<[Node]> = (0..count).map(node).collect();
    let order = Box::new(O::new(&nodes));
    let mut launches = Vec::new();
    for node in &nodes[1..] {
        let (context, launch) = prepare(&stacks, &*order);
        node.context.set(Some(context));
        launches.push(launch);
    }
    Box::new(move |yields| {
        // All of it is used through pointers that the contexts have.
        let _kept = (&pool, &nodes, &launches);
        let rounds = yields.div_ceil(count);
        Lap::run(rounds * count, || {
            for _ in 0..rounds {
                // SAFETY: the caller is the first node, which is current between the laps.
                unsafe { pass_on(&*order) };
            }
        })
    })
}

/// A context that begins in `enter`, with what has to stay alive for it.
fn prepare<O: Order>(stacks: &StackCache, order: &O) -> (Context, (Stack, Box<Launch<O>>)) {
    let stack = stacks.allocate().expect("there is memory for a stack");
    let mut launch = Box::new(Launch { record: Record::new(enter::<O>), order });
    let top = stack.top().as_ptr().wrapping_sub(stack.stagger());
    let bounds = (stack.low().as_ptr(), stack.high().as_ptr());
    // SAFETY: the stack is new; it and the launch are kept beside the order.
    let context = unsafe { Context::prepare(top, bounds, &raw mut launch.record, 0) };
    (context, (stack, launch))
}
