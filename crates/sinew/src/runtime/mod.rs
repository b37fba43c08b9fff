//! Runtimes: groups of carriers that work together, how they start and how they end.
//!
//! # Environment
//!
//! An operator can make four settings through environment variables, without a new build:
//! `SINEW_CARRIERS` ([`Builder::carriers`]), `SINEW_STALLS` ([`Builder::report_stalls`]),
//! `SINEW_PINNED` ([`Builder::pinned_wait`]) and `SINEW_IO` ([`Builder::backend`]). A setting of
//! the program wins over its variable. An invalid value is an error of [`Builder::build`], and a
//! panic of [`run`](crate::run) and of the default runtime. The message names the variable, its
//! value, and the allowed values. `docs/guide.md` has a table.

mod build;
mod builder;
mod default;
mod empty;
pub(crate) mod environment;
mod hooks;
mod idle;
mod observe;
mod shutdown;

pub use crate::carrier::crew::PinnedWait;
pub use crate::reactor::Backend;
pub use builder::Builder;
pub use idle::{Idle, Waker};
pub use observe::all;
pub use shutdown::Leftover;
pub(crate) use shutdown::cancel_all;

use crate::carrier::Crew;
use crate::carrier::current;
use crate::sync::Event;
use core::time::Duration;
use std::sync::Arc;

/// A set of carriers that run fibers, and the right to end them.
///
/// Most programs need no runtime of their own: [`spawn`](crate::spawn()) starts the default
/// runtime, and [`run`](crate::run) makes a runtime that lives as long as a closure. Dropping a
/// runtime cancels its fibers and waits for them, as [`shutdown_timeout`](Self::shutdown_timeout)
/// does.
///
/// # Examples
/// ```
/// use sinew::Runtime;
///
/// let runtime = Runtime::builder().carriers(1).name("small").build()?;
/// assert_eq!(runtime.spawn(|| 7).join().unwrap(), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Runtime {
    handle: RuntimeHandle,
    /// How long dropping the runtime waits.
    patience: Duration,
    shut_down: bool,
    /// Set when all carriers have ended.
    ended: Arc<Event>,
    /// Watcher threads, which look at the runtime from time to time and end with it.
    watchers: Vec<std::thread::Thread>,
}

/// A handle to a runtime, which does not keep the runtime going. Cloning it is cheap.
///
/// # Examples
/// ```
/// let runtime = sinew::Runtime::builder().carriers(1).build()?;
/// let handle = runtime.handle().clone();
/// // A thread of the program starts fibers there.
/// let thread = std::thread::spawn(move || handle.spawn(|| 7).join().unwrap());
/// assert_eq!(thread.join().unwrap(), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct RuntimeHandle {
    crew: Arc<Crew>,
}

/// Installs the hooks that tell the process about fibers, once. For managers, which make carriers
/// without a `Runtime`.
pub(crate) fn install_hooks() {
    hooks::install(true);
}

impl Runtime {
    /// Creates the settings for a new runtime.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// assert_eq!(runtime.run(|| 7), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Makes a runtime with a carrier for each CPU that the process may use, unless
    /// `SINEW_CARRIERS` says otherwise.
    ///
    /// # Errors
    /// If an environment variable is invalid, or the process can get no more threads or
    /// descriptors.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::new()?;
    /// assert!(runtime.handle().carriers() >= 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> std::io::Result<Runtime> {
        Builder::new().build()
    }

    /// Returns a handle to this runtime.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// let handle = runtime.handle().clone();
    /// assert_eq!(handle.spawn(|| 7).join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn handle(&self) -> &RuntimeHandle {
        &self.handle
    }
}

impl RuntimeHandle {
    pub(crate) fn new(crew: Arc<Crew>) -> RuntimeHandle {
        RuntimeHandle { crew }
    }

    pub(crate) fn crew(&self) -> &Crew {
        &self.crew
    }

    pub(crate) fn crew_counted(&self) -> Arc<Crew> {
        self.crew.clone()
    }

    /// Returns the runtime of the running fiber.
    ///
    /// # Panics
    /// On a plain thread, which belongs to no runtime.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let here = sinew::RuntimeHandle::current();
    ///     assert!(here.carriers() >= 1);
    /// });
    /// ```
    #[track_caller]
    pub fn current() -> RuntimeHandle {
        RuntimeHandle::try_current().expect("RuntimeHandle::current called outside of a fiber")
    }

    /// Returns the runtime of the running fiber, or `None` on a plain thread.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::RuntimeHandle::try_current().is_none());
    /// sinew::run(|| assert!(sinew::RuntimeHandle::try_current().is_some()));
    /// ```
    pub fn try_current() -> Option<RuntimeHandle> {
        let (carrier, _) = current::fiber()?;
        // This is the carrier's thread, and it keeps the crew alive.
        Some(RuntimeHandle { crew: carrier.shared().crew_counted() })
    }

    /// Returns the runtime's name.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().name("small").build()?;
    /// assert_eq!(runtime.handle().name(), "small");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.crew.settings.name
    }

    /// Returns the number of the runtime's carriers.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(3).build()?;
    /// assert_eq!(runtime.handle().carriers(), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn carriers(&self) -> usize {
        self.crew.carriers.len()
    }
}

impl PartialEq for RuntimeHandle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.crew, &other.crew)
    }
}

impl Eq for RuntimeHandle {}

impl std::fmt::Debug for RuntimeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeHandle")
            .field("name", &self.name())
            .field("carriers", &self.carriers())
            .finish_non_exhaustive()
    }
}

/// Returns the number of the carrier that this code runs on, counted from zero; `None` on a plain
/// thread.
///
/// # Examples
/// ```
/// assert_eq!(sinew::current_carrier(), None);
/// sinew::run(|| assert!(sinew::current_carrier().is_some()));
/// ```
pub fn current_carrier() -> Option<usize> {
    current::fiber().map(|(carrier, _)| carrier.index())
}
