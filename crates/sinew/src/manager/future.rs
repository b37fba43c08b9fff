//! The result of a task, and the task's duty to deliver it.

use super::core::Shared;
use super::measure;
use crate::carrier::current;
use crate::fiber::Fiber;
use crate::fiber::{Cancelled, panic_ended};
use crate::primitive::SpinLock;
use crate::sync::FiberFuture;
use core::cell::OnceCell;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Result;

/// Where the task puts its result. The task writes `value` first, and then sets `done`.
struct Pending<T> {
    value: SpinLock<Option<Result<T>>>,
    done: FiberFuture<()>,
    shared: Arc<Shared>,
}

impl<T> Pending<T> {
    fn fulfil(&self, result: Result<T>) {
        *self.value.lock() = Some(result);
        let _ = self.done.set(());
    }
}

/// The result of a manager's task; see [`add_task_future`](super::ManagerHandle::add_task_future).
///
/// A fiber that waits for the result is suspended; a thread that waits blocks. Async code can await
/// the `TaskFuture` as a [`Future`]. If the task panicked or was cancelled, the result is an error,
/// as in [`JoinHandle::join`](crate::JoinHandle::join). Dropping the `TaskFuture` does not end the
/// task.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskFuture};
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// let six: TaskFuture<u32> = manager.add_task_future(|| 6);
/// let seven = manager.add_task_future(move || six.get().unwrap() + 1); // suspends its fiber
/// controller.run();
/// assert_eq!(seven.get().unwrap(), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A result that is not `Send` stays on the manager's thread:
/// ```compile_fail,E0277
/// use sinew::manager::{FiberManager, Options, SimpleLoopController};
///
/// let manager = FiberManager::new(SimpleLoopController::new(), Options::new()).unwrap();
/// let future = manager.add_task_future(|| std::rc::Rc::new(1));
/// std::thread::spawn(move || future.get());
/// ```
#[must_use = "the task runs without this future; use `add_task` if you do not need its result"]
pub struct TaskFuture<T> {
    pending: Arc<Pending<T>>,
    fiber: Fiber,
    /// The waker of the last poll; unset until the first poll. The callback that is subscribed to
    /// `done` shares only this cell, because the callback has to be `Send`, and `T` need not be.
    waker: OnceCell<Arc<SpinLock<Option<Waker>>>>,
}

impl<T> TaskFuture<T> {
    pub(super) fn new(pending: Awaited<T>, fiber: Fiber) -> TaskFuture<T> {
        TaskFuture { pending: pending.0, fiber, waker: OnceCell::new() }
    }

    /// Returns whether the task has ended.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let task = manager.add_task_future(|| 5);
    /// assert!(!task.is_ready());
    /// manager.loop_until_no_ready();
    /// assert!(task.is_ready());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_ready(&self) -> bool {
        self.pending.done.is_set()
    }

    /// Waits until the task has ended.
    ///
    /// # Panics
    /// On the manager's own thread outside of a fiber, where the task could never end.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let first = manager.add_task_future(|| 5);
    /// manager.add_task(move || {
    ///     first.wait();
    ///     assert!(first.is_ready());
    /// });
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn wait(&self) {
        if !self.is_ready() {
            self.forbid_hopeless();
            self.pending.done.wait();
        }
    }

    /// Waits until the task has ended, for at most `timeout`. Returns whether it has ended.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    /// use std::time::Duration;
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let task = manager.add_task_future(|| 5);
    /// assert!(!task.wait_timeout(Duration::from_millis(1)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.pending.done.wait_timeout(timeout).is_some()
    }

    /// Waits until the task has ended, and returns its result.
    ///
    /// # Panics
    /// Where [`wait`](Self::wait) panics.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let fails = manager.add_task_future(|| panic!("no"));
    /// manager.loop_until_no_ready();
    /// assert!(fails.get().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn get(self) -> Result<T> {
        self.wait();
        self.take()
    }

    /// Returns the result if the task has ended, without waiting.
    ///
    /// # Errors
    /// Returns this `TaskFuture` if the task has not ended.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let task = manager.add_task_future(|| 5).try_get().unwrap_err();
    /// manager.loop_until_no_ready();
    /// assert_eq!(task.try_get().unwrap().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_get(self) -> core::result::Result<Result<T>, TaskFuture<T>> {
        if self.is_ready() { Ok(self.take()) } else { Err(self) }
    }

    /// Calls `callback` when the task ends, in the fiber of the task. If the task is dropped before
    /// it began, the thread that drops it calls `callback`. If the task has ended already, this
    /// function calls `callback` at once.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    /// use std::sync::mpsc;
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let task = manager.add_task_future(|| 5);
    /// let (ended, ends) = mpsc::channel();
    /// task.subscribe(move || ended.send(()).unwrap());
    /// manager.loop_until_no_ready();
    /// assert!(ends.try_recv().is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn subscribe(&self, callback: impl FnOnce() + Send + 'static) {
        self.pending.done.subscribe(callback);
    }

    /// Returns the fiber that runs the task.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// assert!(manager.add_task_future(|| 5).fiber().is_alive());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fiber(&self) -> Fiber {
        self.fiber.clone()
    }

    /// Asks the task to end; see [`Fiber::cancel`].
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let task = manager.add_task_future(sinew::park);
    /// manager.loop_until_no_ready();
    /// task.cancel();
    /// manager.loop_until_no_ready();
    /// assert!(sinew::is_cancel(&*task.get().unwrap_err()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.fiber.cancel();
    }

    fn take(&self) -> Result<T> {
        let value = self.pending.value.lock().take();
        value.expect("an earlier poll has taken the result of the task")
    }

    #[track_caller]
    fn forbid_hopeless(&self) {
        let shared = &self.pending.shared;
        assert!(
            current::fiber().is_some() || std::thread::current().id() != shared.thread,
            "deadlock: the thread of the manager \"{}\" waits for one of the manager's tasks, outside of a fiber; \
             run the loop, or wait in a fiber",
            shared.crew.settings.name
        );
    }
}

impl<T> Future for TaskFuture<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if !self.is_ready() {
            let new = context.waker().clone();
            let before = match self.waker.get() {
                Some(waker) => waker.lock().replace(new),
                None => {
                    self.wake_when_done(new);
                    None
                }
            };
            drop(before);
            if !self.is_ready() {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.take())
    }
}

impl<T> TaskFuture<T> {
    fn wake_when_done(&self, waker: Waker) {
        let place = Arc::new(SpinLock::new(Some(waker)));
        let theirs = place.clone();
        let _ = self.waker.set(place);
        self.subscribe(move || {
            let waker = theirs.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        });
    }
}

impl<T> Unpin for TaskFuture<T> {}

impl<T> core::fmt::Debug for TaskFuture<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TaskFuture")
            .field("fiber", &self.fiber)
            .field("is_ready", &self.is_ready())
            .finish_non_exhaustive()
    }
}

/// The receiving end of a [`Promised`].
pub(super) struct Awaited<T>(Arc<Pending<T>>);

/// The duty of a task to deliver a result. If it is dropped undelivered, the task never ran, and
/// the result is a cancellation.
pub(super) struct Promised<T>(Option<Arc<Pending<T>>>);

impl<T> Promised<T> {
    pub(super) fn new(shared: Arc<Shared>) -> (Promised<T>, Awaited<T>) {
        let pending =
            Arc::new(Pending { value: SpinLock::new(None), done: FiberFuture::new(), shared });
        (Promised(Some(pending.clone())), Awaited(pending))
    }

    /// Returns the closure for the task's fiber: it calls `f`, catches its panic, and delivers the
    /// result.
    pub(super) fn kept_by(self, f: impl FnOnce() -> T) -> impl FnOnce() {
        move || measure::around(|| self.keep(f))
    }

    fn keep(mut self, f: impl FnOnce() -> T) {
        let result = catch_unwind(AssertUnwindSafe(f));
        if let (Err(panic), Some((_, control))) = (&result, current::fiber()) {
            panic_ended(control, &**panic);
        }
        if let Some(pending) = self.0.take() {
            pending.fulfil(result);
        }
    }
}

impl<T> Drop for Promised<T> {
    fn drop(&mut self) {
        if let Some(pending) = self.0.take() {
            pending.fulfil(Err(Cancelled::before_start()));
        }
    }
}
