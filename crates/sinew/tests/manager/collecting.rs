//! Several tasks at once, in fibers of a manager: `sinew::tasks`.

use crate::kit::{kept, panic_of, simple, text_of};
use sinew::manager::{self, FiberManager, Promise, SimpleLoopController};
use sinew::tasks;
use sinew_testkit::watch;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Promises that tasks wait for. The test fulfils the last one first.
type Pending = RefCell<Vec<Promise<()>>>;

/// Makes three tasks. Each waits for a promise and then calls `end` with its number.
fn three<T: 'static>(
    pending: &'static Pending,
    end: impl Fn(usize) -> T + Copy + 'static,
) -> Vec<impl FnOnce() -> T + 'static> {
    (0..3)
        .map(|n| {
            move || {
                manager::await_with(|promise| pending.borrow_mut().push(promise)).unwrap();
                end(n)
            }
        })
        .collect()
}

/// Runs a task and fulfils its promises, one in each turn, until none is left.
fn run<T: 'static>(task: impl FnOnce(&'static Pending) -> T + 'static) -> T {
    let _watch = watch::a_minute();
    let (manager, _controller): (FiberManager, SimpleLoopController) = simple();
    let pending: &'static Pending = kept(RefCell::default());
    let result = manager.add_task_future(move || task(pending));
    loop {
        manager.loop_until_no_ready();
        let Some(promise) = pending.borrow_mut().pop() else { break };
        promise.set(());
    }
    assert!(!manager.has_tasks());
    result.get().unwrap()
}

#[test]
fn all_results_are_in_order() {
    run(|pending| {
        let all = tasks::collect_all(three(pending, |n| Rc::new(2 * n + 1)));
        assert!(pending.borrow().is_empty());
        assert!(all.iter().map(|result| **result).eq([1, 3, 5]));
    });
    run(|pending| {
        let nothing: Vec<()> = tasks::collect_all(three(pending, |_| ()));
        assert_eq!((nothing.len(), pending.borrow().len()), (3, 0));
    });
    run(|_| assert!(tasks::collect_all(Vec::<fn()>::new()).is_empty()));
}

#[test]
fn a_panic_among_all_goes_on_when_all_have_ended() {
    run(|pending| {
        let ended = kept(Cell::new(0));
        let text = panic_of(|| {
            tasks::collect_all(three(pending, |n| {
                ended.set(ended.get() + 1);
                assert!(n != 1, "the second one");
            }))
        });
        assert_eq!((&*text, ended.get()), ("the second one", 3));
    });
}

#[test]
fn collect_any_returns_at_the_first_end() {
    run(|pending| {
        let (index, result) = tasks::collect_any(three(pending, |n| {
            assert!(n != 1, "one that comes too late");
            2 * n + 1
        }));
        assert_eq!((index, result.unwrap(), pending.borrow().len()), (2, 5, 2));
    });
    run(|pending| {
        let (index, result) = tasks::collect_any(three(pending, |n| {
            assert!(n != 2, "the first one");
        }));
        assert_eq!((index, text_of(&*result.unwrap_err())), (2, "the first one".to_owned()));
    });
}

#[test]
fn collect_n_returns_at_the_nth_end() {
    run(|pending| {
        let some = tasks::collect_n(three(pending, |n| 2 * n + 1), 2);
        assert_eq!(pending.borrow().len(), 1);
        assert_eq!(some.len(), 2);
        assert!(some.iter().all(|(index, result)| *result == 2 * index + 1));
    });
    run(|pending| {
        let some: Vec<(usize, ())> = tasks::collect_n(three(pending, |_| ()), 2);
        assert_eq!((some.len(), pending.borrow().len()), (2, 1));
    });
}

#[test]
fn panics_among_the_first_few_go_on_in_the_caller() {
    run(|pending| {
        let text = panic_of(|| {
            tasks::collect_n(three(pending, |_| -> () { panic!("all of them") }), 2);
        });
        assert_eq!(text, "all of them");
        assert_eq!(pending.borrow().len(), 1);
    });
}

#[test]
fn for_each_passes_on_each_result() {
    run(|pending| {
        let mut told = Vec::new();
        tasks::for_each(three(pending, |n| 2 * n + 1), |index, result| told.push((index, result)));
        assert!(pending.borrow().is_empty());
        assert_eq!(told, [(2, 5), (1, 3), (0, 1)]);
    });
}

#[test]
fn results_come_in_the_order_of_the_ends() {
    run(|pending| {
        let mut seen = 0;
        for (index, result) in tasks::add_tasks(three(pending, |n| Box::new(2 * n + 1))) {
            assert_eq!(*result.unwrap(), 2 * index + 1);
            assert!(pending.borrow().len() <= 2 - seen);
            seen += 1;
        }
        assert_eq!(seen, 3);
    });
}

#[test]
fn tasks_without_results_are_waited_for() {
    run(|pending| {
        let results = tasks::add_tasks(three(pending, |_| ()));
        let ends = results.map(|(index, result)| {
            result.unwrap();
            index
        });
        assert!(ends.eq([2, 1, 0]));
    });
}

#[test]
fn panics_come_in_the_order_of_the_ends() {
    run(|pending| {
        let results = tasks::add_tasks(three(pending, |n| {
            assert!(n % 2 == 1, "even");
            n
        }));
        let seen: Vec<_> = results.map(|(index, result)| (index, result.ok())).collect();
        assert_eq!(seen, [(2, None), (1, Some(1)), (0, None)]);
    });
}
