//! A manager, and the handle by which its own thread uses it.
//!
//! The other methods of the handle are in `status`, what a manager tells of itself, and in
//! `with_options`, the forms of tasks with options.

use super::core::{Core, Shared};
use super::options::{Options, TaskOptions};
use super::remote::RemoteHandle;
use super::task::{self, Added};
use super::{Executor, LoopController, Observer, TaskFuture};
use core::any::Any;
use core::ops::Deref;
use core::time::Duration;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Runs fibers on the thread that made it, inside a loop that another library owns.
///
/// A manager belongs to its thread. It derefs to [`ManagerHandle`], which has its methods;
/// [`remote`](ManagerHandle::remote) returns a handle for other threads.
///
/// Dropping the manager cancels the remaining fibers, and runs them on this thread until they have
/// ended. If one of its own fibers drops the manager, or a call on the main context does so for a
/// fiber, the end begins when the run in progress returns.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController};
/// use sinew::sync::Baton;
/// use std::rc::Rc;
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// let baton = Rc::new(Baton::new());
/// let theirs = baton.clone();
/// manager.add_task(move || theirs.wait());
/// manager.add_task(move || baton.post());
/// controller.run();
/// assert!(!manager.has_tasks());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The manager stays on its thread:
/// ```compile_fail,E0277
/// use sinew::manager::{FiberManager, Options, SimpleLoopController};
///
/// let manager = FiberManager::new(SimpleLoopController::new(), Options::new()).unwrap();
/// std::thread::spawn(move || drop(manager));
/// ```
pub struct FiberManager {
    core: Rc<Core>,
    handle: ManagerHandle,
}

/// A handle by which a manager's own thread uses the manager. The handle does not keep the manager
/// alive. After the end of the manager, adding a task panics, and running the loop does nothing.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController};
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// let handle = manager.handle();
/// let task = manager.add_task_future(move || handle.add_task_future(|| 7)); // a task adds another
/// controller.run();
/// assert_eq!(task.get().unwrap().get().unwrap(), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The handle stays on the manager's thread. [`remote`](Self::remote) returns a handle for other
/// threads:
/// ```compile_fail,E0277
/// use sinew::manager::{FiberManager, Options, SimpleLoopController};
///
/// let manager = FiberManager::new(SimpleLoopController::new(), Options::new()).unwrap();
/// let handle = manager.handle();
/// std::thread::spawn(move || handle.add_task(|| ()));
/// ```
#[derive(Clone)]
pub struct ManagerHandle {
    core: Weak<Core>,
    shared: Arc<Shared>,
}

impl FiberManager {
    /// Makes a manager that belongs to the calling thread. The loop behind `controller` runs it.
    ///
    /// # Errors
    /// If the system has no descriptor for the bell that wakes the manager, or cannot meet the
    /// options.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// assert!(!manager.has_tasks());
    /// let error = FiberManager::new(SimpleLoopController::new(), Options::new().stack_size(5));
    /// assert!(error.is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(controller: impl LoopController, options: Options) -> io::Result<FiberManager> {
        FiberManager::with_controller(Box::new(controller), options)
    }

    pub(super) fn with_controller(
        controller: Box<dyn LoopController>,
        options: Options,
    ) -> io::Result<FiberManager> {
        let core = Core::new(controller, options)?;
        let handle = ManagerHandle::new(&core);
        Ok(FiberManager { core, handle })
    }

    /// Returns a handle for this thread, which can be kept independently of the manager.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let handle = manager.handle();
    /// manager.add_task(move || handle.add_task(|| ()));
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn handle(&self) -> ManagerHandle {
        self.handle.clone()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.core.shared
    }

    /// Ends the manager as dropping it does, but waits for its fibers at most for `timeout`.
    ///
    /// # Errors
    /// Returns the number of fibers that did not end in time. They are leaked, with their stacks.
    /// If one of them has started, the manager's thread never ends either. A call while the manager
    /// runs, for example in one of its fibers, returns the number of its fibers at once. Then the
    /// end begins when the run in progress returns, and has no time limit.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    /// use std::time::Duration;
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| sinew::park());
    /// manager.loop_until_no_ready();
    /// assert_eq!(manager.shutdown_timeout(Duration::from_secs(1)), Ok(()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_timeout(self, timeout: Duration) -> Result<(), usize> {
        if self.core.shut_down(Some(timeout)) || !self.core.has_tasks() {
            return Ok(());
        }
        Err(self.core.live())
    }
}

impl Drop for FiberManager {
    fn drop(&mut self) {
        self.core.shut_down(None);
    }
}

impl Deref for FiberManager {
    type Target = ManagerHandle;

    fn deref(&self) -> &ManagerHandle {
        &self.handle
    }
}

impl ManagerHandle {
    pub(super) fn new(core: &Rc<Core>) -> ManagerHandle {
        ManagerHandle { core: Rc::downgrade(core), shared: core.shared.clone() }
    }

    /// Returns the manager whose fiber runs on this thread, or whose main context runs a call for a
    /// fiber. If managers are nested, returns the innermost one.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::manager::ManagerHandle::current().is_none());
    /// ```
    pub fn current() -> Option<ManagerHandle> {
        Core::current().map(|core| ManagerHandle::new(&core))
    }

    #[track_caller]
    pub(super) fn core(&self) -> Rc<Core> {
        match self.core.upgrade() {
            Some(core) => {
                core.assert_open();
                core
            }
            None => panic!("cannot add a task: the manager was dropped"),
        }
    }

    /// Adds a task: a fiber that runs when the loop runs the manager, after the fibers that are
    /// ready already.
    ///
    /// A panic of `f` goes to the [panic callback](Options::panic_callback).
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(|| println!("from a fiber"));
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// A task may outlive the caller, so it cannot borrow from it:
    /// ```compile_fail,E0597
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new()).unwrap();
    /// let local = 7;
    /// manager.add_task(|| assert_eq!(local, 7));
    /// ```
    #[inline]
    #[track_caller]
    pub fn add_task(&self, f: impl FnOnce() + 'static) {
        task::add_plain(&self.core(), f);
    }

    /// Adds a task with options.
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
    /// manager.add_task_with(TaskOptions::new().name("resize").stack_size(512 * 1024), || {
    ///     assert_eq!(sinew::current().name(), Some("resize"));
    /// });
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_with(&self, options: TaskOptions, f: impl FnOnce() + 'static) {
        let core = self.core();
        task::add(&core, Added::task(options), f);
    }

    /// Adds a task, and returns a future of its result.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let sum = manager.add_task_future(|| 2 + 2);
    /// controller.run();
    /// assert_eq!(sum.get().unwrap(), 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_future<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> TaskFuture<T> {
        let core = self.core();
        task::add_future(&core, Added::task(TaskOptions::new()), f)
    }

    /// Adds an eager task: runs it until it first waits or ends, before the caller goes on.
    ///
    /// If a fiber of this manager adds it, that fiber goes on when the task waits or has ended,
    /// before any other fiber.
    ///
    /// # Panics
    /// Where the running fiber of this manager cannot be suspended: in a pinned region, in a hook,
    /// or while it runs the loop of another manager.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let ran = Rc::new(Cell::new(false));
    /// let theirs = ran.clone();
    /// manager.add_task_eager(move || theirs.set(true));
    /// assert!(ran.get());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_eager(&self, f: impl FnOnce() + 'static) {
        let core = self.core();
        task::add(&core, Added::eager(TaskOptions::new()), f);
    }

    /// Adds an eager task, which runs until it first waits, and returns a future of its result.
    ///
    /// # Panics
    /// Where [`add_task_eager`](Self::add_task_eager) panics.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// assert_eq!(manager.add_task_eager_future(|| 7).get().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_eager_future<T: 'static>(
        &self,
        f: impl FnOnce() -> T + 'static,
    ) -> TaskFuture<T> {
        let core = self.core();
        task::add_future(&core, Added::eager(TaskOptions::new()), f)
    }

    /// Adds a task, and calls `finally` on the main context with its result, or with the payload of
    /// its panic.
    ///
    /// A panic of `finally` goes to the panic callback. If the task is cancelled after it began,
    /// `finally` gets the payload of the cancellation. If the task never begins, `finally` is
    /// dropped without a call: the manager was dropped, the task was cancelled, or there was no
    /// stack for it.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, on_fiber};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task_finally(
    ///     || 42,
    ///     |result| {
    ///         assert!(!on_fiber());
    ///         assert_eq!(result.unwrap(), 42);
    ///     },
    /// );
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_finally<T: 'static>(
        &self,
        f: impl FnOnce() -> T + 'static,
        finally: impl FnOnce(std::thread::Result<T>) + 'static,
    ) {
        let core = self.core();
        task::add_finally(&core, Added::task(TaskOptions::new()), f, finally);
    }

    /// Adds an eager task, which runs until it first waits, and calls `finally` on the main context
    /// with its result; see [`add_task_finally`](Self::add_task_finally).
    ///
    /// # Panics
    /// Where [`add_task_eager`](Self::add_task_eager) panics.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task_finally_eager(|| 1, |result| assert_eq!(result.unwrap(), 1));
    /// assert!(!manager.has_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn add_task_finally_eager<T: 'static>(
        &self,
        f: impl FnOnce() -> T + 'static,
        finally: impl FnOnce(std::thread::Result<T>) + 'static,
    ) {
        let core = self.core();
        task::add_finally(&core, Added::eager(TaskOptions::new()), f, finally);
    }

    /// Calls `f` on the thread's own, large stack; see
    /// [`run_in_main_context`](super::run_in_main_context).
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, ManagerHandle, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(|| {
    ///     let manager = ManagerHandle::current().unwrap();
    ///     assert!(manager.has_active_fiber());
    ///     assert!(!manager.run_in_main_context(|| manager.has_active_fiber()));
    /// });
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run_in_main_context<R>(&self, f: impl FnOnce() -> R) -> R {
        super::run_in_main_context(f)
    }

    /// Lets all other ready fibers run, and then lets the loop do its own work; see
    /// [`sinew::yield_now`](crate::yield_now).
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, ManagerHandle, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(|| ManagerHandle::current().unwrap().yield_now());
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn yield_now(&self) {
        crate::yield_now();
    }

    /// Runs ready fibers until none is left: first the fibers that are ready on this thread, then
    /// the fibers that other threads have made ready, then tasks from other threads. A fiber that
    /// yields is ready for the next call.
    ///
    /// It does not return while other threads bring work faster than it can run it. A sender of an
    /// endless stream of tasks has to bound how many are in progress.
    ///
    /// The [controller](LoopController) runs the manager in this way. Your own loop may call this
    /// too.
    ///
    /// # Panics
    /// If the manager is running already: the caller is in one of its fibers, in a call on the main
    /// context, or in an observer.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| ());
    /// manager.loop_until_no_ready();
    /// assert!(!manager.has_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn loop_until_no_ready(&self) {
        if let Some(core) = self.live() {
            core.run();
        }
    }

    /// Replaces the [panic callback](Options::panic_callback).
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.set_panic_callback(|_, place| eprintln!("a panic in {place}"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_panic_callback(&self, callback: impl Fn(&(dyn Any + Send), &str) + 'static) {
        let before =
            self.look(None, |core| core.panic_callback.borrow_mut().replace(Rc::new(callback)));
        drop(before);
    }

    /// Adds an observer of the manager's fibers.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Observer, Options, SimpleLoopController};
    /// use std::rc::Rc;
    ///
    /// struct Nobody;
    /// impl Observer for Nobody {}
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let observer: Rc<dyn Observer> = Rc::new(Nobody);
    /// manager.add_observer(observer.clone());
    /// manager.remove_observer(&observer);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn add_observer(&self, observer: Rc<dyn Observer>) {
        if let Some(core) = self.live() {
            core.add_observer(observer);
        }
    }

    /// Removes an observer. Observers are compared by their addresses.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Observer, Options, SimpleLoopController};
    /// use std::rc::Rc;
    ///
    /// struct Nobody;
    /// impl Observer for Nobody {}
    ///
    /// let observer: Rc<dyn Observer> = Rc::new(Nobody);
    /// let options = Options::new().observer(observer.clone());
    /// let manager = FiberManager::new(SimpleLoopController::new(), options)?;
    /// manager.remove_observer(&observer);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn remove_observer(&self, observer: &Rc<dyn Observer>) {
        if let Some(core) = self.live() {
            core.remove_observer(observer);
        }
    }

    /// Returns a handle for other threads. A task that is added with it after the end of the
    /// manager is dropped.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let remote = manager.remote();
    /// let thread = std::thread::spawn(move || remote.add_task_remote_future(|| 7).get());
    /// while !thread.is_finished() {
    ///     controller.run_once();
    /// }
    /// assert_eq!(thread.join().unwrap().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn remote(&self) -> RemoteHandle {
        RemoteHandle::new(self.shared.clone())
    }

    /// Calls `look` with the inside of the manager; returns `gone` if the manager has ended.
    pub(super) fn look<R>(&self, gone: R, look: impl FnOnce(&Core) -> R) -> R {
        self.live().map_or(gone, |core| look(&core))
    }

    /// Returns the manager, if it has not ended.
    fn live(&self) -> Option<Rc<Core>> {
        self.core.upgrade().filter(|core| !core.has_ended())
    }
}

impl Executor for ManagerHandle {
    fn execute(&self, f: Box<dyn FnOnce() + Send>) {
        self.add_task(f);
    }
}

impl Executor for FiberManager {
    fn execute(&self, f: Box<dyn FnOnce() + Send>) {
        self.add_task(f);
    }
}

impl PartialEq for ManagerHandle {
    fn eq(&self, other: &Self) -> bool {
        self.core.ptr_eq(&other.core)
    }
}

impl Eq for ManagerHandle {}

impl std::fmt::Debug for ManagerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.core.upgrade().map(|core| core.crew.settings.name.clone());
        f.debug_struct("ManagerHandle")
            .field("name", &name)
            .field("active_tasks", &self.active_tasks())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for FiberManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FiberManager").field(&self.handle).finish()
    }
}
