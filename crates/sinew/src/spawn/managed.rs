//! Fibers of a carrier in somebody else's loop.
//!
//! Nobody joins them by their block: who wants a result has the closure put it somewhere. So a block is
//! made with the runtime's reference alone, unless the caller wants one as well.

use super::{adopt, submit};
use crate::carrier::{Carrier, Crew, current as here};
use crate::fiber::local::Inherited;
use crate::fiber::{Control, Flags, slab, task};
use crate::metrics;
use crate::primitive::Ordering;
use std::sync::Arc;

/// What few of them have.
#[derive(Default)]
pub(crate) struct Traits {
    pub(crate) name: Option<Arc<str>>,
    /// Of a size for which the crew has a pool.
    pub(crate) stack_size: Option<usize>,
}

/// Makes a fiber that runs on `carrier` only, and counts it. The caller puts it into a queue, or runs it.
///
/// # Safety
/// This is the carrier's thread, and the carrier has been given to nobody else. The closure and all that it borrows live as long as the fiber, and it does
/// not panic.
#[inline(always)]
pub(crate) unsafe fn make<F: FnOnce()>(
    carrier: &'static Carrier,
    inherited: Option<Vec<Inherited>>,
    traits: Option<Traits>,
    references: u64,
    f: F,
) -> &'static Control {
    // SAFETY: as the caller promised; carriers stay for ever.
    let (control, id) = unsafe { carrier.slab.take() };
    // SAFETY: a vacant block is ours.
    unsafe { fill(control, id, carrier.crew(), carrier.now.get(), references, f) };
    control.set_flags(Flags::AFFINE);
    control.set_carrier(carrier);
    if let Some(inherited) = inherited {
        adopt(control, inherited);
    }
    if let Some(traits) = traits {
        endow(control, carrier.crew(), traits);
    }
    metrics::add(&carrier.counters.spawned, 1);
    control
}

/// Makes a fiber from any thread, and hands it to its crew, or ends it before it began if that is closing.
///
/// # Safety
/// The closure may cross threads and borrows nothing; it does not panic.
pub(crate) unsafe fn submit_remote<F: FnOnce()>(
    crew: &Crew,
    references: u64,
    f: F,
) -> &'static Control {
    let inherited = inherited_here();
    let (control, id) = slab::take_common();
    // SAFETY: a vacant block is ours; the rest is the caller's promise.
    unsafe {
        // Its birth is noted by who receives it: here it would take a look at the clock.
        fill(control, id, crew, 0, references, f);
        if let Some(inherited) = inherited {
            adopt(control, inherited);
        }
        submit(crew, control);
    }
    control
}

#[inline(always)]
unsafe fn fill<F: FnOnce()>(
    control: &'static Control,
    id: u64,
    crew: &Crew,
    now: u64,
    references: u64,
    f: F,
) {
    control.crew.store(crew.number, Ordering::Relaxed);
    // SAFETY: the vtable belongs to the closure.
    unsafe { task::store(control, f) };
    control.occupy(id, task::detached::<F>(), crew.birth, references, now);
}

#[cold]
fn endow(control: &Control, crew: &Crew, traits: Traits) {
    let extra = control.extra_or_new();
    // SAFETY: nobody else knows of the fiber yet.
    unsafe { *extra.name.get() = traits.name };
    let size = traits.stack_size.unwrap_or(crew.settings.stack_size);
    extra.stack_size.set(size);
    if size != crew.settings.stack_size {
        control.set_flags(Flags::SIZED);
    }
}

/// What the fiber or thread that runs here hands down, if it has anything.
#[inline(always)]
pub(crate) fn inherited_here() -> Option<Vec<Inherited>> {
    let block = here::lender_or_known();
    // SAFETY: who runs here has its block.
    let extra = unsafe { block.as_ref() }?.extra()?;
    let inherited = extra.locals.inherited();
    (!inherited.is_empty()).then_some(inherited)
}
