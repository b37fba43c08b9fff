//! Which fiber unwinds, while the standard library counts panics by thread.

use super::{Owner, current};
use crate::fiber::{Control, Flags, panics_unseen};

/// Returns whether the running fiber is unwinding, or may be.
///
/// The standard library counts panics per thread. While no other fiber of the thread is suspended
/// in the middle of an unwinding, the count belongs to the running fiber. While another one is, the
/// running fiber counts as unwinding if a panic was seen to begin in it: by the panic hook, by
/// sinew-context, which unwinds first-class fibers, or by the code of sinew that raised the panic
/// or passed it on. If another hook has replaced sinew's, a panic may end a fiber without having
/// been seen to begin. From then on, while another fiber is suspended in this way, every fiber
/// counts as unwinding. A fiber that is wrongly counted hears of its cancellation later: when no
/// fiber of the thread unwinds any more.
pub(crate) fn is_unwinding(owner: &Owner, control: &Control) -> bool {
    if !std::thread::panicking() {
        control.clear_flags(Flags::PANICKED);
        return false;
    }
    owner.unwinding.get() == 0
        || control.flags().has(Flags::PANICKED)
        || control.extra().is_some_and(|extra| extra.unwindings.get() > 0)
        || panics_unseen()
}

/// Marks the running fiber as suspended in the middle of an unwinding, before it stops.
pub(crate) fn begin_unwound_wait(owner: &Owner, control: &Control) {
    control.set_flags(Flags::UNWINDING);
    owner.unwinding.set(owner.unwinding.get() + 1);
}

/// Removes the mark of [`begin_unwound_wait`], after the fiber has gone on. A fiber does not move
/// while it unwinds, so it is on the carrier on which it stopped.
pub(crate) fn end_unwound_wait(control: &Control) {
    if let Some(owner) = current::owner() {
        owner.unwinding.set(owner.unwinding.get() - 1);
    }
    control.clear_flags(Flags::UNWINDING);
}
