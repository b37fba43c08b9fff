//! Settings of a manager, and of one task.

use super::Observer;
use crate::runtime::PinnedWait;
use core::any::Any;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

/// A function that gets the payload of a panic, and the place of the panic.
pub(super) type PanicCallback = dyn Fn(&(dyn Any + Send), &str);

/// Settings of a [`FiberManager`](super::FiberManager).
///
/// # Examples
/// ```
/// use sinew::manager::Options;
///
/// let options = Options::new().name("ui").stack_size(64 * 1024).max_pooled(16);
/// # let _ = options;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Options {
    pub(super) name: Option<Arc<str>>,
    pub(super) stack_size: usize,
    pub(super) guard_pages: Option<usize>,
    pub(super) pinned_wait: Option<PinnedWait>,
    pub(super) max_pooled: usize,
    pub(super) pool_resize_period: Option<Duration>,
    pub(super) record_stack_every: usize,
    pub(super) log_running_time: bool,
    pub(super) panic_callback: Option<Rc<PanicCallback>>,
    pub(super) observers: Vec<Rc<dyn Observer>>,
}

/// The default of [`Options::max_pooled`].
const MAX_POOLED: usize = 1000;

impl Options {
    /// Returns the default settings: stacks of 256 KiB, of which up to 1,000 are kept for later
    /// fibers.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::Options;
    ///
    /// let options = Options::new();
    /// # let _ = options;
    /// ```
    pub fn new() -> Options {
        Options {
            name: None,
            stack_size: sinew_context::stack::DEFAULT_STACK_SIZE,
            guard_pages: None,
            pinned_wait: None,
            max_pooled: MAX_POOLED,
            pool_resize_period: None,
            record_stack_every: 0,
            log_running_time: false,
            panic_callback: None,
            observers: Vec::new(),
        }
    }

    /// Returns the settings that tell managers of one loop apart, as numbers.
    pub(super) fn numbers(&self) -> [u64; 8] {
        let period = self.pool_resize_period.map_or(0, |period| period.as_nanos() as u64);
        [
            self.stack_size as u64,
            self.guard_pages.map_or(0, |pages| pages as u64),
            self.guard_pages.is_some().into(),
            self.max_pooled as u64,
            period,
            self.record_stack_every as u64,
            self.log_running_time.into(),
            self.pinned_wait.map_or(0, |policy| 1 + policy as u64),
        ]
    }

    /// Sets the name under which dumps and reports show the manager. The default is `manager`.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new().name("ui"))?;
    /// manager.add_task(|| ());
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Options {
        self.name = Some(name.into());
        self
    }

    /// Sets the size of each fiber's stack in bytes: a multiple of the page size, at least 16 KiB.
    /// The default is 256 KiB.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new().stack_size(64 * 1024))?;
    /// manager.add_task(|| assert!(sinew::stack_remaining().unwrap() < 64 * 1024));
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Options {
        self.stack_size = bytes;
        self
    }

    /// Sets how many guard pages lie below each stack. A fiber that overflows its stack faults
    /// there. The guard pages always have at least 64 KiB together.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new().guard_pages(64))?;
    /// manager.add_task(|| ());
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn guard_pages(mut self, pages: usize) -> Options {
        self.guard_pages = Some(pages);
        self
    }

    /// Sets what happens when a [pinned](crate::pinned) fiber of the manager waits. Without this
    /// setting, the environment variable `SINEW_PINNED` (`warn`, `error` or `silent`) decides;
    /// without the variable, the wait is reported.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    /// use sinew::runtime::PinnedWait;
    ///
    /// let controller = SimpleLoopController::new();
    /// let options = Options::new().pinned_wait(PinnedWait::Error);
    /// let manager = FiberManager::new(controller.clone(), options)?;
    /// let task = manager.add_task_future(|| sinew::pinned(sinew::park));
    /// controller.run();
    /// assert!(task.get().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pinned_wait(mut self, policy: PinnedWait) -> Options {
        self.pinned_wait = Some(policy);
        self
    }

    /// Sets how many stacks of ended fibers are kept for later fibers. The default is 1,000.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new().max_pooled(2))?;
    /// (0..5).for_each(|_| manager.add_task(sinew::yield_now));
    /// controller.run();
    /// assert_eq!(manager.fibers_pool_size(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_pooled(mut self, count: usize) -> Options {
        self.max_pooled = count;
        self
    }

    /// Sets how often the manager gives back stacks that it did not need since the last time. Each
    /// time, it keeps [`max_pooled`](Self::max_pooled) stacks, needed or not. Between these times
    /// it keeps all stacks. If no period is set, it never keeps more than `max_pooled` stacks.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::Options;
    /// use std::time::Duration;
    ///
    /// let options = Options::new().max_pooled(8).pool_resize_period(Duration::from_secs(10));
    /// # let _ = options;
    /// ```
    pub fn pool_resize_period(mut self, period: impl Into<Option<Duration>>) -> Options {
        self.pool_resize_period = period.into();
        self
    }

    /// Measures the stack of every `tasks`-th task; see
    /// [`stack_high_water_mark`](super::ManagerHandle::stack_high_water_mark). By default, no stack
    /// is measured, because measuring fills the whole stack before the task begins.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new().record_stack_every(1))?;
    /// manager.add_task(|| ());
    /// controller.run();
    /// assert!(manager.stack_high_water_mark() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn record_stack_every(mut self, tasks: usize) -> Options {
        self.record_stack_every = tasks;
        self
    }

    /// Sets whether the [running time](super::current_task_running_time) of every task is measured.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, current_task_running_time};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new().log_running_time(true))?;
    /// manager.add_task(|| assert!(current_task_running_time().is_some()));
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn log_running_time(mut self, log: bool) -> Options {
        self.log_running_time = log;
        self
    }

    /// Sets the function that gets the payload of a task's panic, and a text that says where the
    /// panic happened. Without such a function, the [report hook](crate::set_report_hook) gets a
    /// report.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let options = Options::new().panic_callback(|_, place| assert_eq!(place, "a task"));
    /// let manager = FiberManager::new(controller.clone(), options)?;
    /// manager.add_task(|| panic!("on purpose"));
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn panic_callback(
        mut self,
        callback: impl Fn(&(dyn Any + Send), &str) + 'static,
    ) -> Options {
        self.panic_callback = Some(Rc::new(callback));
        self
    }

    /// Adds an observer of all fibers' starts, stops and wakes.
    ///
    /// # Examples
    /// ```
    /// use sinew::FiberId;
    /// use sinew::manager::{Observer, Options};
    /// use std::rc::Rc;
    ///
    /// struct Starts;
    ///
    /// impl Observer for Starts {
    ///     fn starting(&self, fiber: FiberId) {
    ///         println!("{fiber} runs");
    ///     }
    /// }
    ///
    /// let options = Options::new().observer(Rc::new(Starts));
    /// # let _ = options;
    /// ```
    pub fn observer(mut self, observer: Rc<dyn Observer>) -> Options {
        self.observers.push(observer);
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("name", &self.name)
            .field("stack_size", &self.stack_size)
            .field("guard_pages", &self.guard_pages)
            .field("max_pooled", &self.max_pooled)
            .field("pool_resize_period", &self.pool_resize_period)
            .field("record_stack_every", &self.record_stack_every)
            .finish_non_exhaustive()
    }
}

/// Settings of one task; see [`add_task_with`](super::ManagerHandle::add_task_with).
///
/// # Examples
/// ```
/// use sinew::manager::TaskOptions;
///
/// let options = TaskOptions::new().name("resize").log_running_time(true);
/// # let _ = options;
/// ```
#[derive(Clone, Default, Debug)]
#[must_use]
pub struct TaskOptions {
    pub(super) name: Option<Arc<str>>,
    pub(super) stack_size: Option<usize>,
    pub(super) log_running_time: bool,
}

impl TaskOptions {
    /// Returns options that change nothing: the settings of the manager apply.
    ///
    /// # Examples
    /// ```
    /// let options = sinew::manager::TaskOptions::new();
    /// # let _ = options;
    /// ```
    pub fn new() -> TaskOptions {
        TaskOptions::default()
    }

    /// Sets the name of the fiber, for dumps and reports.
    ///
    /// # Examples
    /// ```
    /// let options = sinew::manager::TaskOptions::new().name("resize");
    /// # let _ = options;
    /// ```
    pub fn name(mut self, name: impl Into<Arc<str>>) -> TaskOptions {
        self.name = Some(name.into());
        self
    }

    /// Sets the size of the task's stack in bytes. The default is the stack size of the manager.
    ///
    /// # Examples
    /// ```
    /// let options = sinew::manager::TaskOptions::new().stack_size(1 << 20);
    /// # let _ = options;
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> TaskOptions {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets whether the task's [running time](super::current_task_running_time) is measured.
    ///
    /// # Examples
    /// ```
    /// let options = sinew::manager::TaskOptions::new().log_running_time(true);
    /// # let _ = options;
    /// ```
    pub fn log_running_time(mut self, log: bool) -> TaskOptions {
        self.log_running_time = log;
        self
    }
}
