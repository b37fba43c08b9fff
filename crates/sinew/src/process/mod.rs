//! Child processes that do not block a carrier.
//!
//! [`Command`] and [`Child`] have the methods of their namesakes in [`std::process`]. A fiber that
//! waits for a child, or for its output, is suspended; a plain thread blocks. Types that have
//! nothing to do with waiting are those of the standard library.
//!
//! # Zombies
//!
//! As in the standard library, a process goes on when its [`Child`] is dropped. When it has ended,
//! the kernel keeps its entry until its status was taken. A program that starts many children and
//! waits for none runs out of process numbers. So [`wait`](Child::wait) for each child, or have it
//! [killed](Command::kill_on_drop), which takes its status as well.
//!
//! # How a child is waited for
//!
//! On Linux a fiber waits for a descriptor of the process, as for any other descriptor. If there is
//! none, because the kernel is older than 5.3, a sandbox forbids it, or the system is another, a
//! thread of the pool of [`blocking`](crate::blocking()) waits, from the first wait that is not
//! over at once until the child has ended. Neither takes the status. So a wait that is left early,
//! by a timeout or a cancellation, leaves the child to be waited for again. No handler for
//! `SIGCHLD` is needed.

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
