//! All results, the first results, and each result as it comes.

use crate::{Doors, let_others_run, one_carrier};
use sinew::tasks::{add_tasks, collect_all, collect_any, collect_n, for_each};
use sinew_testkit::watch;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Makes `count` tasks that return their numbers, each after its door was opened.
fn behind(doors: &Doors, count: usize) -> impl Iterator<Item = impl FnOnce() -> usize + 'static> {
    let doors = doors.clone();
    (0..count).map(move |n| {
        let doors = doors.clone();
        move || {
            doors.pass(n);
            n
        }
    })
}

#[test]
fn all_results_are_in_the_order_of_the_tasks() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(5);
        doors.open_in_turn(&[4, 1, 3, 0, 2]);
        assert_eq!(collect_all(behind(&doors, 5)), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn collect_n_returns_results_in_the_order_of_the_ends() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(5);
        doors.open_in_turn(&[4, 1, 3]);
        assert_eq!(collect_n(behind(&doors, 5), 3), [(4, 4), (1, 1), (3, 3)]);
        // The other tasks go on.
        let others = doors.open_in_turn(&[0, 2]);
        others.join().unwrap();
    });
}

#[test]
fn collect_n_returns_n_results() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let run = Rc::new(Cell::new(0));
        let tasks = || {
            (0..5).map(|n| {
                let run = run.clone();
                move || {
                    run.set(run.get() + 1);
                    n
                }
            })
        };
        for n in 0..=5 {
            run.set(0);
            let results = collect_n(tasks(), n);
            assert_eq!(results, (0..n).map(|n| (n, n)).collect::<Vec<_>>());
            sinew::wait_until(|| run.get() == 5);
        }
    });
}

#[test]
fn collect_any_returns_the_first_to_end() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(3);
        doors.open_in_turn(&[1]);
        let (index, result) = collect_any(behind(&doors, 3));
        assert_eq!((index, result.unwrap()), (1, 1));
        doors.open_in_turn(&[2, 0]).join().unwrap();
    });
}

#[test]
fn each_result_is_worked_on_in_the_caller_as_it_comes() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(4);
        doors.open_in_turn(&[2, 0, 3, 1]);
        let me = sinew::current().id();
        let mut seen = Vec::new();
        for_each(behind(&doors, 4), |index, value| {
            assert_eq!(sinew::current().id(), me);
            // Other tasks end meanwhile.
            let_others_run();
            seen.push((index, value));
        });
        assert_eq!(seen, [(2, 2), (0, 0), (3, 3), (1, 1)]);
    });
}

#[test]
fn collecting_no_tasks_does_not_wait() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let none = || std::iter::empty::<fn() -> u32>();
        assert!(collect_all(none()).is_empty());
        assert!(collect_n(none(), 0).is_empty());
        for_each(none(), |_, _| unreachable!());
        assert!(add_tasks(none()).next().is_none());
    });
}

#[test]
fn results_of_every_size_and_kind() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        // Results and closures larger than a cache line and than the room in a fiber's control
        // block.
        let large = |n: u64| {
            let data = [n; 100];
            move || data.map(|x| x + 1)
        };
        for (n, result) in collect_all((0..50).map(large)).into_iter().enumerate() {
            assert_eq!(result, [n as u64 + 1; 100]);
        }
        let mut sum = 0;
        for_each((0..50).map(large), |n, result| {
            assert_eq!(result, [n as u64 + 1; 100]);
            sum += result[99];
        });
        assert_eq!(sum, 50 * 51 / 2);
        // Results of size zero.
        assert_eq!(collect_all([|| (), || ()]), [(), ()]);
        // Results that are neither `Send` nor `Copy`.
        let shared = Rc::new(RefCell::new(Vec::new()));
        let results = collect_all((0..3).map(|n| {
            let shared = shared.clone();
            move || {
                shared.borrow_mut().push(n);
                shared
            }
        }));
        assert!(results.iter().all(|result| Rc::ptr_eq(result, &shared)));
        // Several kinds of tasks.
        let boxed: Vec<Box<dyn FnOnce() -> String>> =
            vec![Box::new(|| "one".to_owned()), Box::new(|| 2.to_string())];
        assert_eq!(collect_all(boxed), ["one", "2"]);
    });
}

#[test]
fn tasks_collect_in_their_turn() {
    let _watch = watch::a_minute();
    fn tree(depth: u32) -> u64 {
        if depth == 0 {
            sinew::yield_now();
            return 1;
        }
        let all = collect_all((0..3).map(|_| move || tree(depth - 1))).into_iter().sum::<u64>();
        let first = collect_n((0..3).map(|_| move || tree(depth - 1)), 1)[0].1;
        let mut each = 0;
        for_each((0..2).map(|_| move || tree(depth - 1)), |_, count| each += count);
        all + first + each
    }
    one_carrier().run(|| assert_eq!(tree(4), 6_u64.pow(4)));
}

#[test]
fn ten_thousand_tasks() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let tasks = || {
            (0..10_000_u64).map(|n| {
                move || {
                    if n % 3 == 0 {
                        sinew::yield_now();
                    }
                    n
                }
            })
        };
        let expected: Vec<u64> = (0..10_000).collect();
        assert_eq!(collect_all(tasks()), expected);
        let mut seen = vec![false; 10_000];
        for_each(tasks(), |index, value| {
            assert_eq!(index as u64, value);
            assert!(!std::mem::replace(&mut seen[index], true));
        });
        assert!(seen.iter().all(|seen| *seen));
        let mut some = collect_n(tasks(), 5000);
        assert_eq!(some.len(), 5000);
        some.sort_unstable();
        some.dedup();
        assert_eq!(some.len(), 5000);
        assert_eq!(collect_any(tasks()).1.unwrap(), 1);
        let sum: u64 = add_tasks(tasks()).map(|(_, result)| result.unwrap()).sum();
        assert_eq!(sum, 10_000 * 9999 / 2);
    });
}

#[test]
fn tasks_stay_on_the_carrier_of_their_caller() {
    let _watch = watch::a_minute();
    let runtime = sinew::Runtime::builder().carriers(2).build().unwrap();
    for _ in 0..20 {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                runtime.spawn(|| {
                    let here = std::thread::current().id();
                    let there = collect_all((0..20).map(|_| {
                        || {
                            sinew::yield_now();
                            std::thread::current().id()
                        }
                    }));
                    assert!(there.into_iter().all(|there| there == here));
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    }
}
