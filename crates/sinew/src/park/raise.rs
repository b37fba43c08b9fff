//! Raising: the end of a wait unwinds a fiber that was cancelled, or whose deadline has passed.
//!
//! A wait raises after it has taken back its registrations, and never while its fiber unwinds or is
//! masked. `cancel` has the protocol of a request.

use super::yielding;
use crate::carrier::current;
use crate::carrier::unwinding::is_unwinding;
use crate::fiber::life::CANCELLED;
use crate::fiber::state::Outcome;
use crate::fiber::{Cancelled, Control, Flags};
use core::any::Any;
use std::panic::resume_unwind;

/// Raises the cancellation, deadline or panic that the end of a wait asks for. Every wait calls it,
/// after it has taken back its registrations.
#[inline(always)]
pub(crate) fn settle(who: &Control, outcome: Outcome) {
    if outcome != Outcome::Notified || who.flags().has(Flags::PENDING) {
        settle_unusual(who, outcome);
    }
}

#[cold]
#[inline(never)]
fn settle_unusual(who: &Control, outcome: Outcome) {
    if who.flags().has(Flags::PENDING) {
        who.clear_flags(Flags::PENDING);
        if let Some(panic) = who.extra().and_then(|extra| extra.pending_panic.take()) {
            pass_on(panic);
        }
    }
    match outcome {
        Outcome::Notified => {}
        // A deaf wait is never interrupted, and the flags have not changed since it ended.
        Outcome::Interrupted => {
            if !who.flags().has(Flags::DEAF) {
                raise(who, false);
            }
        }
        Outcome::TimedOut => {
            if yielding::deadline_passed(who) && may_raise(who) {
                raise(who, true);
            }
        }
    }
}

/// Goes on with a panic that was caught on the way.
pub(crate) fn pass_on(payload: Box<dyn Any + Send>) -> ! {
    if let Some((_, control)) = current::fiber() {
        control.set_flags(Flags::PANICKED);
    }
    resume_unwind(payload)
}

/// Raises a cancellation or a passed deadline that was noted while the fiber did not wait.
pub(crate) fn check_here(who: &Control) {
    if !may_raise(who) {
        return;
    }
    if who.life.marks() & CANCELLED != 0 {
        raise(who, false);
    }
    if yielding::deadline_passed(who) {
        raise(who, true);
    }
}

/// Whether a wait of the running fiber or thread may unwind it.
fn may_raise(who: &Control) -> bool {
    if who.flags().has(Flags(Flags::MASKED.0 | Flags::NO_WAIT.0)) {
        return false;
    }
    match current::fiber() {
        Some((owner, control)) => !(std::thread::panicking() && is_unwinding(owner, control)),
        None => !std::thread::panicking(),
    }
}

fn raise(who: &Control, deadline: bool) {
    if cfg!(panic = "abort") {
        // Nothing can be unwound. Waits that can fail return an error instead.
        return;
    }
    if let Some((owner, control)) = current::fiber() {
        if control.flags().has(Flags::RAISED) && !control.flags().has(Flags::PINNED) {
            // The payload was caught before, and may be again. Let the other fibers run at least.
            yielding::let_others_run(owner, control);
        }
        control.set_flags(Flags(Flags::RAISED.0 | Flags::PANICKED.0));
    }
    resume_unwind(Box::new(Cancelled::raised_in(who, deadline)))
}

/// Raises a cancellation or a passed deadline of the running fiber.
pub(crate) fn check_current() {
    if let Some((_, control)) = current::fiber() {
        check_here(control);
    }
}
