//! Turns a closure into a fiber, and lets others wait for it.
//!
//! `spawn` fills a control block and publishes it. The fiber gets a stack when a carrier first runs
//! it.
//!
//! A reader should begin here, although the module comes late in the order of dependencies, after
//! `runtime`. Next: `fiber`, the control block that `spawn` fills.

mod arm;
pub(crate) mod birth;
mod block_on;
mod builder;
mod deferred;
mod group;
mod join;
mod on_runtime;
mod recurring;
mod scope;
mod token;
mod unstarted;

pub use arm::JoinArm;
pub use block_on::block_on;
pub use builder::FiberBuilder;
pub use deferred::spawn_when_readable;
pub use group::{Group, run_all};
pub use join::JoinHandle;
pub use on_runtime::run;
pub use recurring::spawn_for_each_arrival;
pub use scope::{Scope, ScopedJoinHandle, scope};
pub use unstarted::Unstarted;

use crate::carrier::{Crew, Owner, current};
use crate::fiber::{Control, Flags, task};
use crate::metrics;
use crate::runtime::RuntimeHandle;

/// Starts a fiber that runs `f`, and returns a handle to wait for its result.
///
/// Inside a fiber, the new fiber belongs to the same runtime. On a plain thread it belongs to the
/// default runtime, which starts with the first call. The fiber may begin on any carrier and then
/// stays there, so values that `f` creates need not be `Send`. Dropping the handle detaches the
/// fiber.
///
/// Allocates nothing on the heap once a few fibers have run, unless `f` or its result is larger
/// than 64 bytes.
///
/// # Examples
/// ```
/// let fiber = sinew::spawn(|| 6 * 7);
/// assert_eq!(fiber.join().unwrap(), 42);
/// ```
///
/// Captured values cross threads, so they must be `Send`:
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// sinew::spawn(move || drop(shared));
/// ```
#[inline]
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match current::fiber() {
        // SAFETY: the closure and its result are `Send` and borrow nothing.
        Some((owner, parent)) => unsafe { spawn_here(owner, parent, f) },
        None => RuntimeHandle::default_runtime().spawn(f),
    }
}

/// Starts a fiber on the caller's carrier, with a closure that need not be `Send`.
///
/// # Panics
/// Outside of a fiber, and in a migratable fiber, which has no carrier to stay on.
///
/// # Examples
/// ```
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// sinew::run(|| {
///     let count = Rc::new(Cell::new(0));
///     let theirs = count.clone();
///     sinew::spawn_local(move || theirs.set(1)).join().unwrap();
///     assert_eq!(count.get(), 1);
/// });
/// ```
#[track_caller]
pub fn spawn_local<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    let (owner, parent) = local_carrier("spawn_local");
    // SAFETY: the fiber is put into this carrier's own queue, and never leaves its thread.
    unsafe {
        let inherited = parent.extra().map(|extra| extra.locals.inherited());
        let control = birth::on_carrier(owner, inherited, None, 2, task::of(f));
        owner.ready.push(control);
        JoinHandle::new(control)
    }
}

/// Returns the running fiber and the owner of its carrier, for `operation`, which starts a fiber
/// there.
///
/// # Panics
/// If no fiber runs, or the running fiber is migratable.
#[track_caller]
pub(crate) fn local_carrier(operation: &str) -> (&'static Owner, &'static Control) {
    let Some((owner, control)) = current::fiber() else {
        panic!(
            "{operation} called on a plain thread; call it in a fiber, for example in sinew::run, \
             whose carrier it shares"
        );
    };
    assert!(
        !control.flags().has(Flags::MIGRATABLE),
        "{operation} called in a migratable fiber, which has no carrier of its own; call it in one \
         that stays"
    );
    (owner, control)
}

/// Makes a child of the running fiber, and publishes it.
///
/// # Safety
/// The closure and its result may cross threads, and live as long as the fiber and its handle.
#[inline(always)]
unsafe fn spawn_here<F, T>(owner: &'static Owner, parent: &Control, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T,
{
    // SAFETY: the caller promises that closure and result may cross threads. The fiber is new, and
    // published once.
    unsafe {
        let (owner, control) = birth::from_running(owner, parent, task::of(f), Flags(0), |_| ());
        metrics::add(&owner.shared().counters.spawned, 1);
        owner.publish(control);
        JoinHandle::new(control)
    }
}

/// Makes a fiber of `crew` from any thread, and submits it.
///
/// # Safety
/// As for `spawn_here`.
pub(crate) unsafe fn spawn_outside<F, T>(crew: &Crew, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T,
{
    // SAFETY: the caller promises that closure and result may cross threads. The fiber is new, and
    // submitted once.
    unsafe {
        let control = birth::outside(crew, task::of(f));
        birth::submit(crew, control);
        JoinHandle::new(control)
    }
}
