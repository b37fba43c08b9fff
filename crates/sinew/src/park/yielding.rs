//! Letting the other fibers of a carrier run.

use super::{is_unwinding, slots};
use crate::cancel;
use crate::carrier::{Carrier, current, dispatch};
use crate::clock;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, Flags};

/// Lets the other ready fibers of this carrier run before the caller continues.
///
/// Costs a few nanoseconds. On a plain thread it calls [`std::thread::yield_now`]. A cancelled
/// fiber is unwound from here.
///
/// # Panics
/// If the fiber is [pinned](crate::pinned).
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let other = sinew::spawn(|| 7);
///     while !other.is_finished() {
///         sinew::yield_now();
///     }
///     assert_eq!(other.join().unwrap(), 7);
/// });
/// ```
#[inline(always)]
#[track_caller]
pub fn yield_now() {
    // Always inlined: out of line, the function would save and restore six registers that its
    // caller seldom uses.
    let Some((carrier, me)) = current::running() else {
        return std::thread::yield_now();
    };
    if me.flags().has(Flags::SLOW_YIELD) || std::thread::panicking() {
        return yield_the_long_way(carrier, me);
    }
    // SAFETY: `me` runs on `carrier`, and a running fiber is in no queue.
    unsafe { dispatch::go_behind(carrier, me) };
}

#[cold]
#[inline(never)]
#[track_caller]
fn yield_the_long_way(carrier: &'static Carrier, me: &'static Control) {
    if me.flags().has(Flags::ROOT) {
        return std::thread::yield_now();
    }
    if me.flags().has(Flags::PINNED) {
        panic!(
            "yield_now called by {} while it is pinned, which keeps it from being suspended",
            crate::spawn::describe(me)
        );
    }
    cancel::check_here(me);
    let_others_run(carrier, me);
    cancel::settle(me, Outcome::Notified);
    cancel::check_here(me);
}

/// Lets the other fibers run, also if the caller is unwinding or uses context slots. Does not raise
/// a cancellation.
pub(crate) fn let_others_run(carrier: &Carrier, me: &Control) {
    let unwinding = is_unwinding(carrier, me);
    let rebind = unwinding && me.flags().has(Flags::MIGRATABLE);
    if rebind {
        me.clear_flags(Flags::MIGRATABLE);
    }
    if unwinding {
        me.set_flags(Flags::UNWINDING);
        carrier.unwinding.set(carrier.unwinding.get() + 1);
    }
    let slots = me.flags().has(Flags::SLOTS);
    if slots {
        slots::swap_out(me);
    }
    // SAFETY: `me` runs on `carrier`, and a running fiber is in no queue.
    unsafe {
        if me.flags().has(Flags::EMBEDDED) {
            carrier.behind_all(me);
        } else {
            carrier.behind(me);
        }
        dispatch::suspend(carrier, me);
    }
    if unwinding {
        carrier.unwinding.set(carrier.unwinding.get() - 1);
        me.clear_flags(Flags::UNWINDING);
    }
    if rebind {
        me.set_flags(Flags::MIGRATABLE);
    }
    if slots {
        slots::swap_in(me);
    }
}

/// Lets other fibers run before each wait, for tests: they may change the awaited condition. Not in
/// a manager, which promises the order in which fibers run.
#[cfg(sinew_force_yield)]
pub(crate) fn before_a_wait() {
    if let Some((carrier, me)) = current::fiber()
        && !me.flags().has(Flags(Flags::PINNED.0 | Flags::NO_WAIT.0 | Flags::EMBEDDED.0))
    {
        let_others_run(carrier, me);
    }
}

/// Returns whether the deadline of a scope that `who` is in has passed.
pub(crate) fn deadline_passed(who: &Control) -> bool {
    super::scope_deadline(who) != clock::NEVER && super::scope_deadline(who) <= clock::now()
}
