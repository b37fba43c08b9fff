#![doc = include_str!("../README.md")]
//!
//! # Reading order
//!
//! Follow the life of a fiber: `spawn` makes it, `fiber` has its data, `queue` holds it until its
//! turn, `carrier` runs it, and `park` suspends and wakes it. `time`, `cancel`, `sync`, `blocking`
//! and `reactor` build on that; `io`, `net`, `fs`, `process` and `signal` build on those. `tasks`
//! builds on `spawn` and `sync`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod blocking;
mod cancel;
mod carrier;
mod clock;
mod fiber;
pub mod fs;
pub mod inspect;
pub mod io;
pub mod manager;
mod memory;
mod metrics;
pub mod net;
pub mod os;
mod park;
mod primitive;
pub mod process;
mod queue;
mod reactor;
mod report;
mod room;
pub mod runtime;
pub mod signal;
mod spawn;
pub mod sync;
pub mod tasks;
mod threads;
pub mod time;

pub use public::*;

/// The public surface of the crate.
mod public {
    pub use crate::blocking::{blocking, on_thread, set_max_blocking_threads};
    pub use crate::cancel::{
        Cancelled, Elapsed, deadline, is_cancel, is_cancelled, masked, timeout,
    };
    pub use crate::fiber::local::FiberLocal;
    pub use crate::fiber::{Fiber, FiberId, FiberState, WaitKind, current};
    pub use crate::inspect::{dump, fibers, stack_remaining};
    pub use crate::memory::release_free_memory;
    pub use crate::park::{ContextSlot, can_yield, park, park_timeout, pinned, yield_now};
    pub use crate::report::{reset_report_hook, set_report_hook};
    pub use crate::runtime::{Runtime, RuntimeHandle, current_carrier};
    pub use crate::spawn::{
        FiberBuilder, Group, JoinArm, JoinHandle, Scope, ScopedJoinHandle, Unstarted, block_on,
        run, run_all, scope, spawn, spawn_for_each_arrival, spawn_local, spawn_when_readable,
    };
    pub use crate::time::{
        sleep, sleep_deadline, wait_until, wait_until_deadline, wait_until_timeout,
    };
}

/// The pages for users. Their programs are compiled and run with the other examples.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../../../docs/which-one.md")]
    struct WhichOne;
    #[doc = include_str!("../../../docs/io.md")]
    struct Io;
    #[doc = include_str!("../../../docs/threads-and-async.md")]
    struct ThreadsAndAsync;
    #[doc = include_str!("../../../docs/soundness.md")]
    struct Soundness;
}
