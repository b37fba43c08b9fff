//! Turns a closure into a fiber, and lets others wait for it.
//!
//! `spawn` fills a control block and publishes it. The fiber gets a stack when a carrier first runs
//! it.
//!
//! A reader should begin here, although the module comes late in the order of dependencies, after
//! `runtime`. Next: `fiber`, the control block that `spawn` fills.

mod arm;
mod block_on;
mod builder;
mod deferred;
mod handle;
mod join;
pub(crate) mod managed;
mod recurring;
mod scope;
mod token;
mod unstarted;

pub use arm::JoinArm;
pub use block_on::block_on;
pub use builder::Builder;
pub use deferred::spawn_when_readable;
pub(crate) use handle::describe;
pub use handle::{Fiber, FiberId, State, current};
pub use join::JoinHandle;
pub use recurring::spawn_whenever_readable;
pub use scope::{Scope, ScopedJoinHandle, scope};
pub use unstarted::Unstarted;

use crate::carrier::{Carrier, Crew, current as here};
use crate::clock;
use crate::fiber::local::Inherited;
use crate::fiber::task::{self, Vtable};
use crate::fiber::{Control, FiberRef, Flags, slab};
use crate::metrics;
use crate::primitive::Ordering;
use crate::runtime::Handle;

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
    match here::fiber() {
        // SAFETY: the closure and its result are `Send` and borrow nothing.
        Some((carrier, parent)) => unsafe { spawn_here(carrier, parent, f) },
        None => Handle::default_runtime().spawn(f),
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
    let (carrier, parent) = local_carrier("spawn_local");
    // SAFETY: the fiber is put into this carrier's own queue, and never leaves its thread.
    unsafe {
        let (carrier, control) = make(carrier, parent, task::of(f), Flags::AFFINE, |_| ());
        control.set_carrier(carrier);
        metrics::add(&carrier.counters.spawned, 1);
        carrier.ready.push(control);
        JoinHandle::new(control)
    }
}

/// Returns the running fiber and its carrier, for `operation`, which starts a fiber there.
///
/// # Panics
/// If no fiber runs, or the running fiber is migratable.
#[track_caller]
pub(crate) fn local_carrier(operation: &str) -> (&'static Carrier, &'static Control) {
    let Some((carrier, control)) = here::fiber() else {
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
    (carrier, control)
}

/// Makes a fiber from a running one, and publishes it.
///
/// # Safety
/// The closure and its result may cross threads, and live as long as the fiber and its handle.
#[inline(always)]
unsafe fn spawn_here<F, T>(carrier: &'static Carrier, parent: &Control, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T,
{
    // SAFETY: the caller runs on `carrier` as `parent`, and promises that closure and result may
    // cross threads.
    unsafe {
        let (carrier, control) = make(carrier, parent, task::of(f), Flags(0), |_| ());
        metrics::add(&carrier.counters.spawned, 1);
        carrier.publish(control);
        JoinHandle::new(control)
    }
}

/// Fills a control block from the carrier's slab with a closure, and returns it with the caller's
/// carrier.
///
/// The block has two references: the runtime's and the join handle's. The returned carrier may
/// differ from `carrier`: copying inherited values runs user code, in which a migratable fiber may
/// move.
///
/// `prepare` gets the block while it is still vacant. It writes the fields that a scan of all
/// fibers reads without a lock.
///
/// # Safety
/// The caller runs on `carrier`. The closure and its result live as long as the fiber, and may go
/// to any thread where the fiber goes. The vtable belongs to the closure.
#[inline(always)]
unsafe fn make<F>(
    carrier: &'static Carrier,
    parent: &Control,
    closure: (&'static Vtable, F),
    flags: Flags,
    prepare: impl FnOnce(&Control),
) -> (&'static Carrier, &'static Control) {
    let mut carrier = carrier;
    let inherited = parent.extra().map(|extra| {
        let inherited = extra.locals.inherited();
        carrier = here::fiber().expect("it runs in a fiber").0;
        inherited
    });
    // SAFETY: this is the carrier's thread, and carriers are never freed.
    let (control, id) = unsafe { carrier.slab.take() };
    if let Some(inherited) = inherited {
        adopt(control, inherited);
    }
    prepare(control);
    // SAFETY: the slab gave the vacant block to this call alone.
    unsafe { fill(control, id, (carrier.crew(), carrier.now.get()), closure, flags) };
    (carrier, control)
}

/// Stores the closure in a vacant block and makes it a live fiber of `crew`.
///
/// # Safety
/// The block is vacant and belongs to the caller. Closure and vtable are as [`make`] demands.
#[inline(always)]
unsafe fn fill<F>(
    control: &'static Control,
    id: u64,
    (crew, now): (&Crew, u64),
    (vtable, f): (&'static Vtable, F),
    flags: Flags,
) {
    control.crew.store(crew.number, Ordering::Relaxed);
    let flags = Flags(flags.0 | crew.birth.0);
    // SAFETY: the caller owns the vacant block, and the vtable belongs to the closure.
    unsafe { task::store(control, f) };
    control.occupy(id, vtable, flags, 2, now);
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
        let control = make_outside(crew, f);
        submit(crew, control);
        JoinHandle::new(control)
    }
}

/// Makes a fiber of `crew` from any thread, without submitting it. It has two references: the
/// runtime's and the join handle's.
///
/// # Safety
/// As for `spawn_here`.
unsafe fn make_outside<F, T>(crew: &Crew, f: F) -> &'static Control
where
    F: FnOnce() -> T,
{
    let inherited = inherited_here();
    let (control, id) = slab::take_common();
    adopt(control, inherited);
    // SAFETY: the slab gave the vacant block to this call alone. The caller vouches for the
    // closure.
    unsafe { fill(control, id, (crew, clock::now()), task::of(f), Flags(0)) };
    control
}

/// Returns the values that a child of the running fiber or thread inherits.
fn inherited_here() -> Vec<Inherited> {
    let parent = match here::fiber() {
        Some((_, control)) => Some(FiberRef::new(control)),
        None => here::lasting_proxy(),
    };
    parent
        .and_then(|parent| parent.extra().map(|extra| extra.locals.inherited()))
        .unwrap_or_default()
}

/// Stores inherited values in a new fiber.
#[inline(never)]
fn adopt(control: &Control, inherited: Vec<Inherited>) {
    for value in inherited {
        control.extra_or_new().locals.adopt(value);
    }
}

/// Counts an unstarted fiber that is to be submitted from any thread. Returns false if the runtime
/// is closing: then the fiber has ended without having begun.
///
/// # Safety
/// The fiber is in no queue and was not counted.
unsafe fn admit(crew: &Crew, control: &'static Control) -> bool {
    let admitted = crew.admit();
    if !admitted {
        // SAFETY: the fiber is in no queue, so this thread owns its closure and the runtime's
        // reference.
        unsafe {
            (control.vtable.get().refuse)(control, crate::cancel::payload());
            crate::carrier::launch::finish_outside(control);
        }
        crew.refuse();
    }
    admitted
}

/// Gives an unstarted fiber to its crew, from any thread.
///
/// # Safety
/// The fiber is in no queue, and was not submitted before.
unsafe fn submit(crew: &Crew, control: &'static Control) {
    // SAFETY: the fiber is in no queue, so its link is free. An affine fiber has a carrier, and
    // carriers are never freed.
    unsafe {
        if !admit(crew, control) {
            return;
        }
        if control.flags().has(Flags::AFFINE) {
            let carrier = &*control.carrier();
            if carrier.inbox.push(crate::queue::Entry::Ready(control)) {
                carrier.ring();
            }
        } else {
            crew.inject(control);
        }
    }
}
