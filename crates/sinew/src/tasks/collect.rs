//! Functions that start tasks, and wait for all results, for the first results, or for each result
//! as it comes.

use super::iterator::add_tasks;
use super::task::{IntoTask, Parts, start};
use crate::park::raise;
use crate::spawn::{JoinHandle, local_carrier};
use std::thread::Result;

/// Runs all tasks and returns their results, in the order of the tasks.
///
/// Waits until every task has ended. If tasks panicked, the results are dropped, and the panic of
/// the task with the lowest index goes on in the caller.
///
/// # Panics
/// On a plain thread, in a migratable fiber, and in a [`pinned`](crate::pinned) region, where the
/// tasks could not run.
///
/// # Examples
/// ```
/// use sinew::tasks::collect_all;
/// use std::rc::Rc;
///
/// sinew::run(|| {
///     let names = Rc::new(["ada", "grace", "mary"]); // tasks need not be `Send`
///     let lengths = collect_all((0..3).map(|n| {
///         let names = names.clone();
///         move || names[n].len()
///     }));
///     assert_eq!(lengths, [3, 5, 4]);
/// });
/// ```
#[track_caller]
pub fn collect_all<I, F, T>(tasks: I) -> Vec<T>
where
    I: IntoIterator<Item = F>,
    F: IntoTask<Output = T> + 'static,
    T: 'static,
{
    local_carrier("collect_all");
    let tasks = tasks.into_iter().map(Parts::parts);
    let fibers: Vec<JoinHandle<T>> = tasks.map(|(settings, f)| start(settings, f)).collect();
    // Wait for the newest task first. It was queued last, so the others have mostly ended by then,
    // and few more waits are needed.
    for fiber in fibers.iter().rev() {
        fiber.wait_for_end();
    }
    or_pass_on(fibers.into_iter().map(JoinHandle::join).collect())
}

/// Runs all tasks, and returns the indices and results of the first `n` tasks to end, in the order
/// in which they ended.
///
/// If some of these `n` tasks panicked, the panic of the first of them to end goes on in the
/// caller, once all `n` tasks have ended. The other tasks go on, and their results are dropped.
///
/// # Panics
/// If there are fewer than `n` tasks; then no task is started. Also panics where [`collect_all`]
/// panics.
///
/// # Examples
/// ```
/// use sinew::tasks::collect_n;
/// use std::time::Duration;
///
/// sinew::run(|| {
///     let naps = [30_000, 1, 2].map(|ms| move || {
///         sinew::sleep(Duration::from_millis(ms));
///         ms
///     });
///     let mut first = collect_n(naps, 2);
///     first.sort();
///     assert_eq!(first, [(1, 1), (2, 2)]);
/// });
/// ```
#[track_caller]
pub fn collect_n<I, F, T>(tasks: I, n: usize) -> Vec<(usize, T)>
where
    I: IntoIterator<Item = F>,
    F: IntoTask<Output = T> + 'static,
    T: 'static,
{
    local_carrier("collect_n");
    let tasks: Vec<F> = tasks.into_iter().collect();
    assert!(n <= tasks.len(), "collect_n cannot return {n} results of {} tasks", tasks.len());
    let mut tasks = add_tasks(tasks);
    tasks.reserve(n);
    let first = tasks.by_ref().take(n);
    let results = first.map(|(index, result)| result.map(|value| (index, value))).collect();
    // Drop the other results that have arrived before a panic goes on.
    drop(tasks);
    or_pass_on(results)
}

/// Runs all tasks, and returns the index and the result of the first task to end.
///
/// If that task panicked, the payload is the `Err`. The other tasks go on, and their results are
/// dropped.
///
/// # Panics
/// If there are no tasks, and where [`collect_all`] panics.
///
/// # Examples
/// ```
/// use sinew::tasks::collect_any;
/// use std::time::Duration;
///
/// sinew::run(|| {
///     let naps = [30_000, 1].map(|ms| move || sinew::sleep(Duration::from_millis(ms)));
///     let (index, result) = collect_any(naps);
///     assert_eq!(index, 1);
///     result.unwrap();
/// });
/// ```
#[track_caller]
pub fn collect_any<I, F, T>(tasks: I) -> (usize, Result<T>)
where
    I: IntoIterator<Item = F>,
    F: IntoTask<Output = T> + 'static,
    T: 'static,
{
    local_carrier("collect_any");
    match add_tasks(tasks).next() {
        Some(first) => first,
        None => panic!("collect_any called without tasks; give it at least one task"),
    }
}

/// Runs all tasks, and calls `f` with the index and the result of each when it has ended.
///
/// `f` runs in the caller's fiber, in the order in which the tasks end. It is not called for a task
/// that panicked. Once all tasks have ended, the panic of the task with the lowest index goes on in
/// the caller. If `f` itself panics, the caller is unwound at once, and the tasks go on.
///
/// # Panics
/// Where [`collect_all`] panics.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let mut squares = [0; 5]; // borrowed by the caller's closure, not by the tasks
///     let tasks = (0..5).map(|n| move || n * n);
///     sinew::tasks::for_each(tasks, |index, square| squares[index] = square);
///     assert_eq!(squares, [0, 1, 4, 9, 16]);
/// });
/// ```
#[track_caller]
pub fn for_each<I, F, T>(tasks: I, mut f: impl FnMut(usize, T))
where
    I: IntoIterator<Item = F>,
    F: IntoTask<Output = T> + 'static,
    T: 'static,
{
    local_carrier("for_each");
    let mut failures = Vec::new();
    for (index, result) in add_tasks(tasks) {
        match result {
            Ok(value) => f(index, value),
            Err(payload) => failures.push((index, payload)),
        }
    }
    if let Some((_, payload)) = failures.into_iter().min_by_key(|(index, _)| *index) {
        raise::pass_on(payload);
    }
}

/// Returns the value of a task, or raises its panic in the caller.
fn or_pass_on<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|payload| raise::pass_on(payload))
}
