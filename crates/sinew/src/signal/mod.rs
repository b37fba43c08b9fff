//! Signals of the operating system, as events that fibers wait for.
//!
//! [`ctrl_c`] waits for one interrupt, and [`Signals`] is a stream of chosen signals. Each stream
//! gets each of its signals, whichever thread of the process the kernel interrupts. A fiber that
//! waits is suspended, and a plain thread blocks; there is no thread for signals.
//!
//! # What a subscription changes
//!
//! The first subscription to a signal installs a handler for it. The handler stays until the
//! process ends, even after all subscribers are gone. So Ctrl-C no longer ends a program that has
//! once subscribed to `SIGINT`: the program decides. A handler that the program had installed
//! before is still called.
//!
//! # Coalescing
//!
//! A stream remembers *that* a signal came since it was last received, not how often. So a burst of
//! one signal may be received once. The kernel merges pending signals as well. So a receiver of
//! `SIGCHLD` asks for all children, and a receiver of `SIGHUP` reads its configuration once.
//!
//! # Fork
//!
//! Pending signals are kept in the memory of the process, and a descriptor only wakes the waiters.
//! The child of a `fork` shares the descriptor with its parent. A signal to the child then wakes
//! the parent's waiters in vain, and a child that waits would take their wakes. So a child that
//! goes on without `exec` has to make its own subscriptions, as it has to make its own runtime. A
//! program that is started by `exec`, as every program of [`process`](crate::process) is, has
//! neither handlers nor descriptors.
//!
//! # Protocol
//!
//! Each stream has a flag for each of its signals, and a bell. The handler sets the flag, then
//! rings the bell: a store and a `write`, which a handler may do. A receiver clears the bell, then
//! looks at the flags. If a flag is set after the receiver has looked at it, the ring comes after
//! the clearing, and ends the receiver's wait.

mod number;
mod signals;

pub use number::Signal;
pub use signals::{Forever, Signals};

pub(crate) use signals::register;

use std::io;

/// Waits for the next `SIGINT`: the user has pressed Ctrl-C.
///
/// From the first call on, the signal no longer ends the process, even when no fiber or thread
/// waits for it: see the [module](self). A signal between two calls is lost; use [`Signals`] if
/// that matters. A cancelled fiber is unwound from this wait.
///
/// # Errors
/// If the process has no file descriptors left.
///
/// # Examples
/// ```
/// # fn work() {}
/// sinew::run(|| {
///     sinew::spawn(|| {
///         if sinew::signal::ctrl_c().is_ok() {
///             eprintln!("interrupted");
///             std::process::exit(130);
///         }
///     });
///     work();
/// });
/// ```
pub fn ctrl_c() -> io::Result<()> {
    Signals::new([Signal::INT])?.recv();
    Ok(())
}
