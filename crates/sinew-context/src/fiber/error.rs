//! The error of making a fiber.

use crate::stack::Stack;
use core::fmt;
use std::io;

/// A fiber could not be made. Gives back the stack and the closure.
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

    /// The reason why no fiber was made.
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// Gives back the stack and the closure, to try again.
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
