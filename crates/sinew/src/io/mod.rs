//! Waiting for descriptors, and reading and writing them.
//!
//! [`net`](crate::net) has sockets with the methods of the standard library. This is for everything
//! else that the kernel can wait for: [`wait_readable`] and [`wait_writable`] for a descriptor that
//! somebody else has, [`Async`] for a type of another library, [`poll`] for several at once, and
//! [`pipe`]. [`LineLog`] is for output whose reader may stop reading.
//!
//! A fiber that waits is suspended; a plain thread blocks. A fiber that is cancelled is unwound from
//! its wait, never from an operation that was done: no byte that was read by one call is lost. What
//! consists of several calls may lose what the first ones have read; [`timeout`](crate::timeout) says
//! which. Fibers that do many operations without having to wait let others run now and then.

mod adapter;
pub(crate) mod attempt;
mod copy;
pub(crate) mod faults;
mod pipes;
mod polling;
pub(crate) mod readable;
mod standard;
pub(crate) mod waiting;

pub use crate::report::LineLog;
pub use adapter::Async;
pub use copy::copy;
pub use pipes::{PipeReader, PipeWriter, pipe};
pub use polling::{Interest, PollFd, poll};
pub use readable::{Readable, Within};
pub use standard::{Stdin, stdin};
pub use waiting::{is_readable, is_writable, wait_readable, wait_writable};
