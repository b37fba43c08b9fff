//! Inspects a running program: its fibers, their waits, and the places where they are.
//!
//! | question | answer |
//! | --- | --- |
//! | what does each fiber do? | [`fibers`], [`dump`], [`dump_json`], [`Fiber::backtrace`](crate::Fiber::backtrace) |
//! | which fibers wait for each other, or forever? | [`deadlocks`], [`all_asleep`], [`leaks`] |
//! | which fibers keep a carrier for too long? | [`report_stalls`](crate::runtime::Builder::report_stalls) |
//! | how busy are the carriers? | [`runtime::all`](crate::runtime::all), [`RuntimeHandle::metrics`](crate::RuntimeHandle::metrics), [`RuntimeHandle::measure`](crate::RuntimeHandle::measure) |
//! | which events happened, and when? | [`RuntimeHandle::trace`](crate::RuntimeHandle::trace) |
//!
//! The functions need no preparation. The caller does the work, on its own thread, while the
//! program goes on.
// README.md in this folder says why each answer was true at some moment.

mod asleep;
mod backtrace;
mod deadlock;
mod dump;
mod heap;
mod json;
mod leak;
mod memory;
mod metrics;
mod on_signal;
mod reach;
mod scan;
mod sentry;
mod snapshot;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod stop;
mod trace;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod walk;
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "walk/absent.rs"]
mod walk;
mod watchdog;

pub(crate) use backtrace::suspended_at;
pub(crate) use on_signal::{dump_on, say as say_dump};
pub(crate) use sentry::start as watch_waits;
pub(crate) use watchdog::start as watch_carriers;

pub use crate::metrics::Histogram;
/// Runs `f`, which walks stacks and reads tables, on a stack with enough room.
fn with_room<R>(f: impl FnOnce() -> R) -> R {
    /// Enough for a walk in a build without optimisation.
    const ROOM: usize = 128 * 1024;
    crate::room::with_room(ROOM, |_| f())
}

pub use asleep::all_asleep;
pub use backtrace::{Backtrace, BacktraceError, Frame, Symbol};
pub use deadlock::{Deadlock, deadlocks};
pub use dump::{dump, dump_json};
pub use leak::leaks;
pub use metrics::{CarrierMetrics, Metrics};
pub use snapshot::{FiberInfo, StackInfo, WaitInfo, fibers, stack_remaining};
pub use trace::{Trace, TraceEvent, TraceKind, WokenBy};
