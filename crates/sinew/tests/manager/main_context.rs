//! `run_in_main_context`: leaving the fiber's stack for a while.

use crate::kit::{MS, kept, panic_of, simple, stack_address, with};
use sinew::manager::{
    self, BrokenPromise, ManagerHandle, Options, Promise, await_with, run_in_main_context,
};
use sinew::sync::{Baton, Mutex};
use sinew_context::FiberContext;
use sinew_testkit::{Log, watch};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// Much larger than a few frames, much smaller than the distance to another stack.
const NEAR: usize = 64 * 1024;

#[derive(PartialEq, Debug)]
struct NotCopied(u32);

#[test]
fn outside_of_fibers_the_main_context_is_a_plain_call() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let here = stack_address();
    let mut seen = 0;
    let check = |seen: &mut usize| {
        *seen = stack_address();
        NotCopied(42)
    };
    assert_eq!(manager.run_in_main_context(|| check(&mut seen)), NotCopied(42));
    assert!(cfg!(sinew_asan) || seen.abs_diff(here) < NEAR);
    assert_eq!(run_in_main_context(|| check(&mut seen)), NotCopied(42));
    // A fiber of a runtime has no main context.
    let (inside, outside) = sinew::run(|| (stack_address(), run_in_main_context(stack_address)));
    assert!(cfg!(sinew_asan) || inside.abs_diff(outside) < NEAR);
}

#[test]
fn in_a_fiber_the_main_context_is_the_stack_of_the_thread() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let main = stack_address();
    let ran = manager.add_task_future(move || {
        let mine = stack_address();
        let mut borrowed = 0;
        let result = run_in_main_context(|| {
            borrowed += 1;
            if !cfg!(sinew_asan) {
                assert!(stack_address().abs_diff(main) < NEAR);
                assert!(stack_address().abs_diff(mine) > NEAR);
            }
            NotCopied(42)
        });
        let handle = ManagerHandle::current().unwrap();
        handle.run_in_main_context(|| borrowed += 1);
        (borrowed, result)
    });
    controller.run();
    assert_eq!(ran.get().unwrap(), (2, NotCopied(42)));
}

fn huge_stack_on_the_main_context() -> u8 {
    /// A separate function, so that it is never inlined into the fiber's frame.
    #[inline(never)]
    fn huge() -> u8 {
        let frame = std::hint::black_box([42_u8; 256 << 10]);
        frame[std::hint::black_box(7777)]
    }
    run_in_main_context(huge)
}

#[test]
fn a_small_fiber_has_a_large_stack_on_the_main_context() {
    let _watch = watch::a_minute();
    let options = Options::default().stack_size(64 * 1024).record_stack_every(1);
    let (manager, controller) = with(options);
    let result = manager.add_task_future(huge_stack_on_the_main_context);
    assert!(manager.stack_high_water_mark() < 64 * 1024);
    controller.run();
    assert_eq!(result.get().unwrap(), 42);
    assert!(manager.stack_high_water_mark() < 64 * 1024);
}

#[test]
fn a_panic_on_the_main_context_goes_on_in_the_fiber() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let log = Log::new();
    let theirs = log.clone();
    let caught = manager.add_task_future(move || {
        let text = panic_of(|| {
            let _unwound = theirs.on_drop("unwound");
            run_in_main_context(|| panic!("over there"))
        });
        theirs.line("went on");
        text
    });
    let neighbour = manager.add_task_future(|| run_in_main_context(|| 7));
    controller.run();
    assert_eq!(caught.get().unwrap(), "over there");
    assert_eq!(neighbour.get().unwrap(), 7);
    assert_eq!(log.take(), ["unwound", "went on"]);
    assert_eq!(panic_of(|| manager.run_in_main_context(|| panic!("here"))), "here");
}

#[test]
fn on_the_main_context_the_fiber_is_current_and_not_active() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let handle = ManagerHandle::clone(&manager);
    let fine = manager.add_task_future(move || {
        let me = sinew::current();
        run_in_main_context(|| {
            assert!(!handle.has_active_fiber() && !manager::on_fiber());
            assert_eq!(handle.active_fiber(), None);
            assert_eq!(handle.current_fiber(), Some(me.clone()));
            assert!(ManagerHandle::current().is_some());
            assert_ne!(sinew::current(), me, "the thread stands for itself");
        });
        assert_eq!(handle.active_fiber(), Some(me));
    });
    controller.run();
    fine.get().unwrap();
    assert_eq!(manager.current_fiber(), None);
}

#[test]
fn no_other_fiber_runs_during_a_call_of_the_main_context() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let log = Log::new();
    let theirs = log.clone();
    manager.add_task(move || {
        let next = theirs.clone();
        manager::add_task(move || next.line("neighbour"));
        run_in_main_context(|| theirs.line("main"));
        theirs.line("back");
    });
    controller.run();
    assert_eq!(log.take(), ["main", "back", "neighbour"]);
}

#[test]
fn nested_calls_of_the_main_context_are_plain_calls() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let sum = manager.add_task_future(|| {
        run_in_main_context(|| {
            let here = stack_address();
            let there = run_in_main_context(|| run_in_main_context(stack_address));
            assert!(cfg!(sinew_asan) || here.abs_diff(there) < NEAR);
            7
        })
    });
    controller.run();
    assert_eq!(sum.get().unwrap(), 7);
}

#[test]
fn tasks_added_on_the_main_context_run_later() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let handle = ManagerHandle::clone(&manager);
    let ran = kept(Cell::new(0));
    manager.add_task(move || {
        run_in_main_context(|| {
            handle.add_task(|| ran.set(ran.get() + 1));
            manager::add_task(|| ran.set(ran.get() + 1));
            assert_eq!(ran.get(), 0);
        });
        assert_eq!(ran.get(), 0);
    });
    manager.loop_until_no_ready();
    assert_eq!(ran.get(), 2);
}

/// On the main context the thread is a plain thread: a wait blocks it, and the fibers of the loop
/// with it.
#[test]
fn waits_on_the_main_context_block_the_thread() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let neighbour = kept(Cell::new(false));
    let (baton, theirs) = (Arc::new(Baton::new()), Arc::new(Baton::new()));
    let (posted, post) = (baton.clone(), theirs.clone());
    let thread = std::thread::spawn(move || {
        post.wait();
        posted.post();
    });
    manager.add_task(move || {
        manager::add_task(|| neighbour.set(true));
        run_in_main_context(|| {
            sinew::sleep(5 * MS);
            sinew::yield_now();
            theirs.post();
            baton.wait();
            assert!(!neighbour.get(), "the loop stood still");
        });
    });
    controller.run();
    assert!(neighbour.get());
    thread.join().unwrap();
}

/// A thread unlocks a mutex that a fiber waits for, while the loop's thread waits for it behind the
/// fiber.
#[test]
fn the_main_context_gets_a_lock_that_a_fiber_waits_for() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let mutex = Arc::new(Mutex::new(()));
    let (lock, locked) = mpsc::channel();
    let (unlock, unlocked) = mpsc::channel::<()>();
    let theirs = mutex.clone();
    let thread = std::thread::spawn(move || {
        let _guard = theirs.lock();
        lock.send(()).unwrap();
        unlocked.recv().unwrap();
    });
    locked.recv().unwrap();
    let theirs = mutex.clone();
    let fiber = manager.add_task_future(move || drop(theirs.lock()));
    let main = manager.add_task_future(move || {
        run_in_main_context(|| {
            unlock.send(()).unwrap();
            // The fiber above may have been chosen as the next owner, and cannot run.
            mutex.try_lock_for(Duration::from_secs(20)).is_some()
        })
    });
    controller.run();
    thread.join().unwrap();
    fiber.get().unwrap();
    assert!(main.get().unwrap());
}

/// The fiber has been woken with the lock before the loop's thread asks for it.
#[test]
fn the_main_context_gets_a_lock_that_was_unlocked_for_a_fiber() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let mutex = kept(Mutex::new(()));
    let first = manager.add_task_future(|| {
        let guard = mutex.lock();
        sinew::yield_now();
        drop(guard);
        run_in_main_context(|| mutex.try_lock_for(Duration::from_secs(20)).is_some())
    });
    let second = manager.add_task_future(|| mutex.try_lock_for(Duration::from_secs(20)).is_some());
    controller.run();
    assert!(first.get().unwrap() && second.get().unwrap());
}

#[test]
fn large_results_and_captures_pass_through_the_main_context() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let sum = manager.add_task_future(|| {
        let large = [3_u8; 10_000];
        let back = run_in_main_context(move || large.map(|byte| byte + 1));
        run_in_main_context(|| ());
        back.iter().map(|byte| u32::from(*byte)).sum::<u32>()
    });
    controller.run();
    assert_eq!(sum.get().unwrap(), 40_000);
}

/// `Promise::set_with` runs in a first-class fiber, which is dropped while the closure has switched
/// away. The promise is broken, and the unwinding continues to the end of the fiber.
#[test]
fn a_promise_is_broken_by_the_unwinding_of_a_first_class_fiber() {
    let _watch = watch::a_minute();
    let outcome = await_with(|promise: Promise<u32>| {
        let fiber = FiberContext::new(|caller| {
            let back = Rc::new(Cell::new(Some(caller)));
            promise.set_with(|| {
                back.set(back.take().unwrap().resume());
                7
            });
            back.take().unwrap()
        });
        drop(fiber.unwrap().resume().unwrap());
    });
    assert_eq!(outcome, Err(BrokenPromise));
}
