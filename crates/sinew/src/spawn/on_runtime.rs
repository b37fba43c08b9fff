//! Fibers of a certain runtime: the methods of runtimes and their handles that start fibers.

use super::{JoinHandle, spawn_outside};
use crate::park::raise::pass_on;
use crate::runtime::{Builder, Runtime, RuntimeHandle};
use std::io;

impl Runtime {
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
        self.handle().spawn(f)
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
            Err(payload) => pass_on(payload),
        }
    }
}

impl RuntimeHandle {
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
        unsafe { spawn_outside(self.crew(), f) }
    }
}

impl Builder {
    /// Makes a runtime, runs `f` as a fiber of it, and shuts it down, as [`run`](crate::run) does
    /// with default settings. A panic of `f` goes on in the caller.
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    ///
    /// # Examples
    /// ```
    /// use sinew::runtime::PinnedWait;
    ///
    /// let strict = sinew::Runtime::builder().carriers(2).pinned_wait(PinnedWait::Error);
    /// let carriers = strict.run(|| sinew::RuntimeHandle::current().carriers())?;
    /// assert_eq!(carriers, 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run<F, T>(self, f: F) -> io::Result<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Ok(self.build()?.run(f))
    }
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
