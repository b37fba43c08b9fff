//! Fibers that are cancelled together with a token.

use super::{JoinHandle, scope, spawn};
use crate::fiber::{Fiber, is_cancel};
use crate::fiber::{FiberRef, Flags};
use crate::park::raise::pass_on;
use crate::sync::CancellationToken;

impl CancellationToken {
    /// Cancels `fiber` when this token is cancelled, or at once if it already is. Does nothing to a
    /// plain thread.
    ///
    /// # Examples
    /// ```
    /// let token = sinew::sync::CancellationToken::new();
    /// let fiber = sinew::spawn(sinew::park);
    /// token.attach(&fiber.fiber());
    /// token.cancel();
    /// assert!(fiber.join().is_err());
    /// ```
    pub fn attach(&self, fiber: &Fiber) {
        let control = fiber.control();
        if !control.flags().has(Flags::PROXY) {
            self.attach_fiber(FiberRef::new(control));
        }
    }

    /// Starts a fiber that is cancelled when this token is cancelled; see
    /// [`spawn`](crate::spawn()).
    ///
    /// # Examples
    /// ```
    /// let token = sinew::sync::CancellationToken::new();
    /// let fiber = token.spawn(sinew::park);
    /// token.cancel();
    /// assert!(fiber.join().is_err());
    /// ```
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let fiber = spawn(f);
        self.attach_fiber(FiberRef::new(fiber.control()));
        fiber
    }

    /// Runs `f` until it ends or the token is cancelled. Returns `None` if the cancellation unwound
    /// `f`.
    ///
    /// `f` runs in a fiber of its own, and may borrow. A panic of `f` goes on in the caller.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::CancellationToken;
    ///
    /// let token = CancellationToken::new();
    /// assert_eq!(token.run(|| 7), Some(7));
    /// sinew::scope(|s| {
    ///     s.spawn(|| token.cancel());
    ///     assert_eq!(token.run(sinew::park), None);
    /// });
    /// ```
    #[track_caller]
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> Option<R> {
        scope(|s| {
            let child = s.spawn(f);
            self.attach(&child.fiber());
            match child.join() {
                Ok(result) => Some(result),
                Err(payload) if is_cancel(&*payload) && self.is_cancelled() => None,
                Err(payload) => pass_on(payload),
            }
        })
    }
}
