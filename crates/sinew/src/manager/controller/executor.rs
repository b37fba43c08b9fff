//! A loop that is known by its executor only.

use super::{LoopController, Rest, Runner};
use crate::manager::alarm::Alarm;
use core::cell::OnceCell;
use std::sync::Arc;

/// Something that calls closures, some time: any function that takes one, or a manager.
///
/// # Examples
/// ```
/// use sinew::manager::Executor;
///
/// fn run_on(executor: &dyn Executor) {
///     executor.execute(Box::new(|| println!("called")));
/// }
/// run_on(&|f: Box<dyn FnOnce() + Send>| f());
/// ```
pub trait Executor {
    /// Has `f` called.
    fn execute(&self, f: Box<dyn FnOnce() + Send>);
}

impl<F: Fn(Box<dyn FnOnce() + Send>)> Executor for F {
    fn execute(&self, f: Box<dyn FnOnce() + Send>) {
        self(f);
    }
}

/// Posts a manager to an executor whenever it has something to run.
///
/// The executor has to call what is posted on the manager's thread, and not at once: the queue of a GUI, of a game,
/// or of an async runtime of one thread. Called on another thread, it panics there; called after the end of the
/// manager, it does nothing.
///
/// Deadlines, and descriptors that fibers wait for, are watched by one thread for all of these in the process.
///
/// # Examples
/// ```
/// use sinew::manager::{ExecutorLoopController, FiberManager, Options};
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let (sender, queue) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
/// let controller = ExecutorLoopController::new(move |f| drop(sender.send(f)));
/// let manager = FiberManager::new(controller, Options::new())?;
/// manager.add_task(|| sinew::sleep(Duration::from_millis(1)));
/// // The loop that is there anyhow.
/// while manager.has_tasks() {
///     queue.recv().unwrap()();
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ExecutorLoopController {
    executor: Arc<dyn Executor + Send + Sync>,
    attached: OnceCell<Attached>,
}

struct Attached {
    post: Arc<dyn Fn() + Send + Sync>,
    alarm: Alarm,
}

impl ExecutorLoopController {
    /// Posts to `executor`.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::ExecutorLoopController;
    /// use std::sync::mpsc;
    ///
    /// let (sender, queue) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    /// let controller = ExecutorLoopController::new(move |f| drop(sender.send(f)));
    /// # drop((controller, queue));
    /// ```
    pub fn new(executor: impl Executor + Send + Sync + 'static) -> ExecutorLoopController {
        ExecutorLoopController { executor: Arc::new(executor), attached: OnceCell::new() }
    }

    fn attached(&self) -> &Attached {
        self.attached.get().expect("a manager attaches its controller first")
    }
}

impl LoopController for ExecutorLoopController {
    fn attach(&self, runner: Runner) {
        let executor = self.executor.clone();
        let posted = runner.posted();
        let post: Arc<dyn Fn() + Send + Sync> =
            Arc::new(move || executor.execute(Box::new(posted.clone())));
        let alarm = Alarm::new(runner.scheduler());
        let _ = self.attached.set(Attached { post, alarm });
    }

    fn schedule(&self) {
        (self.attached().post)();
    }

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.attached().post.clone()
    }

    fn rest(&self, rest: Rest) {
        self.attached().alarm.set(rest);
    }
}

impl std::fmt::Debug for ExecutorLoopController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutorLoopController").finish_non_exhaustive()
    }
}
