//! Child processes that do not block a carrier.
//!
//! [`Command`] and [`Child`] have the methods of their namesakes in [`std::process`]. A fiber that
//! waits for a child, or for its output, is suspended; a plain thread blocks. Types without waits,
//! such as [`ExitStatus`] and [`Stdio`], come from the standard library.
//!
//! # Zombies
//!
//! As in the standard library, a process goes on when its [`Child`] is dropped. After the process
//! has ended, the kernel keeps its entry until this program takes its status. A program that starts
//! many children and never waits for them runs out of process numbers. So [`wait`](Child::wait) for
//! each child, or have it [killed](Command::kill_on_drop), which takes its status as well.
//!
//! # How a child is waited for
//!
//! On Linux a fiber waits for a descriptor of the process, as for any other descriptor. Other
//! systems have no such descriptor, nor has Linux before 5.3, and a sandbox may forbid it. Then a
//! thread of the pool of [`blocking`](crate::blocking()) waits for the child. The first wait that
//! cannot return at once starts this work, which lasts until the child has ended. Neither the
//! descriptor nor the thread takes the status. So after a timeout or a cancellation, the caller can
//! wait for the child again. No handler for `SIGCHLD` is needed.

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
