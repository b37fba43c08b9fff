//! The result of a task, and the task's duty to deliver it.

use super::core::Shared;
use super::measure;
use crate::cancel;
use crate::carrier::current;
use crate::primitive::SpinLock;
use crate::spawn::Fiber;
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
struct Slot<T> {
    value: SpinLock<Option<Result<T>>>,
    done: FiberFuture<()>,
    shared: Arc<Shared>,
}

impl<T> Slot<T> {
    fn fulfil(&self, result: Result<T>) {
        *self.value.lock() = Some(result);
        let _ = self.done.set(());
    }
}

/// The result of a manager's task; see [`add_task_future`](super::ManagerHandle::add_task_future).
///
/// Waiting for it suspends a fiber and blocks a thread; it can also be awaited as a [`Future`]. If
/// the task panicked or was cancelled, the result is an error, as in
/// [`JoinHandle::join`](crate::JoinHandle::join). Dropping the `TaskFuture` lets the task go on.
///
/// A result that is not `Send` stays on the manager's thread:
/// ```compile_fail,E0277
/// use sinew::manager::{FiberManager, Options, SimpleLoopController};
///
/// let manager = FiberManager::new(SimpleLoopController::new(), Options::new()).unwrap();
/// let future = manager.add_task_future(|| std::rc::Rc::new(1));
/// std::thread::spawn(move || future.get());
/// ```
#[must_use = "the task runs without it; `add_task` gives none"]
pub struct TaskFuture<T> {
    slot: Arc<Slot<T>>,
    fiber: Fiber,
    /// The waker of the last poll; unset until the first one. The callback subscribed to `done`
    /// shares this cell alone: the callback has to be `Send`, and `T` need not be.
    waker: OnceCell<Arc<SpinLock<Option<Waker>>>>,
}

impl<T> TaskFuture<T> {
    pub(super) fn new(slot: Awaited<T>, fiber: Fiber) -> TaskFuture<T> {
        TaskFuture { slot: slot.0, fiber, waker: OnceCell::new() }
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
        self.slot.done.is_set()
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
            self.slot.done.wait();
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
    /// assert!(!task.wait_for(Duration::from_millis(1)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn wait_for(&self, timeout: Duration) -> bool {
        self.slot.done.wait_with_timeout(timeout).is_some()
    }

    /// Waits until the task has ended, and returns its result.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
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
    /// This `TaskFuture`, if the task has not ended.
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

    /// Calls `callback` when the task ends, in the fiber or on the thread that ends it; at once if
    /// it has ended already.
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
        self.slot.done.subscribe(callback);
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
        let value = self.slot.value.lock().take();
        value.expect("the result of a task was taken before")
    }

    #[track_caller]
    fn forbid_hopeless(&self) {
        let shared = &self.slot.shared;
        assert!(
            current::fiber().is_some() || std::thread::current().id() != shared.thread,
            "deadlock: the thread of the manager \"{}\" waits for a task of it, outside of a fiber; run the loop, \
             or wait in a fiber",
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
pub(super) struct Awaited<T>(Arc<Slot<T>>);

/// The duty of a task to deliver a result. If it is dropped undelivered, the task never ran, and
/// the result is a cancellation.
pub(super) struct Promised<T>(Option<Arc<Slot<T>>>);

impl<T> Promised<T> {
    pub(super) fn new(shared: Arc<Shared>) -> (Promised<T>, Awaited<T>) {
        let slot = Arc::new(Slot { value: SpinLock::new(None), done: FiberFuture::new(), shared });
        (Promised(Some(slot.clone())), Awaited(slot))
    }

    /// Returns the closure for the task's fiber: it calls `f`, catches its panic, and delivers the
    /// result.
    pub(super) fn kept_by(self, f: impl FnOnce() -> T) -> impl FnOnce() {
        move || measure::around(|| self.keep(f))
    }

    fn keep(mut self, f: impl FnOnce() -> T) {
        let result = catch_unwind(AssertUnwindSafe(f));
        if let (Err(panic), Some((_, control))) = (&result, current::fiber()) {
            crate::park::panic_ended(control, &**panic);
        }
        if let Some(slot) = self.0.take() {
            slot.fulfil(result);
        }
    }
}

impl<T> Drop for Promised<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.fulfil(Err(cancel::payload()));
        }
    }
}
