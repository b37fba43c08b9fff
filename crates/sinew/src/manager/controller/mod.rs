//! Controllers: the connection between a manager and the loop that runs it.
//!
//! A manager calls the loop through [`LoopController`]. A loop calls the manager through
//! [`Runner`]. `README.md` of [`manager`](crate::manager) has the protocol between the two.

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
/// The manager calls all of these methods on its own thread, outside of fibers. Only the function
/// that [`remote`](Self::remote) returns is called on any thread. A panic in one of the methods
/// unwinds into the code that called the manager.
///
/// [`ExecutorLoopController`] is enough for most loops: it needs only a way to have a closure
/// called on the loop's thread. For deadlines and descriptors it uses an extra thread. A controller
/// of your own can watch them in the loop itself.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, LoopController, Options, Until, Runner};
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
///     fn idle(&self, _: Until) {} // this loop looks all the time
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
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Runner, Until};
    /// # use std::cell::OnceCell;
    /// # use std::rc::Rc;
    /// # use std::sync::Arc;
    /// #
    /// struct Own {
    ///     runner: OnceCell<Runner>,
    /// }
    /// impl LoopController for Own {
    ///     fn attach(&self, runner: Runner) {
    ///         let _ = self.runner.set(runner); // the loop runs the manager by it
    ///     }
    ///     // and the other methods
    /// #     fn schedule(&self) {}
    /// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    /// #         Arc::new(|| ())
    /// #     }
    /// #     fn idle(&self, _: Until) {}
    /// }
    ///
    /// let own = Rc::new(Own { runner: OnceCell::new() });
    /// let manager = FiberManager::new(own.clone(), Options::new())?;
    /// manager.add_task(|| ());
    /// assert!(!own.runner.get().unwrap().run()); // no task is left
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn attach(&self, runner: Runner);

    /// Called when there is something to run. The loop should call [`Runner::run`] soon, but not
    /// from within this method. The manager does not call this method again until the loop has run
    /// it.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Runner, Until};
    /// # use std::cell::{Cell, OnceCell};
    /// # use std::rc::Rc;
    /// # use std::sync::Arc;
    /// #
    /// # #[derive(Default)]
    /// struct Own {
    ///     wanted: Cell<bool>,
    /// #     runner: OnceCell<Runner>,
    /// }
    /// impl LoopController for Own {
    ///     fn schedule(&self) {
    ///         self.wanted.set(true); // the loop looks at this flag at its next turn
    ///     }
    ///     // and the other methods
    /// #     fn attach(&self, runner: Runner) {
    /// #         let _ = self.runner.set(runner);
    /// #     }
    /// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    /// #         Arc::new(|| ())
    /// #     }
    /// #     fn idle(&self, _: Until) {}
    /// }
    ///
    /// # let own = Rc::new(Own::default());
    /// let manager = FiberManager::new(own.clone(), Options::new())?;
    /// assert!(!own.wanted.get());
    /// manager.add_task(|| ());
    /// assert!(own.wanted.get());
    /// # own.runner.get().unwrap().run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn schedule(&self);

    /// Returns a function that does what [`schedule`](Self::schedule) does, and that may be called
    /// on any thread, including the manager's own.
    ///
    /// A waker calls the function in the middle of waking a fiber, as if on a plain thread. The
    /// function should be short, and must not wait.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Runner, Until};
    /// # use std::cell::OnceCell;
    /// # use std::rc::Rc;
    /// # use std::sync::{Arc, mpsc};
    /// #
    /// struct Own {
    ///     sender: mpsc::Sender<()>, // to the loop's thread
    /// #     runner: OnceCell<Runner>,
    /// }
    /// impl LoopController for Own {
    ///     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    ///         let sender = self.sender.clone();
    ///         Arc::new(move || drop(sender.send(())))
    ///     }
    ///     // and the other methods
    /// #     fn attach(&self, runner: Runner) {
    /// #         let _ = self.runner.set(runner);
    /// #     }
    /// #     fn schedule(&self) {}
    /// #     fn idle(&self, _: Until) {}
    /// }
    ///
    /// let (sender, asked) = mpsc::channel();
    /// # let own = Rc::new(Own { sender, runner: OnceCell::new() });
    /// let manager = FiberManager::new(own.clone(), Options::new())?;
    /// let remote = manager.remote();
    /// let task = std::thread::spawn(move || remote.add_task_remote_future(|| 7)).join().unwrap();
    /// asked.recv().unwrap(); // the loop learns that it should run the manager
    /// own.runner.get().unwrap().run();
    /// assert_eq!(task.get().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn remote(&self) -> Arc<dyn Fn() + Send + Sync>;

    /// Called when nothing is ready. The loop should call [`Runner::run`] at the deadline, and when
    /// the descriptor is readable. Each call replaces the previous `until`.
    ///
    /// The manager calls this after a run, and after an eager task that was added outside of a run,
    /// even if nothing has changed; it may leave out an empty `until` that follows an empty one. At
    /// its end it calls this with an empty `until`. The descriptor stays open until then.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Runner, Until};
    /// # use std::cell::{Cell, OnceCell};
    /// # use std::rc::Rc;
    /// # use std::sync::Arc;
    /// # use std::time::{Duration, Instant};
    /// #
    /// # #[derive(Default)]
    /// struct Own {
    ///     until: Cell<Until>,
    /// #     runner: OnceCell<Runner>,
    /// }
    /// impl LoopController for Own {
    ///     fn idle(&self, until: Until) {
    ///         self.until.set(until); // replaces the previous deadline and descriptor
    ///     }
    ///     // and the other methods
    /// #     fn attach(&self, runner: Runner) {
    /// #         let _ = self.runner.set(runner);
    /// #     }
    /// #     fn schedule(&self) {}
    /// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    /// #         Arc::new(|| ())
    /// #     }
    /// }
    ///
    /// # let own = Rc::new(Own::default());
    /// let manager = FiberManager::new(own.clone(), Options::new())?;
    /// let before = Instant::now();
    /// manager.add_task(|| sinew::sleep(Duration::from_millis(20)));
    /// own.runner.get().unwrap().run();
    /// assert!(own.until.get().deadline.unwrap() >= before + Duration::from_millis(20));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn idle(&self, until: Until);

    /// Called with true when the manager gets its first task, and with false when it has no task
    /// left. The loop should go on while `busy` is true. A task from another thread counts from the
    /// run in which the manager takes it in.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Runner, Until};
    /// # use std::cell::{Cell, OnceCell};
    /// # use std::rc::Rc;
    /// # use std::sync::Arc;
    /// #
    /// # #[derive(Default)]
    /// struct Own {
    ///     busy: Cell<bool>,
    /// #     runner: OnceCell<Runner>,
    /// }
    /// impl LoopController for Own {
    ///     fn keep_alive(&self, busy: bool) {
    ///         self.busy.set(busy); // the loop ends when it has nothing to do and this is false
    ///     }
    ///     // and the other methods
    /// #     fn attach(&self, runner: Runner) {
    /// #         let _ = self.runner.set(runner);
    /// #     }
    /// #     fn schedule(&self) {}
    /// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
    /// #         Arc::new(|| ())
    /// #     }
    /// #     fn idle(&self, _: Until) {}
    /// }
    ///
    /// # let own = Rc::new(Own::default());
    /// let manager = FiberManager::new(own.clone(), Options::new())?;
    /// manager.add_task(|| ());
    /// assert!(own.busy.get());
    /// own.runner.get().unwrap().run();
    /// assert!(!own.busy.get());
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    fn idle(&self, until: Until) {
        (**self).idle(until);
    }

    fn keep_alive(&self, busy: bool) {
        (**self).keep_alive(busy);
    }
}

/// The events that a manager waits for when no fiber is ready.
///
/// # Examples
/// A loop that sleeps until the deadline:
/// ```
/// # use sinew::manager::{FiberManager, LoopController, Options, Runner, Until};
/// # use std::cell::{Cell, OnceCell};
/// # use std::rc::Rc;
/// # use std::sync::Arc;
/// # use std::time::{Duration, Instant};
/// #
/// # #[derive(Default)]
/// # struct Own {
/// #     until: Cell<Until>,
/// #     runner: OnceCell<Runner>,
/// # }
/// # impl LoopController for Own {
/// #     fn attach(&self, runner: Runner) {
/// #         let _ = self.runner.set(runner);
/// #     }
/// #     fn schedule(&self) {}
/// #     fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
/// #         Arc::new(|| ())
/// #     }
/// #     fn idle(&self, until: Until) {
/// #         self.until.set(until);
/// #     }
/// # }
/// #
/// # let own = Rc::new(Own::default());
/// # let manager = FiberManager::new(own.clone(), Options::new())?;
/// manager.add_task(|| sinew::sleep(Duration::from_millis(1)));
/// while own.runner.get().unwrap().run() {
///     let until: Until = own.until.get(); // the value that `idle` got last
///     assert_eq!(until.fd, None); // no fiber waits for a descriptor
///     let left = until.deadline.unwrap().saturating_duration_since(Instant::now());
///     std::thread::sleep(left);
/// }
/// assert!(!manager.has_tasks());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Until {
    /// When the manager is to be run again at the latest.
    pub deadline: Option<Instant>,
    /// The descriptor to watch, if fibers wait for descriptors.
    pub fd: Option<RawFd>,
}

/// Runs a manager, for its controller. Does nothing when the manager has ended.
///
/// # Examples
/// ```
/// # use sinew::manager::{FiberManager, LoopController, Options, Runner, Until};
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
/// #     fn idle(&self, _: Until) {}
/// # }
/// #
/// # let place = Rc::new(OnceCell::new());
/// # let manager = FiberManager::new(Kept(place.clone()), Options::new())?;
/// let runner: &Runner = place.get().unwrap(); // kept by the controller's `attach`
/// manager.add_task(sinew::yield_now);
/// assert!(runner.run()); // the fiber has yielded, and goes on in the next run
/// assert!(!runner.run());
/// drop(manager);
/// assert!(runner.is_gone() && !runner.run()); // does nothing
/// # Ok::<(), std::io::Error>(())
/// ```
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
    /// If the manager is running already: the caller is in one of its fibers, in a call on the main
    /// context, or in an observer.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Until, Runner};
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
    /// #     fn idle(&self, _: Until) {}
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

    /// Returns the unique number of the manager.
    fn number(&self) -> u64 {
        self.shared.crew.number.into()
    }

    /// Returns whether the manager has ended.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Until, Runner};
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
    /// #     fn idle(&self, _: Until) {}
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
    /// # use sinew::manager::{FiberManager, LoopController, Options, Until, Runner};
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
    /// #     fn idle(&self, _: Until) {}
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

    /// Returns a closure that runs the manager. The closure may cross threads, but it panics if it
    /// is called on any thread but the manager's own. After the end of the manager it does nothing.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{FiberManager, LoopController, Options, Until, Runner};
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
    /// #     fn idle(&self, _: Until) {}
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
    /// # use sinew::manager::{FiberManager, LoopController, Options, Until, Runner};
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
    /// #     fn idle(&self, _: Until) {}
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
