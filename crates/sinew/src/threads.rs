//! Threads that sinew owns, and their number.
//!
//! `inspect::all_asleep` compares the number with the threads of the process: while the process has
//! a thread that sinew does not own, that thread may wake a fiber.
//!
//! This module uses `primitive` alone. Next: `carrier::thread`, which starts the threads that run
//! user code, and keeps them while a suspended fiber belongs to them.

use crate::primitive::{AtomicUsize, Ordering};
use std::io;
use std::thread::{self, Thread};

/// The number of threads that were started here and have not ended.
static OWNED: AtomicUsize = AtomicUsize::new(0);

/// Starts a thread that runs `f`. The thread counts as sinew's own until `f` has returned.
///
/// # Errors
/// If the system can start no more threads.
pub(crate) fn start(name: String, f: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    let counted = Counted::new();
    let thread = thread::Builder::new().name(name).spawn(move || {
        let _counted = counted;
        f();
    })?;
    Ok(thread.thread().clone())
}

/// Returns the number of threads that sinew owns.
pub(crate) fn owned() -> usize {
    OWNED.load(Ordering::Relaxed)
}

struct Counted;

impl Counted {
    fn new() -> Counted {
        OWNED.fetch_add(1, Ordering::Relaxed);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OWNED.fetch_sub(1, Ordering::Relaxed);
    }
}
