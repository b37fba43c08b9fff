//! Threads that sinew owns and that run user code: carriers, threads for blocking work, and threads
//! that look for stalls and deadlocks.
//!
//! A suspended fiber may have lent a thread-local of its thread. If the fiber is forgotten, it
//! stays suspended for ever, and so the value must stay. A thread of sinew's therefore checks
//! before its function returns, which is before the first destructor of a thread-local. While a
//! started first-class fiber, or a started fiber of a leaked manager, belongs to the thread, the
//! thread does not end. Other threads cannot be held back in this way; `docs/soundness.md` has the
//! condition for them.

use super::embed::tenants;
use crate::report;
use crate::threads;
use std::io;
use std::thread::{self, Thread};

/// Starts a thread that runs `f`, and that ends afterwards as soon as no suspended fiber belongs to
/// it.
///
/// # Errors
/// If the system can start no more threads.
pub(crate) fn start(name: String, f: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    threads::start(name, || {
        f();
        stay_for_fibers();
    })
}

/// Returns if no suspended fiber belongs to the calling thread. Otherwise reports the fibers and
/// never returns.
fn stay_for_fibers() {
    let fibers = sinew_context::live_fibers();
    let managers = tenants::with_started_fibers();
    if fibers == 0 && managers == 0 {
        return;
    }
    let name = thread::current();
    let name = name.name().unwrap_or("without a name");
    report::say(format_args!(
        "thread \"{name}\" is done, but {} still belong to it; the thread stays, since they may have lent its \
         thread-locals. End or drop them before their thread ends, and do not forget them",
        Left { fibers, managers }
    ));
    loop {
        thread::park();
    }
}

/// Describes the fibers that a thread must outlive, for the report.
struct Left {
    fibers: usize,
    managers: usize,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        if self.fibers > 0 {
            write!(f, "{} suspended first-class fiber{}", self.fibers, plural(self.fibers))?;
        }
        if self.fibers > 0 && self.managers > 0 {
            f.write_str(" and ")?;
        }
        if self.managers > 0 {
            write!(f, "the fibers of {} leaked manager{}", self.managers, plural(self.managers))?;
        }
        Ok(())
    }
}
