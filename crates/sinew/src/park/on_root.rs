//! What a fiber of a manager has done on the stack of its thread.

use super::is_unwinding;
use crate::carrier::{self, Carrier, current};
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Control, Flags};
use core::any::Any;
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Calls `f` on the root, from a fiber of a carrier in a foreign loop, and goes straight on. Anywhere else it calls
/// `f` at once.
///
/// # Panics
/// In a hook, where a fiber cannot be left.
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
    // SAFETY: the fiber runs on the carrier. No code of the user's runs in the middle of a wait but hooks, which
    // were refused.
    unsafe { call(carrier, me, f) }
}

/// Calls `f`, which does not panic: on the root, from a fiber of a carrier in a foreign loop that can be left. What
/// the fibers of another carrier are run from is a large stack then.
#[inline]
pub(crate) fn on_large_stack<R>(f: impl FnOnce() -> R) -> R {
    match current::fiber() {
        Some((carrier, me))
            if carrier.is_embedded()
                && !me.flags().has(Flags::NO_WAIT)
                && !carrier.is_telling() =>
        {
            // SAFETY: as in `on_root`.
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
        // What runs there must not take this for its own.
        me.set_flags(Flags::UNWINDING);
        carrier.unwinding.set(carrier.unwinding.get() + 1);
    }
    // SAFETY: as the caller promised.
    let result = unsafe { carrier.on_root(me, f) };
    if unwinding {
        carrier.unwinding.set(carrier.unwinding.get() - 1);
        me.clear_flags(Flags::UNWINDING);
    }
    result
}

/// Something that is done on the root when the running fiber has stopped in a wait. It lies in the frame of the
/// wait.
pub(crate) struct Parting<F: FnOnce()> {
    carrier: &'static Carrier,
    me: &'static Control,
    work: Option<F>,
    epoch: Epoch,
    panic: Option<Box<dyn Any + Send>>,
}

impl<F: FnOnce()> Parting<F> {
    /// Gives the work back anywhere but in a fiber of a carrier in a foreign loop that may stop.
    pub(crate) fn new(work: F) -> Result<Self, F> {
        let special = Flags(Flags::PINNED.0 | Flags::NO_WAIT.0);
        match current::fiber() {
            Some((carrier, me)) if carrier.is_embedded() && !me.flags().has(special) => {
                Ok(Parting { carrier, me, work: Some(work), epoch: Epoch::NEVER, panic: None })
            }
            _ => Err(work),
        }
    }

    /// The running fiber stops next, in this wait; or it does not, and calls [`finish`](Self::finish), or
    /// unwinds.
    ///
    /// # Safety
    /// `self` stays where it is until it is dropped. The fiber that it was made in runs.
    pub(crate) unsafe fn arm(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        let (carrier, me) = (self.carrier, self.me);
        // SAFETY: it is taken back at the latest when `self` is dropped.
        unsafe { carrier.call_once_stopped(me, Self::run, ptr::from_mut(self).cast()) };
    }

    /// # Safety
    /// `data` is one of these, of a fiber that has stopped.
    unsafe fn run(data: *mut ()) {
        // SAFETY: the fiber has stopped since this was armed. It may be woken, but does not go on before this
        // returns: no loop of its carrier runs inside of another, and an eager task goes back to the root.
        let this = unsafe { &mut *data.cast::<Self>() };
        let Some(work) = this.work.take() else { return };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
            this.panic = Some(payload);
            carrier::wake(this.me, this.epoch, Outcome::Notified);
        }
    }

    /// The wait is over. If the fiber did not stop in it, the work is done now.
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
