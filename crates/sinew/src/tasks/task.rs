//! The input of the functions in this module: a closure, alone or with settings.

use crate::spawn::{FiberBuilder, JoinHandle, spawn_local};

/// A closure with the settings of its fiber; see [`FiberBuilder::task`].
///
/// # Examples
/// ```
/// use sinew::tasks::{Task, collect_all};
///
/// /// A task whose fiber has a name, for dumps.
/// fn named<T>(name: &str, f: fn() -> T) -> Task<fn() -> T> {
///     sinew::FiberBuilder::new().name(name).task(f)
/// }
///
/// sinew::run(|| {
///     let name = || sinew::current().name().unwrap().to_owned();
///     assert_eq!(collect_all([named("one", name), named("two", name)]), ["one", "two"]);
/// });
/// ```
#[derive(Debug)]
#[must_use = "a task runs when it is given to a function of `sinew::tasks`"]
pub struct Task<F> {
    builder: FiberBuilder,
    f: F,
}

impl FiberBuilder {
    /// Combines these settings with a closure, for a function of [`tasks`](crate::tasks) to start.
    ///
    /// That function panics if the system cannot meet the settings.
    /// [`spawn_local`](Self::spawn_local) would return an error instead.
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::collect_all;
    ///
    /// sinew::run(|| {
    ///     let names = collect_all((0..2).map(|n| {
    ///         let settings = sinew::FiberBuilder::new().name(format!("part {n}")).stack_size(64 * 1024);
    ///         settings.task(|| sinew::current().name().unwrap().to_owned())
    ///     }));
    ///     assert_eq!(names, ["part 0", "part 1"]);
    /// });
    /// ```
    pub fn task<F: FnOnce() -> T, T>(self, f: F) -> Task<F> {
        Task { builder: self, f }
    }
}

/// A task that the functions of this module can start: a closure without arguments, or a [`Task`].
///
/// # Examples
/// ```
/// use sinew::tasks::{IntoTask, collect_all};
///
/// fn sum(tasks: impl Iterator<Item = impl IntoTask<Output = u32> + 'static>) -> u32 {
///     collect_all(tasks).into_iter().sum()
/// }
///
/// sinew::run(|| {
///     assert_eq!(sum([|| 1, || 2].into_iter()), 3);
///     let named = |n| sinew::FiberBuilder::new().name("adds").task(move || n);
///     assert_eq!(sum([named(1), named(2)].into_iter()), 3);
/// });
/// ```
pub trait IntoTask: Parts<Function: FnOnce() -> Self::Output> {
    /// The result of the task.
    type Output;
}

mod sealed {
    use super::FiberBuilder;

    /// Splits a task into its closure and the settings of its fiber, if it has any.
    pub trait Parts {
        type Function;

        fn parts(self) -> (Option<FiberBuilder>, Self::Function);
    }
}

pub(super) use sealed::Parts;

impl<F: FnOnce() -> T, T> Parts for F {
    type Function = F;

    fn parts(self) -> (Option<FiberBuilder>, F) {
        (None, self)
    }
}

impl<F: FnOnce() -> T, T> IntoTask for F {
    type Output = T;
}

impl<F: FnOnce() -> T, T> Parts for Task<F> {
    type Function = F;

    fn parts(self) -> (Option<FiberBuilder>, F) {
        (Some(self.builder), self.f)
    }
}

impl<F: FnOnce() -> T, T> IntoTask for Task<F> {
    type Output = T;
}

/// Starts `f` on the caller's carrier, with `settings` if there are any.
///
/// # Panics
/// If the system cannot meet the settings.
#[track_caller]
pub(super) fn start<T: 'static>(
    settings: Option<FiberBuilder>,
    f: impl FnOnce() -> T + 'static,
) -> JoinHandle<T> {
    let Some(builder) = settings else {
        return spawn_local(f);
    };
    match builder.spawn_local(f) {
        Ok(fiber) => fiber,
        Err(error) => panic!("cannot start a task with its settings: {error}"),
    }
}
