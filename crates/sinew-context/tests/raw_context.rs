//! The raw layer, as a scheduler uses it.

use sinew_context::context::{self, Arrival, Context, Record};
use sinew_context::stack::{ProtectedFixedSize, Stack, StackAllocator};
use sinew_context::{FiberContext, unwind};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A control block. The state of its entry function lies behind the record.
#[repr(C)]
struct Block {
    record: Record,
    stack: Stack,
    rounds: usize,
    seen: Cell<usize>,
}

unsafe extern "C-unwind" fn entry(first: *mut (), second: usize, record: *mut Record) -> ! {
    // SAFETY: the record begins a `Block`, and only the test resumes each context.
    unsafe {
        let mut arrival = Arrival::begin(first, second);
        let block = &*record.cast::<Block>();
        for _ in 0..block.rounds {
            let back = arrival.from().unwrap();
            arrival = match arrival.message() {
                Some(message) => {
                    block.seen.set(block.seen.get() + message);
                    context::switch_with(back, message * 2, 7)
                }
                None => context::switch(back, 7),
            };
        }
        context::exit(arrival.from().unwrap(), 99)
    }
}

fn prepare(rounds: usize) -> (Box<Block>, Context) {
    let stack = ProtectedFixedSize::default().allocate().unwrap();
    let block = Box::new(Block { record: Record::new(entry), stack, rounds, seen: Cell::new(0) });
    let block = Box::into_raw(block);
    // SAFETY: the block owns the stack, and stays in place.
    unsafe {
        let stack = &(*block).stack;
        let (low, high) = (stack.low().as_ptr(), stack.high().as_ptr());
        let context = Context::prepare(stack.top().as_ptr(), (low, high), block.cast(), 5);
        (Box::from_raw(block), context)
    }
}

#[test]
fn messages_and_tags_go_with_the_switch() {
    let (mut block, context) = prepare(4);
    // SAFETY: the context is suspended, and each value of it is switched to once.
    unsafe {
        assert_eq!(context.tag(), 5);
        assert!(context.unstarted().is_some());
        let mut context = context;
        for message in [1, 10, 100] {
            let arrival = context::switch_with(context, message, 0);
            assert!(!arrival.is_plain());
            assert_eq!(arrival.message(), Some(message * 2));
            context = arrival.from().unwrap();
            assert_eq!(context.tag(), 7);
            assert!(context.unstarted().is_none());
            assert_eq!(Context::from_ptr(context.as_ptr()), context);
            assert!(block.stack.range().contains(&context.address()));
        }
        let arrival = context::switch(context, 0);
        assert!(arrival.is_plain());
        assert_eq!(arrival.message(), None);
        assert_eq!(arrival.from(), Some(arrival.from_plain()));
        let arrival = context::switch(arrival.from_plain(), 0);
        assert_eq!((arrival.from(), arrival.message()), (None, Some(99)));
        context::retire(&mut block.record);
    }
    assert_eq!(block.seen.get(), 111);
}

#[test]
fn on_a_schedulers_stack_there_is_no_fiber_to_unwind() {
    unsafe extern "C-unwind" fn misuse(first: *mut (), second: usize, record: *mut Record) -> ! {
        // SAFETY: the record begins a `Block`, and only the test resumes each context.
        unsafe {
            let arrival = Arrival::begin(first, second);
            let fiber = FiberContext::new(|caller| {
                assert!(caller.is_thread(), "a scheduler's context counts as a thread");
                caller
            })
            .unwrap();
            assert!(fiber.resume().is_none());
            let other = FiberContext::new(|caller| caller).unwrap();
            let refused = catch_unwind(AssertUnwindSafe(|| unwind(other)));
            (*record.cast::<Block>()).seen.set(usize::from(refused.is_err()));
            context::exit(arrival.from().unwrap(), 0)
        }
    }
    let (mut block, _) = prepare(0);
    block.record = Record::new(misuse);
    let block = Box::into_raw(block);
    // SAFETY: the block owns the stack and stays in place. The first context never ran and is
    // replaced.
    unsafe {
        let stack = &(*block).stack;
        let bounds = (stack.low().as_ptr(), stack.high().as_ptr());
        let context = Context::prepare(stack.top().as_ptr(), bounds, block.cast(), 0);
        let _ = context::switch(context, 0);
        context::retire(block.cast());
        assert_eq!(Box::from_raw(block).seen.get(), 1);
    }
}
