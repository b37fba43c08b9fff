//! Eager tasks, which begin at once.

use crate::kit::{kept, simple, text_of};
use sinew::manager::{self, EventLoop, ManagerHandle, Options, TaskFuture, manager_for};
use sinew::sync::Baton;
use sinew_testkit::{Log, watch};
use std::cell::Cell;
use std::time::Duration;

#[test]
fn an_eager_task_runs_to_its_first_wait_before_all_others() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (started, done, first) =
        (kept(Cell::new(false)), kept(Cell::new(false)), kept(Cell::new(false)));
    manager.add_task(|| first.set(true));
    manager.add_task_eager(|| {
        assert!(!first.get());
        started.set(true);
        sinew::yield_now();
        assert!(first.get());
        done.set(true);
    });
    assert!(started.get() && !done.get() && !first.get());
    controller.run();
    assert!(done.get() && first.get());
}

#[test]
fn an_eager_task_that_does_not_wait_has_ended() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let future = manager.add_task_eager_future(|| 7);
    assert!(future.is_ready());
    assert_eq!(future.get().unwrap(), 7);
    assert!(!manager.has_tasks());
}

#[test]
fn an_eager_task_that_waits_ends_in_the_loop() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let started = kept(Cell::new(false));
    let future = manager.add_task_eager_future(|| {
        started.set(true);
        sinew::yield_now();
        7
    });
    assert!(started.get() && !future.is_ready());
    assert!(manager.has_ready_tasks() && controller.is_scheduled());
    controller.run();
    assert_eq!(future.try_get().unwrap().unwrap(), 7);
}

#[test]
fn an_eager_task_that_awaits_is_not_ready() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let baton = kept(Baton::new());
    let future = manager.add_task_eager_future(|| baton.wait());
    assert!(manager.has_tasks() && !manager.has_ready_tasks());
    baton.post();
    assert!(manager.has_ready_tasks() && !future.is_ready());
    controller.run();
    assert!(future.is_ready());
}

#[test]
fn an_eager_task_of_a_fiber_runs_before_the_fiber_goes_on() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let log = Log::new();
    let theirs = log.clone();
    manager.add_task(move || {
        let inner = theirs.clone();
        manager::add_task_eager(move || {
            manager::run_in_main_context(|| inner.line("eager begins"));
            sinew::yield_now();
            inner.line("eager ends");
        });
        theirs.line("first");
    });
    let theirs = log.clone();
    manager.add_task(move || theirs.line("second"));
    controller.run();
    assert_eq!(log.take(), ["eager begins", "first", "second", "eager ends"]);
}

#[test]
fn the_adder_of_an_eager_task_is_the_current_fiber_afterwards() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let handle = ManagerHandle::clone(&manager);
    let same = manager.add_task_future(move || {
        let me = sinew::current();
        let other = handle.add_task_eager_future(|| {
            let here = sinew::current();
            assert_eq!(ManagerHandle::current().unwrap().active_fiber(), Some(here.clone()));
            here
        });
        assert_ne!(other.get().unwrap(), me);
        handle.active_fiber() == Some(me.clone())
            && handle.current_fiber() == Some(me.clone())
            && sinew::current() == me
    });
    controller.run();
    assert!(same.get().unwrap());
}

#[test]
fn eager_tasks_nest_deeply() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (deepest, ended) = (kept(Cell::new(0)), kept(Cell::new(0)));
    fn deeper(depth: u32, deepest: &'static Cell<u32>, ended: &'static Cell<u32>) {
        deepest.set(depth);
        if depth < 50 {
            manager::add_task_eager(move || deeper(depth + 1, deepest, ended));
        }
        if depth.is_multiple_of(2) {
            sinew::yield_now();
        }
        ended.set(ended.get() + 1);
    }
    manager.add_task_eager(|| deeper(1, deepest, ended));
    assert_eq!((deepest.get(), ended.get()), (50, 25));
    controller.run();
    assert_eq!(ended.get(), 50);
}

#[test]
fn an_eager_task_is_added_on_the_main_context_of_a_fiber() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let handle = ManagerHandle::clone(&manager);
    let result = manager.add_task_future(move || {
        manager::run_in_main_context(|| {
            let before = handle.current_fiber();
            let future = handle.add_task_eager_future(|| {
                assert!(manager::on_fiber());
                7
            });
            assert_eq!(handle.current_fiber(), before);
            assert!(!handle.has_active_fiber());
            future.try_get().unwrap().unwrap()
        })
    });
    controller.run();
    assert_eq!(result.get().unwrap(), 7);
}

#[test]
fn an_eager_task_of_another_manager_suspends_the_first_one() {
    let _watch = watch::a_minute();
    let (outer, controller) = simple();
    let (inner, inner_controller) = simple();
    let outer_handle = ManagerHandle::clone(&outer);
    let inner_handle = ManagerHandle::clone(&inner);
    let order = kept(Cell::new(0));
    let result = outer.add_task_future(move || {
        let handle = outer_handle.clone();
        let waits = inner_handle.add_task_eager_future(move || {
            assert!(!handle.has_active_fiber());
            order.set(1);
            sinew::yield_now();
            order.set(2);
        });
        assert!(outer_handle.has_active_fiber() && !inner_handle.has_active_fiber());
        (order.get(), waits)
    });
    controller.run();
    let (seen, waits) = result.get().unwrap();
    assert_eq!(seen, 1);
    assert!(!waits.is_ready(), "the loop of the inner one has not run");
    inner_controller.run();
    assert_eq!(order.get(), 2);
}

#[test]
fn an_eager_task_does_not_run_the_others() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let others = kept(Cell::new(0));
    for _ in 0..3 {
        manager.add_task(|| others.set(others.get() + 1));
    }
    manager.add_task_eager(|| ());
    assert_eq!((others.get(), manager.run_queue_size()), (0, 3));
    manager.loop_until_no_ready();
    assert_eq!(others.get(), 3);
}

#[test]
fn a_panic_in_an_eager_task_is_in_its_future() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let failed: TaskFuture<()> = manager.add_task_eager_future(|| panic!("on purpose"));
    assert_eq!(text_of(&*failed.try_get().unwrap().unwrap_err()), "on purpose");
    let later: TaskFuture<()> = manager.add_task_eager_future(|| {
        sinew::yield_now();
        panic!("later")
    });
    controller.run();
    assert_eq!(text_of(&*later.get().unwrap_err()), "later");
}

#[test]
fn an_eager_task_keeps_its_loop_running() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let future = manager_for(&events).add_task_eager_future(|| {
        sinew::sleep(Duration::from_millis(20));
        42
    });
    assert!(!future.is_ready());
    events.run();
    assert_eq!(future.try_get().unwrap().unwrap(), 42);
}

#[test]
fn an_eager_task_has_the_stack_of_its_manager() {
    let _watch = watch::a_minute();
    if cfg!(sinew_asan) {
        // The sanitizer keeps locals outside of the stack, so the depth of the stack cannot be
        // measured.
        return;
    }
    let (small, _) = simple();
    let (large, _) = crate::kit::with(Options::default().stack_size(2 << 20));
    let handle = ManagerHandle::clone(&large);
    small.add_task(move || handle.add_task_eager(|| sinew_testkit::stack::burn(1 << 20)));
    small.loop_until_no_ready();
    assert!(!small.has_tasks() && !large.has_tasks());
}
