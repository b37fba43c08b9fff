//! Child processes that do not block a carrier.
//!
//! [`Command`] and [`Child`] have the methods of those in [`std::process`]. A fiber that waits for a
//! child, or for what it writes, is suspended; a plain thread blocks. What is no matter of waiting is
//! that of the standard library.
//!
//! # Zombies
//!
//! As in the standard library, a [`Child`] that is dropped goes on running, and when it has ended, the
//! kernel keeps its entry until somebody has asked for its status. A program that starts many
//! children and waits for none runs out of process numbers. So [`wait`](Child::wait) for each, or
//! have it [killed](Command::kill_on_drop), after which it is waited for.
//!
//! # How a child is waited for
//!
//! On Linux by a descriptor of the process, as for any other descriptor. Where there is none, because
//! the kernel is older than 5.3, a sandbox forbids it, or the system is another, by a thread of the
//! pool of [`blocking`](crate::blocking()), from the first wait that is not over at once until the
//! child has ended. Neither takes the status, so that a wait that is left early, by a timeout or a
//! cancellation, leaves the child to be waited for again. No handler for `SIGCHLD` is needed.

mod child;
mod collect;
mod command;
mod exit;
mod pipes;

pub use child::Child;
pub use command::Command;
pub use pipes::{ChildStderr, ChildStdin, ChildStdout};
pub use std::process::{
    CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, abort, exit, id,
};
