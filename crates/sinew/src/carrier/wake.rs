//! Ending a wait, and making its waiter run.
//!
//! Any thread that holds the epoch of a wait may *claim* it. The claim succeeds for one caller,
//! which then resumes the waiter: through `run_next` or the ready list if the waiter is bound to
//! the carrier of this thread, through the carrier's inbox if it is bound to another one, through
//! the deque or the injector if it may move, and by a futex if it is a thread.
//!
//! This is the way back from `park` to the queues. Next: `dispatch`, which runs the waiter.

use super::{Carrier, Owner, current, observe};
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Control, Flags};
use crate::primitive::futex;
use crate::queue::Delivery;
use core::ptr;

/// A wait that the caller has ended. The waiter must now be made to run.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct Claimed {
    control: *const Control,
    /// The waiter's flags, as they were in the wait.
    flags: Flags,
    carrier: *const Carrier,
    /// Whether the waiter is a bound, unobserved fiber of the carrier that this thread runs as.
    here: bool,
}

impl Claimed {
    /// Returns the waiter.
    pub(crate) fn control(&self) -> *const Control {
        self.control
    }

    /// Makes the waiter run after the fibers that are ready.
    #[inline(always)]
    pub(crate) fn resume_in_turn(self) {
        // SAFETY: blocks are never unmapped, and the claim succeeded.
        unsafe {
            match self.owner() {
                Some(owner) => owner.woken_in_turn(&*self.control),
                None => {
                    resume_elsewhere_in_turn(&*self.control, self.flags, self.carrier);
                }
            }
        }
    }

    /// Makes the waiter run, in `run_next` if that is free.
    #[inline(always)]
    pub(crate) fn resume(self) {
        // SAFETY: blocks are never unmapped, and the claim succeeded.
        unsafe {
            match self.owner() {
                Some(owner) => owner.woken_here(&*self.control),
                None => resume_elsewhere(&*self.control, self.flags, self.carrier),
            }
        }
    }

    /// Returns the owner of the waiter's carrier, if the waiter is a plain fiber of this thread's
    /// carrier. Looks up this thread's carrier again, because a migratable caller may have moved to
    /// another carrier since the claim.
    #[inline(always)]
    fn owner(&self) -> Option<&'static Owner> {
        let here = self.here && ptr::eq(self.carrier, current::carrier());
        // SAFETY: the thread runs as the waiter's carrier, and carriers are never freed.
        here.then(|| unsafe { Owner::of(&*self.carrier) })
    }
}

/// The slow path of [`Claimed::resume_in_turn`]: the waiter is observed, or not bound to the
/// carrier of this thread.
///
/// # Safety
/// The caller has claimed the waiter's wait. `flags` and `carrier` are the waiter's, as they were
/// in the wait.
#[inline(never)]
unsafe fn resume_elsewhere_in_turn(control: &Control, flags: Flags, carrier: *const Carrier) {
    // SAFETY: the claim succeeded. An observed fiber has a carrier, and carriers are never freed.
    unsafe {
        if flags.has(Flags::OBSERVED) {
            return resume_observed(control, flags, &*carrier, true);
        }
        resume_elsewhere(control, flags, carrier);
    }
}

/// Notes the wake of an observed fiber, and makes it run.
///
/// # Safety
/// As for [`resume_elsewhere_in_turn`].
#[cold]
#[inline(never)]
unsafe fn resume_observed(
    control: &Control,
    flags: Flags,
    carrier: &'static Carrier,
    in_turn: bool,
) {
    observe::note_wake(control, carrier, flags);
    let owner = carrier.owner_here().filter(|_| !flags.has(Flags::MIGRATABLE));
    // SAFETY: the claim succeeded, and the fiber is bound to its carrier unless it is migratable.
    unsafe {
        match (owner, in_turn) {
            (Some(owner), true) => owner.woken_in_turn(control),
            (Some(owner), false) => owner.woken_here(control),
            (None, _) => {
                resume_elsewhere(control, Flags(flags.0 & !Flags::OBSERVED.0), carrier);
            }
        }
    }
}

/// Makes a waiter run that is observed, not bound to the carrier of this thread, or a thread.
///
/// # Safety
/// As for [`resume_elsewhere_in_turn`].
#[inline(never)]
unsafe fn resume_elsewhere(control: &Control, flags: Flags, carrier: *const Carrier) {
    if flags.has(Flags(Flags::PROXY.0 | Flags::OBSERVED.0)) {
        if flags.has(Flags::OBSERVED) {
            // SAFETY: a fiber that has waited has a carrier, and carriers are never freed.
            return unsafe { resume_observed(control, flags, &*carrier, false) };
        }
        if flags.has(Flags::POLLS)
            && let Some(bell) = control.extra().and_then(|extra| extra.bell.get())
        {
            bell.ring();
        }
        return futex::wake(control.wake.futex().0);
    }
    // SAFETY: a fiber that has waited has a carrier, and the crew lives as long as the fiber.
    unsafe {
        let carrier = &*carrier;
        if flags.has(Flags::MIGRATABLE) {
            if let Some(owner) = current::owner()
                && ptr::eq(owner.crew(), carrier.crew())
            {
                return owner.publish(control);
            }
            // Keep the crew: once the fiber is published, it may end, and its runtime with it.
            let crew = carrier.crew_counted();
            return crew.inject(control);
        }
        if let Some(owner) = carrier.owner_of_this_thread() {
            owner.ready_from_outside(control);
        } else if carrier.inbox.push(Delivery::Ready(control)) {
            carrier.ring();
        }
    }
}

/// Ends a wait. Succeeds for exactly one caller.
#[inline(always)]
pub(crate) fn claim(control: &Control, epoch: Epoch, outcome: Outcome) -> Option<Claimed> {
    // Read before the claim: a waiter that is a thread may see the claim and end, and its block may
    // then serve another fiber. If the claim succeeds, the values are from the wait.
    let (flags, carrier) = (control.flags(), control.carrier());
    let won = control.wake.claim(epoch, outcome);
    won.then(|| {
        let here = ptr::eq(carrier, current::carrier()) && !carrier.is_null();
        Claimed { control, flags, carrier, here: here && !flags.has(Flags::NOT_PLAIN) }
    })
}

/// Ends a wait that no other thread can end.
///
/// The caller has removed the waiter's only registration. Apart from the caller, only the waiter's
/// own carrier can end the wait, for its timers or for messages to it. So on that carrier's thread
/// no atomic read-modify-write is needed.
#[inline(always)]
pub(crate) fn claim_alone(control: &Control, epoch: Epoch, outcome: Outcome) -> Option<Claimed> {
    let (flags, carrier) = (control.flags(), control.carrier());
    if carrier.is_null() || !ptr::eq(carrier, current::carrier()) || flags.has(Flags::NOT_ALONE) {
        return claim(control, epoch, outcome);
    }
    let won = control.wake.claim_alone(epoch, outcome);
    won.then_some(Claimed { control, flags, carrier, here: true })
}

/// Ends a wait as [`claim_alone`] does, and makes the waiter run. Returns whether this call ended
/// the wait.
#[inline(always)]
pub(crate) fn wake_alone(control: &Control, epoch: Epoch, outcome: Outcome) -> bool {
    claim_alone(control, epoch, outcome).map(Claimed::resume).is_some()
}

/// Ends a wait and makes the waiter run. Returns true for exactly one caller.
#[inline(always)]
pub(crate) fn wake(control: &Control, epoch: Epoch, outcome: Outcome) -> bool {
    claim(control, epoch, outcome).map(Claimed::resume).is_some()
}
