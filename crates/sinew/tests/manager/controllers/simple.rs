//! The simple loop.

use crate::kit::{LONG, MS, kept, panic_of, simple};
use sinew::manager::{self, SimpleLoopController};
use sinew_testkit::child::child;
use sinew_testkit::{processor_time, watch};
use std::cell::Cell;
use std::time::Instant;

#[test]
fn a_simple_loop_runs_until_nothing_is_left() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    controller.run(); // nothing to do
    let steps = kept(Cell::new(0));
    manager.add_task(|| {
        sinew::sleep(5 * MS);
        steps.set(1);
        manager::add_task(|| {
            sinew::yield_now();
            sinew::sleep(MS);
            steps.set(2);
        });
    });
    controller.run();
    assert_eq!(steps.get(), 2);
    assert!(!controller.is_scheduled());
}

#[test]
fn a_simple_loop_runs_once_without_sleeping() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let start = Instant::now();
    manager.add_task(|| sinew::sleep(LONG));
    controller.run_once();
    controller.run_once();
    assert!(manager.has_tasks() && !controller.is_scheduled());
    assert!(start.elapsed() < LONG / 2);
}

#[test]
fn a_simple_loop_runs_until_it_is_told() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let turns = kept(Cell::new(0));
    manager.add_task(|| {
        loop {
            turns.set(turns.get() + 1);
            sinew::yield_now();
        }
    });
    controller.run_until(|| turns.get() >= 10);
    let seen = turns.get();
    assert!((10..1000).contains(&seen));
    // A fiber of the loop stops it, or the main context does.
    let stop = controller.clone();
    manager.add_task(move || stop.stop());
    controller.run();
    assert!(turns.get() > seen && manager.has_tasks());
    let stop = controller.clone();
    manager.add_task(move || manager::run_in_main_context(|| stop.stop()));
    controller.run();
    assert!(manager.has_tasks());
    // The loop can run again after a stop.
    let done = manager.add_task_future(|| 7);
    controller.run_until(|| done.is_ready());
}

#[test]
fn a_simple_loop_that_waits_uses_no_processor() {
    let outcome = child("controllers::simple::a_simple_loop_that_waits_uses_no_processor", || {
        let (manager, controller) = simple();
        manager.add_task(|| sinew::sleep(300 * MS));
        let before = processor_time();
        controller.run();
        let used = processor_time() - before;
        assert!(used < 100 * MS, "{used:?}");
    });
    outcome.assert_success();
}

#[test]
fn a_simple_loop_whose_manager_is_gone_does_nothing() {
    let _watch = watch::a_minute();
    let refused = panic_of(|| SimpleLoopController::new().run());
    assert!(refused.contains("manager"), "{refused}");
    let (manager, attached) = simple();
    drop(manager);
    attached.run();
    attached.run_once();
}
