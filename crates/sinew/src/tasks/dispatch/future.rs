//! The future result of one value of a batch, and the dispatcher's duty to set it.

use super::DispatchError;
use crate::primitive::SpinLock;
use crate::sync::FiberFuture;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;

/// The future result of one value of a batch; see [`BatchDispatcher`](super::BatchDispatcher) and
/// [`AtomicBatchDispatcher`](super::AtomicBatchDispatcher).
///
/// One fiber or thread at a time may wait for the result. The `BatchFuture` may go to another
/// thread if the result is `Send`. Async code can await it as a [`Future`].
///
/// # Examples
/// ```
/// use sinew::tasks::BatchDispatcher;
///
/// sinew::run(|| {
///     let lengths = BatchDispatcher::new(|words: Vec<&str>| words.iter().map(|w| w.len()).collect());
///     let future = lengths.add("fiber");
///     assert_eq!(future.get(), Ok(5));
/// });
/// ```
#[must_use = "the value is dispatched in any case, but its result is dropped"]
pub struct BatchFuture<R>(Arc<Outcome<R>>);

struct Outcome<R> {
    settled: FiberFuture<()>,
    /// Written before `settled` is set, and taken once.
    result: SpinLock<Option<Result<R, DispatchError>>>,
    /// The waker of the task that awaits the result. The poller stores it before its last look at
    /// `settled`, and the setter takes it after it has set `settled`. So either the poller sees the
    /// result, or the setter sees the waker.
    waker: SpinLock<Option<Waker>>,
}

impl<R> BatchFuture<R> {
    /// Returns whether the result is there, so that `get` returns at once.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let doubler = sinew::tasks::BatchDispatcher::new(|batch: Vec<u32>| {
    ///         batch.into_iter().map(|n| 2 * n).collect::<Vec<_>>()
    ///     });
    ///     let future = doubler.add(1);
    ///     assert!(!future.is_ready());
    ///     future.wait();
    ///     assert!(future.is_ready());
    /// });
    /// ```
    pub fn is_ready(&self) -> bool {
        self.0.settled.is_set()
    }

    /// Waits until the result is there.
    ///
    /// A caller that is cancelled is unwound from here.
    ///
    /// # Panics
    /// If another fiber or thread waits for this future.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let doubler = sinew::tasks::BatchDispatcher::new(|batch: Vec<u32>| {
    ///         batch.into_iter().map(|n| 2 * n).collect::<Vec<_>>()
    ///     });
    ///     let future = doubler.add(1);
    ///     future.wait();
    ///     assert_eq!(future.get(), Ok(2));
    /// });
    /// ```
    #[track_caller]
    pub fn wait(&self) {
        self.0.settled.wait();
    }

    /// Waits until the result is there, for at most `timeout`. Returns whether it is there.
    ///
    /// # Panics
    /// Where [`wait`](Self::wait) panics.
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::AtomicBatchDispatcher;
    /// use std::time::Duration;
    ///
    /// let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
    /// let future = dispatcher.token().dispatch(1);
    /// assert!(!future.wait_timeout(Duration::from_millis(1))); // not committed
    /// dispatcher.commit();
    /// assert!(future.wait_timeout(Duration::from_secs(60)));
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.0.settled.wait_timeout(timeout).is_some()
    }

    /// Waits for the result and returns it.
    ///
    /// A caller that is cancelled is unwound from here.
    ///
    /// # Errors
    /// Returns the reason if the batch has no results.
    ///
    /// # Panics
    /// Where [`wait`](Self::wait) panics.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let unlucky = sinew::tasks::BatchDispatcher::new(|_: Vec<u32>| -> Vec<u32> {
    ///         panic!("no database")
    ///     });
    ///     let error = unlucky.add(1).get().unwrap_err();
    ///     assert_eq!(error.to_string(), "the dispatch function panicked: no database");
    /// });
    /// ```
    #[track_caller]
    pub fn get(self) -> Result<R, DispatchError> {
        self.wait();
        self.take()
    }

    /// Returns the result if it is there, without waiting.
    ///
    /// # Errors
    /// Returns this future if there is no result yet.
    ///
    /// # Examples
    /// ```
    /// let dispatcher = sinew::tasks::AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
    /// let future = dispatcher.token().dispatch(7);
    /// let future = future.try_get().unwrap_err();
    /// dispatcher.commit();
    /// assert_eq!(future.try_get().unwrap(), Ok(7));
    /// ```
    pub fn try_get(self) -> Result<Result<R, DispatchError>, BatchFuture<R>> {
        if self.is_ready() { Ok(self.take()) } else { Err(self) }
    }

    /// Takes the result. The caller has checked that the future is settled.
    #[track_caller]
    fn take(&self) -> Result<R, DispatchError> {
        let result = self.0.result.lock().take();
        result.expect("an earlier poll has taken the result")
    }
}

/// # Panics
/// `poll` panics if it is called again after it has returned the result.
///
/// # Examples
/// ```
/// use sinew::tasks::AtomicBatchDispatcher;
///
/// let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
/// let future = dispatcher.token().dispatch(7);
/// dispatcher.commit();
/// assert_eq!(sinew::block_on(async { future.await }), Ok(7));
/// ```
impl<R> Future for BatchFuture<R> {
    type Output = Result<R, DispatchError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.is_ready() {
            let waker = context.waker().clone();
            let before = self.0.waker.lock().replace(waker);
            // Drop the old waker outside of the lock: a waker is the user's code.
            drop(before);
            if !self.is_ready() {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.take())
    }
}

impl<R> fmt::Debug for BatchFuture<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchFuture").field("ready", &self.is_ready()).finish()
    }
}

/// The duty to give a future its result. Dropping it unsettled gives the future
/// [`DispatchError::Dropped`].
pub(super) struct Promise<R>(Option<Arc<Outcome<R>>>);

impl<R> Promise<R> {
    pub(super) fn new() -> (Promise<R>, BatchFuture<R>) {
        let outcome = Arc::new(Outcome {
            settled: FiberFuture::new(),
            result: SpinLock::new(None),
            waker: SpinLock::new(None),
        });
        (Promise(Some(outcome.clone())), BatchFuture(outcome))
    }

    pub(super) fn set(mut self, result: Result<R, DispatchError>) {
        self.settle(result);
    }

    fn settle(&mut self, result: Result<R, DispatchError>) {
        let Some(outcome) = self.0.take() else { return };
        *outcome.result.lock() = Some(result);
        // `settle` takes the outcome, so the future is set only here and only once.
        let _ = outcome.settled.set(());
        let waker = outcome.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<R> Drop for Promise<R> {
    fn drop(&mut self) {
        self.settle(Err(DispatchError::Dropped));
    }
}
