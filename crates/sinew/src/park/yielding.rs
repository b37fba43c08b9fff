//! Letting the other fibers of a carrier run.

use super::{raise, slots};
use crate::carrier::unwinding::{begin_unwound_wait, end_unwound_wait, is_unwinding};
use crate::carrier::{Owner, current, dispatch};
use crate::clock;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, Flags, describe};

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
    let Some((owner, me)) = current::running() else {
        return std::thread::yield_now();
    };
    if me.flags().has(Flags::SLOW_YIELD) || std::thread::panicking() {
        return yield_the_long_way(owner, me);
    }
    // SAFETY: `me` runs, and a running fiber is in no queue.
    unsafe { dispatch::go_behind(owner, me) };
}

#[cold]
#[inline(never)]
#[track_caller]
fn yield_the_long_way(owner: &'static Owner, me: &'static Control) {
    if me.flags().has(Flags::ROOT) {
        return std::thread::yield_now();
    }
    if me.flags().has(Flags::PINNED) {
        panic!(
            "yield_now called by {} while it is pinned, which keeps it from being suspended",
            describe(me)
        );
    }
    raise::check_here(me);
    let_others_run(owner, me);
    raise::settle(me, Outcome::Notified);
    raise::check_here(me);
}

/// Lets the other fibers run, also if the caller is unwinding or uses context slots. Does not raise
/// a cancellation.
pub(crate) fn let_others_run(owner: &'static Owner, me: &Control) {
    // SAFETY: `me` runs, and a running fiber is in no queue.
    leave(owner, me, || unsafe {
        owner.behind_others(me);
        dispatch::suspend(owner, me);
    });
}

/// Calls `switch`, in which other fibers run before `me`, the running fiber, goes on. Meanwhile
/// `me` counts as suspended, also if it is unwinding or uses context slots.
pub(crate) fn leave(owner: &Owner, me: &Control, switch: impl FnOnce()) {
    let unwinding = is_unwinding(owner, me);
    let rebind = unwinding && me.flags().has(Flags::MIGRATABLE);
    if rebind {
        me.clear_flags(Flags::MIGRATABLE);
    }
    if unwinding {
        begin_unwound_wait(owner, me);
    }
    let slots = me.flags().has(Flags::SLOTS);
    if slots {
        slots::swap_out(me);
    }
    switch();
    if unwinding {
        end_unwound_wait(me);
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
    if let Some((owner, me)) = current::fiber()
        && !me.flags().has(Flags(Flags::PINNED.0 | Flags::NO_WAIT.0 | Flags::EMBEDDED.0))
    {
        let_others_run(owner, me);
    }
}

/// Returns whether the deadline of a scope that `who` is in has passed.
pub(crate) fn deadline_passed(who: &Control) -> bool {
    super::scope_deadline(who) != clock::NEVER && super::scope_deadline(who) <= clock::now()
}
