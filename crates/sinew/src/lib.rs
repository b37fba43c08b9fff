#![doc = include_str!("../README.md")]
//!
//! # Reading order
//!
//! Follow the life of a fiber: `spawn` makes it, `fiber` has its data, `queue` holds it until its
//! turn, `carrier` runs it, and `park` suspends and wakes it. `time`, `cancel`, `sync`, `blocking`
//! and `reactor` build on that; `io`, `net`, `fs`, `process` and `signal` build on those. `tasks`
//! builds on `spawn` and `sync`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    sinew_loom,
    allow(dead_code, unused_imports, reason = "only what is modelled is built"),
    allow(clippy::modulo_one, clippy::absurd_extreme_comparisons, reason = "models are small")
)]

#[cfg(not(sinew_loom))]
mod blocking;
#[cfg(not(sinew_loom))]
mod cancel;
mod carrier;
#[cfg(not(sinew_loom))]
mod clock;
mod fiber;
#[cfg(not(sinew_loom))]
pub mod fs;
#[cfg(not(sinew_loom))]
pub mod inspect;
#[cfg(not(sinew_loom))]
pub mod io;
#[cfg(not(sinew_loom))]
pub mod manager;
#[cfg(not(sinew_loom))]
mod memory;
#[cfg(not(sinew_loom))]
mod metrics;
#[cfg(sinew_loom)]
mod model;
#[cfg(not(sinew_loom))]
pub mod net;
#[cfg(not(sinew_loom))]
pub mod os;
#[cfg(not(sinew_loom))]
mod park;
/// The real lists of waiters, above a model of the layers below them.
#[cfg(sinew_loom)]
mod park {
    pub(crate) mod list;
    pub(crate) mod table;
    pub(crate) use crate::model::{Wait, Waiter};
}
mod primitive;
#[cfg(not(sinew_loom))]
pub mod process;
mod queue;
#[cfg(not(sinew_loom))]
mod reactor;
/// The real gates of descriptors, for their models.
#[cfg(sinew_loom)]
mod reactor {
    mod gate;
}
#[cfg(not(sinew_loom))]
mod report;
#[cfg(not(sinew_loom))]
mod room;
#[cfg(not(sinew_loom))]
pub mod runtime;
#[cfg(not(sinew_loom))]
pub mod signal;
#[cfg(not(sinew_loom))]
mod spawn;
pub mod sync;
#[cfg(not(sinew_loom))]
pub mod tasks;
#[cfg(not(sinew_loom))]
mod time;

#[cfg(sinew_loom)]
use model::{cancel, clock, report};
#[cfg(not(sinew_loom))]
pub use public::*;

/// The public surface of the crate.
#[cfg(not(sinew_loom))]
mod public {
    pub use crate::blocking::{blocking, on_thread, set_max_blocking_threads};
    pub use crate::cancel::{
        Cancelled, Elapsed, deadline, is_cancel, is_cancelled, masked, timeout,
    };
    pub use crate::fiber::WaitKind;
    pub use crate::fiber::local::FiberLocal;
    pub use crate::inspect::{dump, fibers, stack_remaining};
    pub use crate::memory::release_free_memory;
    pub use crate::park::{ContextSlot, can_yield, park, park_timeout, pinned, yield_now};
    pub use crate::report::{reset_report_hook, set_report_hook};
    pub use crate::runtime::{Group, Handle, Runtime, current_carrier, run, run_all};
    pub use crate::spawn::{
        Builder, Fiber, FiberId, JoinArm, JoinHandle, Scope, ScopedJoinHandle, State, Unstarted,
        block_on, current, scope, spawn, spawn_local, spawn_when_readable, spawn_whenever_readable,
    };
    pub use crate::time::{sleep, sleep_until, wait_until};
}

/// The pages for users. Their programs are compiled and run with the other examples.
#[cfg(all(doctest, not(sinew_loom)))]
mod pages {
    #[doc = include_str!("../../../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../../../docs/io.md")]
    struct Io;
    #[doc = include_str!("../../../docs/threads-and-async.md")]
    struct ThreadsAndAsync;
    #[doc = include_str!("../../../docs/soundness.md")]
    struct Soundness;
}
