//! What connects a manager to a loop.

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

/// What runs a manager: somebody's loop, as the manager sees it.
///
/// All but what [`remote`](Self::remote) returns is called on the manager's thread, outside of fibers. A panic
/// of one of these goes to whoever has called the manager.
///
/// [`ExecutorLoopController`] is enough for most loops: it needs a way to have a closure called on the loop's
/// thread. One of one's own can do without the thread that tells it of deadlines and descriptors.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, LoopController, Options, Rest, Runner};
/// use std::cell::OnceCell;
/// use std::rc::Rc;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// // A loop that has other things to do, and looks at a flag.
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
    /// Called once, with what runs the manager.
    fn attach(&self, runner: Runner);

    /// There is something to run: the loop should call [`Runner::run`] soon, not from here. Called once, until it
    /// has.
    fn schedule(&self);

    /// The same as [`schedule`](Self::schedule), for any thread, also the manager's own.
    ///
    /// It is called in the middle of whatever wakes a fiber, as if on a thread that has none: it should be short, and
    /// wait for nothing.
    fn remote(&self) -> Arc<dyn Fn() + Send + Sync>;

    /// Nothing is ready: the loop should call [`Runner::run`] at the deadline, and when the descriptor is
    /// readable. Replaces what was said before.
    ///
    /// Told after every run, also if nothing has changed, after an eager task that was added outside of one, and at the
    /// end of the manager, with nothing to wait for. The descriptor stays open until then.
    fn rest(&self, rest: Rest);

    /// Whether there are tasks, so that the loop should go on. Told when that changes; a task from another thread counts
    /// from the run that takes it in.
    fn keep_alive(&self, busy: bool) {
        let _ = busy;
    }
}

/// A controller that is shared with the loop.
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

/// What a manager waits for when nothing is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Rest {
    /// When it is to be run again, if not before.
    pub deadline: Option<Instant>,
    /// What to watch, if fibers wait for descriptors.
    pub fd: Option<RawFd>,
}

/// Runs a manager, for its controller. Does nothing when the manager is gone.
#[derive(Clone)]
pub struct Runner {
    core: Weak<Core>,
    shared: Arc<Shared>,
}

impl Runner {
    pub(super) fn new(core: &Rc<Core>) -> Runner {
        Runner { core: Rc::downgrade(core), shared: core.shared.clone() }
    }

    /// Runs what is ready, until nothing is; true if there are tasks left.
    ///
    /// # Panics
    /// In a fiber of the manager.
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

    /// The number of the manager, which no other has.
    fn number(&self) -> u64 {
        self.shared.crew.number.into()
    }

    /// Whether the manager is gone.
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

    /// The manager.
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

    /// Runs the manager, sent to its thread in a closure that may cross threads.
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
    /// let posted = runner.posted(); // goes wherever closures go, and comes back
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

    /// Tells the controller that there is something to run, unless it knows: for what watches deadlines and
    /// descriptors on another thread.
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
    /// std::thread::spawn(move || scheduler()).join().unwrap(); // calls what `remote` gave
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn scheduler(&self) -> Arc<dyn Fn() + Send + Sync> {
        let shared = self.shared.clone();
        Arc::new(move || shared.schedule())
    }

    /// Whether the controller was told that there is something to run, and has not run it since.
    fn is_scheduled(&self) -> bool {
        self.shared.scheduled.load(Ordering::Relaxed)
    }

    /// Whether the manager runs what is ready, or tells its controller how things are after that.
    pub(super) fn is_running(&self) -> bool {
        self.core.upgrade().is_some_and(|core| core.running.get())
    }

    /// Sleeps until there may be something to do: until `timeout` is over, something happens to a descriptor that a
    /// fiber waits for, or [`waker`](Self::waker) is called.
    fn sleep(&self, timeout: Option<Duration>) {
        if let Some(core) = self.core.upgrade() {
            core.sleep(timeout);
        }
    }

    /// Ends a [`sleep`](Self::sleep), now or the next one.
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
