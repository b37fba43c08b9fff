//! Signals of the operating system, as something that fibers wait for.
//!
//! [`ctrl_c`] waits for one interrupt, [`Signals`] is a stream of whatever is asked for. Each stream
//! gets each signal, whichever thread of the process it was delivered to. A fiber that waits is
//! suspended, a plain thread blocks; there is no thread for it.
//!
//! # What a subscription changes
//!
//! The first subscription to a signal installs a handler for it, and the handler stays until the
//! process ends, also when all its subscribers are gone. So a program that has once asked for `SIGINT`
//! is no longer ended by Ctrl-C, but by what it does about it. A handler that was there before is
//! still called.
//!
//! # Coalescing
//!
//! A stream remembers *that* a signal came since it was last received, not how often: a burst may be
//! received once. The kernel does the same. Whoever receives `SIGCHLD` asks for all children,
//! whoever receives `SIGHUP` reads its configuration once.
//!
//! # Fork
//!
//! What is pending is in the memory of the process; a descriptor only wakes who waits. The child of a
//! `fork` has the descriptor in common with its parent: a signal to the child then wakes the parent's
//! waiters in vain, and a child that waits would take their wakes. So a child that goes on without
//! `exec` makes its own subscriptions, as it makes its own runtime. A program that is started by
//! `exec`, as all those of [`process`](crate::process), has neither handlers nor descriptors.
//!
//! # Protocol
//!
//! Each stream has a flag for each of its signals, and a bell. The handler sets the flag, then rings:
//! a store and a `write`, which may be done in a handler. Who receives clears the bell, then takes a
//! flag: so a signal that came too late for the flag rings after the clearing, and the wait ends.

mod number;
mod signals;

pub use number::Signal;
pub use signals::{Forever, Signals};

pub(crate) use signals::register;

use std::io;

/// Waits for the next `SIGINT`: the user has pressed Ctrl-C.
///
/// From the first call on, the signal does not end the process any more, also while nobody waits for
/// it: see the [module](self). What comes between two calls is not seen by either; use [`Signals`] if
/// that matters. A cancelled fiber is unwound from here.
///
/// # Errors
/// If there are no descriptors left.
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
