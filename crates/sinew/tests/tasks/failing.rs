//! Panics of tasks and of the caller's closures, and invalid calls.

use crate::{Doors, message_of, one_carrier, payload_of, text};
use sinew::tasks::{TaskIterator, add_tasks, collect_all, collect_any, collect_n, for_each};
use sinew_testkit::{Log, watch};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Makes tasks behind doors that log their ends. The tasks in `unlucky` panic.
fn some_fail(
    doors: &Doors,
    log: &Log,
    unlucky: &'static [usize],
) -> impl Iterator<Item = impl FnOnce() -> usize + 'static> {
    let (doors, log) = (doors.clone(), log.clone());
    (0..5).map(move |n| {
        let (doors, log) = (doors.clone(), log.clone());
        move || {
            doors.pass(n);
            log.line(n);
            assert!(!unlucky.contains(&n), "task {n} fails");
            n
        }
    })
}

#[test]
fn collect_all_raises_the_panic_of_the_first_task_when_all_have_ended() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let log = Log::new();
        let doors = Doors::new(5);
        doors.open_in_turn(&[3, 0, 1, 4, 2]);
        let payload = payload_of(|| collect_all(some_fail(&doors, &log, &[1, 3])));
        assert_eq!(text(&*payload), "task 1 fails");
        assert_eq!(log.take(), ["3", "0", "1", "4", "2"]);
        let doors = Doors::new(5);
        doors.open_in_turn(&[3, 0, 1, 4, 2]);
        let mut seen = Vec::new();
        let payload =
            payload_of(|| for_each(some_fail(&doors, &log, &[1, 3]), |index, _| seen.push(index)));
        assert_eq!(text(&*payload), "task 1 fails");
        assert_eq!(seen, [0, 4, 2]);
        assert_eq!(log.take(), ["3", "0", "1", "4", "2"]);
    });
}

#[test]
fn collect_n_raises_the_earliest_panic_when_n_have_ended() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let log = Log::new();
        let doors = Doors::new(5);
        doors.open_in_turn(&[3, 1, 0]);
        let payload = payload_of(|| collect_n(some_fail(&doors, &log, &[1, 3]), 3));
        assert_eq!(text(&*payload), "task 3 fails");
        assert_eq!(log.take(), ["3", "1", "0"]);
        // A task that fails when its result is no longer wanted is ignored.
        let doors = Doors::new(5);
        doors.open_in_turn(&[0, 2]);
        assert_eq!(collect_n(some_fail(&doors, &log, &[1, 3]), 2), [(0, 0), (2, 2)]);
        doors.open_in_turn(&[3, 1, 4]).join().unwrap();
        assert_eq!(log.take(), ["0", "2", "3", "1", "4"]);
    });
}

#[test]
fn collect_any_returns_a_panic_as_an_error() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let log = Log::new();
        let doors = Doors::new(5);
        doors.open_in_turn(&[3]);
        let (index, result) = collect_any(some_fail(&doors, &log, &[3]));
        assert_eq!((index, text(&*result.unwrap_err())), (3, "task 3 fails"));
    });
}

#[test]
fn all_tasks_may_panic() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let tasks = || (0..10).map(|n| move || -> u32 { std::panic::panic_any(n) });
        let number = |payload: Box<dyn std::any::Any + Send>| *payload.downcast::<i32>().unwrap();
        assert_eq!(number(payload_of(|| collect_all(tasks()))), 0);
        assert_eq!(number(payload_of(|| for_each(tasks(), |_, _| unreachable!()))), 0);
        assert_eq!(number(payload_of(|| collect_n(tasks(), 5))), 0);
        assert!(add_tasks(tasks()).all(|(n, result)| number(result.unwrap_err()) == n as i32));
    });
}

#[test]
fn a_panic_of_the_callers_function_leaves_at_once() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let log = Log::new();
        let doors = Doors::new(5);
        let opener = doors.open_in_turn(&[1, 0, 2, 3, 4]);
        let message = message_of(|| {
            for_each(some_fail(&doors, &log, &[0]), |index, _| panic!("caller at {index}"));
        });
        assert_eq!(message, "caller at 1");
        // The tasks go on.
        opener.join().unwrap();
        assert_eq!(log.take(), ["1", "0", "2", "3", "4"]);
    });
}

#[test]
fn a_panic_between_two_tasks_leaves_the_started_tasks_running() {
    let _watch = watch::a_minute();
    let calls: [fn(Starts); 5] = [
        |tasks| drop(collect_all(tasks)),
        |tasks| drop(collect_n(tasks, 1)),
        |tasks| drop(collect_any(tasks)),
        |tasks| for_each(tasks, |_, ()| unreachable!()),
        |tasks| drop(add_tasks(tasks)),
    ];
    for (index, call) in calls.into_iter().enumerate() {
        one_carrier().run(move || {
            let run = Rc::new(Cell::new(0));
            assert_eq!(message_of(|| call(Starts { run: run.clone(), left: 3 })), "no more tasks");
            if index == 1 {
                // `collect_n` counts the tasks first.
                sinew::yield_now();
                assert_eq!(run.get(), 0);
            } else {
                sinew::wait_until(|| run.get() == 3);
            }
        });
    }
}

/// An iterator of tasks that panics after some.
struct Starts {
    run: Rc<Cell<u32>>,
    left: u32,
}

impl Iterator for Starts {
    type Item = Box<dyn FnOnce()>;

    fn next(&mut self) -> Option<Self::Item> {
        assert!(self.left > 0, "no more tasks");
        self.left -= 1;
        let run = self.run.clone();
        Some(Box::new(move || run.set(run.get() + 1)))
    }
}

#[test]
fn more_results_than_tasks_are_refused_before_any_starts() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let run = Rc::new(Cell::new(0));
        let tasks = || {
            let run = run.clone();
            (0..2).map(move |_| {
                let run = run.clone();
                move || run.set(run.get() + 1)
            })
        };
        let message = message_of(|| collect_n(tasks(), 3));
        assert_eq!(message, "collect_n cannot return 3 results of 2 tasks");
        assert_eq!(Rc::strong_count(&run), 1);
        let message = message_of(|| collect_any(std::iter::empty::<fn()>()));
        assert_eq!(message, "collect_any called without tasks; give it at least one task");
        let message = message_of(|| TaskIterator::<()>::new().await_next());
        assert!(message.contains("has_next"), "{message}");
    });
}

/// Calls a function that starts tasks, which count their runs.
type Call = fn(Arc<AtomicUsize>);

/// Every function that starts tasks, and its name.
const CALLS: [(&str, Call); 6] = [
    ("collect_all", |run| drop(collect_all(counting(run)))),
    ("collect_n", |run| drop(collect_n(counting(run), 1))),
    ("collect_any", |run| drop(collect_any(counting(run)))),
    ("for_each", |run| for_each(counting(run), |_, ()| ())),
    ("add_tasks", |run| drop(add_tasks(counting(run)))),
    ("TaskIterator::add_task", |run| {
        counting(run).for_each(|task| {
            TaskIterator::new().add_task(task);
        });
    }),
];

fn counting(run: Arc<AtomicUsize>) -> impl Iterator<Item = impl FnOnce() + 'static> {
    (0..2).map(move |_| {
        let run = run.clone();
        move || {
            run.fetch_add(1, Ordering::Relaxed);
        }
    })
}

#[test]
fn a_plain_thread_is_refused_with_advice() {
    let _watch = watch::a_minute();
    for (name, call) in CALLS {
        let run = Arc::default();
        let theirs = Arc::clone(&run);
        let message = message_of(move || call(theirs));
        let expected = format!("{name} called on a plain thread; call it in a fiber");
        assert!(message.starts_with(&expected), "{message}");
        assert_eq!(Arc::into_inner(run).unwrap().into_inner(), 0);
    }
    // Also without tasks.
    let message = message_of(|| collect_all(std::iter::empty::<fn()>()));
    assert!(message.starts_with("collect_all called on a plain thread"), "{message}");
}

#[test]
fn a_migratable_fiber_is_refused_with_advice() {
    let _watch = watch::a_minute();
    for (name, call) in CALLS {
        // SAFETY: nothing in the closure depends on its thread.
        let builder = unsafe { sinew::FiberBuilder::new().migratable() };
        let fiber = builder.spawn(move || call(Arc::default())).unwrap();
        let payload = fiber.join().unwrap_err();
        let expected = format!("{name} called in a migratable fiber");
        assert!(text(&*payload).starts_with(&expected), "{}", text(&*payload));
    }
}

#[test]
fn a_wait_that_would_keep_the_tasks_from_running_is_refused() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        for (name, call) in CALLS.into_iter().take(4) {
            let run: Arc<AtomicUsize> = Arc::default();
            let message = message_of(|| sinew::pinned(|| call(run.clone())));
            assert!(message.contains("pinned"), "{name}: {message}");
            // The tasks run all the same.
            sinew::wait_until(|| run.load(Ordering::Relaxed) == 2);
        }
        let mut tasks = add_tasks([|| 7]);
        let message = message_of(|| sinew::pinned(|| tasks.await_next()));
        assert!(message.contains("pinned"), "{message}");
        assert_eq!(tasks.await_next().unwrap(), 7);
        // A result that is there needs no wait.
        assert_eq!(tasks.add_task(|| 8), 1);
        tasks.reserve(1);
        assert_eq!(sinew::pinned(|| tasks.await_next()).unwrap(), 8);
    });
}

#[test]
fn a_task_that_was_cancelled_counts_as_one_that_panicked() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let tasks = || {
            (0..3).map(|n| {
                move || {
                    if n == 1 {
                        sinew::current().cancel();
                        sinew::yield_now();
                        sinew::park();
                    }
                    n
                }
            })
        };
        assert!(sinew::is_cancel(&*payload_of(|| collect_all(tasks()))));
        assert!(sinew::is_cancel(&*payload_of(|| for_each(tasks(), |_, n| assert!(n != 1)))));
        // The caller itself was not cancelled.
        sinew::yield_now();
        let cancelled: Vec<bool> = add_tasks(tasks())
            .map(|(n, result)| {
                assert_eq!(result.is_err(), n == 1);
                result.is_err_and(|payload| sinew::is_cancel(&*payload))
            })
            .collect();
        assert_eq!(cancelled.into_iter().filter(|cancelled| *cancelled).count(), 1);
    });
}

#[test]
fn a_caller_may_collect_while_it_is_unwound() {
    let _watch = watch::a_minute();
    struct Collects(Log);
    impl Drop for Collects {
        fn drop(&mut self) {
            let results = collect_all([|| 1, || 2]);
            self.0.line(format!("{results:?}"));
            for (index, result) in add_tasks([|| 3, || panic!("in a task")]) {
                self.0.line(format!("{index} {}", result.is_ok()));
            }
        }
    }
    let log = Log::new();
    let theirs = log.clone();
    let runtime = one_carrier();
    let payload = runtime
        .spawn(move || {
            let _collects = Collects(theirs);
            panic!("the caller");
        })
        .join()
        .unwrap_err();
    assert_eq!(text(&*payload), "the caller");
    assert_eq!(log.take(), ["[1, 2]", "0 true", "1 false"]);
}
