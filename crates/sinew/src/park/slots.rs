//! Context slots: thread-locals of foreign code that belong to a fiber while it runs.
//!
//! A slot's hook exchanges the content of the thread-local with a place that it is given. While a
//! fiber that uses the slot runs, the thread-local has the fiber's value and the place has the
//! carrier's. While the fiber is suspended, it is the other way round. This also holds after a
//! migration: the hook always exchanges the content of the thread that it runs on.
//!
//! A hook is user code that runs in the middle of a switch. If it panics, the payload is kept, and
//! the wait raises it after it has taken back its registration. A hook can change the list of uses,
//! by way of first-class fibers. That does no harm: each use is an `Rc`, and the list is walked by
//! position.

use crate::carrier::current;
use crate::fiber::extra::Extra;
use crate::fiber::{Control, Flags, SlotUse};
use crate::park::without_waiting;
use crate::report;
use core::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// A thread-local of other code that follows a fiber.
///
/// Some libraries keep state in thread-locals and expect to find it again later in the same flow of
/// control: a current span, a locale, an error code. Fibers of one thread would overwrite each
/// other's state there. A slot has a function that exchanges the state with a value. While
/// [`enter`](Self::enter) runs, the state is the fiber's own, and each switch of the fiber
/// exchanges it. Fibers that use no slot pay nothing.
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
///                 sinew::yield_now(); // the other fiber runs, on the same thread
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

struct UseOf<T: 'static> {
    exchange: fn(&mut T),
    /// Empty while the hook runs.
    place: Cell<Option<T>>,
}

impl<T: 'static> SlotUse for UseOf<T> {
    fn exchange(&self) {
        if let Some(mut value) = self.place.take() {
            without_waiting(|| (self.exchange)(&mut value));
            self.place.set(Some(value));
        }
    }
}

impl<T: 'static> ContextSlot<T> {
    /// Creates a slot. Its hook exchanges the value that it is given with the thread's state.
    ///
    /// The hook runs at each switch and must not wait. If it panics in a switch, the fiber's wait
    /// raises that panic.
    ///
    /// # Examples
    /// ```
    /// use std::cell::Cell;
    ///
    /// thread_local!(static STATE: Cell<u32> = const { Cell::new(0) });
    /// static SLOT: sinew::ContextSlot<u32> =
    ///     sinew::ContextSlot::new(|value| *value = STATE.replace(*value));
    /// assert_eq!(SLOT.enter(1, || STATE.get()), (1, 1));
    /// ```
    pub const fn new(exchange: fn(&mut T)) -> Self {
        ContextSlot { exchange }
    }

    /// Runs `f` with `value` as the state. Returns the result and the state at the end.
    ///
    /// On a plain thread the state is `value` while `f` runs, and the old state is restored
    /// afterwards.
    ///
    /// # Panics
    /// If the hook panics, or loses the value.
    ///
    /// # Examples
    /// ```
    /// use std::cell::Cell;
    ///
    /// thread_local!(static STATE: Cell<u32> = const { Cell::new(0) });
    /// static SLOT: sinew::ContextSlot<u32> =
    ///     sinew::ContextSlot::new(|value| *value = STATE.replace(*value));
    /// let (_, last) = SLOT.enter(1, || STATE.set(2));
    /// assert_eq!((last, STATE.get()), (2, 0));
    /// ```
    pub fn enter<R>(&'static self, value: T, f: impl FnOnce() -> R) -> (R, T) {
        /// Restores the state when `f` unwinds.
        struct Leave<'a>(&'a Rc<dyn SlotUse>, Option<&'static Control>);
        impl Leave<'_> {
            fn leave(&self) {
                if let Some(control) = self.1 {
                    forget(control, self.0);
                }
                self.0.exchange();
            }
        }
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                if report::contain(|| self.leave()).is_none() {
                    report::say(format_args!(
                        "the hook of a context slot panicked while a fiber that uses it unwound"
                    ));
                }
            }
        }
        let control = current::fiber().map(|(_, control)| control);
        let used = Rc::new(UseOf { exchange: self.exchange, place: Cell::new(Some(value)) });
        let entry: Rc<dyn SlotUse> = used.clone();
        entry.exchange();
        if let Some(control) = control {
            remember(control, entry.clone());
        }
        let leave = Leave(&entry, control);
        let result = f();
        let leave = core::mem::ManuallyDrop::new(leave);
        leave.leave();
        (result, used.place.take().expect("the hook of a context slot lost the value"))
    }
}

/// Runs `f` in the running fiber. `entry.exchange` is called at each switch away from the fiber and
/// at each switch back.
pub(crate) fn with_use<R>(entry: Rc<dyn SlotUse>, f: impl FnOnce() -> R) -> R {
    struct Forget(&'static Control, Rc<dyn SlotUse>);
    impl Drop for Forget {
        fn drop(&mut self) {
            forget(self.0, &self.1);
        }
    }
    let Some((_, control)) = current::fiber() else {
        return f();
    };
    remember(control, entry.clone());
    let _forget = Forget(control, entry);
    f()
}

fn remember(control: &Control, entry: Rc<dyn SlotUse>) {
    let extra = control.extra_or_new();
    with_uses(extra, |uses| uses.push(entry));
    control.set_flags(Flags::SLOTS);
}

fn forget(control: &Control, entry: &Rc<dyn SlotUse>) {
    let Some(extra) = control.extra() else { return };
    let (removed, none) = with_uses(extra, |uses| {
        let index = uses.iter().rposition(|used| Rc::ptr_eq(used, entry));
        (index.map(|index| uses.remove(index)), uses.is_empty())
    });
    if none {
        control.clear_flags(Flags::SLOTS);
    }
    drop(removed);
}

/// Calls `f` with the list of uses. `f` must not run user code.
fn with_uses<R>(extra: &Extra, f: impl FnOnce(&mut Vec<Rc<dyn SlotUse>>) -> R) -> R {
    // SAFETY: the list belongs to the fiber, and this is the fiber's thread. `f` only moves
    // entries, so it does not call this function again.
    f(unsafe { &mut *extra.slots.get() })
}

/// Runs the hooks of all uses: the outermost first if `inwards`, otherwise the innermost first.
fn exchange_all(control: &Control, inwards: bool) {
    let Some(extra) = control.extra() else { return };
    let count = with_uses(extra, |uses| uses.len());
    for step in 0..count {
        let position = if inwards { step } else { count - 1 - step };
        let Some(used) = with_uses(extra, |uses| uses.get(position).cloned()) else { continue };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| used.exchange())) {
            // The first panic is kept, and the wait raises it at its end. The unwinding of a
            // first-class fiber must not be lost, so it replaces a panic.
            let before = extra.pending_panic.take();
            let (kept, lost) = match before {
                Some(first) if !sinew_context::is_unwind(&*panic) => (first, Some(panic)),
                before => (panic, before),
            };
            extra.pending_panic.set(Some(kept));
            core::mem::forget(lost);
            control.set_flags(Flags::PENDING);
        }
    }
}

/// Restores the carrier's states before the fiber is suspended. Innermost first.
pub(crate) fn swap_out(control: &Control) {
    exchange_all(control, false);
}

/// Restores the fiber's states when it runs again. Outermost first.
pub(crate) fn swap_in(control: &Control) {
    exchange_all(control, true);
}
