//! Runs fibers inside a loop that another library owns: an event loop, a GUI, a game, a test, or an
//! async runtime.
//!
//! A [`Runtime`](crate::Runtime) has threads of its own. A [`FiberManager`] runs its fibers on the
//! thread that made it, when that thread's loop calls it. It returns to the loop when no fiber can
//! go on. Its fibers are ordinary fibers: they spawn, wait, lock, sleep and read sockets. They
//! share locks and channels with fibers of runtimes and with threads. A fiber that they
//! [spawn](crate::spawn) is a task of the same manager.
//!
//! | the loop is | use |
//! | --- | --- |
//! | none yet | [`SimpleLoopController`], which runs one manager and nothing else |
//! | a queue of closures that the thread calls | [`ExecutorLoopController`], which posts the manager to the queue |
//! | an [`EventLoop`] | [`manager_for`], or a [`ReactorLoopController`] |
//! | your own | your own [`LoopController`] |
//!
//! Outside of its fibers the thread is a plain thread, the *main context*. A wait there blocks the
//! thread. A fiber calls a closure there, on the thread's large stack, with
//! [`run_in_main_context`].
//!
//! # Order
//!
//! Ready fibers run first, in the order in which they became ready. Then come fibers that other
//! threads have made ready, and then tasks from other threads, until nothing is ready. A fiber that
//! [yields](crate::yield_now) becomes ready again after all other fibers have run and the loop has
//! had a turn.
//!
//! # Examples
//! ```
//! use sinew::manager::{FiberManager, Options, SimpleLoopController};
//! use std::cell::RefCell;
//! use std::rc::Rc;
//!
//! let controller = SimpleLoopController::new();
//! let manager = FiberManager::new(controller.clone(), Options::new())?;
//! let notes = Rc::new(RefCell::new(Vec::new())); // tasks need not be `Send`
//! for name in ["first", "second"] {
//!     let notes = notes.clone();
//!     manager.add_task(move || {
//!         notes.borrow_mut().push(name);
//!         sinew::yield_now();
//!         notes.borrow_mut().push(name);
//!     });
//! }
//! controller.run();
//! assert_eq!(*notes.borrow(), ["first", "second", "first", "second"]);
//! # Ok::<(), std::io::Error>(())
//! ```

mod alarm;
mod cache;
mod controller;
mod core;
mod event_loop;
mod future;
mod handle;
mod main_context;
mod measure;
mod observer;
mod options;
mod promise;
mod remote;
mod state;
mod status;
mod task;
mod with_options;

pub use alarm::Alarm;
pub use cache::{Loop, manager_for, manager_for_local, manager_for_with, remote_for};
pub use controller::{
    Executor, ExecutorLoopController, LoopController, ReactorLoopController, Runner,
    SimpleLoopController, Until,
};
pub use event_loop::{EventLoop, KeepAlive, LoopRemote};
pub use future::TaskFuture;
pub use handle::{FiberManager, ManagerHandle};
pub use main_context::{on_fiber, run_in_main_context};
pub use measure::current_task_running_time;
pub use observer::Observer;
pub use options::{Options, TaskOptions};
pub use promise::{BrokenPromise, Promise, await_with};
pub use remote::RemoteHandle;
pub use state::TaskState;

/// Returns the manager that runs on this thread.
///
/// # Panics
/// If no manager runs on this thread.
#[track_caller]
fn here() -> ManagerHandle {
    match ManagerHandle::current() {
        Some(manager) => manager,
        None => panic!("no manager runs on this thread; add the task with a handle of the manager"),
    }
}

/// Adds a task to the manager that runs on this thread; see [`ManagerHandle::add_task`].
///
/// # Panics
/// If no manager runs on this thread.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController, add_task};
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// manager.add_task(|| add_task(|| println!("another")));
/// controller.run();
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn add_task(f: impl FnOnce() + 'static) {
    here().add_task(f);
}

/// Adds a task to the manager that runs on this thread, and returns a future of its result; see
/// [`ManagerHandle::add_task_future`].
///
/// # Panics
/// If no manager runs on this thread.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController, add_task_future};
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// manager.add_task(|| assert_eq!(add_task_future(|| 5).get().unwrap(), 5));
/// controller.run();
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn add_task_future<T: 'static>(f: impl FnOnce() -> T + 'static) -> TaskFuture<T> {
    here().add_task_future(f)
}

/// Adds an eager task to the manager that runs on this thread; see
/// [`ManagerHandle::add_task_eager`].
///
/// # Panics
/// If no manager runs on this thread, and where [`ManagerHandle::add_task_eager`] panics.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController, add_task_eager};
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// manager.add_task(|| add_task_eager(|| println!("before the other goes on")));
/// controller.run();
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn add_task_eager(f: impl FnOnce() + 'static) {
    here().add_task_eager(f);
}

/// Adds a task with a final closure to the manager that runs on this thread; see
/// [`ManagerHandle::add_task_finally`].
///
/// # Panics
/// If no manager runs on this thread.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController, add_task_finally};
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// manager.add_task(|| add_task_finally(|| 5, |result| assert_eq!(result.unwrap(), 5)));
/// controller.run();
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn add_task_finally<T: 'static>(
    f: impl FnOnce() -> T + 'static,
    finally: impl FnOnce(std::thread::Result<T>) + 'static,
) {
    here().add_task_finally(f, finally);
}
