//! Callers that are cancelled or late, and runtimes that end.

use crate::{Doors, one_carrier};
use sinew::sync::Mutex;
use sinew::tasks::{add_tasks, collect_all, collect_any, collect_n, for_each};
use sinew::{FiberState, Runtime};
use sinew_testkit::{Log, watch};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Tasks = Box<dyn Iterator<Item = Box<dyn FnOnce() -> u32>>>;

/// All ways to wait for tasks.
const WAITS: [fn(Tasks); 6] = [
    |tasks| drop(collect_all(tasks)),
    |tasks| drop(collect_n(tasks, 2)),
    |tasks| drop(collect_any(tasks)),
    |tasks| for_each(tasks, |_, _| ()),
    |tasks| drop(add_tasks(tasks).await_next()),
    |tasks| add_tasks(tasks).reserve(2),
];

/// Makes tasks that wait at doors and log their ends.
fn behind(doors: &Doors, log: &Log) -> Tasks {
    let (doors, log) = (doors.clone(), log.clone());
    Box::new((0..3_u32).map(move |n| {
        let (doors, log) = (doors.clone(), log.clone());
        Box::new(move || {
            doors.pass(n as usize);
            log.line(n);
            n
        }) as _
    }))
}

#[test]
fn a_cancelled_caller_is_unwound_and_its_tasks_go_on() {
    let _watch = watch::a_minute();
    for wait in WAITS {
        one_carrier().run(move || {
            let (log, doors) = (Log::new(), Doors::new(3));
            let tasks = behind(&doors, &log);
            let unwound = log.on_drop("unwound");
            let caller = sinew::spawn_local(move || {
                let _unwound = unwound;
                wait(tasks);
            });
            sinew::wait_until(|| caller.fiber().state() == FiberState::Suspended);
            caller.cancel();
            assert!(sinew::is_cancel(&*caller.join().unwrap_err()));
            assert_eq!(log.take(), ["unwound"]);
            doors.open_in_turn(&[2, 0, 1]).join().unwrap();
            assert_eq!(log.take(), ["2", "0", "1"]);
        });
    }
}

#[test]
fn a_timeout_unwinds_the_caller_and_its_tasks_go_on() {
    let _watch = watch::a_minute();
    for wait in WAITS {
        one_carrier().run(move || {
            let (log, doors) = (Log::new(), Doors::new(3));
            let tasks = behind(&doors, &log);
            let late = sinew::timeout(Duration::from_millis(1), || wait(tasks));
            assert_eq!(late, Err(sinew::Elapsed));
            assert!(log.take().is_empty());
            doors.open_in_turn(&[2, 0, 1]).join().unwrap();
            assert_eq!(log.take(), ["2", "0", "1"]);
            // The timeout does not pass.
            let doors = Doors::new(3);
            let tasks = behind(&doors, &log);
            let opener = doors.open_in_turn(&[0, 1, 2]);
            assert_eq!(sinew::timeout(Duration::from_secs(3600), || wait(tasks)), Ok(()));
            opener.join().unwrap();
        });
    }
}

#[test]
fn a_masked_caller_is_not_unwound_before_it_has_its_results() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let (log, doors) = (Log::new(), Doors::new(3));
        let tasks = behind(&doors, &log);
        let theirs = log.clone();
        let caller = sinew::spawn_local(move || {
            let results = sinew::masked(|| collect_all(tasks));
            theirs.line(format!("{results:?}"));
            sinew::yield_now();
            unreachable!();
        });
        sinew::wait_until(|| caller.fiber().state() == FiberState::Suspended);
        caller.cancel();
        doors.open_in_turn(&[2, 0, 1]);
        assert!(sinew::is_cancel(&*caller.join().unwrap_err()));
        assert_eq!(log.take(), ["2", "0", "1", "[0, 1, 2]"]);
    });
}

#[test]
fn a_cancelled_caller_does_not_begin_to_wait() {
    let _watch = watch::a_minute();
    for wait in WAITS {
        one_carrier().run(move || {
            let (log, doors) = (Log::new(), Doors::new(3));
            let tasks = behind(&doors, &log);
            let caller = sinew::spawn_local(move || {
                sinew::current().cancel();
                wait(tasks);
            });
            assert!(sinew::is_cancel(&*caller.join().unwrap_err()));
            doors.open_in_turn(&[0, 1, 2]).join().unwrap();
        });
    }
}

/// When a runtime ends, all its tasks are dropped: running, unstarted and nested ones.
#[test]
fn nothing_is_left_when_the_runtime_ends() {
    let _watch = watch::a_minute();
    for wait in WAITS {
        let alive = Arc::new(());
        let runtime = one_carrier();
        let (theirs, reached) = (alive.clone(), Arc::new(AtomicBool::new(false)));
        let reaches = reached.clone();
        let caller = runtime.spawn(move || {
            let alive = theirs;
            wait(Box::new((0..20).map(move |n| {
                let (alive, reaches) = (alive.clone(), reaches.clone());
                let task: Box<dyn FnOnce() -> u32> = Box::new(move || {
                    if n == 10 {
                        reaches.store(true, Ordering::Relaxed);
                        // The later tasks never begin.
                        while !sinew::is_cancelled() {
                            std::thread::yield_now();
                        }
                    }
                    let inner = collect_all([alive.clone(), alive].map(|alive| {
                        move || {
                            sinew::park();
                            drop(alive);
                        }
                    }));
                    inner.len() as u32
                });
                task
            })));
        });
        sinew::wait_until(|| reached.load(Ordering::Relaxed));
        drop(runtime);
        // The caller was cancelled, or had a result before: the cancellation of a task.
        drop(caller.join());
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

#[test]
fn a_circle_through_collected_tasks_is_seen() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let caller = runtime.spawn(|| {
        let lock = Rc::new(Mutex::new(0));
        let guard = lock.lock();
        let theirs = lock.clone();
        let all: Vec<i32> = collect_all([move || *theirs.lock()]);
        drop(guard);
        drop(all);
    });
    let is_in_circle = || {
        let found = sinew::inspect::deadlocks();
        let mut members = found.iter().flat_map(|deadlock| deadlock.members());
        members.any(|(fiber, _)| fiber.id() == caller.fiber().id())
    };
    while !is_in_circle() {
        std::thread::yield_now();
    }
    caller.cancel();
    assert!(caller.join().is_err());
}
