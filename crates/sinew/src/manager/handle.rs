//! A manager, and the handle by which its own thread uses it.

use super::core::{Core, Shared};
use super::options::{Options, TaskOptions};
use super::remote::RemoteHandle;
use super::task::{self, Added};
use super::{Executor, LoopController, Observer, TaskFuture};
use crate::fiber::Control;
use crate::spawn::Fiber;
use core::any::Any;
use core::ops::Deref;
use core::time::Duration;
use std::io;
use std::os::fd::RawFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

/// Runs fibers on the thread that made it, inside a loop that another library owns.
///
/// A manager belongs to its thread. It derefs to [`ManagerHandle`], which has its methods;
/// [`remote`](ManagerHandle::remote) returns a handle for other threads.
///
/// Dropping the manager cancels the remaining fibers, and runs them on this thread until they have
/// ended. A drop in one of its own fibers, or on the main context for one, takes effect when the
/// loop returns.
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

/// A handle by which a manager's own thread uses it. The handle does not keep the manager alive:
/// after its end, adding a task panics, and there is nothing to run.
///
/// The handle stays on the manager's thread. [`remote`](Self::remote) returns one for other
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
    /// Makes a manager of the calling thread, which `controller` runs.
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
    /// The number of fibers that did not end. They are leaked, with their stacks. If one of them
    /// has started, their thread never ends either.
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
    /// fiber: the innermost if several do.
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
            None => panic!("a task was added to a manager that was dropped"),
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
    /// As [`add_task_eager`](Self::add_task_eager).
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
    /// As [`add_task_eager`](Self::add_task_eager).
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

    /// Lets all other ready fibers run, and then the loop do its own work; see
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

    /// Runs ready fibers until none is left: first the fibers that are ready, then those that other
    /// threads have made ready, then tasks from other threads. A fiber that yields is ready for the
    /// next call.
    ///
    /// It does not return while other threads bring work faster than it can run it. A sender of an
    /// endless stream of tasks has to bound how many are in progress.
    ///
    /// The [controller](LoopController) runs the manager in this way. Your own loop may call this
    /// too.
    ///
    /// # Panics
    /// If the manager is running already: in one of its fibers, on the main context for one, or in
    /// an observer.
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

    /// Returns whether a fiber of this manager runs; false on the main context.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// assert!(!manager.has_active_fiber());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_active_fiber(&self) -> bool {
        self.look(false, |core| core.is_inside())
    }

    /// Returns the running fiber of this manager; `None` on the main context.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, ManagerHandle, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// assert!(manager.active_fiber().is_none());
    /// manager.add_task(|| {
    ///     let manager = ManagerHandle::current().unwrap();
    ///     assert_eq!(manager.active_fiber(), Some(sinew::current()));
    /// });
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn active_fiber(&self) -> Option<Fiber> {
        self.look(None, |core| core.is_inside().then(|| fiber(core.carrier.current())))
    }

    /// Returns the fiber of this manager that runs, or for which the main context runs a call.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, ManagerHandle, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(|| {
    ///     let manager = ManagerHandle::current().unwrap();
    ///     let me = sinew::current();
    ///     sinew::manager::run_in_main_context(|| {
    ///         assert_eq!(manager.active_fiber(), None);
    ///         assert_eq!(manager.current_fiber(), Some(me));
    ///     });
    /// });
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn current_fiber(&self) -> Option<Fiber> {
        self.look(None, |core| {
            if core.is_inside() {
                return Some(fiber(core.carrier.current()));
            }
            let lender = core.carrier.lender();
            (!lender.is_null()).then(|| fiber(lender))
        })
    }

    /// Returns whether there are tasks that have not ended, ready or not.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| ());
    /// assert!(manager.has_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_tasks(&self) -> bool {
        self.look(false, |core| core.has_tasks())
    }

    /// Returns whether there are tasks that could run now.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(sinew::park);
    /// assert!(manager.has_ready_tasks());
    /// manager.loop_until_no_ready();
    /// assert!(manager.has_tasks() && !manager.has_ready_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_ready_tasks(&self) -> bool {
        self.look(false, |core| core.carrier.queued() > 0 || core.carrier.is_due())
    }

    /// Returns how many tasks have not ended.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| ());
    /// assert_eq!(manager.active_tasks(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn active_tasks(&self) -> usize {
        self.look(0, |core| core.live())
    }

    /// Returns how many stacks exist: the stacks of fibers that have started, and those that are
    /// kept for later.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| ());
    /// assert_eq!(manager.fibers_allocated(), 0); // it has not started
    /// manager.loop_until_no_ready();
    /// assert_eq!((manager.fibers_allocated(), manager.fibers_pool_size()), (1, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fibers_allocated(&self) -> usize {
        self.look(0, |core| core.crew.stacks_in_use())
    }

    /// Returns how many stacks are kept for later fibers.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// assert_eq!(manager.fibers_pool_size(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fibers_pool_size(&self) -> usize {
        self.look(0, |core| core.carrier.pooled())
    }

    /// Returns how many fibers are ready to run, including those that have yielded.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| ());
    /// manager.add_task(|| ());
    /// assert_eq!(manager.run_queue_size(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run_queue_size(&self) -> usize {
        self.look(0, |core| core.carrier.queued())
    }

    /// Returns the most bytes of stack that a measured task has used; see
    /// [`Options::record_stack_every`].
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new().record_stack_every(1))?;
    /// manager.add_task(|| ());
    /// manager.loop_until_no_ready();
    /// assert!(manager.stack_high_water_mark() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_high_water_mark(&self) -> usize {
        self.look(0, |core| core.high_water.get())
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

    /// Removes an observer, which is compared by its address.
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

    /// Returns when the loop should run the manager again even if nothing happens before: the next
    /// deadline of a fiber, or the next resize of the pool.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| sinew::sleep(std::time::Duration::from_secs(1)));
    /// manager.loop_until_no_ready();
    /// assert!(manager.next_deadline().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn next_deadline(&self) -> Option<Instant> {
        self.look(None, |core| core.next_deadline())
    }

    /// Returns a descriptor that is readable when a descriptor that a fiber waits for has an event.
    /// Your own loop watches it, and then calls [`loop_until_no_ready`](Self::loop_until_no_ready).
    ///
    /// The descriptor stays the same while the manager lives. `None` if the backend has none.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// assert!(manager.fd().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fd(&self) -> Option<RawFd> {
        self.look(None, |core| core.fd())
    }

    fn look<R>(&self, gone: R, look: impl FnOnce(&Core) -> R) -> R {
        self.live().map_or(gone, |core| look(&core))
    }

    /// Returns the manager, if it has not ended.
    fn live(&self) -> Option<Rc<Core>> {
        self.core.upgrade().filter(|core| !core.has_ended())
    }
}

/// Makes a handle to a fiber of this thread that has not ended.
fn fiber(control: *const Control) -> Fiber {
    // SAFETY: the fiber runs on this thread, or waits for a call that does, so its block is
    // occupied.
    Fiber::new(unsafe { &*control })
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
