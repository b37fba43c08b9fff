//! A closure becomes a fiber.
//!
//! `spawn` fills a control block and publishes it; the fiber gets a stack when a carrier first runs
//! it. This is the first thing to read, and the last layer.

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
/// Inside a fiber the new one belongs to the same runtime; on a plain thread to the default
/// runtime, which starts with the first call. It may begin on any carrier, and then stays there:
/// what `f` makes need not be `Send`. Dropping the handle detaches the fiber.
///
/// Takes no memory from the heap once a few fibers have run, unless `f` or its result are larger
/// than 64 bytes.
///
/// # Examples
/// ```
/// let fiber = sinew::spawn(|| 6 * 7);
/// assert_eq!(fiber.join().unwrap(), 42);
/// ```
///
/// What is captured crosses threads:
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

/// Starts a fiber on the same carrier, with a closure that need not be `Send`.
///
/// # Panics
/// Outside of a fiber, and in a migratable one: there is no carrier to stay on.
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

/// The running fiber and its carrier, for `operation`, which starts a fiber there.
///
/// # Panics
/// If no fiber runs, or a migratable one.
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

/// Makes a fiber out of a running one, and publishes it.
///
/// # Safety
/// Closure and result may cross threads, and outlive the fiber.
#[inline(always)]
unsafe fn spawn_here<F, T>(carrier: &'static Carrier, parent: &Control, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T,
{
    // SAFETY: we run on the carrier; the rest is the caller's promise.
    unsafe {
        let (carrier, control) = make(carrier, parent, task::of(f), Flags(0), |_| ());
        metrics::add(&carrier.counters.spawned, 1);
        carrier.publish(control);
        JoinHandle::new(control)
    }
}

/// Fills a control block of the carrier's with a closure. Two references: the runtime's, and the
/// join handle's. Returns the carrier on which the caller runs then: what is inherited is copied by
/// code of the user's, in which a migratable fiber may move.
///
/// `prepare` is given the block while it is vacant: what whoever looks at all fibers may read without a lock is
/// written there.
///
/// # Safety
/// The caller runs on `carrier`. The closure and its result live and may go wherever the fiber
/// does, and the vtable is theirs.
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
    // SAFETY: this is the carrier's thread, and carriers stay for ever.
    let (control, id) = unsafe { carrier.slab.take() };
    if let Some(inherited) = inherited {
        adopt(control, inherited);
    }
    prepare(control);
    // SAFETY: a vacant block is ours.
    unsafe { fill(control, id, (carrier.crew(), carrier.now.get()), closure, flags) };
    (carrier, control)
}

/// # Safety
/// The block is vacant and the caller's; otherwise as for `make`.
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
    // SAFETY: the vtable belongs to the closure.
    unsafe { task::store(control, f) };
    control.occupy(id, vtable, flags, 2, now);
}

/// Makes a fiber from anywhere, and gives it to `crew`.
///
/// # Safety
/// As for `spawn_here`.
pub(crate) unsafe fn spawn_outside<F, T>(crew: &Crew, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T,
{
    // SAFETY: the caller's promise; made here, and submitted once.
    unsafe {
        let control = make_outside(crew, f);
        submit(crew, control);
        JoinHandle::new(control)
    }
}

/// Makes a fiber of `crew` from anywhere, to be submitted. Two references: the runtime's, and the join handle's.
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
    // SAFETY: a vacant block is ours; the rest is the caller's promise.
    unsafe { fill(control, id, (crew, clock::now()), task::of(f), Flags(0)) };
    control
}

/// What a child of the running fiber or thread inherits.
fn inherited_here() -> Vec<Inherited> {
    let parent = match here::fiber() {
        Some((_, control)) => Some(FiberRef::new(control)),
        None => here::lasting_proxy(),
    };
    parent
        .and_then(|parent| parent.extra().map(|extra| extra.locals.inherited()))
        .unwrap_or_default()
}

/// Gives a new fiber what it inherits.
#[inline(never)]
fn adopt(control: &Control, inherited: Vec<Inherited>) {
    for value in inherited {
        control.extra_or_new().locals.adopt(value);
    }
}

/// Counts an unstarted fiber that is to be submitted from anywhere. False if the runtime is shut
/// down, or about to: the fiber ends before it began.
///
/// # Safety
/// The fiber is in no queue, and was not counted.
unsafe fn admit(crew: &Crew, control: &'static Control) -> bool {
    let admitted = crew.admit();
    if !admitted {
        // SAFETY: as the caller promised.
        unsafe {
            (control.vtable.get().refuse)(control, crate::cancel::payload());
            crate::carrier::launch::finish_outside(control);
        }
        crew.refuse();
    }
    admitted
}

/// Gives an unstarted fiber to its crew, from anywhere.
///
/// # Safety
/// The fiber is in no queue and was not submitted.
unsafe fn submit(crew: &Crew, control: &'static Control) {
    // SAFETY: as the caller promised.
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
