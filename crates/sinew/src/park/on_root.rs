//! Work that a fiber of a manager does on its thread's own stack, the root.
//!
//! [`on_root`] switches there at once. [`Parting`] does its work there after the fiber has stopped
//! in a wait. `manager/README.md` says why the fiber does not go on meanwhile.

use super::is_unwinding;
use crate::carrier::{self, Carrier, current};
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Control, Flags};
use core::any::Any;
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Calls `f` on the root if the caller is a fiber of an embedded carrier, which a foreign loop
/// steps; then continues in the fiber. Anywhere else it calls `f` in place.
///
/// # Panics
/// In a hook or a predicate: a switch away from the fiber is impossible there.
#[track_caller]
pub(crate) fn on_root<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    let (carrier, me) = match current::fiber() {
        Some((carrier, me)) if carrier.is_embedded() => (carrier, me),
        _ => return catch_unwind(AssertUnwindSafe(f)),
    };
    assert!(
        !me.flags().has(Flags::NO_WAIT) && !carrier.is_telling(),
        "the main context was asked for in a predicate or a hook, where a fiber cannot be left"
    );
    // SAFETY: the fiber runs on the carrier. No wait of it is under way: only hooks run user code
    // in the middle of a wait, and the assertion refused those.
    unsafe { call(carrier, me, f) }
}

/// Calls `f`, which does not panic, on the root if the caller is a fiber of an embedded carrier
/// that can be switched away from. Anywhere else it calls `f` in place.
///
/// So when a fiber steps another carrier, that carrier's fibers are run from a large stack.
#[inline]
pub(crate) fn on_large_stack<R>(f: impl FnOnce() -> R) -> R {
    match current::fiber() {
        Some((carrier, me))
            if carrier.is_embedded()
                && !me.flags().has(Flags::NO_WAIT)
                && !carrier.is_telling() =>
        {
            // SAFETY: as in `on_root`; the guard of this arm has excluded hooks.
            match unsafe { call(carrier, me, f) } {
                Ok(result) => result,
                Err(payload) => resume_unwind(payload),
            }
        }
        _ => f(),
    }
}

/// # Safety
/// `me` runs on the carrier, and no wait of it is under way.
unsafe fn call<R>(
    carrier: &Carrier,
    me: &Control,
    f: impl FnOnce() -> R,
) -> std::thread::Result<R> {
    let unwinding = is_unwinding(carrier, me);
    if unwinding {
        // Code on the root must not take the fiber's unwinding for its own.
        me.set_flags(Flags::UNWINDING);
        carrier.unwinding.set(carrier.unwinding.get() + 1);
    }
    // SAFETY: the caller promises that `me` runs on the carrier and that no wait of it is under
    // way.
    let result = unsafe { carrier.on_root(me, f) };
    if unwinding {
        carrier.unwinding.set(carrier.unwinding.get() - 1);
        me.clear_flags(Flags::UNWINDING);
    }
    result
}

/// Work to be done on the root when the running fiber has stopped in a wait. It lies in the frame
/// of the wait.
pub(crate) struct Parting<F: FnOnce()> {
    carrier: &'static Carrier,
    me: &'static Control,
    work: Option<F>,
    epoch: Epoch,
    panic: Option<Box<dyn Any + Send>>,
}

impl<F: FnOnce()> Parting<F> {
    /// Creates the work. Gives it back unless the caller is a fiber of an embedded carrier that may
    /// be suspended.
    pub(crate) fn new(work: F) -> Result<Self, F> {
        let special = Flags(Flags::PINNED.0 | Flags::NO_WAIT.0);
        match current::fiber() {
            Some((carrier, me)) if carrier.is_embedded() && !me.flags().has(special) => {
                Ok(Parting { carrier, me, work: Some(work), epoch: Epoch::NEVER, panic: None })
            }
            _ => Err(work),
        }
    }

    /// Arranges that the work runs on the root when the fiber stops in the wait of this `epoch`. If
    /// the fiber does not stop in it, it calls [`finish`](Self::finish) or unwinds.
    ///
    /// # Safety
    /// `self` stays where it is until it is dropped. The caller is the fiber in which `self` was
    /// made.
    pub(crate) unsafe fn arm(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        let (carrier, me) = (self.carrier, self.me);
        // SAFETY: `drop` withdraws the call at the latest, so `self` outlives it.
        unsafe { carrier.call_once_stopped(me, Self::run, ptr::from_mut(self).cast()) };
    }

    /// # Safety
    /// `data` points to a `Parting<F>` of a fiber that has stopped.
    unsafe fn run(data: *mut ()) {
        // SAFETY: the fiber has stopped since this was armed. It may be woken, but does not go on
        // before this returns: loops of its carrier do not nest, and an eager task returns to the
        // root.
        let this = unsafe { &mut *data.cast::<Self>() };
        let Some(work) = this.work.take() else { return };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
            this.panic = Some(payload);
            carrier::wake(this.me, this.epoch, Outcome::Notified);
        }
    }

    /// Withdraws the call when the wait is over. If the fiber did not stop in the wait, does the
    /// work here.
    ///
    /// # Errors
    /// The panic of the work.
    pub(crate) fn finish(&mut self) -> std::thread::Result<()> {
        self.carrier.forget_call(ptr::from_ref(self).cast());
        match self.work.take() {
            // SAFETY: the fiber runs on the carrier, and the wait is over.
            Some(work) => unsafe { call(self.carrier, self.me, work) },
            None => self.panic.take().map_or(Ok(()), Err),
        }
    }
}

impl<F: FnOnce()> Drop for Parting<F> {
    fn drop(&mut self) {
        self.carrier.forget_call(ptr::from_ref(self).cast());
    }
}
