//! The handle by which other threads use a manager.

use super::core::Shared;
use super::future::Promised;
use super::{Executor, TaskFuture, TaskOptions, task};
use crate::fiber::Fiber;
use crate::fiber::FiberRef;
use crate::fiber::task::detached;
use crate::primitive::Ordering;
use crate::spawn::birth;
use std::sync::Arc;

/// Adds tasks to a manager from any thread; see
/// [`ManagerHandle::remote`](super::ManagerHandle::remote).
///
/// A task inherits the [fiber-locals](crate::fiber_local) of the fiber or thread that adds it. A
/// task that is added after the end of the manager is dropped without having run.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController};
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// let remote = manager.remote();
/// let here = std::thread::current().id();
/// let worker = std::thread::spawn(move || {
///     remote.add_task_remote_future(move || std::thread::current().id() == here)
/// });
/// let task = worker.join().unwrap();
/// controller.run();
/// assert!(task.get().unwrap()); // the task ran on the manager's thread
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct RemoteHandle {
    shared: Arc<Shared>,
}

impl RemoteHandle {
    pub(super) fn new(shared: Arc<Shared>) -> RemoteHandle {
        RemoteHandle { shared }
    }

    /// Adds a task, which runs on the manager's thread.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let remote = manager.remote();
    /// std::thread::spawn(move || remote.add_task_remote(|| println!("on the manager's thread"))).join().unwrap();
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// The closure's captures cross threads, so they must be `Send`:
    /// ```compile_fail,E0277
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new()).unwrap();
    /// let shared = std::rc::Rc::new(1);
    /// manager.remote().add_task_remote(move || drop(shared));
    /// ```
    pub fn add_task_remote(&self, f: impl FnOnce() + Send + 'static) {
        self.add(TaskOptions::new(), f);
    }

    /// Adds a task, which runs on the manager's thread, and returns a future of its result.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let task = manager.remote().add_task_remote_future(|| 7);
    /// controller.run();
    /// assert_eq!(task.get().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// The result crosses threads too:
    /// ```compile_fail,E0277
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new()).unwrap();
    /// manager.remote().add_task_remote_future(|| std::rc::Rc::new(1));
    /// ```
    pub fn add_task_remote_future<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> TaskFuture<T> {
        self.add_future(TaskOptions::new(), f)
    }

    #[track_caller]
    pub(super) fn add(&self, options: TaskOptions, f: impl FnOnce() + Send + 'static) {
        self.submit(&options, 1, task::contained(f));
    }

    #[track_caller]
    pub(super) fn add_future<T: Send + 'static>(
        &self,
        options: TaskOptions,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> TaskFuture<T> {
        let (promised, awaited) = Promised::new(self.shared.clone());
        let control = self.submit(&options, 2, promised.kept_by(f));
        // SAFETY: `submit` counted two references. The fiber has one, and this takes the other.
        let fiber = Fiber::from_ref(unsafe { FiberRef::from_counted(control) });
        TaskFuture::new(awaited, fiber)
    }

    /// Returns whether the manager still accepts tasks. Returns false once the manager was dropped.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let remote = manager.remote();
    /// assert!(remote.is_alive());
    /// drop(manager);
    /// assert!(!remote.is_alive());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_alive(&self) -> bool {
        self.shared.open.load(Ordering::Relaxed)
    }

    #[track_caller]
    fn submit(
        &self,
        options: &TaskOptions,
        references: u64,
        f: impl FnOnce() + Send + 'static,
    ) -> &'static crate::fiber::Control {
        let crew = &self.shared.crew;
        let traits = task::traits(crew, options);
        // SAFETY: the closure is `Send` and `'static`. It does not panic: `contained` and
        // `kept_by`, which the callers wrap it in, catch the panic of the user's closure.
        unsafe { birth::send(crew, traits, references, detached(f)) }
    }
}

impl Executor for RemoteHandle {
    fn execute(&self, f: Box<dyn FnOnce() + Send>) {
        self.add_task_remote(f);
    }
}

impl std::fmt::Debug for RemoteHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteHandle")
            .field("name", &self.shared.crew.settings.name)
            .field("is_alive", &self.is_alive())
            .finish_non_exhaustive()
    }
}
