//! A loop that does nothing else.

use super::{LoopController, Rest, Runner};
use core::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Runs a manager and nothing else: for tests, and for threads that have no loop of their own.
///
/// Sleeps while no fiber is ready, until a deadline passes, something happens to a descriptor, or another thread
/// has something for it. Clones share the loop.
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
    /// A loop for one manager.
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
            None => panic!("a SimpleLoopController was run that no manager was made with"),
        }
    }

    /// Runs the manager until it has no tasks, or [`stop`](Self::stop) is called.
    ///
    /// # Panics
    /// If no manager was made with this, or in a fiber of it.
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

    /// Runs the manager until it has no tasks, `done` is true, or [`stop`](Self::stop) is called. `done` is asked
    /// whenever nothing is ready.
    ///
    /// # Panics
    /// As [`run`](Self::run).
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

    /// Runs what is ready, and does not sleep; true if there are tasks left.
    ///
    /// # Panics
    /// As [`run`](Self::run).
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

    /// Has [`run`](Self::run) return when it next has nothing ready, or at once if it is called later.
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

    /// Whether the manager has said that there is something to run.
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
        assert!(set.is_ok(), "a SimpleLoopController runs one manager, and has one already");
    }

    /// It looks whether it is scheduled before it sleeps.
    fn schedule(&self) {}

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.runner().waker()
    }

    fn rest(&self, rest: Rest) {
        // It sleeps where descriptors are watched.
        self.inner.deadline.set(rest.deadline);
    }
}

impl std::fmt::Debug for SimpleLoopController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimpleLoopController")
            .field("is_scheduled", &self.is_scheduled())
            .finish_non_exhaustive()
    }
}
