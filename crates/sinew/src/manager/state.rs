//! The states of a task.

use crate::fiber::life::STARTED;
use crate::fiber::{Fiber, FiberState};

/// The state of a fiber of a manager.
///
/// ```text
///                        (4) yield_now           (7) all others have run
///                      .------------> Yielded ------------.
///                      |                                  v
/// Invalid --> NotStarted --> Running --> Awaiting ----> Ready
///   ^    (1)           (2)   |   ^  (5)            (8)   |  ^
///   '------------------------'   '-----------------------'  |
///         (3) its end        |            (10)              |
///                            '--> AwaitingImmediate --------'
///                             (6) main context        (9)
/// ```
///
/// Arrows without words: (1) the task is added, (2) its fiber begins, (5) the fiber waits, (8) the
/// fiber is woken, (9) the call has returned or the eager task has stopped, (10) the fiber goes on.
/// [`sinew::fibers`](crate::fibers) and dumps show the [`FiberState`] instead, in which a task that
/// has not started looks like any other runnable fiber.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskState};
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// let task = manager.add_task_future(|| TaskState::of(&sinew::current()));
/// let fiber = task.fiber();
/// controller.run();
/// assert_eq!(task.get().unwrap(), TaskState::Running);
/// assert_eq!(TaskState::of(&fiber), TaskState::Invalid); // has ended
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TaskState {
    /// The fiber has ended, and has no task.
    Invalid,
    /// The task was added, and has not run.
    NotStarted,
    /// The fiber has waited or yielded, and can go on.
    Ready,
    /// The fiber is running.
    Running,
    /// The fiber waits.
    Awaiting,
    /// The fiber has interrupted itself for a call on the main context or for an eager task, and
    /// goes on right after it.
    AwaitingImmediate,
    /// The fiber has yielded to all others.
    Yielded,
}

impl TaskState {
    /// Returns the state of a fiber at this moment.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskState};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// let task = manager.add_task_future(|| sinew::sleep(std::time::Duration::from_millis(1)));
    /// let fiber = task.fiber();
    /// assert_eq!(TaskState::of(&fiber), TaskState::NotStarted);
    /// manager.loop_until_no_ready();
    /// assert_eq!(TaskState::of(&fiber), TaskState::Awaiting);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of(fiber: &Fiber) -> TaskState {
        match fiber.state() {
            FiberState::Created => TaskState::NotStarted,
            FiberState::Runnable if fiber.control().life.marks() & STARTED == 0 => {
                TaskState::NotStarted
            }
            FiberState::Runnable => TaskState::Ready,
            FiberState::Running => TaskState::Running,
            FiberState::Suspended => TaskState::Awaiting,
            FiberState::Yielded => TaskState::Yielded,
            FiberState::Interrupted => TaskState::AwaitingImmediate,
            FiberState::Dead => TaskState::Invalid,
        }
    }
}
