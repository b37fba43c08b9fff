//! A loop that runs one manager and nothing else.

use super::{LoopController, Runner, Until};
use core::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Runs one manager and nothing else: for tests, and for threads that have no loop.
///
/// While no fiber is ready, the loop sleeps until a deadline passes, a descriptor has an event, or
/// another thread wakes a fiber or adds a task. Clones share the loop.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController};
/// use std::time::Duration;
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// manager.add_task(|| sinew::sleep(Duration::from_millis(1)));
/// controller.run();
/// assert!(!manager.has_tasks());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct SimpleLoopController {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    runner: OnceCell<Runner>,
    stopped: Cell<bool>,
    deadline: Cell<Option<Instant>>,
}

impl SimpleLoopController {
    /// Makes a loop for one manager.
    ///
    /// # Examples
    /// ```
    /// let controller = sinew::manager::SimpleLoopController::new();
    /// assert!(!controller.is_scheduled());
    /// ```
    pub fn new() -> SimpleLoopController {
        SimpleLoopController::default()
    }

    #[track_caller]
    fn runner(&self) -> &Runner {
        match self.inner.runner.get() {
            Some(runner) => runner,
            None => panic!("this SimpleLoopController has no manager; make one with it first"),
        }
    }

    /// Runs the manager until it has no tasks, or [`stop`](Self::stop) is called.
    ///
    /// # Panics
    /// If no manager was made with this controller, or if the manager is running already.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(|| ());
    /// controller.run();
    /// assert!(!manager.has_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run(&self) {
        self.run_until(|| false);
    }

    /// Runs the manager until it has no tasks, `done` returns true, or [`stop`](Self::stop) is
    /// called. The loop calls `done` whenever no fiber is ready.
    ///
    /// # Panics
    /// Where [`run`](Self::run) panics.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let rounds = Rc::new(Cell::new(0));
    /// let theirs = rounds.clone();
    /// manager.add_task(move || loop {
    ///     theirs.set(theirs.get() + 1);
    ///     sinew::yield_now();
    /// });
    /// controller.run_until(|| rounds.get() == 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run_until(&self, mut done: impl FnMut() -> bool) {
        let inner = &*self.inner;
        while self.run_once() && !done() && !inner.stopped.get() {
            if !self.runner().is_scheduled() {
                let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
                self.runner().sleep(inner.deadline.get().map(left));
            }
        }
        inner.stopped.set(false);
    }

    /// Runs ready fibers without sleeping. Returns whether the manager still has tasks.
    ///
    /// # Panics
    /// Where [`run`](Self::run) panics.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(sinew::park);
    /// assert!(controller.run_once());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run_once(&self) -> bool {
        self.runner().run()
    }

    /// Makes [`run`](Self::run) return when no fiber is ready. If `run` is not in progress, the
    /// next `run` returns after its first round of ready fibers.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// let theirs = controller.clone();
    /// manager.add_task(move || {
    ///     theirs.stop();
    ///     sinew::park();
    /// });
    /// controller.run();
    /// assert!(manager.has_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stop(&self) {
        self.inner.stopped.set(true);
    }

    /// Returns whether the manager has asked to be run, and has not run since.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(|| ());
    /// assert!(controller.is_scheduled());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_scheduled(&self) -> bool {
        self.inner.runner.get().is_some_and(Runner::is_scheduled)
    }
}

impl LoopController for SimpleLoopController {
    #[track_caller]
    fn attach(&self, runner: Runner) {
        let set = self.inner.runner.set(runner);
        assert!(set.is_ok(), "this SimpleLoopController already has a manager; it runs only one");
    }

    /// Does nothing: the loop looks at `is_scheduled` before it sleeps.
    fn schedule(&self) {}

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.runner().waker()
    }

    fn idle(&self, until: Until) {
        // The loop sleeps in the driver, which watches the descriptors itself.
        self.inner.deadline.set(until.deadline);
    }
}

impl std::fmt::Debug for SimpleLoopController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimpleLoopController")
            .field("is_scheduled", &self.is_scheduled())
            .finish_non_exhaustive()
    }
}
