//! What is scheduled: a fiber's control block, its life and its wait.
//!
//! Next: `queue`, where one that is ready waits for its turn.

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
