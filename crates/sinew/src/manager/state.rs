//! The states of a task.

use crate::fiber::life::STARTED;
use crate::spawn::{Fiber, State};

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
/// [`State`] is a coarser view of it, which [`sinew::fibers`](crate::fibers) and dumps show.
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
