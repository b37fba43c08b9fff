//! The order in which tasks run.

use crate::kit::{MS, kept, simple};
use sinew::manager::{self, FiberManager};
use sinew::sync::Baton;
use sinew_testkit::{Log, watch};
use std::cell::Cell;

/// Adds a task that writes a line.
fn line(manager: &FiberManager, log: &Log, text: &'static str) {
    let log = log.clone();
    manager.add_task(move || log.line(text));
}

/// Adds a task that waits, and writes a line then.
fn waiter(manager: &FiberManager, log: &Log, text: &'static str) -> &'static Baton {
    let (baton, log) = (kept(Baton::new()), log.clone());
    manager.add_task(move || {
        baton.wait();
        log.line(text);
    });
    baton
}

#[test]
fn tasks_run_in_the_order_of_being_added() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    for text in ["1", "2", "3"] {
        line(&manager, &log, text);
    }
    let theirs = log.clone();
    manager.add_task(move || {
        let next = theirs.clone();
        manager::add_task(move || next.line("6"));
        theirs.line("4");
    });
    line(&manager, &log, "5");
    manager.loop_until_no_ready();
    assert_eq!(log.take(), ["1", "2", "3", "4", "5", "6"]);
}

#[test]
fn waiters_run_in_the_order_of_being_woken() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    let batons = ["1", "2", "3"].map(|text| waiter(&manager, &log, text));
    manager.loop_until_no_ready();
    batons[2].post();
    line(&manager, &log, "added");
    batons[0].post();
    batons[1].post();
    manager.loop_until_no_ready();
    assert_eq!(log.take(), ["3", "added", "1", "2"]);
}

#[test]
fn ready_fibers_come_before_remote_wakes_and_these_before_remote_tasks() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    let batons = [waiter(&manager, &log, "woken"), waiter(&manager, &log, "woken too")];
    manager.loop_until_no_ready();
    let (remote, theirs) = (manager.remote(), log.clone());
    std::thread::spawn(move || {
        for text in ["remote", "remote too"] {
            let log = theirs.clone();
            remote.add_task_remote(move || log.line(text));
        }
        batons.iter().for_each(|baton| baton.post());
    })
    .join()
    .unwrap();
    line(&manager, &log, "local");
    manager.loop_until_no_ready();
    assert_eq!(log.take(), ["local", "woken", "woken too", "remote", "remote too"]);
}

#[test]
fn remote_wakes_and_tasks_run_in_the_current_turn() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    let baton = waiter(&manager, &log, "woken");
    manager.loop_until_no_ready();
    let (remote, theirs) = (manager.remote(), log.clone());
    manager.add_task(move || {
        let log = theirs.clone();
        let afar = std::thread::spawn(move || {
            let inner = log.clone();
            remote.add_task_remote(move || {
                inner.line("remote");
                manager::add_task(move || inner.line("added by the remote one"));
            });
            baton.post();
        });
        afar.join().unwrap();
        theirs.line("local");
    });
    manager.loop_until_no_ready();
    assert_eq!(log.take(), ["local", "woken", "remote", "added by the remote one"]);
    assert!(!manager.has_tasks());
}

#[test]
fn fibers_that_yielded_run_after_all_others_in_their_order() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    for (before, after) in [("1", "1 again"), ("2", "2 again")] {
        let log = log.clone();
        manager.add_task(move || {
            log.line(before);
            sinew::yield_now();
            log.line(after);
        });
    }
    let theirs = log.clone();
    manager.add_task(move || {
        theirs.line("3");
        let next = theirs.clone();
        manager::add_task(move || next.line("4"));
    });
    manager.loop_until_no_ready();
    assert_eq!(log.take(), ["1", "2", "3", "4"]);
    line(&manager, &log, "5");
    manager.loop_until_no_ready();
    assert_eq!(log.take(), ["1 again", "2 again", "5"]);
}

#[test]
fn a_fiber_that_yields_for_ever_does_not_keep_the_loop() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (stop, turns) = (kept(Cell::new(false)), kept(Cell::new(0)));
    manager.add_task(|| {
        while !stop.get() {
            turns.set(turns.get() + 1);
            sinew::yield_now();
        }
    });
    for turn in 1..=100 {
        manager.loop_until_no_ready();
        assert_eq!(turns.get(), turn);
    }
    // Timers and remote tasks come between its turns.
    let remote = manager.remote();
    let slept = manager.add_task_future(move || {
        sinew::sleep(2 * MS);
        remote.add_task_remote_future(|| 7).get().unwrap()
    });
    controller.run_until(move || slept.is_ready());
    stop.set(true);
    controller.run();
    assert!(!manager.has_tasks());
}

#[test]
fn an_eager_task_runs_first_and_queues_last_after_a_yield() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    line(&manager, &log, "1");
    let theirs = log.clone();
    manager.add_task_eager(move || {
        theirs.line("eager");
        sinew::yield_now();
        theirs.line("eager again");
    });
    line(&manager, &log, "2");
    assert_eq!(log.take(), ["eager"]);
    manager.loop_until_no_ready();
    let lines = log.take();
    assert_eq!(lines.len(), 3);
    assert!(lines.contains(&"eager again".to_owned()) && lines[0] == "1", "{lines:?}");
}

#[test]
fn timers_wake_in_the_order_of_their_deadlines() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let log = Log::new();
    let start = std::time::Instant::now();
    for (text, delay) in [("3", 300), ("1", 100), ("2", 200), ("0", 0)] {
        let log = log.clone();
        manager.add_task(move || {
            sinew::sleep_deadline(start + delay * MS);
            log.line(text);
        });
    }
    manager.loop_until_no_ready();
    // All timers are due when the loop looks.
    std::thread::sleep(310 * MS);
    manager.loop_until_no_ready();
    controller.run();
    let lines = log.take();
    assert_eq!(lines[lines.len() - 3..], ["1", "2", "3"]);
}

#[test]
fn due_timers_run_in_a_turn_without_sleeping() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let future = manager.add_task_future(|| sinew::sleep(2 * MS));
    manager.loop_until_no_ready();
    assert!(!future.is_ready());
    std::thread::sleep(3 * MS);
    manager.loop_until_no_ready();
    assert!(future.is_ready());
}
