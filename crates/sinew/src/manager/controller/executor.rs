//! A controller for a loop that can only be asked to call a closure.

use super::{LoopController, Runner, Until};
use crate::manager::alarm::Alarm;
use core::cell::OnceCell;
use std::sync::Arc;

/// Calls closures, usually later. Functions that take a boxed closure implement this trait, and so
/// do managers and their handles.
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
    /// Calls `f`, now or later.
    ///
    /// # Examples
    /// A queue that its owner works off:
    /// ```
    /// use sinew::manager::Executor;
    /// use std::sync::Mutex;
    ///
    /// #[derive(Default)]
    /// struct Queue(Mutex<Vec<Box<dyn FnOnce() + Send>>>);
    /// impl Executor for Queue {
    ///     fn execute(&self, f: Box<dyn FnOnce() + Send>) {
    ///         self.0.lock().unwrap().push(f); // called later
    ///     }
    /// }
    ///
    /// let queue = Queue::default();
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// queue.execute(Box::new(move || sender.send(7).unwrap()));
    /// assert!(receiver.try_recv().is_err());
    /// queue.0.into_inner().unwrap().into_iter().for_each(|f| f());
    /// assert_eq!(receiver.recv(), Ok(7));
    /// ```
    fn execute(&self, f: Box<dyn FnOnce() + Send>);
}

impl<F: Fn(Box<dyn FnOnce() + Send>)> Executor for F {
    fn execute(&self, f: Box<dyn FnOnce() + Send>) {
        self(f);
    }
}

/// Posts a manager to an executor whenever the manager has something to run.
///
/// The executor has to call the posted closure on the manager's thread, after
/// [`execute`](Executor::execute) has returned. The queue of a GUI, of a game, or of a
/// single-threaded async runtime does so. The closure panics if it is called on another thread, and
/// does nothing after the end of the manager.
///
/// One thread watches the fibers' deadlines and descriptors, for all controllers of this type in
/// the process.
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
/// // The loop of the program.
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
    /// Makes a controller that posts to `executor`.
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
        self.attached.get().expect("the manager has attached its controller")
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

    fn idle(&self, until: Until) {
        self.attached().alarm.set(until);
    }
}

impl std::fmt::Debug for ExecutorLoopController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutorLoopController").finish_non_exhaustive()
    }
}
