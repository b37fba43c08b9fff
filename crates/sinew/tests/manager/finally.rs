//! `add_task_finally`: a closure receives the result of a task, on the main context.

use crate::kit::{kept, simple, stack_address, text_of};
use sinew::manager::{self, ManagerHandle};
use sinew::sync::Baton;
use sinew_testkit::{Log, watch};
use std::cell::Cell;
use std::rc::Rc;

/// Much larger than a few frames, much smaller than the distance to another stack.
const NEAR: usize = 64 * 1024;

#[test]
fn a_result_is_handed_on_on_the_main_context() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let main = stack_address();
    let handle = ManagerHandle::clone(&manager);
    let seen = kept(Cell::new(0));
    manager.add_task_finally(
        || 1234,
        move |result| {
            if !cfg!(sinew_asan) {
                assert!(stack_address().abs_diff(main) < NEAR);
            }
            assert!(!manager::on_fiber() && !handle.has_active_fiber());
            seen.set(result.unwrap());
        },
    );
    assert_eq!(seen.get(), 0);
    manager.loop_until_no_ready();
    assert_eq!(seen.get(), 1234);
}

#[test]
fn a_panic_is_handed_on() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let log = Log::new();
    let theirs = log.clone();
    manager.add_task_finally(
        || -> u32 { panic!("on purpose") },
        move |result| theirs.line(text_of(&*result.unwrap_err())),
    );
    controller.run();
    assert_eq!(log.take(), ["on purpose"]);
}

#[test]
fn a_cancellation_is_handed_on() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (fiber, cancelled) = (kept(Cell::new(None)), kept(Cell::new(false)));
    manager.add_task_finally(
        || {
            fiber.set(Some(sinew::current()));
            sinew::park();
        },
        |result| cancelled.set(sinew::is_cancel(&*result.unwrap_err())),
    );
    manager.loop_until_no_ready();
    fiber.take().unwrap().cancel();
    controller.run();
    assert!(cancelled.get());
}

#[test]
fn nothing_comes_between_a_task_and_its_finally_closure() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let log = Log::new();
    let (captured, inner, theirs) = (log.on_drop("captured"), log.clone(), log.clone());
    manager.add_task_finally(
        move || {
            let _captured = captured;
            let _local = inner.on_drop("local");
            let next = inner.clone();
            manager::add_task(move || next.line("neighbour"));
            inner.on_drop("result")
        },
        move |result| {
            theirs.line("finally");
            drop(result);
        },
    );
    controller.run();
    assert_eq!(log.take(), ["local", "captured", "finally", "result", "neighbour"]);
}

#[test]
fn results_need_not_be_send() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let shared = Rc::new(Cell::new(1));
    let copy = shared.clone();
    manager.add_task_finally(move || copy, |result| result.unwrap().set(7));
    controller.run();
    assert_eq!((shared.get(), Rc::strong_count(&shared)), (7, 1));
}

#[test]
fn a_finally_closure_may_add_tasks() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    let theirs = log.clone();
    manager.add_task_finally(
        || (),
        move |_| {
            let (later, eager, both) = (theirs.clone(), theirs.clone(), theirs.clone());
            manager::add_task(move || later.line("task"));
            manager::add_task_eager(move || eager.line("eager"));
            manager::add_task_finally(|| (), move |_| both.line("finally again"));
            theirs.line("finally");
        },
    );
    manager.loop_until_no_ready();
    assert_eq!(log.take(), ["eager", "finally", "task", "finally again"]);
    assert!(!manager.has_tasks());
}

#[test]
fn the_finally_closure_of_an_eager_task_runs_before_the_call_returns() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let seen = kept(Cell::new(0));
    manager.add_task_finally_eager(|| 7, |result| seen.set(result.unwrap()));
    assert_eq!(seen.get(), 7);
    let baton = kept(Baton::new());
    manager.add_task_finally_eager(
        || {
            baton.wait();
            8
        },
        |result| seen.set(result.unwrap()),
    );
    assert_eq!(seen.get(), 7);
    baton.post();
    controller.run();
    assert_eq!(seen.get(), 8);
}

#[test]
fn the_finally_closure_of_a_fibers_eager_task_runs_on_the_main_context() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let main = stack_address();
    let seen = manager.add_task_future(move || {
        let handle = ManagerHandle::current().unwrap();
        let seen = kept(Cell::new(None));
        handle.add_task_finally_eager(
            || 7,
            move |result| {
                let near = cfg!(sinew_asan) || stack_address().abs_diff(main) < NEAR;
                seen.set(Some((result.unwrap(), near, manager::on_fiber())));
            },
        );
        assert!(manager::on_fiber());
        seen.get()
    });
    controller.run();
    assert_eq!(seen.get().unwrap(), Some((7, true, false)));
}

#[test]
fn a_task_still_lives_during_its_finally_closure() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (fiber, alive) = (kept(Cell::new(None)), kept(Cell::new(None)));
    manager.add_task_finally(
        || fiber.set(Some(sinew::current())),
        |_| {
            let fiber = fiber.take().unwrap();
            alive.set(Some(manager::TaskState::of(&fiber)));
        },
    );
    controller.run();
    assert_eq!(alive.get(), Some(manager::TaskState::AwaitingImmediate));
}
