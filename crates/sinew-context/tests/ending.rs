//! The four ways in which a fiber ends, and the order of destructors.

use sinew_context::stack::{FixedSize, ProtectedFixedSize, StackAllocator, StackCache, StackPool};
use sinew_context::{FiberContext, unwind};
use sinew_testkit::Log;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

#[test]
fn a_fiber_is_one_pointer_and_so_is_an_optional_one() {
    assert_eq!(size_of::<FiberContext>(), size_of::<usize>());
    assert_eq!(size_of::<Option<FiberContext>>(), size_of::<usize>());
}

#[test]
fn first_way_returning_a_fiber() {
    let log = Log::new();
    let fiber = FiberContext::new({
        let log = log.clone();
        move |caller| {
            let _local = log.on_drop("local");
            caller
        }
    });
    assert!(fiber.unwrap().resume().is_none());
    assert_eq!(log.take(), ["local"]);
}

#[test]
fn second_way_unwind_from_any_depth_drops_in_reverse_order() {
    fn dive(depth: usize, log: &Log, caller: FiberContext) -> FiberContext {
        let _frame = log.on_drop(depth);
        if depth == 3 { unwind(caller) } else { dive(depth + 1, log, caller) }
    }
    let log = Log::new();
    let fiber = FiberContext::new({
        let log = log.clone();
        move |caller| {
            let _outer = log.on_drop("outer");
            let _inner = log.on_drop("inner");
            dive(0, &log, caller)
        }
    });
    assert!(fiber.unwrap().resume().is_none());
    assert_eq!(log.take(), ["3", "2", "1", "0", "inner", "outer"]);
}

/// A fiber that has suspended with two values on its stack.
fn suspended(log: &Log) -> FiberContext {
    let fiber = FiberContext::new({
        let log = log.clone();
        move |caller| {
            let _first = log.on_drop("first");
            let _second = log.on_drop("second");
            let caller = caller.resume().unwrap();
            log.line("resumed");
            caller
        }
    });
    fiber.unwrap().resume().unwrap()
}

#[test]
fn third_way_injecting_unwind() {
    let log = Log::new();
    assert!(suspended(&log).resume_with(unwind).is_none());
    assert_eq!(log.take(), ["second", "first"]);
}

#[test]
fn fourth_way_dropping_the_value() {
    let log = Log::new();
    drop(suspended(&log));
    assert_eq!(log.take(), ["second", "first"]);
}

#[test]
fn dropping_a_fiber_that_never_started_drops_its_closure_without_running_it() {
    let log = Log::new();
    let captured = log.on_drop("captured");
    let fiber = FiberContext::new(|caller| {
        let _captured = captured;
        unreachable!("{caller:?}")
    });
    assert!(fiber.as_ref().unwrap().is_unstarted());
    drop(fiber);
    assert_eq!(log.take(), ["captured"]);
}

#[test]
fn a_closure_whose_destructor_panics_still_gives_the_stack_back() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("destructor");
        }
    }
    let pool = StackPool::new().unwrap();
    let bomb = Bomb;
    let fiber = FiberContext::with_allocator(&pool, move |caller| {
        let _bomb = &bomb;
        caller
    });
    let result = catch_unwind(AssertUnwindSafe(|| drop(fiber)));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"destructor"));
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn every_way_gives_the_stack_back() {
    let pool = StackPool::new().unwrap();
    let cache = StackCache::new(&pool);
    let allocators: [&dyn StackAllocator; 2] = [&pool, &cache];
    for allocator in allocators {
        let make =
            || FiberContext::with_allocator(allocator, |caller| caller.resume().unwrap()).unwrap();
        assert!(make().resume().unwrap().resume().is_none());
        drop(make());
        drop(make().resume());
        assert!(make().resume().unwrap().resume_with(unwind).is_none());
    }
    cache.flush();
    assert_eq!(pool.stats().in_use, 0);
    // Each fiber freed its stack before the next was made, so one stack served all.
    assert_eq!(pool.stats().warm, 1);
}

#[test]
fn the_stack_is_freed_by_the_side_that_drops() {
    // The heap's own checks (and AddressSanitizer) would notice a stack freed while in use.
    // SAFETY: the fibers use little of their 64 KiB.
    let heap = unsafe { FixedSize::new(64 * 1024) }.unwrap();
    for _ in 0..100 {
        let fiber = FiberContext::with_allocator(&heap, |caller| caller.resume().unwrap());
        drop(fiber.unwrap().resume());
    }
}

#[test]
fn a_destructor_may_switch_while_its_fiber_is_unwound() {
    struct SwitchOnDrop(Log);
    impl Drop for SwitchOnDrop {
        fn drop(&mut self) {
            let log = self.0.clone();
            let helper = FiberContext::new(move |caller| {
                log.line("helper");
                let caller = caller.resume().unwrap();
                log.line("helper again");
                caller
            });
            let helper = helper.unwrap().resume().unwrap();
            self.0.line("destructor");
            assert!(helper.resume().is_none());
        }
    }
    let log = Log::new();
    let fiber = FiberContext::new({
        let log = log.clone();
        move |caller| {
            let _switches = SwitchOnDrop(log);
            caller.resume().unwrap()
        }
    });
    drop(fiber.unwrap().resume());
    assert_eq!(log.take(), ["helper", "destructor", "helper again"]);
}

#[test]
fn catching_the_unwinding_and_raising_it_again_is_fine() {
    let log = Log::new();
    let fiber = FiberContext::new({
        let log = log.clone();
        move |caller| {
            let result = catch_unwind(AssertUnwindSafe(|| caller.resume().unwrap()));
            let payload = result.unwrap_err();
            assert!(sinew_context::is_unwind(&*payload));
            log.line("caught");
            // Switching in between is fine too.
            let other = FiberContext::new(|caller| caller);
            assert!(other.unwrap().resume().is_none());
            resume_unwind(payload)
        }
    });
    drop(fiber.unwrap().resume());
    assert_eq!(log.take(), ["caught"]);
}

#[test]
fn a_panic_caught_inside_the_fiber_stays_there() {
    let fiber = FiberContext::new(|caller| {
        let result = catch_unwind(|| panic!("inside"));
        assert_eq!(result.unwrap_err().downcast_ref(), Some(&"inside"));
        caller.resume().unwrap()
    });
    let fiber = fiber.unwrap().resume().unwrap();
    assert!(!std::thread::panicking());
    assert!(fiber.resume().is_none());
}

#[test]
fn dropped_while_a_panic_unwinds_the_dropping_side() {
    let log = Log::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _fiber = suspended(&log);
        panic!("outer");
    }));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"outer"));
    assert_eq!(log.take(), ["second", "first"]);
    assert!(!std::thread::panicking());
}

#[test]
fn a_fiber_made_in_one_can_be_dropped_in_another() {
    let log = Log::new();
    let maker = FiberContext::new({
        let log = log.clone();
        move |caller| {
            let made = suspended(&log);
            let dropper = FiberContext::new(move |caller| {
                drop(made);
                caller
            });
            assert!(dropper.unwrap().resume().is_none());
            log.line("dropped");
            caller
        }
    });
    assert!(maker.unwrap().resume().is_none());
    assert_eq!(log.take(), ["second", "first", "dropped"]);
}

#[test]
fn a_forgotten_fiber_keeps_its_stack() {
    let pool = StackPool::new().unwrap();
    let fiber = FiberContext::with_allocator(&pool, |caller| caller.resume().unwrap());
    let fiber = fiber.unwrap().resume().unwrap();
    let range = fiber.stack_range().unwrap();
    std::mem::forget(fiber);
    // The stack is not handed out again ...
    for _ in 0..100 {
        let other = FiberContext::with_allocator(&pool, |caller| caller);
        let other = other.unwrap();
        assert_ne!(other.stack_range().unwrap(), range);
    }
    assert_eq!(pool.stats().in_use, 1);
    // ... and stays mapped when its pool goes.
    drop(pool);
    // SAFETY: reads one word of the forgotten stack, which is never unmapped.
    let top = unsafe { std::ptr::read_volatile((range.end - 64) as *const u64) };
    std::hint::black_box(top);
}

#[test]
fn values_are_ordered_and_never_equal() {
    let mut fibers: Vec<FiberContext> = (0..8)
        .map(|_| FiberContext::with_allocator(&ProtectedFixedSize::default(), |caller| caller))
        .map(|fiber| fiber.unwrap())
        .collect();
    fibers.sort();
    for pair in fibers.windows(2) {
        assert!(pair[0] < pair[1] && pair[0] != pair[1]);
    }
    let set: std::collections::HashSet<FiberContext> = fibers.into_iter().collect();
    assert_eq!(set.len(), 8);
}

#[test]
fn swapped_values_swap_fibers() {
    let log = Log::new();
    let make = |name: &'static str| {
        let log = log.clone();
        FiberContext::new(move |caller| {
            log.line(name);
            caller
        })
        .unwrap()
    };
    let (mut a, mut b) = (make("a"), make("b"));
    std::mem::swap(&mut a, &mut b);
    let _ = (a.resume(), b.resume());
    assert_eq!(log.take(), ["b", "a"]);
}
