//! Values that are asked for one by one, and worked on together.
//!
//! The job that will dispatch a batch is its only owner; the dispatcher has a weak reference, by which
//! values are added. A job that runs takes the batch for itself, and one that is dropped drops it: either
//! way the reference leads nowhere then, and the next value begins a new batch.

use super::future::{BatchFuture, Promise};
use super::run;
use crate::spawn::local_carrier;
use crate::spawn::spawn_local;
use core::cell::RefCell;
use core::fmt;
use std::rc::{Rc, Weak};

type Job = Box<dyn FnOnce()>;

/// Gathers what many fibers of one carrier ask for, and does it with one call.
///
/// The first value that is [added](Self::add) has a fiber started, which comes after those that are ready
/// on this carrier. What they add meanwhile is in the same batch. Then the dispatch function is called with
/// all values, and its results, in the same order, are given to those who wait. It may wait; values that
/// are added from then on are in the next batch.
///
/// It belongs to one carrier, and is shared there by reference or in an `Rc`, or in a thread-local. If it
/// is dropped, a batch that was begun is dispatched nevertheless.
///
/// # Examples
/// ```
/// use sinew::tasks::{BatchDispatcher, collect_all};
/// use std::rc::Rc;
///
/// sinew::run(|| {
///     // One query for all, instead of one for each.
///     let users = Rc::new(BatchDispatcher::new(|ids: Vec<u32>| {
///         assert_eq!(ids, [0, 1, 2]);
///         ids.into_iter().map(|id| format!("user {id}")).collect()
///     }));
///     let names = collect_all((0..3).map(|id| {
///         let users = users.clone();
///         move || users.add(id).get().unwrap()
///     }));
///     assert_eq!(names, ["user 0", "user 1", "user 2"]);
/// });
/// ```
pub struct BatchDispatcher<V, R> {
    /// What runs a job; `None` for a new fiber.
    executor: Option<Box<dyn Fn(Job)>>,
    dispatch: Rc<dyn Fn(Vec<V>) -> Vec<R>>,
    /// The batch that has not been dispatched.
    open: RefCell<Weak<RefCell<Batch<V, R>>>>,
}

struct Batch<V, R> {
    values: Vec<V>,
    promises: Vec<Promise<R>>,
}

impl<V: 'static, R: 'static> BatchDispatcher<V, R> {
    /// One whose batches are dispatched in a fiber of their own.
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::BatchDispatcher;
    ///
    /// sinew::run(|| {
    ///     let sums = BatchDispatcher::new(|batch: Vec<(u32, u32)>| {
    ///         batch.into_iter().map(|(a, b)| a + b).collect()
    ///     });
    ///     let (first, second) = (sums.add((1, 2)), sums.add((3, 4)));
    ///     assert_eq!((first.get(), second.get()), (Ok(3), Ok(7)));
    /// });
    /// ```
    pub fn new(dispatch: impl Fn(Vec<V>) -> Vec<R> + 'static) -> BatchDispatcher<V, R> {
        BatchDispatcher {
            executor: None,
            dispatch: Rc::new(dispatch),
            open: RefCell::new(Weak::new()),
        }
    }

    /// One whose batches are dispatched by `executor`: it is given a job for each, to be called when enough
    /// has been gathered, on the same thread.
    ///
    /// Futures of a job that is dropped end with [`DispatchError::Dropped`](super::DispatchError::Dropped).
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::BatchDispatcher;
    /// use std::cell::RefCell;
    /// use std::rc::Rc;
    ///
    /// let jobs = Rc::new(RefCell::new(Vec::new()));
    /// let queue = jobs.clone();
    /// let dispatcher = BatchDispatcher::with_executor(
    ///     move |job| queue.borrow_mut().push(job),
    ///     |batch: Vec<u32>| batch.into_iter().map(|n| n * n).collect::<Vec<_>>(),
    /// );
    /// let (first, second) = (dispatcher.add(2), dispatcher.add(3));
    /// jobs.take().into_iter().for_each(|job| job()); // one, for both
    /// assert_eq!((first.get(), second.get()), (Ok(4), Ok(9)));
    /// ```
    pub fn with_executor(
        executor: impl Fn(Box<dyn FnOnce()>) + 'static,
        dispatch: impl Fn(Vec<V>) -> Vec<R> + 'static,
    ) -> BatchDispatcher<V, R> {
        BatchDispatcher { executor: Some(Box::new(executor)), ..BatchDispatcher::new(dispatch) }
    }

    /// Adds a value to the batch, and returns the future of its result. Does not wait.
    ///
    /// # Panics
    /// If it begins a batch on a plain thread or in a migratable fiber, unless there is an executor.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let echo = sinew::tasks::BatchDispatcher::new(|batch: Vec<u32>| batch);
    ///     assert_eq!(echo.add(7).get(), Ok(7));
    /// });
    /// ```
    #[track_caller]
    pub fn add(&self, value: V) -> BatchFuture<R> {
        let (promise, future) = Promise::new();
        let open = self.open.borrow().upgrade();
        if let Some(batch) = open {
            let mut batch = batch.borrow_mut();
            batch.values.push(value);
            batch.promises.push(promise);
        } else {
            self.begin(value, promise);
        }
        future
    }

    #[track_caller]
    fn begin(&self, value: V, promise: Promise<R>) {
        if self.executor.is_none() {
            local_carrier("BatchDispatcher::add");
        }
        let batch = Batch { values: vec![value], promises: vec![promise] };
        let batch = Rc::new(RefCell::new(batch));
        *self.open.borrow_mut() = Rc::downgrade(&batch);
        let dispatch = self.dispatch.clone();
        let job = move || {
            // `add` has the others, and gives each up before it returns.
            if let Some(batch) = Rc::into_inner(batch) {
                let Batch { values, promises } = batch.into_inner();
                run(values, promises, |values| dispatch(values));
            }
        };
        match &self.executor {
            Some(executor) => executor(Box::new(job)),
            None => drop(spawn_local(job)),
        }
    }
}

impl<V, R> fmt::Debug for BatchDispatcher<V, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.open.borrow().upgrade();
        let gathered = open.map_or(0, |batch| batch.borrow().values.len());
        f.debug_struct("BatchDispatcher").field("gathered", &gathered).finish()
    }
}
