//! Settings of a runtime, and its threads.

use super::idle::Idle;
use super::{Handle, PinnedWait, Runtime, hooks};
use crate::carrier::crew::{Crew, IdleHook, Settings};
use crate::carrier::{Carrier, run, thread};
use crate::reactor::{Backend, Reactor};
use crate::signal::Signal;
use core::time::Duration;
use sinew_context::stack::DEFAULT_STACK_SIZE;
use std::io;
use std::sync::Arc;
use std::thread::available_parallelism;

/// Settings of a [`Runtime`].
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
    carriers: Option<usize>,
    name: Arc<str>,
    stack_size: usize,
    max_stacks: Option<usize>,
    pinned_wait: PinnedWait,
    idle_hook: Option<Box<IdleHook>>,
    patience: Duration,
    panic_hook: bool,
    backend: Option<Backend>,
    stalls: Option<Duration>,
    deadlocks: Option<Duration>,
    dump_on_signal: Option<Signal>,
    dump_on_stall: bool,
    dump_on_panic: bool,
    measures: bool,
}

impl Builder {
    /// The settings of a runtime for which nothing is said.
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
            pinned_wait: PinnedWait::Warn,
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

    /// How many carriers: as many as CPUs that the process may use, if not set.
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

    /// The runtime's name, which its threads get with a number.
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

    /// Bytes of a fiber's stack, unless its own builder says otherwise: 256 KiB if not set. A
    /// multiple of the page, at least 16 KiB.
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

    /// How many stacks of one size there may be at a time, at least 1, counting those that the
    /// carriers keep for later (some dozens each). A fiber that would need one more does not begin:
    /// its `join` gives the [`io::Error`] as the payload.
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

    /// What happens when a [pinned](crate::pinned) fiber waits, or does work that blocks its carrier: a
    /// warning, if not set.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().pinned_wait(sinew::runtime::PinnedWait::Silent).build()?;
    /// runtime.run(|| sinew::pinned(|| sinew::sleep(std::time::Duration::from_millis(1))));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pinned_wait(mut self, policy: PinnedWait) -> Builder {
        self.pinned_wait = policy;
        self
    }

    /// Calls `hook` whenever a carrier has nothing to run, instead of sleeping.
    ///
    /// The hook may block, for instance to wait for events that sinew knows nothing of; it should
    /// return when [`Idle`] says. A panic in it is reported.
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

    /// How long dropping the runtime waits for its fibers: ten seconds, if not set.
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

    /// Whether panics in fibers are announced with the fiber's name, by a panic hook around the one
    /// that is installed: yes, if not set. The first runtime that wants it installs it.
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

    /// How carriers wait for descriptors: the environment variable `SINEW_IO` (`epoll`, `uring`,
    /// `kqueue` or `poll`) decides if not set, and else the best that there is. One that cannot be had at run
    /// time, because descriptors are used up, is replaced by `poll`.
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

    /// Reports, once, each fiber that keeps its carrier for longer than `threshold` without waiting, and each
    /// that is pinned and blocks its carrier for as long. Off if not set.
    ///
    /// The [report hook](crate::set_report_hook) gets one line within twice the threshold: which fiber keeps which
    /// carrier, and for how long. A second line names the function that the fiber is in, if it is still there. That
    /// line takes a second or two the first time in a large program with debug information, whose tables have to be
    /// read.
    ///
    /// A thread looks at the carriers four times in each `threshold`. To see where a fiber is that runs, it
    /// stops the carrier for some microseconds by the signal `SIGURG`. A call of the system in which the fiber
    /// blocks goes on after that, or fails with `Interrupted` if it has a timeout.
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

    /// Whether it is [measured](Handle::measure) how long fibers run at a time, and how long they wait for
    /// that when they were woken. It is not, if not set.
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

    /// Looks every `period` for fibers and threads that [wait for each other](crate::inspect::deadlocks), and
    /// whether [all are asleep](crate::inspect::all_asleep), and reports each once to the
    /// [report hook](crate::set_report_hook), with the functions that they are in. Every ten periods, or more
    /// rarely if that takes long, it looks for fibers that [wait for ever](crate::inspect::leaks) at
    /// channels that nobody else has.
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

    /// Has all fibers [dumped](crate::dump) to the [report hook](crate::set_report_hook) whenever the
    /// process gets this signal, from now on and as long as it lives. Handlers that others have stay.
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

    /// Has all fibers dumped as well when a stall is [reported](Self::report_stalls).
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

    /// Has all fibers dumped as well when a fiber of this runtime panics and its panic is announced.
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

    /// Makes the runtime and starts its threads.
    ///
    /// # Errors
    /// If a setting is out of range, or there are no threads or descriptors left.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::Runtime::builder().carriers(0).build().is_err());
    /// ```
    pub fn build(self) -> io::Result<Runtime> {
        let count = match self.carriers {
            Some(0) => return Err(invalid("a runtime needs at least 1 carrier, not 0".into())),
            Some(count) if count > MOST_CARRIERS => {
                return Err(invalid(format!(
                    "{count} carriers are more than the {MOST_CARRIERS} that a runtime can have"
                )));
            }
            Some(count) => count,
            // Knows the affinity mask and the quota of the control group.
            None => available_parallelism().map_or(1, usize::from).min(MOST_CARRIERS),
        };
        if self.max_stacks == Some(0) {
            return Err(invalid("without a stack no fiber can run: max_stacks(0)".into()));
        }
        if self.stalls == Some(Duration::ZERO) {
            let message = "every fiber keeps its carrier for longer than 0 ns: report_stalls(0)";
            return Err(invalid(message.into()));
        }
        if self.deadlocks == Some(Duration::ZERO) {
            let message = "looking all the time leaves none for fibers: report_deadlocks(0)";
            return Err(invalid(message.into()));
        }
        if self.name.contains('\0') {
            return Err(invalid(format!("the name {:?} has a zero byte in it", self.name)));
        }
        hooks::install(self.panic_hook);
        let settings = Settings {
            name: self.name,
            pinned_wait: self.pinned_wait,
            idle_hook: self.idle_hook,
            stack_size: self.stack_size,
            max_stacks: self.max_stacks,
            guard_size: None,
            dump_on_panic: self.dump_on_panic,
            embedded: false,
            measured: false,
        };
        let backend = match self.backend {
            Some(backend) if !backend.is_supported() => {
                return Err(invalid(format!("this platform has no {backend:?}")));
            }
            Some(backend) => backend,
            None => Backend::from_environment()?,
        };
        let crew = Crew::new(count, settings, |bell| Box::new(Reactor::new(backend, bell)))?;
        if self.measures {
            crew.observers.measure(true, count);
        }
        let mut runtime = Runtime {
            handle: Handle::new(crew.clone()),
            watchers: Vec::new(),
            patience: self.patience,
            shut_down: false,
        };
        for (started, carrier) in crew.carriers.iter().enumerate() {
            if let Err(error) = start(carrier, &crew) {
                // Those that run must end, and the rest never began.
                for _ in started..count {
                    crew.thread_ended();
                }
                drop(runtime);
                let message = format!(
                    "no thread for carrier {started} of {count}: {error}; see `ulimit -u`, or ask \
                     for fewer carriers"
                );
                return Err(io::Error::new(error.kind(), message));
            }
        }
        if let Some(threshold) = self.stalls {
            runtime.watchers.push(crate::inspect::watch_carriers(
                &crew,
                threshold,
                self.dump_on_stall,
            )?);
        }
        if let Some(period) = self.deadlocks {
            runtime.watchers.push(crate::inspect::watch_waits(&crew, period)?);
        }
        if let Some(signal) = self.dump_on_signal {
            crate::inspect::dump_on(signal)?;
        }
        Ok(runtime)
    }
}

/// More carriers than any machine has CPUs.
const MOST_CARRIERS: usize = 4096;

fn start(carrier: &'static Carrier, crew: &Arc<Crew>) -> io::Result<()> {
    let crew = crew.clone();
    let name = format!("{}-{}", crew.settings.name, carrier.index());
    thread::start(name, move || {
        // Tells the callers of a shutdown that this carrier is done. Its thread may stay for first-class fibers.
        struct Ended(Arc<Crew>);
        impl Drop for Ended {
            fn drop(&mut self) {
                self.0.thread_ended();
            }
        }
        let ended = Ended(crew.clone());
        run::run(carrier, crew);
        drop(ended);
    })?;
    Ok(())
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
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
