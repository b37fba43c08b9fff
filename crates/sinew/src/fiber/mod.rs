//! The unit of scheduling: a fiber's control block, its life and its wait.
//!
//! `control` is the block, `life` and `state` are its two words, `flags` its properties, `task` its
//! closure and result, `slab` its memory. A `reference` keeps it alive.
//!
//! Next: `queue`, where a ready fiber waits for its turn.

mod cancelled;
pub(crate) mod control;
pub(crate) mod debugger;
pub(crate) mod extra;
mod flags;
mod handle;
pub(crate) mod life;
pub(crate) mod local;
pub(crate) mod on_end;
mod reference;
pub(crate) mod slab;
pub(crate) mod state;
pub(crate) mod task;
mod wait_kind;

pub use cancelled::{Cancelled, is_cancel};
pub(crate) use cancelled::{panic_ended, panics_unseen};
pub(crate) use control::Control;
pub(crate) use extra::{Disarm, Signal, SlotUse};
pub(crate) use flags::Flags;
pub use handle::{Fiber, FiberId, FiberState, current};
pub(crate) use handle::{describe, number_of};
pub(crate) use reference::FiberRef;
pub use wait_kind::WaitKind;
