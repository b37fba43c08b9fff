//! Takes a migratable fiber itself to a thread of the pool, and back.
//!
//! The fiber stops on its carrier as in any wait. The thread that gets the job ends the wait. The
//! thread does not queue the fiber, but switches to the fiber's own context. To everything that it
//! calls there, the fiber looks like a plain thread: it has no carrier. At the end of the closure
//! the fiber switches back to the thread's own context, which gives the fiber to its crew.

use super::pool::{self, Job};
use crate::cancel;
use crate::carrier::{current, dispatch};
use crate::clock;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, Flags, WaitKind};
use crate::park::raise;
use crate::park::{Wait, Waiter, slots};
use core::cell::Cell;
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Moves the running fiber itself to a thread that may block, and runs `f` there.
///
/// This is for [migratable](crate::FiberBuilder::migratable) fibers. The fiber leaves its carrier,
/// runs `f` on a thread of the pool of [`blocking`](crate::blocking()), and comes back to any
/// carrier. The closure need not be `Send`, since it stays on the stack of the fiber. While it
/// runs, the fiber is a plain thread to everything that it calls: its waits block that thread, it
/// has no fiber-locals, and it cannot be cancelled.
///
/// A fiber that is not migratable cannot leave its carrier, so its `f` blocks the carrier with all
/// its fibers. [`pinned_wait`](crate::runtime::Builder::pinned_wait) decides whether that is
/// reported, a panic, or silent. Use [`blocking`](crate::blocking()) in such a fiber. On a plain
/// thread this just calls `f`.
///
/// # Panics
/// Panics if `f` does, or if the fiber cannot leave its carrier and its runtime refuses waits of
/// pinned fibers.
///
/// # Examples
/// ```
/// // SAFETY: the closure uses numbers only.
/// let builder = unsafe { sinew::FiberBuilder::new().migratable() };
/// let fiber = builder.spawn(|| {
///     let before = sinew::current_carrier();
///     let inside = sinew::on_thread(|| sinew::current_carrier());
///     (before, inside)
/// })?;
/// let (before, inside) = fiber.join().unwrap();
/// assert!(before.is_some() && inside.is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn on_thread<R>(f: impl FnOnce() -> R) -> R {
    match current::fiber() {
        Some((_, control)) if may_leave(control) => {
            let Some(thread) = leave() else { return f() };
            let result = catch_unwind(AssertUnwindSafe(f));
            come_back(control, thread);
            let result = result.unwrap_or_else(|panic| raise::pass_on(panic));
            // Raises the panic of a context slot's hook, if one panicked on the way.
            raise::settle(control, Outcome::Notified);
            result
        }
        Some(_) => {
            crate::park::blocks_here(WaitKind::Blocking);
            f()
        }
        None => f(),
    }
}

fn may_leave(control: &Control) -> bool {
    control.flags().has(Flags::MIGRATABLE)
        && !control.flags().has(Flags(Flags::PINNED.0 | Flags::NO_WAIT.0))
        // The standard library counts panics for each thread, so a fiber that unwinds must not
        // change threads.
        && !std::thread::panicking()
}

/// A fiber's request to a thread of the pool.
#[repr(C)]
struct Ride {
    job: Job,
    waiter: Waiter,
    /// The thread's own context, to switch back to. Written by the thread.
    thread: Cell<*const Control>,
}

/// Moves the running fiber to a thread of the pool, and returns there. Returns that thread's own
/// context. Returns `None`, on the carrier, if there is no thread or the fiber has to stay.
#[inline(never)]
fn leave() -> Option<*const Control> {
    cancel::masked(|| {
        let wait = Wait::begin(WaitKind::Blocking, 0);
        if !wait.who().flags().has(Flags::MIGRATABLE) {
            // The fiber moved before its wait began, to a carrier on whose thread another fiber
            // unwinds. There `Wait::begin` has bound it to the carrier. A bound fiber does not tell
            // when it has left its stack, and `carry` would wait for that forever.
            wait.abandon();
            crate::park::blocks_here(WaitKind::Blocking);
            return None;
        }
        let ride =
            Ride { job: Job::new(carry), waiter: wait.waiter(), thread: Cell::new(ptr::null()) };
        // SAFETY: the job stays in this frame, and the thread uses it only before it switches to
        // this very frame. Any thread may do that, since the fiber is migratable.
        if !unsafe { pool::submit(ptr::from_ref(&ride).cast()) } {
            wait.abandon();
            pool::report_no_thread();
            return None;
        }
        wait.suspend(clock::NEVER);
        Some(ride.thread.get())
    })
}

/// Moves the fiber from a thread of the pool back to a carrier.
#[inline(never)]
fn come_back(control: &'static Control, thread: *const Control) {
    // As in every wait, the thread gets its own states of the context slots back. `leave` has put
    // the states of the fiber in their place.
    let slots = control.flags().has(Flags::SLOTS);
    if slots {
        slots::swap_out(control);
    }
    // SAFETY: the fiber runs on the thread that this context belongs to, and that context waits in
    // `carry`.
    unsafe { dispatch::leave_thread(control, &*thread) };
    if slots {
        slots::swap_in(control);
    }
}

/// Runs the fiber of a ride on this thread until it goes back.
///
/// # Safety
/// The job is the first field of a `Ride`, and `job` may be used to reach all of that ride. The
/// fiber of the ride waits for it, and no other thread runs the job.
unsafe fn carry(job: *const Job) {
    // SAFETY: the ride is alive, because its fiber waits. The job is its first field, and the
    // pointer covers all of it.
    let ride = unsafe { &*job.cast::<Ride>() };
    let here = Control::vacant();
    ride.thread.set(&here);
    let waiter = ride.waiter;
    let claimed = waiter.claim().expect("only this thread ends the wait of a ride");
    // SAFETY: the claim succeeded, so the fiber belongs to this thread. It comes back to this
    // context.
    unsafe { dispatch::ride(claimed, &here) };
}
