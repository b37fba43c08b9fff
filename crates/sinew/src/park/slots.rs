//! Context slots: thread-locals of foreign code that belong to a fiber while it runs.
//!
//! A slot's hook exchanges the thread-local's content with a place that is given to it. While a
//! fiber that uses the slot runs, its value is in the thread-local and the carrier's in the place;
//! while it is suspended, the other way round. That also holds after a migration: what is exchanged
//! is always the content of the thread that runs the hook.

use crate::carrier::current;
use crate::fiber::{Control, Flags};
use crate::park::without_waiting;
use crate::report;
use core::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A thread-local of other code that shall follow a fiber.
///
/// Some libraries keep state in thread-locals that they expect to find again later in the same flow
/// of control: a current span, a locale, an error code. Fibers of one thread would get in each
/// other's way there. A slot says how to exchange the state with a value; while
/// [`enter`](Self::enter) runs, the state is the fiber's own, and is exchanged at each of its
/// switches. Fibers that use no slot pay nothing.
///
/// # Examples
/// ```
/// use sinew::ContextSlot;
/// use std::cell::Cell;
///
/// thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
/// static SLOT: ContextSlot<u32> = ContextSlot::new(|value| *value = DEPTH.replace(*value));
///
/// sinew::run(|| {
///     let fibers = [1, 2].map(|depth| {
///         sinew::spawn_local(move || {
///             SLOT.enter(depth, || {
///                 sinew::yield_now(); // the other one runs, on the same thread
///                 assert_eq!(DEPTH.get(), depth);
///             })
///         })
///     });
///     fibers.map(|fiber| fiber.join().unwrap());
/// });
/// ```
#[derive(Debug)]
pub struct ContextSlot<T: 'static> {
    exchange: fn(&mut T),
}

/// A use of a slot, on the stack of the fiber.
struct Use {
    outer: *const Use,
    exchange: unsafe fn(*const Use),
}

#[repr(C)]
struct UseOf<T: 'static> {
    head: Use,
    exchange: fn(&mut T),
    place: UnsafeCell<Option<T>>,
}

impl<T: 'static> ContextSlot<T> {
    /// A slot whose hook exchanges what it is given with the thread's state.
    ///
    /// The hook runs at each switch and must not wait. A panic in it is raised in the fiber, out of
    /// the wait.
    pub const fn new(exchange: fn(&mut T)) -> Self {
        ContextSlot { exchange }
    }

    /// Runs `f` with `value` as the state, and gives back what the state is at the end.
    ///
    /// On a plain thread the state is `value` while `f` runs, and is put back afterwards.
    pub fn enter<R>(&'static self, value: T, f: impl FnOnce() -> R) -> (R, T) {
        /// Puts the state back when `f` unwinds.
        struct Leave<'a, T: 'static>(&'a UseOf<T>, Option<&'static Control>, Flags);
        impl<T> Leave<'_, T> {
            fn leave(&self) {
                if let Some(control) = self.1 {
                    control.extra_or_new().slots.set(self.0.head.outer.cast());
                    control.restore_flags(self.2, Flags::SLOTS);
                }
                // SAFETY: a use of this type.
                unsafe { exchange::<T>(&raw const self.0.head) };
            }
        }
        impl<T> Drop for Leave<'_, T> {
            fn drop(&mut self) {
                if catch_unwind(AssertUnwindSafe(|| self.leave())).is_err() {
                    report::say(format_args!(
                        "the hook of a context slot panicked while a fiber that uses it unwound"
                    ));
                }
            }
        }
        let control = current::fiber().map(|(_, control)| control);
        let outer = control
            .and_then(Control::extra)
            .map_or(core::ptr::null(), |extra| extra.slots.get().cast::<Use>());
        let used = UseOf {
            head: Use { outer, exchange: exchange::<T> },
            exchange: self.exchange,
            place: UnsafeCell::new(Some(value)),
        };
        // SAFETY: a use of this type.
        unsafe { exchange::<T>(&raw const used.head) };
        let flags = control.map_or(Flags(0), Control::flags);
        if let Some(control) = control {
            control.extra_or_new().slots.set((&raw const used.head).cast());
            control.set_flags(Flags::SLOTS);
        }
        let leave = Leave(&used, control, flags);
        let result = f();
        let leave = core::mem::ManuallyDrop::new(leave);
        leave.leave();
        (result, used.place.into_inner().expect("the place holds a value"))
    }
}

unsafe fn exchange<T: 'static>(head: *const Use) {
    // SAFETY: the head of a `UseOf<T>` on a stack that is alive, and only one of the fiber itself
    // and its switches runs at a time.
    unsafe {
        let used = head.cast::<UseOf<T>>();
        let place = (*used).place.get();
        if let Some(value) = (*place).as_mut() {
            without_waiting(|| ((*used).exchange)(value));
        }
    }
}

/// Puts the carrier's states back, before the fiber is suspended. Innermost first.
pub(crate) fn swap_out(control: &Control) {
    let Some(extra) = control.extra() else { return };
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut next = extra.slots.get().cast::<Use>();
        while !next.is_null() {
            // SAFETY: uses are on the fiber's stack, and leave the list before they go.
            unsafe {
                ((*next).exchange)(next);
                next = (*next).outer;
            }
        }
    }));
    if let Err(panic) = caught {
        // The wait is registered and cannot be left: raised when it returns.
        extra.pending_panic.set(Some(panic));
    }
}

/// Puts the fiber's states in place, when it runs again. Outermost first.
pub(crate) fn swap_in(control: &Control) {
    let Some(extra) = control.extra() else { return };
    // The list goes outwards; a recursion turns it round, and slots are few.
    unsafe fn from_outermost(head: *const Use) {
        if head.is_null() {
            return;
        }
        // SAFETY: as in `swap_out`.
        unsafe {
            from_outermost((*head).outer);
            ((*head).exchange)(head);
        }
    }
    // SAFETY: the uses of this fiber.
    unsafe { from_outermost(extra.slots.get().cast()) };
    if let Some(panic) = extra.pending_panic.take() {
        resume_unwind(panic);
    }
}
