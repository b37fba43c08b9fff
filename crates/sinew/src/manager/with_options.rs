//! The methods that add tasks with options: [`ManagerHandle::add_task_future_with`] and its
//! siblings.

use super::future::TaskFuture;
use super::handle::ManagerHandle;
use super::options::TaskOptions;
use super::remote::RemoteHandle;
use super::task::{self, Added};

impl ManagerHandle {
    /// Adds a task with options, and returns a future of its result; see
    /// [`add_task_future`](Self::add_task_future).
    ///
    /// # Panics
    /// If the stack size is out of range.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskOptions};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let options = TaskOptions::new().name("adds");
    /// let task = manager.add_task_future_with(options, || 2 + 3);
    /// assert_eq!(task.fiber().name(), Some("adds"));
    /// controller.run();
    /// assert_eq!(task.get().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_future_with<T: 'static>(
        &self,
        options: TaskOptions,
        f: impl FnOnce() -> T + 'static,
    ) -> TaskFuture<T> {
        let core = self.core();
        task::add_future(&core, Added::task(options), f)
    }

    /// Runs a task with options until it first waits; see [`add_task_eager`](Self::add_task_eager).
    ///
    /// # Panics
    /// As [`add_task_eager`](Self::add_task_eager), and if the stack size is out of range.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskOptions};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let options = TaskOptions::new().stack_size(1 << 20);
    /// manager.add_task_eager_with(options, || assert!(sinew::stack_remaining().unwrap() > 512 * 1024));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_eager_with(&self, options: TaskOptions, f: impl FnOnce() + 'static) {
        let core = self.core();
        task::add(&core, Added::eager(options), f);
    }

    /// Runs a task with options until it first waits, and returns a future of its result; see
    /// [`add_task_eager_future`](Self::add_task_eager_future).
    ///
    /// # Panics
    /// As [`add_task_eager`](Self::add_task_eager), and if the stack size is out of range.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskOptions};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let task = manager.add_task_eager_future_with(TaskOptions::new().name("now"), || 5);
    /// assert_eq!(task.get().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_eager_future_with<T: 'static>(
        &self,
        options: TaskOptions,
        f: impl FnOnce() -> T + 'static,
    ) -> TaskFuture<T> {
        let core = self.core();
        task::add_future(&core, Added::eager(options), f)
    }

    /// Adds a task with options, and calls `finally` with its result; see
    /// [`add_task_finally`](Self::add_task_finally).
    ///
    /// # Panics
    /// If the stack size is out of range.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskOptions};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let options = TaskOptions::new().name("sums");
    /// manager.add_task_finally_with(options, || 5, |sum| assert_eq!(sum.unwrap(), 5));
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_finally_with<T: 'static>(
        &self,
        options: TaskOptions,
        f: impl FnOnce() -> T + 'static,
        finally: impl FnOnce(std::thread::Result<T>) + 'static,
    ) {
        let core = self.core();
        task::add_finally(&core, Added::task(options), f, finally);
    }

    /// Runs a task with options until it first waits, and calls `finally` with its result; see
    /// [`add_task_finally_eager`](Self::add_task_finally_eager).
    ///
    /// # Panics
    /// As [`add_task_eager`](Self::add_task_eager), and if the stack size is out of range.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskOptions};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let options = TaskOptions::new().name("sums");
    /// manager.add_task_finally_eager_with(options, || 5, |sum| assert_eq!(sum.unwrap(), 5));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_finally_eager_with<T: 'static>(
        &self,
        options: TaskOptions,
        f: impl FnOnce() -> T + 'static,
        finally: impl FnOnce(std::thread::Result<T>) + 'static,
    ) {
        let core = self.core();
        task::add_finally(&core, Added::eager(options), f, finally);
    }
}

impl RemoteHandle {
    /// Adds a task with options from any thread; see [`add_task_remote`](Self::add_task_remote).
    ///
    /// # Panics
    /// If the stack size is out of range.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskOptions};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let options = TaskOptions::new().name("from afar");
    /// manager.remote().add_task_remote_with(options, || {
    ///     assert_eq!(sinew::current().name(), Some("from afar"));
    /// });
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_remote_with(&self, options: TaskOptions, f: impl FnOnce() + Send + 'static) {
        self.add(options, f);
    }

    /// Adds a task with options from any thread, and returns a future of its result; see
    /// [`add_task_remote_future`](Self::add_task_remote_future).
    ///
    /// # Panics
    /// If the stack size is out of range.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskOptions};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let options = TaskOptions::new().name("from afar");
    /// let task = manager.remote().add_task_remote_future_with(options, || 7);
    /// controller.run();
    /// assert_eq!(task.get().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_remote_future_with<T: Send + 'static>(
        &self,
        options: TaskOptions,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> TaskFuture<T> {
        self.add_future(options, f)
    }
}
