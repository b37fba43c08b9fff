//! The birth of a fiber: the one way in which a closure gets a control block.
//!
//! 1. The maker copies the values that the child inherits ([`inherited_here`]). Code of the user
//!    makes the copies. So afterwards a migratable maker may be on another carrier, and a manager
//!    may have ended.
//! 2. The maker takes a block from a slab: its carrier's ([`Unborn::on`]), or the common one
//!    ([`Unborn::anywhere`]).
//! 3. The maker stores the closure and what few fibers have: inherited values, a name, a size.
//! 4. [`Unborn::bear`] makes the fiber live. From then on a scan of all fibers finds it, and reads
//!    without a lock what the maker has written.
//! 5. The maker puts the fiber into a queue, or gives it to its crew ([`submit`]).

use crate::carrier::{Crew, Owner, current, launch};
use crate::clock;
use crate::fiber::local::Inherited;
use crate::fiber::task::{self, Vtable};
use crate::fiber::{Cancelled, Control, Flags, slab};
use crate::metrics;
use crate::primitive::Ordering;
use crate::queue::Delivery;
use std::sync::Arc;

/// A fiber before its birth: a vacant block that its maker alone knows.
pub(crate) struct Unborn {
    control: &'static Control,
    id: u64,
}

/// Settings that few fibers have.
#[derive(Default)]
pub(crate) struct Traits {
    pub(crate) name: Option<Arc<str>>,
    /// Must be a size for which the crew has a pool.
    pub(crate) stack_size: Option<usize>,
    /// Whether the fiber's run time is measured.
    pub(crate) timed: bool,
}

impl Unborn {
    /// Takes a block from the slab of a carrier.
    #[inline(always)]
    pub(crate) fn on(owner: &Owner) -> Unborn {
        let (control, id) = owner.slab.take();
        Unborn { control, id }
    }

    /// Takes a block from the slab that all threads share.
    pub(crate) fn anywhere() -> Unborn {
        let (control, id) = slab::take_common();
        Unborn { control, id }
    }

    /// Stores inherited values.
    #[inline(always)]
    pub(crate) fn adopt(&self, inherited: Vec<Inherited>) {
        adopt(self.control, inherited);
    }

    /// Stores a name.
    pub(super) fn set_name(&self, name: Option<Arc<str>>) {
        // SAFETY: the block is vacant, so no other thread reads the name.
        unsafe { *self.control.extra_or_new().name.get() = name };
    }

    /// Stores the traits, and returns the flags that go with them.
    #[cold]
    pub(crate) fn endow(&self, crew: &Crew, traits: Traits) -> Flags {
        self.set_name(traits.name);
        let size = traits.stack_size.unwrap_or(crew.settings.stack_size);
        self.control.extra_or_new().stack_size.set(size);
        let of = |flags: u32, has| if has { flags } else { 0 };
        Flags(
            of(Flags::SIZED.0, size != crew.settings.stack_size)
                | of(Flags::MEASURED.0 | Flags::TIMED.0, traits.timed),
        )
    }

    /// Stores the inherited values and the traits, if there are any, and returns the flags that go
    /// with them.
    #[inline(always)]
    fn equip(
        &self,
        crew: &Crew,
        inherited: Option<Vec<Inherited>>,
        traits: Option<Traits>,
    ) -> Flags {
        if let Some(inherited) = inherited {
            self.adopt(inherited);
        }
        traits.map_or(Flags(0), |traits| self.endow(crew, traits))
    }

    /// Marks the fiber as held back: it runs when an [`Unstarted`](super::Unstarted) is submitted.
    pub(super) fn hold_back(&self) {
        self.control.extra_or_new().held_back.store(true, Ordering::Relaxed);
    }

    /// Stores the closure. Without a call of [`bear`](Self::bear) the closure is leaked.
    #[inline(always)]
    pub(crate) fn store<F>(&self, closure: F) {
        // SAFETY: the slab gave the vacant block to this value alone.
        unsafe { task::store(self.control, closure) };
    }

    /// Makes the fiber live, as a fiber of `crew` with `references` counted references.
    ///
    /// # Safety
    /// [`store`](Self::store) was called with a closure of this vtable. The closure and its result
    /// live as long as the fiber, and may go to any thread where the fiber goes.
    #[inline(always)]
    pub(crate) unsafe fn bear(
        self,
        crew: &Crew,
        vtable: &'static Vtable,
        flags: Flags,
        references: u64,
        now: u64,
    ) -> &'static Control {
        let control = self.control;
        control.crew.store(crew.number, Ordering::Relaxed);
        control.occupy(self.id, vtable, Flags(flags.0 | crew.birth.0), references, now);
        control
    }
}

/// Stores inherited values in the block of a fiber before its birth. Takes the block alone, so that
/// an [`Unborn`] stays in registers.
#[inline(never)]
fn adopt(control: &Control, inherited: Vec<Inherited>) {
    for value in inherited {
        control.extra_or_new().locals.adopt(value);
    }
}

/// Makes a child of the running fiber, with the references of the runtime and of a join handle.
/// Returns the child, and the owner of the caller's carrier, which may be another carrier than
/// before.
///
/// `prepare` gets the fiber before its birth.
///
/// # Safety
/// `parent` is the running fiber. The closure is as [`Unborn::bear`] demands.
#[inline(always)]
pub(super) unsafe fn from_running<F>(
    owner: &'static Owner,
    parent: &Control,
    (vtable, f): (&'static Vtable, F),
    flags: Flags,
    prepare: impl FnOnce(&Unborn),
) -> (&'static Owner, &'static Control) {
    let mut owner = owner;
    let inherited = parent.extra().map(|extra| {
        let inherited = extra.locals.inherited();
        owner = current::owner().expect("the parent runs on a carrier");
        inherited
    });
    let unborn = Unborn::on(owner);
    if let Some(inherited) = inherited {
        unborn.adopt(inherited);
    }
    prepare(&unborn);
    unborn.store(f);
    // SAFETY: the caller vouches for the closure and its vtable.
    let control = unsafe { unborn.bear(owner.crew(), vtable, flags, 2, owner.now.get()) };
    (owner, control)
}

/// Makes a fiber that runs on the owner's carrier only, and counts it. The caller puts it into a
/// queue of the carrier, or runs it.
///
/// # Safety
/// The closure is as [`Unborn::bear`] demands; it stays on this thread.
#[inline(always)]
pub(crate) unsafe fn on_carrier<F>(
    owner: &Owner,
    inherited: Option<Vec<Inherited>>,
    traits: Option<Traits>,
    references: u64,
    (vtable, f): (&'static Vtable, F),
) -> &'static Control {
    let unborn = Unborn::on(owner);
    unborn.store(f);
    // SAFETY: the caller vouches for the closure and its vtable.
    unsafe { bear_on_carrier(unborn, owner, vtable, references, inherited, traits) }
}

/// The part of [`on_carrier`] that does not depend on the closure's type. So it is compiled once,
/// and not for each task type of a program.
///
/// # Safety
/// As for [`Unborn::bear`].
#[inline]
unsafe fn bear_on_carrier(
    unborn: Unborn,
    owner: &Owner,
    vtable: &'static Vtable,
    references: u64,
    inherited: Option<Vec<Inherited>>,
    traits: Option<Traits>,
) -> &'static Control {
    let crew = owner.crew();
    let flags = Flags(Flags::AFFINE.0 | unborn.equip(crew, inherited, traits).0);
    // SAFETY: the caller vouches for the closure and its vtable.
    let control = unsafe { unborn.bear(crew, vtable, flags, references, owner.now.get()) };
    control.set_carrier(owner.shared());
    metrics::add(&owner.shared().counters.spawned, 1);
    control
}

/// Makes a fiber of `crew` from any thread, with the references of the runtime and of a join
/// handle. The caller submits it.
///
/// # Safety
/// The closure is as [`Unborn::bear`] demands.
pub(super) unsafe fn outside<F>(
    crew: &Crew,
    (vtable, f): (&'static Vtable, F),
) -> &'static Control {
    let inherited = inherited_here();
    let unborn = Unborn::anywhere();
    if let Some(inherited) = inherited {
        unborn.adopt(inherited);
    }
    unborn.store(f);
    // SAFETY: the caller vouches for the closure and its vtable.
    unsafe { unborn.bear(crew, vtable, Flags(0), 2, clock::now()) }
}

/// Makes a fiber from any thread for a crew of one carrier, and submits it. If the crew is closing,
/// the fiber ends without having begun.
///
/// # Safety
/// The closure is as [`Unborn::bear`] demands.
pub(crate) unsafe fn send<F>(
    crew: &Crew,
    traits: Option<Traits>,
    references: u64,
    (vtable, f): (&'static Vtable, F),
) -> &'static Control {
    let inherited = inherited_here();
    let unborn = Unborn::anywhere();
    unborn.store(f);
    // SAFETY: the caller vouches for the closure and its vtable.
    unsafe { bear_and_send(unborn, crew, vtable, references, inherited, traits) }
}

/// The part of [`send`] that does not depend on the closure's type.
///
/// # Safety
/// As for [`Unborn::bear`].
#[inline]
unsafe fn bear_and_send(
    unborn: Unborn,
    crew: &Crew,
    vtable: &'static Vtable,
    references: u64,
    inherited: Option<Vec<Inherited>>,
    traits: Option<Traits>,
) -> &'static Control {
    let flags = unborn.equip(crew, inherited, traits);
    // SAFETY: the caller vouches for the closure and its vtable. The fiber is new, and submitted
    // once. Its time of birth stays zero: the carrier that receives the fiber sets it, which saves
    // a look at the clock here.
    unsafe {
        let control = unborn.bear(crew, vtable, flags, references, 0);
        submit(crew, control);
        control
    }
}

/// Returns the values that a child of the running fiber or thread inherits; `None` if there are
/// none. While the root does work for a fiber, that fiber is the parent: a child that the work
/// makes inherits from it.
#[inline(always)]
pub(crate) fn inherited_here() -> Option<Vec<Inherited>> {
    let block = current::lender_or_known();
    // SAFETY: null, or the block of the running fiber or thread, which is alive.
    let extra = unsafe { block.as_ref() }?.extra()?;
    let inherited = extra.locals.inherited();
    (!inherited.is_empty()).then_some(inherited)
}

/// Counts an unstarted fiber that is to be submitted from any thread. Returns false if the runtime
/// is closing: then the fiber has ended without having begun.
///
/// # Safety
/// The fiber is in no queue and was not counted.
pub(super) unsafe fn count(crew: &Crew, control: &'static Control) -> bool {
    let open = crew.count_submitted();
    if !open {
        // SAFETY: the fiber is in no queue, so this thread owns its closure and the runtime's
        // reference.
        unsafe { refuse(control) };
        crew.refuse();
    }
    open
}

/// Ends a fiber that will not begin: drops its closure, and stores a result that says so.
///
/// # Safety
/// The fiber is unstarted and in no queue. The caller owns the closure and the runtime's reference.
pub(super) unsafe fn refuse(control: &'static Control) {
    // SAFETY: as the caller promised.
    unsafe {
        (control.vtable.get().refuse)(control, Cancelled::before_start());
        launch::finish_outside(control);
    }
}

/// Gives an unstarted fiber to its crew, from any thread.
///
/// # Safety
/// The fiber is in no queue, and was not submitted before.
pub(super) unsafe fn submit(crew: &Crew, control: &'static Control) {
    // SAFETY: the fiber is in no queue, so its link is free. An affine fiber has a carrier, and
    // carriers are never freed.
    unsafe {
        if !count(crew, control) {
            return;
        }
        if control.flags().has(Flags::AFFINE) {
            let carrier = &*control.carrier();
            if carrier.inbox.push(Delivery::Ready(control)) {
                carrier.ring();
            }
        } else {
            crew.inject(control);
        }
    }
}
