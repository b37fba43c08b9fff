//! Threads that may block, and the ways to give them work.
//!
//! `blocking` suspends the fiber until a thread of the pool has run its closure. `detached` runs a
//! closure without a waiter. `on_thread` takes a migratable fiber itself to a thread of the pool.
//! Meanwhile the carrier runs other fibers. The module uses `park` and `cancel`; `fs`, `net` and
//! `process` use it. Next: `pool.rs`, which has the threads.
//!
//! # Protocol of `blocking`
//!
//! A [`Job`] lies in the frame of the fiber that waits for it. Handing it to the pool lends it to
//! one thread. The last access of that thread to the job is the store that marks it as done. The
//! fiber does not leave the frame before that store: its wait is masked and has no deadline, and
//! only that thread can end it. So the closure may borrow whatever the fiber may.
//!
//! The thread copies the waiter before that store, since the frame may be gone after it. The waiter
//! is a pointer to a control block, which is never unmapped, and the number of a wait.

mod carried;
mod detached;
mod pool;

pub use carried::on_thread;
pub(crate) use detached::detached;
pub use pool::set_max_blocking_threads;

use crate::cancel;
use crate::carrier::current;
use crate::clock;
use crate::fiber::{Flags, WaitKind};
use crate::park::raise;
use crate::park::{self, Wait, Waiter};
use crate::primitive::{AtomicBool, Ordering};
use crate::report::NeverUnwinds;
use core::cell::{Cell, UnsafeCell};
use core::ptr;
use pool::Job;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Runs `f` on a thread that may block, and waits for its result.
///
/// Use it for system calls that no fiber can wait for, for libraries that block, and for long
/// computations that would keep other fibers of this carrier from running. The closure may borrow
/// from the caller. A panic in the closure goes on in the caller. The closure runs as on a plain
/// thread: it has no fiber-locals, and its waits block that thread.
///
/// A fiber that is cancelled meanwhile still waits until `f` has returned. Its next wait raises the
/// cancellation. The threads belong to a pool, which has as many threads as are needed at a time,
/// up to a [limit](crate::set_max_blocking_threads). A thread ends when it has had nothing to do
/// for some seconds.
///
/// A [pinned](crate::pinned) fiber cannot be suspended, so `f` blocks its carrier with all its
/// fibers: [`pinned_wait`](crate::runtime::Builder::pinned_wait) decides whether that is reported,
/// a panic, or silent. On a plain thread, and in a predicate or a hook, this just calls `f`.
///
/// # Panics
/// Panics if `f` does, or if the fiber is pinned and its runtime refuses waits of pinned fibers.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let words = vec!["a", "slow", "library"];
///     let longest = sinew::blocking(|| {
///         std::thread::sleep(std::time::Duration::from_millis(1));
///         words.iter().max_by_key(|word| word.len())
///     });
///     assert_eq!(longest, Some(&"library"));
/// });
/// ```
///
/// The closure goes to another thread, so everything that it captures must be `Send`:
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// sinew::blocking(|| *shared);
/// ```
#[track_caller]
pub fn blocking<F, R>(f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    let flags = current::fiber().map_or(Flags::NO_WAIT, |(_, control)| control.flags());
    if flags.has(Flags::NO_WAIT) {
        return f();
    }
    if flags.has(Flags::PINNED) {
        park::blocks_here(WaitKind::Blocking);
        return f();
    }
    elsewhere(f)
}

/// A closure on its way to another thread, and its result on the way back.
#[repr(C)]
struct Errand<F, R> {
    job: Job,
    work: Cell<Option<F>>,
    result: UnsafeCell<Option<thread::Result<R>>>,
    waiter: Waiter,
    done: AtomicBool,
}

fn elsewhere<F, R>(f: F) -> R
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    // Only the thread may end the wait, and nothing unwinds while the thread has the errand.
    let result = cancel::masked(|| {
        let wait = Wait::begin(WaitKind::Blocking, 0);
        let errand = Errand {
            job: Job::new(run::<F, R>),
            work: Cell::new(Some(f)),
            result: UnsafeCell::new(None),
            waiter: wait.waiter(),
            done: AtomicBool::new(false),
        };
        // SAFETY: this frame is not left before the job has run. The closure and its result are
        // `Send`.
        if !unsafe { pool::submit(ptr::from_ref(&errand).cast()) } {
            wait.abandon();
            return Err(errand.work.take());
        }
        let guard = NeverUnwinds("blocking work panicked in the middle of a wait; aborting");
        wait.suspend(clock::NEVER);
        // ORDERING: Acquire: the result; pairs with the Release in `run`.
        assert!(errand.done.load(Ordering::Acquire), "the wait ended before the work was done");
        core::mem::forget(guard);
        Ok(errand.result.into_inner().expect("a job that has run has a result"))
    });
    match result {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => raise::pass_on(panic),
        Err(work) => {
            pool::report_no_thread();
            work.expect("no thread has run the work")()
        }
    }
}

/// Runs the closure of an errand, stores its result, and wakes the fiber that waits for it.
///
/// # Safety
/// The job is the first field of an `Errand<F, R>` that is alive, and `job` may be used to reach
/// all of that errand. The job has not run. The caller does not use the errand after this call.
unsafe fn run<F, R>(job: *const Job)
where
    F: FnOnce() -> R,
{
    // SAFETY: the errand is alive, as the caller ensures. The job is its first field, and the
    // pointer covers all of it.
    let errand = unsafe { &*job.cast::<Errand<F, R>>() };
    let work = errand.work.take().expect("a job runs once");
    let result = catch_unwind(AssertUnwindSafe(work));
    // SAFETY: the fiber does not look at the result before `done` is set.
    unsafe { *errand.result.get() = Some(result) };
    let waiter = errand.waiter;
    let done = ptr::from_ref(&errand.done);
    // ORDERING: Release publishes the result; pairs with the Acquire in `elsewhere`. The errand may
    // be gone after this.
    // SAFETY: the errand is alive until this store.
    unsafe { (*done).store(true, Ordering::Release) };
    waiter.wake();
}
