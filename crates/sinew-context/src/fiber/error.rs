//! The error of making a fiber.

use crate::stack::Stack;
use core::fmt;
use std::io;

/// The error of [`FiberContext::on_stack`](crate::FiberContext::on_stack): no fiber was made. Gives
/// back the stack and the closure.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack::{ProtectedFixedSize, StackAllocator}};
///
/// let stack = ProtectedFixedSize::new(64 * 1024)?.allocate()?;
/// let large = [7_u8; 100_000];
/// let error = FiberContext::on_stack(stack, move |caller| {
///     assert_eq!(large[0], 7);
///     caller
/// });
/// let text = error.unwrap_err().to_string();
/// assert!(text.starts_with("cannot make a fiber: the closure has 100000 bytes"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct CreateError<F> {
    error: io::Error,
    stack: Stack,
    closure: F,
}

impl<F> CreateError<F> {
    pub(crate) fn new(error: io::Error, stack: Stack, closure: F) -> Self {
        CreateError { error, stack, closure }
    }

    pub(super) fn map<G>(self, f: impl FnOnce(F) -> G) -> CreateError<G> {
        CreateError { error: self.error, stack: self.stack, closure: f(self.closure) }
    }

    /// Returns the reason why no fiber was made.
    ///
    /// # Examples
    /// ```
    /// # use sinew_context::{FiberContext, stack::{ProtectedFixedSize, StackAllocator}};
    /// # let stack = ProtectedFixedSize::new(64 * 1024)?.allocate()?;
    /// # let large = [7_u8; 100_000];
    /// # let f = move |caller| {
    /// #     assert_eq!(large[0], 7);
    /// #     caller
    /// # };
    /// // `f` captures 100,000 bytes, and the stack has 64 KiB.
    /// let error = FiberContext::on_stack(stack, f).unwrap_err();
    /// assert_eq!(error.error().kind(), std::io::ErrorKind::InvalidInput);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// Gives back the stack and the closure, to try again.
    ///
    /// # Examples
    /// ```
    /// # use sinew_context::{FiberContext, stack::{ProtectedFixedSize, StackAllocator}};
    /// # let stack = ProtectedFixedSize::new(64 * 1024)?.allocate()?;
    /// # let large = [7_u8; 100_000];
    /// # let f = move |caller| {
    /// #     assert_eq!(large[0], 7);
    /// #     caller
    /// # };
    /// // `f` captures 100,000 bytes, and the stack has 64 KiB.
    /// let (small, f) = FiberContext::on_stack(stack, f).unwrap_err().into_parts();
    /// assert_eq!(small.size(), 64 * 1024);
    /// let roomy = ProtectedFixedSize::new(2 * 1024 * 1024)?.allocate()?;
    /// assert!(FiberContext::on_stack(roomy, f)?.resume().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_parts(self) -> (Stack, F) {
        (self.stack, self.closure)
    }
}

impl<F> fmt::Debug for CreateError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<F> fmt::Display for CreateError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot make a fiber: {}", self.error)
    }
}

impl<F> std::error::Error for CreateError<F> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<F> From<CreateError<F>> for io::Error {
    fn from(error: CreateError<F>) -> io::Error {
        error.error
    }
}
