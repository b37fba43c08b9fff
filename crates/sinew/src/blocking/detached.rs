//! Work that blocks its thread, without a waiter.

use super::pool::{self, Job};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A closure on its way to another thread, in a box that the thread frees.
#[repr(C)]
struct Detached<F> {
    job: Job,
    work: F,
}

/// Runs `work` on a thread of the pool, and does not wait for it. If there is no thread, runs it
/// here.
///
/// A panic in it is lost.
pub(crate) fn detached<F: FnOnce() + Send + 'static>(work: F) {
    let job = Box::into_raw(Box::new(Detached { job: Job::new(run::<F>), work })).cast::<Job>();
    // SAFETY: only the thread frees the box, and its content is `Send`.
    if !unsafe { pool::submit(job) } {
        pool::report_no_thread();
        // SAFETY: no thread has taken the job, so it has not run.
        unsafe { run::<F>(job) };
    }
}

/// # Safety
/// The job belongs to a `Detached<F>` that came from a box, and has not run.
unsafe fn run<F: FnOnce()>(job: *const Job) {
    // SAFETY: the job came from a box and has not run, as the caller ensures. It is the first
    // field.
    let detached = unsafe { Box::from_raw(job.cast_mut().cast::<Detached<F>>()) };
    let _ = catch_unwind(AssertUnwindSafe(detached.work));
}
