//! Settings of a runtime.
//!
//! Next: `runtime::build`, which checks them and starts the carriers.

use super::PinnedWait;
use super::idle::Idle;
use crate::carrier::crew::IdleHook;
use crate::reactor::Backend;
use crate::signal::Signal;
use core::time::Duration;
use sinew_context::stack::DEFAULT_STACK_SIZE;
use std::sync::Arc;

/// The maximum number of carriers of a runtime: more than any machine has CPUs.
pub(super) const MOST_CARRIERS: usize = 4096;

/// Settings of a [`Runtime`](super::Runtime).
///
/// # Examples
/// ```
/// use sinew::runtime::{Builder, PinnedWait};
///
/// let runtime = Builder::new().carriers(2).pinned_wait(PinnedWait::Error).build()?;
/// assert_eq!(runtime.handle().carriers(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub struct Builder {
    pub(super) carriers: Option<usize>,
    pub(super) name: Arc<str>,
    pub(super) stack_size: usize,
    pub(super) max_stacks: Option<usize>,
    pub(super) guard_size: Option<usize>,
    pub(super) max_warm_stacks: Option<usize>,
    pub(super) stack_decay: Option<Duration>,
    pub(super) pinned_wait: Option<PinnedWait>,
    pub(super) idle_hook: Option<Box<IdleHook>>,
    pub(super) patience: Duration,
    pub(super) panic_hook: bool,
    pub(super) backend: Option<Backend>,
    pub(super) stalls: Option<Duration>,
    pub(super) deadlocks: Option<Duration>,
    pub(super) dump_on_signal: Option<Signal>,
    pub(super) dump_on_stall: bool,
    pub(super) dump_on_panic: bool,
    pub(super) measures: bool,
}

impl Builder {
    /// Creates the default settings.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::runtime::Builder::new().build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Builder {
        Builder {
            carriers: None,
            name: "sinew".into(),
            stack_size: DEFAULT_STACK_SIZE,
            max_stacks: None,
            guard_size: None,
            max_warm_stacks: None,
            stack_decay: None,
            pinned_wait: None,
            idle_hook: None,
            patience: Duration::from_secs(10),
            panic_hook: true,
            backend: None,
            stalls: None,
            deadlocks: None,
            dump_on_signal: None,
            dump_on_stall: false,
            dump_on_panic: false,
            measures: false,
        }
    }

    /// Sets the number of carriers, from 1 to 4096. If not set, the environment variable
    /// `SINEW_CARRIERS` decides; without it, there is one carrier for each CPU that the process may
    /// use.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(2).build()?;
    /// assert_eq!(runtime.handle().carriers(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn carriers(mut self, count: usize) -> Builder {
        self.carriers = Some(count);
        self
    }

    /// Sets the runtime's name. Its threads get the name with a number.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().name("web").build()?;
    /// assert_eq!(runtime.handle().name(), "web");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Builder {
        self.name = name.into();
        self
    }

    /// Sets the stack size in bytes of fibers whose own builder sets none: a multiple of the page
    /// size, at least 16 KiB. If not set, 256 KiB.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().stack_size(64 * 1024).build()?;
    /// assert_eq!(runtime.run(|| 7), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = bytes;
        self
    }

    /// Limits the number of stacks of each size. The limit is at least 1. It includes stacks that
    /// carriers keep for later: some dozens for each carrier. A fiber for which no stack is left
    /// does not begin, and its `join` returns an `Err` with an [`io::Error`](std::io::Error) as
    /// payload.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).max_stacks(1).build()?;
    /// runtime.run(|| {
    ///     // The stack of this fiber is the only one.
    ///     assert!(sinew::spawn(|| ()).join().is_err());
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_stacks(mut self, count: usize) -> Builder {
        self.max_stacks = Some(count);
        self
    }

    /// Sets the size in bytes of the guard below each stack, which faults on overflow: a multiple
    /// of the page size, at least 64 KiB. If not set, 64 KiB (1 MiB on riscv64). A function with a
    /// frame larger than the guard could step over it.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().guard_size(1 << 20).build()?;
    /// assert_eq!(runtime.run(|| 7), 7);
    /// assert!(sinew::Runtime::builder().guard_size(100).build().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn guard_size(mut self, bytes: usize) -> Builder {
        self.guard_size = Some(bytes);
        self
    }

    /// Limits how many free stacks of each size keep their memory. The memory of any further stack
    /// is given back as soon as its fiber ends. In addition, each carrier keeps one stack at hand.
    /// If not set, there is no limit, and only [decay](Self::stack_decay) gives memory back.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).max_warm_stacks(8).build()?;
    /// runtime.run(|| {
    ///     let fibers: Vec<_> = (0..100).map(|_| sinew::spawn(sinew::yield_now)).collect();
    ///     fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    /// });
    /// assert!(runtime.handle().metrics().stacks_warm <= 8);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_warm_stacks(mut self, count: usize) -> Builder {
        self.max_warm_stacks = Some(count);
        self
    }

    /// Sets how often the runtime gives back the memory of free stacks that no fiber needed since
    /// the last time. If not set, every second. The stacks of a burst of fibers are gone after two
    /// such intervals.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder().stack_decay(Duration::from_secs(60)).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_decay(mut self, interval: Duration) -> Builder {
        self.stack_decay = Some(interval);
        self
    }

    /// Sets the policy for a [pinned](crate::pinned) fiber that waits, or does work that blocks its
    /// carrier. If not set, the environment variable `SINEW_PINNED` (`warn`, `error` or `silent`)
    /// decides; without it, the wait is reported.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().pinned_wait(sinew::runtime::PinnedWait::Silent).build()?;
    /// runtime.run(|| sinew::pinned(|| sinew::sleep(std::time::Duration::from_millis(1))));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pinned_wait(mut self, policy: PinnedWait) -> Builder {
        self.pinned_wait = Some(policy);
        self
    }

    /// Calls `hook` whenever a carrier has nothing to run, instead of letting it sleep.
    ///
    /// The hook may block, for instance to wait for events that sinew does not know. It should
    /// return when [`Idle`] says so. A panic in the hook is reported.
    ///
    /// # Examples
    /// ```
    /// use sinew::Runtime;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let idle = Arc::new(AtomicU32::new(0));
    /// let count = idle.clone();
    /// let runtime = Runtime::builder()
    ///     .carriers(1)
    ///     .idle_hook(move |idle| {
    ///         count.fetch_add(1, Ordering::Relaxed);
    ///         idle.wait();
    ///     })
    ///     .build()?;
    /// runtime.run(|| sinew::sleep(std::time::Duration::from_millis(1)));
    /// assert!(idle.load(Ordering::Relaxed) > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn idle_hook(mut self, hook: impl Fn(&Idle<'_>) + Send + Sync + 'static) -> Builder {
        self.idle_hook = Some(Box::new(move |carrier, timeout| hook(&Idle::new(carrier, timeout))));
        self
    }

    /// Sets how long dropping the runtime waits for its fibers. If not set, ten seconds.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().shutdown_patience(std::time::Duration::from_secs(1)).build()?;
    /// runtime.spawn(sinew::park);
    /// drop(runtime); // cancels the fiber, and waits for it a second at most
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
        self
    }

    /// Sets whether panics in fibers are announced with the fiber's name. If not set, they are. The
    /// first runtime that wants this installs a panic hook around the existing one.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().panic_hook(false).build()?;
    /// assert_eq!(runtime.run(|| 7), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn panic_hook(mut self, wanted: bool) -> Builder {
        self.panic_hook = wanted;
        self
    }

    /// Sets how carriers wait for descriptors. If not set, the environment variable `SINEW_IO`
    /// (`epoll`, `uring`, `kqueue` or `poll`) decides; without it, the best backend of the system.
    /// A backend that cannot be created at run time, because the process has used up its
    /// descriptors, is replaced by `poll`.
    ///
    /// # Examples
    /// ```
    /// use sinew::runtime::Backend;
    ///
    /// let runtime = sinew::Runtime::builder().backend(Backend::Poll).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn backend(mut self, backend: Backend) -> Builder {
        self.backend = Some(backend);
        self
    }

    /// Reports, once, each fiber that keeps its carrier for longer than `threshold` without
    /// waiting, and each pinned fiber that blocks its carrier for as long. If not set, the
    /// environment variable `SINEW_STALLS` (such as `100ms`) decides; without it, nothing is
    /// reported.
    ///
    /// The [report hook](crate::set_report_hook) gets one line within twice the threshold: which
    /// fiber keeps which carrier, and for how long. A second line names the function that the fiber
    /// is in, if it is still there. In a large program with debug information, the first such line
    /// takes a second or two, because the tables have to be read.
    ///
    /// A watcher thread looks at the carriers four times in each `threshold`. To see where a
    /// running fiber is, it stops the carrier for some microseconds with the signal `SIGURG`. A
    /// system call that the fiber blocks in goes on after that, or fails with `Interrupted` if it
    /// has a timeout.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder().report_stalls(Duration::from_millis(100)).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn report_stalls(mut self, threshold: Duration) -> Builder {
        self.stalls = Some(threshold);
        self
    }

    /// Sets whether the runtime [measures](crate::RuntimeHandle::measure) how long fibers run at a
    /// time, and how long they wait for their turn after they were woken. If not set, it does not.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().measure(true).build()?;
    /// runtime.run(|| sinew::yield_now());
    /// assert!(runtime.handle().metrics().run_time.count() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn measure(mut self, measures: bool) -> Builder {
        self.measures = measures;
        self
    }

    /// Looks every `period` for fibers and threads that
    /// [wait for each other](crate::inspect::deadlocks), and checks whether
    /// [all are asleep](crate::inspect::all_asleep). Each finding goes once to the
    /// [report hook](crate::set_report_hook), with the functions that the waiters are in. Every ten
    /// periods, or more rarely if that takes long, it also looks for fibers that
    /// [wait for ever](crate::inspect::leaks) at channels and semaphores.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder().report_deadlocks(Duration::from_secs(1)).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn report_deadlocks(mut self, period: Duration) -> Builder {
        self.deadlocks = Some(period);
        self
    }

    /// [Dumps](crate::dump) all fibers to the [report hook](crate::set_report_hook) whenever the
    /// process gets this signal, for the rest of the process's life. Existing handlers of the
    /// signal stay installed.
    ///
    /// # Examples
    /// ```
    /// use sinew::signal::Signal;
    ///
    /// let runtime = sinew::Runtime::builder().dump_on_signal(Signal::QUIT).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dump_on_signal(mut self, signal: Signal) -> Builder {
        self.dump_on_signal = Some(signal);
        self
    }

    /// Sets whether all fibers are also dumped when a stall is [reported](Self::report_stalls).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let builder = sinew::Runtime::builder().report_stalls(Duration::from_secs(1));
    /// let runtime = builder.dump_on_stall(true).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dump_on_stall(mut self, wanted: bool) -> Builder {
        self.dump_on_stall = wanted;
        self
    }

    /// Sets whether all fibers are also dumped when a panic in a fiber of this runtime is
    /// announced.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().dump_on_panic(true).build()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dump_on_panic(mut self, wanted: bool) -> Builder {
        self.dump_on_panic = wanted;
        self
    }
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("carriers", &self.carriers)
            .field("name", &self.name)
            .field("stack_size", &self.stack_size)
            .finish_non_exhaustive()
    }
}
