//! Work that blocks its thread, and that nobody waits for in its own frame.

use super::pool::{self, Job};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A closure on its way to another thread, in a box that the thread frees.
#[repr(C)]
struct Detached<F> {
    job: Job,
    work: F,
}

/// Has `work` done by a thread of the pool, and does not wait for it. If there is no thread, it is
/// done here.
///
/// What panics in it is lost.
pub(crate) fn detached<F: FnOnce() + Send + 'static>(work: F) {
    let job = Box::into_raw(Box::new(Detached { job: Job::new(run::<F>), work })).cast::<Job>();
    // SAFETY: nobody but the thread frees the box, and what is in it is `Send`.
    if !unsafe { pool::submit(job) } {
        pool::report_no_thread();
        // SAFETY: nobody has taken it, so it has not run.
        unsafe { run::<F>(job) };
    }
}

/// # Safety
/// The job is that of a `Detached<F>` that came from a box, and has not run.
unsafe fn run<F: FnOnce()>(job: *const Job) {
    // SAFETY: as the caller promised; the job is its first field.
    let detached = unsafe { Box::from_raw(job.cast_mut().cast::<Detached<F>>()) };
    let _ = catch_unwind(AssertUnwindSafe(detached.work));
}
