//! What a thread holds of its manager.

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

/// Runs fibers on the thread that made it, inside somebody else's loop.
///
/// It belongs to its thread, and [`ManagerHandle`], which it derefs to, has what can be done with it there;
/// [`remote`](ManagerHandle::remote) is for other threads.
///
/// Dropping it cancels the fibers that are left and runs them until they have ended, on this thread; inside
/// of one of its fibers, or of something that runs on the main context, that is put off until the loop is left.
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
/// It stays on its thread:
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

/// A manager, as its own thread sees it. It does not keep the manager: after its end, adding a task is a
/// panic, and there is nothing to be run.
///
/// So do its handles; [`remote`](Self::remote) is for others:
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
    /// A manager of the calling thread, that `controller` runs.
    ///
    /// # Errors
    /// If there is no descriptor for what wakes it, or the options cannot be met.
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

    /// A handle of this thread's, which can be kept elsewhere.
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

    /// Ends the manager as dropping it does, but waits for its fibers for `timeout` only.
    ///
    /// # Errors
    /// If fibers are left: how many. They are leaked, with their stacks, and so is their thread when it ends.
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

    /// The manager whose fiber, or something of it on the main context, runs on this thread: the innermost.
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

    /// Adds a task: a fiber that runs when the loop comes to it, after those that are ready.
    ///
    /// Its panic goes to the [panic callback](Options::panic_callback).
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
    /// A task may outlive the caller, and borrows nothing:
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

    /// Adds a task with settings of its own.
    ///
    /// # Panics
    /// If there can be no stack of the size that the options say.
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

    /// Adds a task; the handle has its result.
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

    /// Runs a task before the caller goes on, until it first waits.
    ///
    /// In a fiber of this manager, that fiber goes on when the task waits or has ended, before any other.
    ///
    /// # Panics
    /// Where the running fiber of this manager may not be suspended: pinned, or in a hook.
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

    /// The same; the handle has its result.
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

    /// Adds a task; `finally` is called with its result, or with what it panicked with, on the main context.
    ///
    /// A panic of `finally` goes to the panic callback. If the task is ended before it began, or is cancelled,
    /// `finally` is called with that; not if the manager is dropped before the task began.
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

    /// The same, and runs the task before the caller goes on.
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

    /// Calls `f` on the stack of the thread, which is large; see [`run_in_main_context`](super::run_in_main_context).
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

    /// Lets everything else that is ready run, and the loop do its own work; as [`sinew::yield_now`](crate::yield_now).
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

    /// Runs what is ready, until nothing is: first fibers that are ready, then those that other threads have
    /// made ready, then tasks from other threads. What has yielded is ready for the next time.
    ///
    /// It goes on for as long as other threads bring more than it can run: who sends tasks without end bounds
    /// how many are under way.
    ///
    /// The [controller](LoopController) calls this; a loop of one's own may.
    ///
    /// # Panics
    /// Inside of itself: in a fiber of this manager, or on the main context for one.
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

    /// Whether a fiber of this manager runs; false on the main context.
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

    /// The fiber of this manager that runs; none on the main context.
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

    /// The fiber of this manager that runs, or has something run on the main context.
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

    /// Whether there are tasks that have not ended, ready or not.
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

    /// Whether there are tasks that could run now.
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

    /// How many tasks have not ended.
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

    /// Stacks that there are: those of fibers that have started, and those that are kept.
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

    /// Stacks that are kept for fibers to come.
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

    /// How many fibers are ready to run, those that have yielded among them.
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

    /// The most bytes of its stack that a task has used, of those that were measured; see
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

    /// Has `observer` told of what fibers do from here on.
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

    /// Has `observer` told no longer.
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

    /// A handle for other threads. After the end of the manager, tasks that are added with it are dropped.
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

    /// When the loop should be run again even if nothing happens before: the next deadline of a fiber.
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

    /// A descriptor that is readable when something has happened to those that fibers wait for: a loop of one's
    /// own watches it, and then calls [`loop_until_no_ready`](Self::loop_until_no_ready).
    ///
    /// It stays the same for as long as the manager lives. None if the backend has none.
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

    /// The manager, if it has not ended.
    fn live(&self) -> Option<Rc<Core>> {
        self.core.upgrade().filter(|core| !core.has_ended())
    }
}

/// A handle to a fiber of this thread that has not ended.
fn fiber(control: *const Control) -> Fiber {
    // SAFETY: it runs here, or waits for something that does.
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
