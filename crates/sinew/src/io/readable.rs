//! What a fiber can be started by.

use super::{Async, PipeReader};
use crate::reactor::Source;
use std::sync::Arc;

/// Something that becomes readable, for [`spawn_when_readable`](crate::spawn_when_readable): the
/// sockets of [`net`](crate::net), a [`PipeReader`], everything else in an [`Async`], and what several
/// share in an [`Arc`].
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

impl<S: sealed::HasSource> sealed::HasSource for Arc<S> {
    fn source(&self) -> &Source {
        (**self).source()
    }
}
