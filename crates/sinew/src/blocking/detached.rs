//! Work that blocks its thread, without a waiter.

use super::pool::{self, Job};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A closure on its way to another thread, in a box that the thread frees.
#[repr(C)]
struct Detached<F> {
    job: Job,
    work: F,
}

/// Runs `work` on a thread of the pool, and does not wait for it. If the pool has no thread and the
/// system refuses a new one, runs `work` on the thread of the caller.
///
/// A panic in `work` is caught, and its payload is dropped.
pub(crate) fn detached<F: FnOnce() + Send + 'static>(work: F) {
    let job = Box::into_raw(Box::new(Detached { job: Job::new(run::<F>), work })).cast::<Job>();
    // SAFETY: only `run` frees the box, when the job runs. The closure is `Send`, so any thread may
    // run it.
    if !unsafe { pool::submit(job) } {
        pool::report_no_thread();
        // SAFETY: no thread has taken the job, so it has not run.
        unsafe { run::<F>(job) };
    }
}

/// Runs the closure of a detached job, and frees its box.
///
/// # Safety
/// The job is the first field of a `Detached<F>` that came from `Box::into_raw`, and has not run.
unsafe fn run<F: FnOnce()>(job: *const Job) {
    // SAFETY: the job came from a box and has not run, as the caller ensures. It is the first
    // field.
    let detached = unsafe { Box::from_raw(job.cast_mut().cast::<Detached<F>>()) };
    let _ = catch_unwind(AssertUnwindSafe(detached.work));
}
