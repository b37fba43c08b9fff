//! Runtimes: groups of carriers that work together, how they start and how they end.
//!
//! # Environment
//!
//! An operator can make four settings through environment variables, without a new build:
//! `SINEW_CARRIERS` ([`Builder::carriers`]), `SINEW_STALLS` ([`Builder::report_stalls`]),
//! `SINEW_PINNED` ([`Builder::pinned_wait`]) and `SINEW_IO` ([`Builder::backend`]). A setting of
//! the program wins over its variable. An invalid value is an error of [`Builder::build`], and a
//! panic of [`run`] and of the default runtime. The message names the variable, its value, and the
//! allowed values. `docs/guide.md` has a table.

mod build;
mod builder;
mod default;
mod empty;
pub(crate) mod environment;
mod group;
mod hooks;
mod idle;
mod shutdown;

pub use crate::carrier::crew::PinnedWait;
pub use crate::reactor::Backend;
pub use builder::Builder;
pub use group::{Group, run_all};
pub use idle::{Idle, Waker};
pub use shutdown::Leftover;
pub(crate) use shutdown::cancel_all;

use crate::carrier::Crew;
use crate::carrier::current as here;
use crate::spawn::{self, JoinHandle};
use crate::sync::Event;
use core::time::Duration;
use std::sync::Arc;

/// A set of carriers that run fibers, and the right to end them.
///
/// Most programs need no runtime of their own: [`spawn`](crate::spawn()) starts the default
/// runtime, and [`run`] makes a runtime that lives as long as a closure. Dropping a runtime cancels
/// its fibers and waits for them, as [`shutdown_timeout`](Self::shutdown_timeout) does.
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
    handle: Handle,
    /// How long dropping the runtime waits.
    patience: Duration,
    shut_down: bool,
    /// Set when all carriers have ended.
    ended: Arc<Event>,
    /// Watcher threads, which look at the runtime from time to time and end with it.
    watchers: Vec<std::thread::Thread>,
}

/// A handle to a runtime, which does not keep the runtime going. Cloning it is cheap.
#[derive(Clone)]
pub struct Handle {
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
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Starts a fiber on this runtime, from any thread.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// assert_eq!(runtime.spawn(|| 7).join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.handle.spawn(f)
    }

    /// Runs `f` as a fiber of this runtime and waits for it. A panic of `f` goes on in the caller.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::new()?;
    /// let carrier = runtime.run(|| sinew::current_carrier());
    /// assert!(carrier.is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self.spawn(f).join() {
            Ok(result) => result,
            Err(payload) => crate::cancel::pass_on(payload),
        }
    }
}

impl Handle {
    pub(crate) fn new(crew: Arc<Crew>) -> Handle {
        Handle { crew }
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
    ///     let here = sinew::Handle::current();
    ///     assert!(here.carriers() >= 1);
    /// });
    /// ```
    #[track_caller]
    pub fn current() -> Handle {
        Handle::try_current().expect("Handle::current called outside of a fiber")
    }

    /// Returns the runtime of the running fiber, or `None` on a plain thread.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::Handle::try_current().is_none());
    /// sinew::run(|| assert!(sinew::Handle::try_current().is_some()));
    /// ```
    pub fn try_current() -> Option<Handle> {
        let (carrier, _) = here::fiber()?;
        // The carrier's thread, which this is, keeps its crew alive.
        Some(Handle { crew: carrier.crew_counted() })
    }

    /// Starts a fiber on this runtime, from any thread.
    ///
    /// If the runtime is shut down, the fiber ends without having begun, as if it was cancelled.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// let handle = runtime.handle().clone();
    /// drop(runtime);
    /// assert!(handle.spawn(|| 7).join().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: closure and result are `Send` and borrow nothing.
        unsafe { spawn::spawn_outside(&self.crew, f) }
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

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.crew, &other.crew)
    }
}

impl Eq for Handle {}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
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
    here::fiber().map(|(carrier, _)| carrier.index())
}

/// Makes a runtime, runs `f` as a fiber of it, and shuts it down. A panic of `f` goes on in the
/// caller.
///
/// Fibers that are left when `f` returns are cancelled. The calling thread waits and runs no fiber
/// itself.
///
/// # Panics
/// If the runtime cannot be made, because the process can get no more threads or descriptors, or an
/// [environment variable](crate::runtime#environment) has an invalid value. [`Builder::run`] takes
/// settings, and returns an error instead.
///
/// # Examples
/// ```
/// let sum = sinew::run(|| {
///     let fibers: Vec<_> = (1..=10).map(|n| sinew::spawn(move || n)).collect();
///     fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<i32>()
/// });
/// assert_eq!(sum, 55);
/// ```
#[track_caller]
pub fn run<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Runtime::new() {
        Ok(runtime) => runtime.run(f),
        Err(error) => panic!("cannot make a runtime: {error}"),
    }
}
