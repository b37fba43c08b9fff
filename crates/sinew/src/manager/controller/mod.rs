//! Controllers: the connection between a manager and the loop that runs it.
//!
//! [`LoopController`] is the interface that a manager calls, and [`Runner`] the one that a loop
//! calls. `README.md` of [`manager`](crate::manager) has the protocol between the two.

mod executor;
mod reactor;
mod simple;

pub use executor::{Executor, ExecutorLoopController};
pub use reactor::ReactorLoopController;
pub use simple::SimpleLoopController;

use super::ManagerHandle;
use super::core::{Core, Shared};
use crate::primitive::Ordering;
use core::time::Duration;
use std::os::fd::RawFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

/// The loop that runs a manager, as the manager sees it.
///
/// The manager calls all of these methods on its own thread, outside of fibers; only the function
/// that [`remote`](Self::remote) returns is called on any thread. A panic in one of the methods
/// goes to the caller of the manager.
///
/// [`ExecutorLoopController`] is enough for most loops: it needs only a way to have a closure
/// called on the loop's thread. A controller of your own can watch deadlines and descriptors in the
/// loop itself, without the extra thread.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, LoopController, Options, Rest, Runner};
/// use std::cell::OnceCell;
/// use std::rc::Rc;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// // A loop that does other work, and looks at a flag.
/// #[derive(Clone, Default)]
/// struct Polled {
///     wanted: Arc<AtomicBool>,
///     runner: Rc<OnceCell<Runner>>,
/// }
///
/// impl LoopController for Polled {
///     fn attach(&self, runner: Runner) {
///         let _ = self.runner.set(runner);
///     }
///     fn schedule(&self) {
///         self.wanted.store(true, Ordering::Release);
///     }
///     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
///         let wanted = self.wanted.clone();
///         Arc::new(move || wanted.store(true, Ordering::Release))
///     }
///     fn rest(&self, _: Rest) {} // this loop looks all the time
/// }
///
/// let polled = Polled::default();
/// let manager = FiberManager::new(polled.clone(), Options::new())?;
/// manager.add_task(|| println!("in a fiber"));
/// while manager.has_tasks() {
///     if polled.wanted.swap(false, Ordering::AcqRel) {
///         polled.runner.get().unwrap().run();
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait LoopController: 'static {
    /// Called once, with the [`Runner`] by which the loop runs the manager.
    fn attach(&self, runner: Runner);

    /// Called when there is something to run. The loop should call [`Runner::run`] soon, but not
    /// from within this method. The manager does not call this again until it was run.
    fn schedule(&self);

    /// Returns a function that does what [`schedule`](Self::schedule) does, and that may be called
    /// on any thread, including the manager's own.
    ///
    /// A waker calls the function in the middle of waking a fiber, as if on a plain thread. The
    /// function should be short, and must not wait.
    fn remote(&self) -> Arc<dyn Fn() + Send + Sync>;

    /// Called when nothing is ready. The loop should call [`Runner::run`] at the deadline, and when
    /// the descriptor is readable. Each call replaces the one before.
    ///
    /// The manager calls this after a run, and after an eager task that was added outside of one,
    /// even if nothing has changed; it may leave out an empty `rest` that follows an empty one. At
    /// its end it calls this with an empty `rest`. The descriptor stays open until then.
    fn rest(&self, rest: Rest);

    /// Called when the manager gets its first task, and when it has none left: the loop should go
    /// on while `busy` is true. A task from another thread counts from the run that takes it in.
    fn keep_alive(&self, busy: bool) {
        let _ = busy;
    }
}

/// A controller that the loop shares with the manager.
impl<C: LoopController + ?Sized> LoopController for Rc<C> {
    fn attach(&self, runner: Runner) {
        (**self).attach(runner);
    }

    fn schedule(&self) {
        (**self).schedule();
    }

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        (**self).remote()
    }

    fn rest(&self, rest: Rest) {
        (**self).rest(rest);
    }

    fn keep_alive(&self, busy: bool) {
        (**self).keep_alive(busy);
    }
}

/// The events that a manager waits for when no fiber is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Rest {
    /// When the manager is to be run again at the latest.
    pub deadline: Option<Instant>,
    /// The descriptor to watch, if fibers wait for descriptors.
    pub fd: Option<RawFd>,
}

/// Runs a manager, for its controller. Does nothing when the manager has ended.
#[derive(Clone)]
pub struct Runner {
    core: Weak<Core>,
    shared: Arc<Shared>,
}

impl Runner {
    pub(super) fn new(core: &Rc<Core>) -> Runner {
        Runner { core: Rc::downgrade(core), shared: core.shared.clone() }
    }

    /// Runs ready fibers until none is left. Returns whether the manager still has tasks.
    ///
    /// # Panics
    /// If the manager is running already: in one of its fibers, on the main context for one, or in
    /// an observer.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Rest, Runner};
    /// # use std::cell::OnceCell;
    /// # use std::rc::Rc;
    /// # use std::sync::Arc;
    /// #
    /// # struct Kept(Rc<OnceCell<Runner>>);
    /// #
    /// # impl LoopController for Kept {
    /// #     fn attach(&self, runner: Runner) {
    /// #         let _ = self.0.set(runner);
    /// #     }
    /// #     fn schedule(&self) {}
    /// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    /// #         Arc::new(|| ())
    /// #     }
    /// #     fn rest(&self, _: Rest) {}
    /// # }
    /// #
    /// # let runner = Rc::new(OnceCell::new());
    /// let manager = FiberManager::new(Kept(runner.clone()), Options::new())?;
    /// let runner = runner.get().unwrap();
    /// manager.add_task(|| ());
    /// assert!(!runner.run()); // no task is left
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run(&self) -> bool {
        let Some(core) = self.core.upgrade() else { return false };
        core.run();
        !core.has_ended() && core.has_tasks()
    }

    /// The unique number of the manager.
    fn number(&self) -> u64 {
        self.shared.crew.number.into()
    }

    /// Returns whether the manager has ended.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Rest, Runner};
    /// # use std::cell::OnceCell;
    /// # use std::rc::Rc;
    /// # use std::sync::Arc;
    /// #
    /// # struct Kept(Rc<OnceCell<Runner>>);
    /// #
    /// # impl LoopController for Kept {
    /// #     fn attach(&self, runner: Runner) {
    /// #         let _ = self.0.set(runner);
    /// #     }
    /// #     fn schedule(&self) {}
    /// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    /// #         Arc::new(|| ())
    /// #     }
    /// #     fn rest(&self, _: Rest) {}
    /// # }
    /// #
    /// # let runner = Rc::new(OnceCell::new());
    /// let manager = FiberManager::new(Kept(runner.clone()), Options::new())?;
    /// let runner = runner.get().unwrap();
    /// assert!(!runner.is_gone());
    /// drop(manager);
    /// assert!(runner.is_gone());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_gone(&self) -> bool {
        self.core.upgrade().is_none_or(|core| core.has_ended())
    }

    /// Returns a handle to the manager; `None` if the manager was dropped.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Rest, Runner};
    /// # use std::cell::OnceCell;
    /// # use std::rc::Rc;
    /// # use std::sync::Arc;
    /// #
    /// # struct Kept(Rc<OnceCell<Runner>>);
    /// #
    /// # impl LoopController for Kept {
    /// #     fn attach(&self, runner: Runner) {
    /// #         let _ = self.0.set(runner);
    /// #     }
    /// #     fn schedule(&self) {}
    /// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    /// #         Arc::new(|| ())
    /// #     }
    /// #     fn rest(&self, _: Rest) {}
    /// # }
    /// #
    /// # let runner = Rc::new(OnceCell::new());
    /// let manager = FiberManager::new(Kept(runner.clone()), Options::new())?;
    /// let runner = runner.get().unwrap();
    /// assert_eq!(runner.manager().as_ref(), Some(&*manager));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn manager(&self) -> Option<ManagerHandle> {
        self.core.upgrade().map(|core| ManagerHandle::new(&core))
    }

    /// Returns a closure that runs the manager. It may cross threads, but has to be called on the
    /// manager's thread.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Rest, Runner};
    /// # use std::cell::OnceCell;
    /// # use std::rc::Rc;
    /// # use std::sync::Arc;
    /// #
    /// # struct Kept(Rc<OnceCell<Runner>>);
    /// #
    /// # impl LoopController for Kept {
    /// #     fn attach(&self, runner: Runner) {
    /// #         let _ = self.0.set(runner);
    /// #     }
    /// #     fn schedule(&self) {}
    /// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    /// #         Arc::new(|| ())
    /// #     }
    /// #     fn rest(&self, _: Rest) {}
    /// # }
    /// #
    /// # let runner = Rc::new(OnceCell::new());
    /// let manager = FiberManager::new(Kept(runner.clone()), Options::new())?;
    /// let runner = runner.get().unwrap();
    /// manager.add_task(|| ());
    /// let posted = runner.posted(); // may go through other threads, and comes back
    /// posted();
    /// assert!(!manager.has_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn posted(&self) -> impl Fn() + Clone + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || {
            if !shared.open.load(Ordering::Acquire) {
                return;
            }
            shared.check_thread();
            if let Some(core) = Core::of_this_thread(shared.crew.number) {
                core.run_in_turn();
            }
        }
    }

    /// Returns a function that tells the controller that there is something to run, unless it was
    /// told already. A thread that watches deadlines and descriptors for the loop calls it.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Rest, Runner};
    /// # use std::cell::OnceCell;
    /// # use std::rc::Rc;
    /// # use std::sync::Arc;
    /// #
    /// # struct Kept(Rc<OnceCell<Runner>>);
    /// #
    /// # impl LoopController for Kept {
    /// #     fn attach(&self, runner: Runner) {
    /// #         let _ = self.0.set(runner);
    /// #     }
    /// #     fn schedule(&self) {}
    /// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    /// #         Arc::new(|| ())
    /// #     }
    /// #     fn rest(&self, _: Rest) {}
    /// # }
    /// #
    /// # let runner = Rc::new(OnceCell::new());
    /// let manager = FiberManager::new(Kept(runner.clone()), Options::new())?;
    /// let runner = runner.get().unwrap();
    /// # let _ = &manager;
    /// let scheduler = runner.scheduler();
    /// std::thread::spawn(move || scheduler()).join().unwrap(); // calls the function from `remote`
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scheduler(&self) -> Arc<dyn Fn() + Send + Sync> {
        let shared = self.shared.clone();
        Arc::new(move || shared.schedule())
    }

    /// Whether the controller was told that there is something to run, and has not run the manager
    /// since.
    fn is_scheduled(&self) -> bool {
        self.shared.scheduled.load(Ordering::Relaxed)
    }

    /// Whether the manager is running fibers, or telling its controller the state after such a run.
    pub(super) fn is_running(&self) -> bool {
        self.core.upgrade().is_some_and(|core| core.running.get())
    }

    /// Sleeps until there may be something to do: until `timeout` has passed, a descriptor that a
    /// fiber waits for has an event, or the function from [`waker`](Self::waker) is called.
    fn sleep(&self, timeout: Option<Duration>) {
        if let Some(core) = self.core.upgrade() {
            core.sleep(timeout);
        }
    }

    /// Returns a function that ends the present [`sleep`](Self::sleep), or the next one if none is
    /// in progress.
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let shared = self.shared.clone();
        Arc::new(move || shared.crew.carriers[0].ring_for_loop())
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner")
            .field("name", &self.shared.crew.settings.name)
            .finish_non_exhaustive()
    }
}
