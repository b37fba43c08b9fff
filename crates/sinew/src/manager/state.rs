//! How far a task has come.

use crate::fiber::life::STARTED;
use crate::spawn::{Fiber, State};

/// How far a fiber of a manager has come.
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
/// The same, less finely, is [`State`]: what [`sinew::fibers`](crate::fibers) and dumps show.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TaskState {
    /// Has no task: it has ended.
    Invalid,
    /// Has been added, and has not run.
    NotStarted,
    /// Waited or yielded, and can go on.
    Ready,
    /// Is running.
    Running,
    /// Waits.
    Awaiting,
    /// Has interrupted itself for something on the main context, or for an eager task; goes on right after it.
    AwaitingImmediate,
    /// Lets everything else run.
    Yielded,
}

impl TaskState {
    /// The state of a fiber at this moment.
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
            State::Created => TaskState::NotStarted,
            State::Runnable if fiber.control().life.marks() & STARTED == 0 => TaskState::NotStarted,
            State::Runnable => TaskState::Ready,
            State::Running => TaskState::Running,
            State::Suspended => TaskState::Awaiting,
            State::Yielded => TaskState::Yielded,
            State::Interrupted => TaskState::AwaitingImmediate,
            State::Dead => TaskState::Invalid,
        }
    }
}
