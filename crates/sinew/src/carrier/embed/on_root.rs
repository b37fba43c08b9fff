//! Work that a fiber of a manager does on its thread's own stack, the root.
//!
//! [`on_root`] switches there at once. [`Parting`] does its work there after the fiber has stopped
//! in a wait. `manager/README.md` says why the fiber does not go on meanwhile.

use super::super::unwinding::{begin_unwound_wait, end_unwound_wait, is_unwinding};
use super::super::{Owner, current, dispatch, wake};
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
    let (owner, me) = match current::fiber() {
        Some((owner, me)) if owner.is_embedded() => (owner, me),
        _ => return catch_unwind(AssertUnwindSafe(f)),
    };
    assert!(
        !me.flags().has(Flags::NO_WAIT) && !owner.is_telling(),
        "the main context was asked for in a predicate or a hook, where a fiber cannot be left"
    );
    // SAFETY: the fiber runs on the carrier. No wait of it is under way: only hooks run user code
    // in the middle of a wait, and the assertion refused those.
    unsafe { call(owner, me, f) }
}

/// Calls `f`, which does not panic, on the root if the caller is a fiber of an embedded carrier
/// that can be switched away from. Anywhere else it calls `f` in place.
///
/// So when a fiber steps another carrier, that carrier's fibers are run from a large stack.
#[inline]
pub(crate) fn on_large_stack<R>(f: impl FnOnce() -> R) -> R {
    match current::fiber() {
        Some((owner, me))
            if owner.is_embedded() && !me.flags().has(Flags::NO_WAIT) && !owner.is_telling() =>
        {
            // SAFETY: as in `on_root`; the guard of this arm has excluded hooks.
            match unsafe { call(owner, me, f) } {
                Ok(result) => result,
                Err(payload) => resume_unwind(payload),
            }
        }
        _ => f(),
    }
}

/// # Safety
/// `me` runs on the carrier, and no wait of it is under way.
unsafe fn call<R>(owner: &Owner, me: &Control, f: impl FnOnce() -> R) -> std::thread::Result<R> {
    let unwinding = is_unwinding(owner, me);
    if unwinding {
        // Code on the root must not take the fiber's unwinding for its own.
        begin_unwound_wait(owner, me);
    }
    // SAFETY: the caller promises that `me` runs on the carrier and that no wait of it is under
    // way.
    let result = unsafe { owner.on_root(me, f) };
    if unwinding {
        end_unwound_wait(me);
    }
    result
}

/// Work to be done on the root when the running fiber has stopped in a wait. It lies in the frame
/// of the wait.
pub(crate) struct Parting<F: FnOnce()> {
    owner: &'static Owner,
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
            Some((owner, me)) if owner.is_embedded() && !me.flags().has(special) => {
                Ok(Parting { owner, me, work: Some(work), epoch: Epoch::NEVER, panic: None })
            }
            _ => Err(work),
        }
    }

    /// Arranges that the work runs on the root when the fiber stops in the wait of this `epoch`. If
    /// the fiber does not stop in that wait, the fiber calls [`finish`](Self::finish) or unwinds.
    ///
    /// # Safety
    /// `self` stays where it is until it is dropped. The caller is the fiber in which `self` was
    /// made.
    pub(crate) unsafe fn arm(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        let (me, data) = (self.me, ptr::from_mut(self).cast());
        // SAFETY: `drop` withdraws the call at the latest, so `self` outlives it.
        unsafe { self.owner.call_once_stopped(me, Self::run, data) };
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
            wake(this.me, this.epoch, Outcome::Notified);
        }
    }

    /// Withdraws the call when the wait is over. If the fiber did not stop in the wait, does the
    /// work here.
    ///
    /// # Errors
    /// The panic of the work.
    pub(crate) fn finish(&mut self) -> std::thread::Result<()> {
        self.owner.forget_call(ptr::from_ref(self).cast());
        match self.work.take() {
            // SAFETY: the fiber runs on the carrier, and the wait is over.
            Some(work) => unsafe { call(self.owner, self.me, work) },
            None => self.panic.take().map_or(Ok(()), Err),
        }
    }
}

impl<F: FnOnce()> Drop for Parting<F> {
    fn drop(&mut self) {
        self.owner.forget_call(ptr::from_ref(self).cast());
    }
}

/// Work for the root. Its data lies in the frame of the fiber that asks for it, which stays in
/// place until the work is done.
#[derive(Clone, Copy)]
pub(super) struct Call {
    run: unsafe fn(*mut ()),
    data: *mut (),
    who: *const Control,
    /// Whether the fiber goes on as soon as the work is done. If not, it is in a wait.
    back: bool,
}

/// The data of a [`Call`].
struct Asked<F, R> {
    work: Option<F>,
    result: Option<std::thread::Result<R>>,
}

impl<F: FnOnce() -> R, R> Asked<F, R> {
    fn new(work: F) -> Self {
        Asked { work: Some(work), result: None }
    }

    /// Runs the work and stores its result.
    ///
    /// # Safety
    /// `data` points to a value of this type, which no other code uses meanwhile.
    unsafe fn run(data: *mut ()) {
        // SAFETY: `data` points to such a value, and no other code uses it.
        let this = unsafe { &mut *data.cast::<Self>() };
        if let Some(work) = this.work.take() {
            this.result = Some(catch_unwind(AssertUnwindSafe(work)));
        }
    }

    /// Returns a call for a fiber that goes on at once.
    fn call(&mut self, who: &Control) -> Call {
        Call { run: Self::run, data: ptr::from_mut(self).cast(), who, back: true }
    }
}

impl Owner {
    /// Runs `next`, and returns when the root has to pick the next fiber. Before it returns, it
    /// does the work that fibers have for the root.
    ///
    /// # Safety
    /// As for [`dispatch::go`], from the root.
    #[inline(always)]
    pub(in crate::carrier) unsafe fn go_from_root(&self, next: &Control) {
        // SAFETY: the root runs and stays on its thread, and `next` is ours to run.
        unsafe {
            dispatch::go(self, &self.root, next);
            if self.embedded.call.get().is_some() {
                self.do_calls();
            }
        }
    }

    /// Does the work that fibers have for the root.
    ///
    /// # Safety
    /// The caller is the root.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn do_calls(&self) {
        while let Some(call) = self.embedded.call.take() {
            let outer = self.embedded.lender.replace(call.who);
            let activation = self.activate();
            // SAFETY: the fiber that asked does not go on before the call was done. Then it is ours
            // to run, or it is in a wait and is dispatched like any other.
            unsafe {
                (call.run)(call.data);
                self.embedded.lender.set(outer);
                self.embedded.activation.set(activation);
                let next = if call.back { call.who } else { self.run_next.get() };
                // The fiber in `run_next` goes on now only if it has interrupted itself.
                if !call.back {
                    if self.embedded.interrupted.get() == 0
                        || next.is_null()
                        || ptr::eq(next, &raw const self.root)
                    {
                        return;
                    }
                    self.run_next.set(ptr::null());
                }
                dispatch::go(self, &self.root, &*next);
            }
        }
    }

    /// Does `work` on the root, and returns its result to the fiber.
    ///
    /// # Safety
    /// `me` runs on this carrier, and no wait of it is under way.
    pub(crate) unsafe fn on_root<R>(
        &self,
        me: &Control,
        work: impl FnOnce() -> R,
    ) -> std::thread::Result<R> {
        let mut asked = Asked::new(work);
        self.embedded.call.set(Some(asked.call(me)));
        me.set_flags(Flags::IMMEDIATE);
        // SAFETY: `me` runs on this carrier and stays on its thread. The root switches straight
        // back to it.
        unsafe { dispatch::go(self, me, &self.root) };
        me.clear_flags(Flags::IMMEDIATE);
        asked.result.take().expect("the root has done what it was asked for")
    }

    /// Calls `run` with `data` on the root when `me` stops next, which it does in a wait.
    ///
    /// # Safety
    /// `me` runs on this carrier. `run` may be called with `data` until
    /// [`forget_call`](Self::forget_call).
    pub(crate) unsafe fn call_once_stopped(
        &self,
        me: &Control,
        run: unsafe fn(*mut ()),
        data: *mut (),
    ) {
        self.embedded.call.set(Some(Call { run, data, who: me, back: false }));
        // Makes the next dispatch look for the call.
        self.end_stint();
    }

    /// Takes back the call with `data`, if it was not done.
    pub(crate) fn forget_call(&self, data: *const ()) {
        if self.embedded.call.get().is_some_and(|call| ptr::eq(call.data, data)) {
            self.embedded.call.set(None);
        }
    }

    /// Returns the fiber for which the root works at present.
    pub(crate) fn lender(&self) -> *const Control {
        self.embedded.lender.get()
    }
}
