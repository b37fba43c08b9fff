//! Stacks: kept for reuse, given back, measured, guarded.

use crate::kit::{MS, kept, simple, with};
use sinew::manager::{
    self, EventLoop, FiberManager, Options, ReactorLoopController, SimpleLoopController,
    TaskOptions,
};
use sinew::sync::{Baton, Event};
use sinew_testkit::child::child;
use sinew_testkit::{memory, stack, watch};
use std::cell::Cell;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Runs `count` tasks that all exist at once.
fn run_together(manager: &FiberManager, controller: &SimpleLoopController, count: usize) {
    let gate = kept(Event::new());
    let ran = kept(Cell::new(0));
    for _ in 0..count {
        manager.add_task(|| {
            gate.wait();
            ran.set(ran.get() + 1);
        });
    }
    manager.loop_until_no_ready();
    assert_eq!(ran.get(), 0);
    assert!(manager.fibers_allocated() >= count);
    gate.set();
    controller.run();
    assert_eq!(ran.get(), count);
}

#[test]
fn stacks_within_the_limit_are_used_again() {
    let _watch = watch::a_minute();
    let (manager, controller) = with(Options::default().max_pooled(5));
    assert_eq!((manager.fibers_allocated(), manager.fibers_pool_size()), (0, 0));
    for _ in 0..3 {
        run_together(&manager, &controller, 5);
        assert_eq!((manager.fibers_allocated(), manager.fibers_pool_size()), (5, 5));
    }
    run_together(&manager, &controller, 2);
    assert_eq!((manager.fibers_allocated(), manager.fibers_pool_size()), (5, 5));
}

#[test]
fn stacks_over_the_limit_are_given_back() {
    let _watch = watch::a_minute();
    let (manager, controller) = with(Options::default().max_pooled(5));
    let gate = kept(Event::new());
    for _ in 0..10 {
        manager.add_task(|| gate.wait());
    }
    manager.loop_until_no_ready();
    assert_eq!((manager.fibers_allocated(), manager.fibers_pool_size()), (10, 0));
    gate.set();
    controller.run();
    assert_eq!((manager.fibers_allocated(), manager.fibers_pool_size()), (5, 5));
}

#[test]
fn without_a_pool_no_stack_is_kept() {
    let _watch = watch::a_minute();
    let (manager, controller) = with(Options::default().max_pooled(0));
    run_together(&manager, &controller, 10);
    assert_eq!((manager.fibers_allocated(), manager.fibers_pool_size()), (0, 0));
}

#[test]
fn one_stack_serves_tasks_that_follow_each_other() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    for _ in 0..100 {
        manager.add_task(|| ());
        manager.loop_until_no_ready();
        manager.add_task_eager(|| ());
    }
    assert_eq!((manager.fibers_allocated(), manager.fibers_pool_size()), (1, 1));
}

#[test]
fn stacks_of_other_sizes_do_not_get_into_the_pool() {
    let _watch = watch::a_minute();
    let (manager, controller) = with(Options::default().stack_size(64 * 1024));
    for _ in 0..10 {
        manager.add_task_with(TaskOptions::default().stack_size(1 << 20), || {
            if !cfg!(sinew_asan) {
                stack::burn(700 * 1024);
            }
        });
        controller.run();
    }
    run_together(&manager, &controller, 3);
    let left = manager.add_task_future(sinew::stack_remaining);
    controller.run();
    assert!(left.get().unwrap().is_none_or(|left| left < 64 * 1024));
}

/// The pool of a manager that resizes it. At first all stacks are kept. From period to period fewer
/// are kept, down to the number that was in use lately or to the limit.
#[test]
fn the_pool_shrinks_to_its_recent_use() {
    let _watch = watch::a_minute();
    const PERIOD: Duration = Duration::from_millis(40);
    let events = EventLoop::new().unwrap();
    let controller = ReactorLoopController::on(&events);
    let options = Options::default().max_pooled(5).pool_resize_period(Some(PERIOD));
    let manager = FiberManager::new(controller, options).unwrap();
    let stay = kept(Event::new());
    let run = kept(Cell::new(0));
    let gate = kept(Event::new());
    for n in 0..30 {
        manager.add_task(move || {
            run.set(run.get() + 1);
            gate.wait();
            if n < 10 {
                stay.wait();
            }
        });
    }
    let sizes = || (manager.fibers_allocated(), manager.fibers_pool_size());
    let settle = |expected: (usize, usize)| {
        let start = Instant::now();
        while sizes() != expected && start.elapsed() < Duration::from_secs(20) {
            events.run_after(MS, || ());
            events.run_once();
        }
        assert_eq!(sizes(), expected);
    };
    manager.loop_until_no_ready();
    assert_eq!((run.get(), sizes()), (30, (30, 0)));
    gate.set();
    manager.loop_until_no_ready();
    // More than the limit: the period decides.
    assert_eq!(sizes(), (30, 20));
    settle((15, 5));
    stay.set();
    manager.loop_until_no_ready();
    assert_eq!(sizes(), (15, 15));
    settle((5, 5));
    // The timer of the pool does not keep the loop, and may be due when everything ends.
    std::thread::sleep(2 * PERIOD);
    drop(manager);
    events.run();
}

#[test]
fn the_timer_of_the_pool_does_not_keep_a_loop() {
    let _watch = watch::a_minute();
    let options = Options::default().pool_resize_period(Some(Duration::from_secs(3600)));
    let (manager, controller) = with(options);
    manager.add_task(|| ());
    controller.run();
    assert!(!manager.has_tasks());
}

/// Uses this many bytes of the stack of a fiber.
fn use_stack(bytes: usize) {
    stack::burn(bytes);
}

#[test]
fn the_high_water_mark_is_measured_if_requested() {
    let _watch = watch::a_minute();
    if cfg!(sinew_asan) {
        // The sanitizer keeps locals outside of the stack, so the depth of the stack cannot be
        // measured.
        return;
    }
    let (manager, controller) = with(Options::default().record_stack_every(1));
    assert_eq!(manager.stack_high_water_mark(), 0);
    manager.add_task(|| use_stack(20_000));
    controller.run();
    let mark = manager.stack_high_water_mark();
    assert!((20_000..60_000).contains(&mark), "{mark}");
    // The mark is a maximum.
    manager.add_task(|| ());
    controller.run();
    assert_eq!(manager.stack_high_water_mark(), mark);
    manager.add_task(|| {
        sinew::yield_now();
        use_stack(100_000);
        manager::run_in_main_context(|| ());
    });
    controller.run();
    let mark = manager.stack_high_water_mark();
    assert!((100_000..140_000).contains(&mark), "{mark}");
    let (unasked, controller) = simple();
    unasked.add_task(|| use_stack(20_000));
    controller.run();
    assert_eq!(unasked.stack_high_water_mark(), 0);
}

#[test]
fn every_nth_task_is_measured() {
    let _watch = watch::a_minute();
    if cfg!(sinew_asan) {
        return;
    }
    let (manager, controller) = with(Options::default().record_stack_every(10));
    let mut marks = Vec::new();
    for _ in 0..10 {
        manager.add_task(|| use_stack(30_000));
        controller.run();
        marks.push(manager.stack_high_water_mark());
    }
    let measured = marks.iter().filter(|mark| **mark >= 30_000).count();
    assert!((1..=10).contains(&measured), "{marks:?}");
    assert!(marks.iter().all(|mark| *mark == 0 || *mark >= 30_000), "{marks:?}");
    assert!(marks.last() >= Some(&30_000), "{marks:?}");
}

#[test]
fn a_stack_that_was_almost_too_small_is_reported() {
    if cfg!(sinew_asan) {
        return;
    }
    let outcome = child("pools::a_stack_that_was_almost_too_small_is_reported", || {
        let options = Options::default().name("tight").record_stack_every(1);
        let (manager, controller) = with(options.stack_size(64 * 1024));
        for left in [1024, 32] {
            manager.add_task(move || {
                // The remaining bytes are counted from a frame below this one, at most a page away.
                // The stack ends at a page boundary.
                let here = 0_u8;
                let low = ((&raw const here).addr() - sinew::stack_remaining().unwrap()) & !0xfff;
                let deepest = std::ptr::with_exposed_provenance_mut::<u8>(low + left);
                // SAFETY: the address is on the stack of this fiber, far below the frames in use.
                unsafe { deepest.write_volatile(1) };
            });
            controller.run();
            let mark = manager.stack_high_water_mark();
            assert!((64 * 1024 - left - 32..=64 * 1024).contains(&mark), "{mark}");
            eprintln!("so far {left}");
        }
    });
    outcome.assert_success();
    let (before, after) = outcome.stderr.split_once("so far 1024").unwrap();
    assert!(!before.contains("tight"), "{before}");
    assert!(after.contains("a task of the manager \"tight\" has used "), "{after}");
    assert!(after.contains("of 65536 bytes of its stack"), "{after}");
}

#[test]
fn an_overflow_is_reported() {
    let outcome = child("pools::an_overflow_is_reported", || {
        let (manager, controller) = with(Options::default().stack_size(64 * 1024));
        let options = TaskOptions::default().name("deep");
        manager.add_task_with(options, || {
            stack::overflow();
        });
        controller.run();
    });
    outcome.assert_died(libc::SIGSEGV, &["stack overflow in fiber \"deep\" (id ", "65536 bytes"]);
}

#[test]
fn an_overflow_is_reported_on_a_stack_that_was_used_before() {
    let outcome = child("pools::an_overflow_is_reported_on_a_stack_that_was_used_before", || {
        let (manager, controller) = with(Options::default().stack_size(64 * 1024).guard_pages(4));
        for _ in 0..10 {
            manager.add_task(sinew::yield_now);
            controller.run();
        }
        manager.add_task_eager(|| {
            stack::overflow();
        });
    });
    outcome.assert_died(libc::SIGSEGV, &["stack overflow in fiber ", "65536 bytes"]);
}

#[test]
fn managers_without_guard_pages_work() {
    let _watch = watch::a_minute();
    let (manager, controller) = with(Options::default().guard_pages(0).stack_size(64 * 1024));
    run_together(&manager, &controller, 50);
    let (manager, controller) = with(Options::default().guard_pages(16));
    run_together(&manager, &controller, 50);
}

#[test]
fn bad_options_are_named() {
    let _watch = watch::a_minute();
    let error = |options| FiberManager::new(SimpleLoopController::new(), options).unwrap_err();
    let small = error(Options::default().stack_size(1000));
    assert_eq!(small.kind(), ErrorKind::InvalidInput);
    assert!(small.to_string().contains("1000"), "{small}");
    let huge = error(Options::default().stack_size(usize::MAX));
    assert!(huge.to_string().contains("above the maximum"), "{huge}");
}

#[test]
fn the_stacks_of_a_manager_go_with_it() {
    let outcome = child("pools::the_stacks_of_a_manager_go_with_it", || {
        let cycle = || {
            let (manager, controller) = simple();
            run_together(&manager, &controller, 200);
            drop(manager);
        };
        (0..3).for_each(|_| cycle());
        let before = (memory::mappings(), memory::resident());
        (0..30).for_each(|_| cycle());
        let after = (memory::mappings(), memory::resident());
        assert!(after.0 <= before.0 + 20, "{before:?}, {after:?}");
        assert!(after.1 <= before.1 + (16 << 20), "{before:?}, {after:?}");
    });
    outcome.assert_success();
}

#[test]
fn a_timed_wait_works_on_a_pooled_stack() {
    let _watch = watch::a_minute();
    let (manager, controller) = with(Options::default().max_pooled(1));
    for _ in 0..20 {
        let timed =
            manager.add_task_future(|| Baton::new().wait_timeout(Duration::from_micros(100)));
        controller.run();
        assert!(!timed.get().unwrap());
    }
    assert_eq!(manager.fibers_allocated(), 1);
}
