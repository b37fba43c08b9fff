//! Regions in which a fiber is not suspended.
//!
//! A wait in such a region blocks the carrier's thread. The runtime's policy decides whether that
//! is silent, reported or an error.

use crate::carrier::crew::PinnedWait;
use crate::carrier::{Carrier, current};
use crate::fiber::{Control, Flags, WaitKind, describe};
use crate::report;

/// Runs `f` with the running fiber pinned: the fiber is not suspended until `f` returns.
///
/// For code that breaks when other fibers of the thread run in between: foreign libraries with
/// state in thread-locals, locks of the operating system. A wait inside blocks the carrier and all
/// its fibers. So do [`blocking`](crate::blocking()), files and lookups of names.
/// [`runtime::Builder::pinned_wait`](crate::runtime::Builder::pinned_wait) decides whether such a
/// wait is reported, an error, or silent. [`yield_now`](crate::yield_now) inside panics. Regions
/// nest. On a plain thread this just calls `f`.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     sinew::pinned(|| {
///         assert!(!sinew::can_yield());
///     });
///     assert!(sinew::can_yield());
/// });
/// ```
pub fn pinned<R>(f: impl FnOnce() -> R) -> R {
    in_region(Flags::PINNED, f)
}

/// Runs `f`, a predicate or a hook, in which every wait is an error.
pub(crate) fn without_waiting<R>(f: impl FnOnce() -> R) -> R {
    in_region(Flags(Flags::PINNED.0 | Flags::NO_WAIT.0), f)
}

fn in_region<R>(flags: Flags, f: impl FnOnce() -> R) -> R {
    struct Region(&'static Control, Flags, Flags);
    impl Drop for Region {
        fn drop(&mut self) {
            self.0.restore_flags(self.1, self.2);
        }
    }
    let Some((_, control)) = current::fiber() else {
        return f();
    };
    let _region = Region(control, control.flags(), flags);
    control.set_flags(flags);
    f()
}

/// Returns whether the running code could be suspended: it is in a fiber that is not pinned.
///
/// # Examples
/// ```
/// assert!(!sinew::can_yield()); // a plain thread
/// sinew::run(|| assert!(sinew::can_yield()));
/// ```
pub fn can_yield() -> bool {
    current::fiber().is_some_and(|(_, control)| !control.flags().has(Flags::PINNED))
}

/// Applies the policy for pinned waits to the running fiber, which is about to block its carrier.
///
/// # Panics
/// If the policy is `Error`.
#[track_caller]
pub(crate) fn blocks_here(kind: WaitKind) {
    if let Some((owner, control)) = current::fiber() {
        about_to_block(owner.shared(), control, kind, false);
    }
}

/// Returns whether the running fiber is pinned and its runtime refuses waits of pinned fibers.
pub(crate) fn is_refused() -> bool {
    current::fiber()
        .is_some_and(|(owner, me)| me.flags().has(Flags::PINNED) && refuses(owner.shared()))
}

/// Returns whether a wait of a pinned fiber panics. An unwinding fiber may wait: a second panic
/// would end the process.
fn refuses(carrier: &Carrier) -> bool {
    carrier.crew().settings.pinned_wait == PinnedWait::Error && !std::thread::panicking()
}

/// Applies the policy to a pinned fiber that is about to block its carrier.
///
/// `must` says that the caller cannot be unwound: the policy `Error` then reports instead.
#[track_caller]
pub(super) fn about_to_block(carrier: &Carrier, control: &Control, kind: WaitKind, must: bool) {
    let operation = kind.operation();
    match carrier.crew().settings.pinned_wait {
        PinnedWait::Silent => {}
        PinnedWait::Error if !must && refuses(carrier) => panic!(
            "{operation} called by {} while it is pinned; it would block carrier {} with all its \
             fibers",
            describe(control),
            carrier.index()
        ),
        PinnedWait::Error | PinnedWait::Warn => report::say(format_args!(
            "{} is pinned and blocks carrier {} in {operation}",
            describe(control),
            carrier.index()
        )),
    }
}
