//! The program's allocator may itself use fibers: a cache of stacks is consistent whenever it asks
//! for memory.

use sinew_context::stack::{Stack, StackAllocator, StackCache, StackPool};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;

/// Once armed, takes a stack from the thread's cache whenever it is asked for memory.
struct Meddling;

// SAFETY: passes every call to the system allocator.
unsafe impl GlobalAlloc for Meddling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        meddle();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        meddle();
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) };
    }
}

#[global_allocator]
static HEAP: Meddling = Meddling;

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static CACHE: RefCell<Option<&'static StackCache>> = const { RefCell::new(None) };
    static TAKEN: Cell<Option<Stack>> = const { Cell::new(None) };
}

fn meddle() {
    if ARMED.replace(false) {
        CACHE.with_borrow(|cache| TAKEN.set(cache.and_then(|cache| cache.allocate().ok())));
    }
}

#[test]
fn a_stack_is_handed_out_once_even_while_the_list_grows() {
    let pool = StackPool::builder().stack_size(16 * 1024).build().unwrap();
    let cache: &'static StackCache = Box::leak(Box::new(StackCache::with_capacity(&pool, 1000)));
    CACHE.set(Some(cache));
    let mut meddled = 0;
    let mut out: Vec<Stack> = (0..400).map(|_| cache.allocate().unwrap()).collect();
    let mut extra = Vec::with_capacity(400);
    while let Some(stack) = out.pop() {
        ARMED.set(true);
        drop(stack);
        ARMED.set(false);
        if let Some(stack) = TAKEN.take() {
            meddled += 1;
            extra.push(stack);
        }
    }
    assert!(meddled > 0, "the list has grown");
    out.extend((0..400 - meddled).map(|_| cache.allocate().unwrap()));
    let places: HashSet<usize> =
        out.iter().chain(&extra).map(|stack| stack.range().start).collect();
    assert_eq!(places.len(), 400);
}
