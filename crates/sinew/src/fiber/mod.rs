//! The unit of scheduling: a fiber's control block, its life and its wait.
//!
//! `control` is the block, `life` and `state` are its two words, `task` its closure and result,
//! `slab` its memory.
//!
//! Next: `queue`, where a ready fiber waits for its turn.

#[cfg(not(sinew_loom))]
pub(crate) mod control;
#[cfg(not(sinew_loom))]
pub(crate) mod debugger;
#[cfg(not(sinew_loom))]
pub(crate) mod extra;
#[cfg(not(sinew_loom))]
pub(crate) mod life;
#[cfg(not(sinew_loom))]
pub(crate) mod local;
#[cfg(not(sinew_loom))]
pub(crate) mod slab;
pub(crate) mod state;
#[cfg(not(sinew_loom))]
pub(crate) mod task;

#[cfg(not(sinew_loom))]
pub use control::WaitKind;
#[cfg(not(sinew_loom))]
pub(crate) use control::{Control, FiberRef, Flags};
#[cfg(not(sinew_loom))]
pub(crate) use extra::Disarm;

#[cfg(sinew_loom)]
pub(crate) use crate::model::{Control, WaitKind};
