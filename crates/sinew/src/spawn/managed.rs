//! Fibers of a manager, on a carrier that a foreign loop steps.
//!
//! Nothing joins these fibers through their blocks: a task that has a result stores it elsewhere.
//! So a block starts with the runtime's reference alone, unless the caller wants one as well.

use super::{adopt, submit};
use crate::carrier::{Carrier, Crew, current as here};
use crate::fiber::local::Inherited;
use crate::fiber::task::Vtable;
use crate::fiber::{Control, Flags, slab, task};
use crate::metrics;
use crate::primitive::Ordering;
use std::sync::Arc;

/// Settings that few tasks have.
#[derive(Default)]
pub(crate) struct Traits {
    pub(crate) name: Option<Arc<str>>,
    /// Must be a size for which the crew has a pool.
    pub(crate) stack_size: Option<usize>,
    /// Whether the task's run time is measured.
    pub(crate) timed: bool,
}

/// Makes a fiber that runs on `carrier` only, and counts it. The caller puts it into a queue, or
/// runs it.
///
/// The code that does not depend on the closure's type is in [`bear`], so that it is compiled once
/// and not for each task type of a program.
///
/// # Safety
/// This is the carrier's thread, and the carrier still belongs to it. The closure and all that it
/// borrows live as long as the fiber, and the closure does not panic.
#[inline(always)]
pub(crate) unsafe fn make<F: FnOnce()>(
    carrier: &'static Carrier,
    inherited: Option<Vec<Inherited>>,
    traits: Option<Traits>,
    references: u64,
    f: F,
) -> &'static Control {
    // SAFETY: this is the carrier's thread, and carriers are never freed.
    let (control, id) = unsafe { carrier.slab.take() };
    // SAFETY: the slab gave the vacant block to this call alone. The vtable stored below belongs to
    // the closure.
    unsafe { task::store(control, f) };
    bear(control, id, carrier, (task::detached::<F>(), references), inherited, traits);
    control
}

/// Makes a fiber from a block that has its closure.
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
    // From `occupy` on, a scan of all fibers may find the block, so the extras come first.
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

/// Makes a fiber from any thread and hands it to its crew. If the crew is closing, the fiber ends
/// without having begun.
///
/// # Safety
/// The closure may cross threads and borrows nothing. It does not panic.
pub(crate) unsafe fn submit_remote<F: FnOnce()>(
    crew: &Crew,
    references: u64,
    traits: Option<Traits>,
    f: F,
) -> &'static Control {
    let inherited = inherited_here();
    let (control, id) = slab::take_common();
    // SAFETY: the slab gave the vacant block to this call alone. The vtable belongs to the closure,
    // which may cross threads and borrows nothing, as the caller promised.
    unsafe {
        task::store(control, f);
        send(crew, control, id, (task::detached::<F>(), references), inherited, traits);
    }
    control
}

/// Makes a fiber from a block that has its closure, and submits it.
///
/// # Safety
/// The block belongs to the caller, and the closure may cross threads.
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
    // The birth time stays zero. The carrier that receives the fiber sets it, which saves a look at
    // the clock here.
    control.occupy(id, vtable, flags, references, 0);
    // SAFETY: the block belongs to the caller, so the fiber is in no queue and was not submitted.
    unsafe { submit(crew, control) };
}

/// Stores the traits in a vacant block, and returns the flags that go with them.
#[cold]
fn endow(control: &Control, crew: &Crew, traits: Traits) -> Flags {
    let extra = control.extra_or_new();
    // SAFETY: the block is vacant, so no other thread has a reference to the fiber.
    unsafe { *extra.name.get() = traits.name };
    let size = traits.stack_size.unwrap_or(crew.settings.stack_size);
    extra.stack_size.set(size);
    let of = |flags: u32, has| if has { flags } else { 0 };
    Flags(
        of(Flags::SIZED.0, size != crew.settings.stack_size)
            | of(Flags::MEASURED.0 | Flags::TIMED.0, traits.timed),
    )
}

/// Returns the values that a child of the running fiber or thread inherits; `None` if there are
/// none.
#[inline(always)]
pub(crate) fn inherited_here() -> Option<Vec<Inherited>> {
    let block = here::lender_or_known();
    // SAFETY: null, or the block of the running fiber or thread, which is alive.
    let extra = unsafe { block.as_ref() }?.extra()?;
    let inherited = extra.locals.inherited();
    (!inherited.is_empty()).then_some(inherited)
}
