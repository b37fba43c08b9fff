//! Fibers of a carrier in somebody else's loop.
//!
//! Nobody joins them by their block: who wants a result has the closure put it somewhere. So a block is
//! made with the runtime's reference alone, unless the caller wants one as well.

use super::{adopt, submit};
use crate::carrier::{Carrier, Crew, current as here};
use crate::fiber::local::Inherited;
use crate::fiber::task::Vtable;
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
    /// Whether its time is to be measured.
    pub(crate) timed: bool,
}

/// Makes a fiber that runs on `carrier` only, and counts it. The caller puts it into a queue, or runs it.
///
/// What does not depend on the type of the closure is compiled once, not for each task of a program.
///
/// # Safety
/// This is the carrier's thread, and the carrier has been given to nobody else. The closure and all that it
/// borrows live as long as the fiber, and it does not panic.
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
    // SAFETY: a vacant block is ours; the vtable belongs to the closure.
    unsafe { task::store(control, f) };
    bear(control, id, carrier, (task::detached::<F>(), references), inherited, traits);
    control
}

/// Makes a fiber of a block whose closure is stored.
#[inline]
fn bear(
    control: &'static Control,
    id: u64,
    carrier: &'static Carrier,
    (vtable, references): (&'static Vtable, u64),
    inherited: Option<Vec<Inherited>>,
    traits: Option<Traits>,
) {
    let crew = carrier.crew();
    let mut flags = Flags(crew.birth.0 | Flags::AFFINE.0);
    // Whoever looks at all fibers may find it as soon as the block is occupied.
    if let Some(inherited) = inherited {
        adopt(control, inherited);
    }
    if let Some(traits) = traits {
        flags.0 |= endow(control, crew, traits).0;
    }
    control.crew.store(crew.number, Ordering::Relaxed);
    control.occupy(id, vtable, flags, references, carrier.now.get());
    control.set_carrier(carrier);
    metrics::add(&carrier.counters.spawned, 1);
}

/// Makes a fiber from any thread, and hands it to its crew, or ends it before it began if that is closing.
///
/// # Safety
/// The closure may cross threads and borrows nothing; it does not panic.
pub(crate) unsafe fn submit_remote<F: FnOnce()>(
    crew: &Crew,
    references: u64,
    traits: Option<Traits>,
    f: F,
) -> &'static Control {
    let inherited = inherited_here();
    let (control, id) = slab::take_common();
    // SAFETY: a vacant block is ours; the vtable belongs to the closure; the rest is the caller's promise.
    unsafe {
        task::store(control, f);
        send(crew, control, id, (task::detached::<F>(), references), inherited, traits);
    }
    control
}

/// Makes a fiber of a block whose closure is stored, and hands it over.
///
/// # Safety
/// The block is the caller's, and the closure may cross threads.
#[inline]
unsafe fn send(
    crew: &Crew,
    control: &'static Control,
    id: u64,
    (vtable, references): (&'static Vtable, u64),
    inherited: Option<Vec<Inherited>>,
    traits: Option<Traits>,
) {
    if let Some(inherited) = inherited {
        adopt(control, inherited);
    }
    let mut flags = crew.birth;
    if let Some(traits) = traits {
        flags.0 |= endow(control, crew, traits).0;
    }
    control.crew.store(crew.number, Ordering::Relaxed);
    // Its birth is noted by who receives it: here it would take a look at the clock.
    control.occupy(id, vtable, flags, references, 0);
    // SAFETY: as the caller promised.
    unsafe { submit(crew, control) };
}

/// Gives the traits to a block that is not occupied yet; returns the flags that go with them.
#[cold]
fn endow(control: &Control, crew: &Crew, traits: Traits) -> Flags {
    let extra = control.extra_or_new();
    // SAFETY: the block is vacant, so nobody else has a reference to the fiber.
    unsafe { *extra.name.get() = traits.name };
    let size = traits.stack_size.unwrap_or(crew.settings.stack_size);
    extra.stack_size.set(size);
    let of = |flags: u32, has| if has { flags } else { 0 };
    Flags(
        of(Flags::SIZED.0, size != crew.settings.stack_size)
            | of(Flags::MEASURED.0 | Flags::TIMED.0, traits.timed),
    )
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
