//! Waits for a value that a callback delivers.

use crate::sync::channel::{OneshotSender, oneshot};
use sinew_context::catch_panic;
use std::fmt;
use std::panic::AssertUnwindSafe;

/// The duty to deliver a value to a caller of [`await_with`]. Dropping it without a value breaks
/// the promise.
///
/// # Examples
/// ```
/// use sinew::manager::{BrokenPromise, Promise, await_with};
///
/// /// Reads a number; keeps the promise only if there is one.
/// fn parse(text: &str, promise: Promise<u32>) {
///     if let Ok(number) = text.parse() {
///         promise.set(number);
///     }
/// }
///
/// assert_eq!(await_with(|promise| parse("7", promise)), Ok(7));
/// assert_eq!(await_with(|promise| parse("seven", promise)), Err(BrokenPromise));
/// ```
#[derive(Debug)]
pub struct Promise<T>(OneshotSender<Result<T, Payload>>);

type Payload = Box<dyn core::any::Any + Send>;

/// The [`Promise`] was dropped without a value.
///
/// # Examples
/// ```
/// use sinew::manager::{BrokenPromise, await_with};
///
/// let result = await_with::<u32>(|promise| drop(promise));
/// assert_eq!(result, Err(BrokenPromise));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrokenPromise;

impl fmt::Display for BrokenPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a promise was dropped without a value")
    }
}

impl std::error::Error for BrokenPromise {}

impl<T> Promise<T> {
    /// Delivers the value, from any thread. If the waiter is gone, the value is dropped.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::await_with;
    ///
    /// assert_eq!(await_with(|promise| promise.set(5)), Ok(5));
    /// ```
    pub fn set(self, value: T) {
        let _ = self.0.send(Ok(value));
    }

    /// Delivers the result of `f`. If `f` panics, the panic goes on in the waiter.
    ///
    /// If `f` runs in a first-class fiber that is dropped meanwhile, the fiber is unwound and the
    /// promise is broken.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::await_with;
    ///
    /// assert_eq!(await_with(|promise| promise.set_with(|| 2 + 3)), Ok(5));
    /// ```
    pub fn set_with(self, f: impl FnOnce() -> T) {
        let _ = self.0.send(catch_panic(AssertUnwindSafe(f)));
    }
}

/// Calls `f` with a [`Promise`], and waits for the value that is delivered through it.
///
/// In a fiber of a manager, `f` runs on the main context. On a plain thread, the wait blocks the
/// thread.
///
/// # Errors
/// Returns [`BrokenPromise`] if the promise was dropped without a value.
///
/// # Examples
/// ```
/// use sinew::manager::{BrokenPromise, await_with};
///
/// // An interface that calls back on another thread.
/// fn request(done: impl FnOnce(u32) + Send + 'static) {
///     std::thread::spawn(move || done(7));
/// }
///
/// sinew::run(|| {
///     assert_eq!(await_with(|promise| request(move |value| promise.set(value))), Ok(7));
///     assert_eq!(await_with::<u32>(drop), Err(BrokenPromise));
/// });
/// ```
#[track_caller]
pub fn await_with<T: Send + 'static>(f: impl FnOnce(Promise<T>)) -> Result<T, BrokenPromise> {
    let (sender, receiver) = oneshot();
    super::run_in_main_context(|| f(Promise(sender)));
    match receiver.recv() {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(payload)) => crate::park::raise::pass_on(payload),
        Err(_) => Err(BrokenPromise),
    }
}
