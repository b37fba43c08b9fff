//! Waiting for descriptors, and reading and writing them.
//!
//! [`net`](crate::net) has sockets with the methods of the standard library. This module is for all
//! other descriptors that the kernel can wait for:
//!
//! - [`wait_readable`] and [`wait_writable`] wait for a descriptor that other code owns.
//! - [`Async`] wraps a type of another library, so that fibers wait where it would block.
//! - [`poll`] waits for several descriptors at once.
//! - [`pipe`] makes a pipe, and [`stdin`] reads standard input.
//! - [`LineLog`] writes lines to a reader that may stop reading.
//!
//! A fiber that waits is suspended; a plain thread blocks. A cancelled fiber is unwound from its
//! wait, never from an operation that has succeeded: one call loses no byte that it has read. A
//! method that makes several calls, such as `read_line`, may lose the bytes of its first calls;
//! [`timeout`](crate::timeout) lists these methods.
//!
//! A fiber that does many operations without having to wait yields to other fibers now and then.

// `attempt.rs` runs an operation, and waits for a `reactor::Source` when the operation would block.
// `net` reads and writes through it as well. `polling.rs` waits through `reactor::several`. Next:
// `net/socket.rs`.

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
pub use standard::{Stdin, StdinLock, stdin};
pub use waiting::{
    is_readable, is_writable, wait_readable, wait_readable_deadline, wait_readable_timeout,
    wait_writable, wait_writable_deadline, wait_writable_timeout,
};
