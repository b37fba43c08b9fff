//! What a fiber can be started by.

use super::{Async, PipeReader};
use crate::reactor::Source;

/// Something that becomes readable, for [`spawn_when_readable`](crate::spawn_when_readable): the
/// sockets of [`net`](crate::net), a [`PipeReader`], and everything else in an [`Async`].
pub trait Readable: sealed::HasSource {}

impl<S: sealed::HasSource> Readable for S {}

/// Only types of this crate: a descriptor must be watched by the slot that its owner gives up.
pub(crate) mod sealed {
    use super::Source;

    pub trait HasSource {
        /// What is waited for.
        fn source(&self) -> &Source;
    }
}

impl<T> sealed::HasSource for Async<T> {
    fn source(&self) -> &Source {
        Async::source(self)
    }
}

impl sealed::HasSource for PipeReader {
    fn source(&self) -> &Source {
        self.io().source()
    }
}
