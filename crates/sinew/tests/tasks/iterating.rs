//! `TaskIterator`.

use crate::{Doors, let_others_run, message_of, one_carrier, text};
use sinew::tasks::{TaskIterator, add_tasks};
use sinew_testkit::{Log, Seed, watch};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(1);

fn behind(doors: &Doors, count: usize) -> impl Iterator<Item = impl FnOnce() -> usize + 'static> {
    let doors = doors.clone();
    (0..count).map(move |n| {
        let doors = doors.clone();
        move || {
            doors.pass(n);
            10 * n
        }
    })
}

#[test]
fn results_come_in_the_order_of_the_ends_with_their_numbers() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(4);
        let mut tasks = add_tasks(behind(&doors, 4));
        assert_eq!(tasks.task_id(), None);
        doors.open_in_turn(&[2, 3, 0, 1]);
        let mut order = Vec::new();
        while tasks.has_next() {
            let result = tasks.await_next().unwrap();
            let id = tasks.task_id().unwrap();
            assert_eq!(result, 10 * id);
            order.push(id);
        }
        assert_eq!(order, [2, 3, 0, 1]);
        assert!(!tasks.has_next() && !tasks.has_completed() && !tasks.has_pending());
        assert_eq!(tasks.task_id(), Some(1));
    });
}

#[test]
fn panics_are_results() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let mut tasks = add_tasks((0..4).map(|n| {
            move || {
                assert!(n % 2 == 0, "task {n}");
                n
            }
        }));
        for expected in 0..4 {
            let result = tasks.await_next();
            assert_eq!(tasks.task_id(), Some(expected));
            match result {
                Ok(n) => assert!(n == expected && n % 2 == 0),
                Err(payload) => assert_eq!(text(&*payload), format!("task {expected}")),
            }
        }
    });
}

#[test]
fn completed_and_pending_tasks_are_counted() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(3);
        let mut tasks = add_tasks(behind(&doors, 3));
        assert!(tasks.has_next() && tasks.has_pending() && !tasks.has_completed());
        assert_eq!(tasks.len(), 3);
        doors.open_in_turn(&[1]).join().unwrap();
        tasks.reserve(1);
        assert!(tasks.has_next() && tasks.has_pending() && tasks.has_completed());
        assert_eq!(
            format!("{tasks:?}"),
            "TaskIterator { completed: 1, pending: 2, task_id: None }"
        );
        doors.open_in_turn(&[0, 2]).join().unwrap();
        tasks.reserve(3);
        assert!(tasks.has_next() && !tasks.has_pending() && tasks.has_completed());
        assert_eq!(tasks.size_hint(), (3, Some(3)));
        assert_eq!(tasks.await_next().unwrap(), 10);
        assert_eq!(tasks.by_ref().map(|(id, _)| id).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(tasks.len(), 0);
    });
}

#[test]
fn reserve_waits_for_that_many_tasks_at_most() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(4);
        let mut tasks = add_tasks(behind(&doors, 4));
        tasks.reserve(0);
        assert!(!tasks.has_completed());
        let opener = doors.open_in_turn(&[3, 1, 0]);
        tasks.reserve(3);
        opener.join().unwrap();
        assert!(tasks.has_pending());
        // The results are there already.
        tasks.reserve(2);
        let ids: Vec<usize> = (0..2)
            .map(|_| {
                tasks.await_next().unwrap();
                tasks.task_id().unwrap()
            })
            .collect();
        assert_eq!(ids, [3, 1]);
        // Two tasks are left, and one of them has ended.
        doors.open_in_turn(&[2]);
        tasks.reserve(100);
        assert!(!tasks.has_pending());
        assert_eq!(tasks.len(), 2);
        drop(tasks);
        TaskIterator::<u32>::default().reserve(5);
    });
}

#[test]
fn tasks_are_added_while_others_run() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    one_carrier().run(move || {
        let mut tasks = TaskIterator::new();
        let running = Rc::new(Cell::new(0_usize));
        let mut seen = vec![false; 20_000];
        for number in 0..seen.len() {
            if tasks.len() >= 50 {
                let id: usize = tasks.await_next().unwrap();
                assert_eq!(tasks.task_id(), Some(id));
                assert!(!std::mem::replace(&mut seen[id], true));
            }
            let (yields, running) = (seed.below(4), running.clone());
            let added = tasks.add_task(move || {
                running.set(running.get() + 1);
                assert!(running.get() <= 50);
                (0..yields).for_each(|_| sinew::yield_now());
                running.set(running.get() - 1);
                number
            });
            assert_eq!(added, number);
        }
        for (id, result) in tasks {
            assert_eq!(result.unwrap(), id);
            assert!(!std::mem::replace(&mut seen[id], true));
        }
        assert!(seen.into_iter().all(|seen| seen));
    });
}

#[test]
fn a_wait_that_was_left_has_lost_nothing() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(3);
        let mut tasks = add_tasks(behind(&doors, 3));
        assert!(sinew::timeout(SHORT, || tasks.await_next()).is_err());
        assert!(sinew::timeout(SHORT, || tasks.reserve(2)).is_err());
        // A task ends after the wait for it was left.
        doors.open_in_turn(&[1, 2]).join().unwrap();
        let_others_run();
        assert!(sinew::timeout(SHORT, || tasks.reserve(3)).is_err());
        assert_eq!(sinew::timeout(LONG, || tasks.await_next()).unwrap().unwrap(), 10);
        assert_eq!(tasks.await_next().unwrap(), 20);
        doors.open_in_turn(&[0]);
        assert_eq!(tasks.await_next().unwrap(), 0);
        assert!(!tasks.has_next());
    });
}

sinew::fiber_local! {
    static LINGERS: std::cell::RefCell<Option<Lingers>> = std::cell::RefCell::new(None);
}

/// Keeps its fiber from ending until its door was opened.
struct Lingers(Doors);

impl Drop for Lingers {
    fn drop(&mut self) {
        self.0.pass(0);
    }
}

#[test]
fn a_task_that_takes_long_to_end_is_waited_for_and_not_lost() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(1);
        let theirs = doors.clone();
        let mut tasks = add_tasks([move || {
            LINGERS.with(|lingers| *lingers.borrow_mut() = Some(Lingers(theirs)));
            7
        }]);
        // The task's closure has returned, and its fiber-locals are being dropped.
        tasks.reserve(1);
        assert!(sinew::timeout(SHORT, || tasks.await_next()).is_err());
        assert!(tasks.has_completed() && tasks.has_next());
        doors.open_in_turn(&[0]);
        assert_eq!(tasks.await_next().unwrap(), 7);
    });
}

sinew::fiber_local! {
    inherit static FRAGILE: Fragile = Fragile(false);
}

/// Panics when it is cloned for a child, if it is set.
struct Fragile(bool);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(!self.0, "it broke");
        Fragile(false)
    }
}

#[test]
fn a_task_that_could_not_be_started_is_not_waited_for() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let mut tasks = add_tasks([|| 1]);
        tasks.reserve(1);
        FRAGILE.set(Fragile(true), || {
            assert_eq!(message_of(|| tasks.add_task(|| 2)), "it broke");
        });
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks.add_task(|| 3), 1);
        let results: Vec<_> = tasks.map(|(id, result)| (id, result.unwrap())).collect();
        assert_eq!(results, [(0, 1), (1, 3)]);
    });
}

#[test]
fn dropping_an_iterator_leaves_the_tasks_running_and_drops_their_results() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let log = Log::new();
        let doors = Doors::new(3);
        let mut tasks = TaskIterator::new();
        for n in 0..3 {
            let (doors, log) = (doors.clone(), log.clone());
            tasks.add_task(move || {
                doors.pass(n);
                log.line(format!("task {n}"));
                log.on_drop(format!("result {n}"))
            });
        }
        doors.open_in_turn(&[1]).join().unwrap();
        tasks.reserve(1);
        log.line("drop");
        drop(tasks);
        doors.open_in_turn(&[2, 0]).join().unwrap();
        let_others_run();
        let expected = ["task 1", "drop", "result 1", "task 2", "result 2", "task 0", "result 0"];
        assert_eq!(log.take(), expected);
    });
}

#[test]
fn cancelling_ends_the_running_tasks() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let log = Log::new();
        let mut tasks = TaskIterator::new();
        for n in 0..3 {
            let noisy = log.on_drop(n);
            tasks.add_task(move || {
                let _noisy = noisy;
                if n != 1 {
                    sinew::park();
                }
                n
            });
        }
        // One task has ended, one runs, and one has not begun.
        assert_eq!(tasks.await_next().unwrap(), 1);
        let noisy = log.on_drop(3);
        tasks.add_task(move || {
            drop(noisy);
            unreachable!()
        });
        tasks.cancel();
        assert!(tasks.all(|(_, result)| sinew::is_cancel(&*result.unwrap_err())));
        let mut lines = log.take();
        lines.sort();
        assert_eq!(lines, ["0", "1", "2", "3"]);
    });
}
