//! Gathers values that fibers of one carrier add one by one, and dispatches them together.
//!
//! The job that will dispatch a batch is its only owner. The dispatcher adds values through a weak
//! reference. A job that runs takes the batch out, and a job that is dropped drops the batch. In
//! both cases the weak reference is dead from then on, and the next value begins a new batch.

use super::future::{BatchFuture, Promise};
use super::run;
use crate::spawn::local_carrier;
use crate::spawn::spawn_local;
use core::cell::RefCell;
use core::fmt;
use std::rc::{Rc, Weak};

type Job = Box<dyn FnOnce()>;

/// Gathers requests of many fibers of one carrier, and answers them with one call.
///
/// The first value that is [added](Self::add) starts a fiber, which runs after the fibers that are
/// ready on this carrier. Values that these fibers add join the batch. Then that fiber calls the
/// dispatch function with all values. The function returns one result for each value, in the order
/// of the values, and each future gets its result. The function may wait. Values that are added
/// from then on are in the next batch.
///
/// A dispatcher belongs to one carrier. Fibers share it by reference, in an `Rc`, or in a
/// thread-local. If the dispatcher is dropped, a batch that was begun is dispatched even so.
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
    /// Runs a job. If this is `None`, each job runs in a new fiber.
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
    /// Makes a dispatcher that dispatches each batch in a new fiber.
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

    /// Makes a dispatcher that gives a job for each batch to `executor`. The executor calls the job
    /// on this thread when enough values have been gathered.
    ///
    /// If the executor drops the job, the futures of its batch end with
    /// [`DispatchError::Dropped`](super::DispatchError::Dropped).
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
    /// jobs.take().into_iter().for_each(|job| job()); // one job for both values
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
    /// If the value begins a batch on a plain thread or in a migratable fiber, unless the
    /// dispatcher has an executor.
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
            // `add` holds a strong reference only until it returns, so this is the last one.
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
