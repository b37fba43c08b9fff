//! Tasks with their own names, stack sizes and fiber-locals.

use crate::{message_of, one_carrier};
use sinew::FiberBuilder;
use sinew::tasks::{TaskIterator, add_tasks, collect_all, collect_any, collect_n, for_each};
use sinew_testkit::watch;
use std::rc::Rc;

sinew::fiber_local! {
    static PART: usize = 100;
}

const STACK: usize = 64 * 1024;

/// Makes settings that distinguish the tasks.
fn settings(part: usize) -> FiberBuilder {
    FiberBuilder::new().name(format!("part {part}")).stack_size(STACK).local(&PART, part)
}

/// Returns the settings that a task sees.
fn seen() -> (String, usize) {
    assert!(sinew::stack_remaining().unwrap() < STACK);
    (sinew::current().name().unwrap_or("none").to_owned(), PART.get())
}

fn expected(part: usize) -> (String, usize) {
    (format!("part {part}"), part)
}

#[test]
fn every_function_takes_tasks_with_settings() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let kept = Rc::new(()); // a task need not be `Send`
        let tasks = || {
            let kept = kept.clone();
            (0..3).map(move |part| {
                let kept = kept.clone();
                settings(part).task(move || {
                    drop(kept);
                    seen()
                })
            })
        };
        assert_eq!(collect_all(tasks()), [expected(0), expected(1), expected(2)]);
        for (part, seen) in collect_n(tasks(), 3) {
            assert_eq!(seen, expected(part));
        }
        let (part, seen) = collect_any(tasks());
        assert_eq!(seen.unwrap(), expected(part));
        let mut count = 0;
        for_each(tasks(), |part, seen| {
            assert_eq!(seen, expected(part));
            count += 1;
        });
        assert_eq!(count, 3);
        for (part, seen) in add_tasks(tasks()) {
            assert_eq!(seen.unwrap(), expected(part));
        }
    });
}

#[test]
fn an_iterator_mixes_tasks_with_and_without_settings() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let mut tasks = TaskIterator::new();
        tasks.add_task(|| PART.get());
        tasks.add_task(settings(1).task(|| PART.get()));
        let mut parts: Vec<_> = tasks.map(|(number, part)| (number, part.unwrap())).collect();
        parts.sort_unstable();
        assert_eq!(parts, [(0, 100), (1, 1)]);
    });
}

#[test]
fn invalid_settings_start_no_task() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let bad = || FiberBuilder::new().stack_size(1).task(|| ());
        let message = message_of(|| collect_all([bad()]));
        assert!(
            message.starts_with("cannot start a task with its settings: a stack of 1 bytes"),
            "{message}"
        );
        let mut tasks = add_tasks([|| ()]);
        message_of(|| tasks.add_task(bad()));
        assert_eq!(tasks.len(), 1);
        tasks.await_next().unwrap();
        assert!(!tasks.has_next() && !tasks.has_completed());
        assert_eq!(tasks.add_task(|| ()), 1);
        tasks.await_next().unwrap();
    });
}
