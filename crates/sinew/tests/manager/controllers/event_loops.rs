//! Event loops: callbacks, timers and managers share them.

use crate::kit::{LONG, MS, kept, panic_of};
use sinew::manager::{
    self, EventLoop, FiberManager, ManagerHandle, Options, ReactorLoopController, TaskFuture,
    manager_for,
};
use sinew::sync::{Baton, Semaphore};
use sinew_testkit::{Log, watch};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

#[test]
fn a_controller_is_attached_after_its_manager_has_tasks() {
    let _watch = watch::a_minute();
    let controller = ReactorLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::default()).unwrap();
    let future = manager.add_task_future(|| {
        sinew::sleep(MS);
        7
    });
    let remote = manager.remote();
    let afar = std::thread::spawn(move || remote.add_task_remote_future(|| 8)).join().unwrap();
    assert!(!future.is_ready());
    let events = EventLoop::new().unwrap();
    controller.attach_loop(&events);
    events.run();
    assert_eq!((future.get().unwrap(), afar.get().unwrap()), (7, 8));
}

#[test]
fn a_controller_is_attached_when_its_manager_sleeps_already() {
    let _watch = watch::a_minute();
    let controller = ReactorLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::default()).unwrap();
    let future = manager.add_task_future(|| sinew::sleep(10 * MS));
    manager.loop_until_no_ready();
    let events = EventLoop::new().unwrap();
    controller.attach_loop(&events);
    events.run();
    assert!(future.is_ready());
}

#[test]
fn a_manager_is_attached_to_one_loop() {
    let _watch = watch::a_minute();
    let (first, second) = (EventLoop::new().unwrap(), EventLoop::new().unwrap());
    let controller = ReactorLoopController::on(&first);
    let refused = panic_of(|| controller.attach_loop(&second));
    assert!(refused.contains("attached"), "{refused}");
}

#[test]
fn an_event_loop_runs_callbacks_in_order() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let log = Log::new();
    let line = |text: &'static str| {
        let log = log.clone();
        move || log.line(text)
    };
    events.run_after(6 * MS, line("third"));
    events.run_after(3 * MS, line("second"));
    events.run_in_loop(line("first"));
    events.run();
    assert_eq!(log.take(), ["first", "second", "third"]);
    // Run without sleeping, or for one round.
    assert!(!events.run_once(), "nothing to do");
    events.run_in_loop(line("once"));
    assert!(!events.run_once(), "nothing keeps it any more");
    assert_eq!(log.take(), ["once"]);
}

#[test]
fn an_event_loop_runs_as_long_as_something_keeps_it() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    events.run(); // nothing keeps it
    let (keep, remote) = (events.keep_alive(), events.remote());
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let slot = Arc::new(Mutex::new(None));
    events.run_in_loop({
        let slot = slot.clone();
        move || {
            // Another thread posts later; the guard itself stays on this thread.
            let thread = std::thread::spawn(move || {
                remote.run_in_loop(move || {
                    counter.fetch_add(1, Ordering::SeqCst);
                });
                remote
            });
            *slot.lock().unwrap() = Some(thread);
        }
    });
    let seen = count.clone();
    let keep = kept(Cell::new(Some(keep)));
    fn release(
        seen: Arc<AtomicUsize>,
        keep: &'static Cell<Option<manager::KeepAlive>>,
        events: &'static EventLoop,
    ) {
        if seen.load(Ordering::SeqCst) == 1 {
            drop(keep.take());
        } else {
            events.run_after(MS, move || release(seen, keep, events));
        }
    }
    let events = kept(events);
    events.run_after(MS, move || release(seen, keep, events));
    events.run();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    drop(slot.lock().unwrap().take().unwrap().join().unwrap());
}

#[test]
fn an_event_loop_is_terminated() {
    let _watch = watch::a_minute();
    let events = kept(EventLoop::new().unwrap());
    let rounds = kept(Cell::new(0));
    fn again(events: &'static EventLoop, rounds: &'static Cell<u32>) {
        rounds.set(rounds.get() + 1);
        events.run_in_loop(move || again(events, rounds));
    }
    events.run_in_loop(|| again(events, rounds));
    events.run_after(3 * MS, || events.terminate());
    events.run_forever();
    assert!(rounds.get() > 0);
    // Another thread terminates a loop that sleeps for ever.
    let idle = EventLoop::new().unwrap();
    let remote = idle.remote();
    let thread = std::thread::spawn(move || remote.terminate());
    idle.run_forever();
    thread.join().unwrap();
    // A fiber terminates the loop.
    let manager = manager_for(events);
    manager.add_task(|| {
        sinew::sleep(MS);
        events.terminate();
    });
    events.run_forever();
}

#[test]
fn tasks_keep_an_event_loop() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager =
        FiberManager::new(ReactorLoopController::on(&events), Options::default()).unwrap();
    let baton = Arc::new(Baton::new());
    let (theirs, remote) = (baton.clone(), events.remote());
    let ended = manager.add_task_future(move || theirs.wait());
    // Neither the loop's queue nor a timer keeps the loop, only the task.
    let thread = std::thread::spawn(move || {
        let (in_loop, waits) = mpsc::channel();
        remote.run_in_loop(move || in_loop.send(()).unwrap());
        waits.recv().unwrap();
        baton.post();
    });
    events.run();
    assert!(ended.is_ready());
    thread.join().unwrap();
    events.run(); // returns at once: nothing keeps it
}

#[test]
fn callbacks_and_managers_share_an_event_loop() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let managers: Vec<_> = (0..3)
        .map(|_| FiberManager::new(ReactorLoopController::on(&events), Options::default()).unwrap())
        .collect();
    let count = kept(Cell::new(0));
    for manager in &managers {
        for _ in 0..10 {
            manager.add_task(|| {
                sinew::sleep(Duration::from_micros(200));
                count.set(count.get() + 1);
            });
        }
    }
    events.run_after(MS, || count.set(count.get() + 1000));
    events.run();
    assert_eq!(count.get(), 1030);
}

#[test]
fn an_event_loop_runs_its_destruction_callbacks() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let log = Log::new();
    let (first, second) = (log.clone(), log.clone());
    events.on_destruction(move || first.line("first"));
    events.on_destruction(move || second.line("second"));
    events.run();
    assert!(log.take().is_empty());
    drop(events);
    assert_eq!(log.take(), ["second", "first"]);
}

#[test]
fn a_callback_posted_to_an_ended_event_loop_is_dropped() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let log = Log::new();
    let remote = events.remote();
    let (captured, timed) = (log.on_drop("callback"), log.on_drop("timer"));
    events.run_in_loop(move || drop(captured));
    events.run_after(LONG, move || drop(timed));
    drop(events);
    let mut lines = log.take();
    lines.sort();
    assert_eq!(lines, ["callback", "timer"]);
    let late = log.on_drop("late");
    std::thread::spawn(move || {
        remote.run_in_loop(move || drop(late));
        remote.terminate();
    })
    .join()
    .unwrap();
    assert_eq!(log.take(), ["late"]);
}

#[test]
fn an_event_loop_goes_before_its_manager() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager =
        FiberManager::new(ReactorLoopController::on(&events), Options::default()).unwrap();
    let future = manager.add_task_future(|| sinew::sleep(MS));
    drop(events);
    // The event loop is gone, but the manager can still be run by hand.
    while !future.is_ready() {
        manager.loop_until_no_ready();
    }
    let left: TaskFuture<()> = manager.add_task_future(sinew::park);
    manager.loop_until_no_ready();
    drop(manager);
    assert!(sinew::is_cancel(&*left.get().unwrap_err()));
}

#[test]
fn a_manager_goes_before_its_event_loop() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager =
        FiberManager::new(ReactorLoopController::on(&events), Options::default()).unwrap();
    let handle = ManagerHandle::clone(&manager);
    manager.add_task(|| sinew::sleep(LONG));
    manager.loop_until_no_ready();
    manager.add_task(|| ()); // requested, but not run
    drop(manager);
    events.run();
    assert!(panic_of(|| handle.add_task(|| ())).contains("manager"));
}

/// The refused call inside of the task must not use up the request to run the manager.
#[test]
fn an_event_loop_inside_of_its_manager_forgets_nothing() {
    let _watch = watch::a_minute();
    let event_loop = Rc::new(EventLoop::new().unwrap());
    let manager = manager_for(&*event_loop);
    let ran = Rc::new(Cell::new(false));
    let (inner, handle, sets) = (event_loop.clone(), manager.clone(), ran.clone());
    let refused = manager.add_task_eager_future(move || {
        handle.add_task(move || sets.set(true));
        panic_of(|| inner.run_once())
    });
    let refused = refused.get().unwrap();
    assert!(refused.contains("run inside of itself"), "{refused}");
    event_loop.run();
    assert!(ran.get());
}

#[test]
fn a_task_that_a_callback_adds_runs_in_the_same_turn() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let log = Rc::new(RefCell::new(Vec::new()));
    let note = |what: &'static str| {
        let log = log.clone();
        move || log.borrow_mut().push(what)
    };
    for (callback, task) in [("callback 1", "task 1"), ("callback 2", "task 2")] {
        let (handle, called, ran) = (manager.clone(), note(callback), note(task));
        events.run_in_loop(move || {
            called();
            handle.add_task(ran);
        });
    }
    events.run_once();
    // As in folly's loop, the tasks run behind the remaining callbacks of the turn.
    assert_eq!(*log.borrow(), ["callback 1", "callback 2", "task 1", "task 2"]);
}

#[test]
fn a_turn_ends_although_fibers_yield_and_managers_wake_each_other() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let [first, second] = [(); 2]
        .map(|()| FiberManager::new(ReactorLoopController::on(&events), Options::new()).unwrap());
    let turns = Rc::new([Semaphore::new(0), Semaphore::new(0)]);
    let rounds = Rc::new(Cell::new(0));
    for (me, manager) in [&first, &second].into_iter().enumerate() {
        let (turns, rounds) = (turns.clone(), rounds.clone());
        manager.add_task(move || {
            while rounds.get() < 1000 {
                rounds.set(rounds.get() + 1);
                turns[1 - me].add(1);
                turns[me].acquire().forget();
            }
            turns[1 - me].add(1);
        });
        let yields = Rc::new(Cell::new(0));
        manager.add_task(move || {
            while yields.get() < 1000 {
                yields.set(yields.get() + 1);
                sinew::yield_now();
            }
        });
    }
    let mut count = 0;
    events.run_in_loop(|| ());
    while events.run_once() {
        count += 1;
    }
    assert!(count >= 100, "{count} turns of the loop for 1000 yields");
}

#[test]
fn a_manager_of_a_turn_that_a_panic_left_runs_in_the_next() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let ran = Rc::new(Cell::new(false));
    let (handle, theirs) = (manager.clone(), ran.clone());
    events.run_in_loop(move || {
        handle.add_task(move || theirs.set(true));
        panic!("after it has added a task");
    });
    assert!(catch_unwind(AssertUnwindSafe(|| events.run_once())).is_err());
    events.run();
    assert!(ran.get());
}
