#![doc = include_str!("../README.md")]
//!
//! # Reading order
//!
//! `fiber` ([`FiberContext`]) and `entry` are the life of a fiber. `context` and `arch` are the
//! switch under it. [`stack`] holds the memory that fibers run on. `unwind` ends a fiber early.
//! [`scope`](scope()) and [`Generator`] are built on top. `host` says where a fiber may run, and
//! [`hook`] lets a runtime take part. `census` counts the fibers of a thread, and `sanitizer`
//! announces switches to tools.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(sinew_loom, allow(dead_code, reason = "only what is modelled is used"))]

mod arch;
mod census;
pub mod context;
mod entry;
mod fiber;
mod generator;
pub mod hook;
mod host;
mod primitive;
mod sanitizer;
mod scope;
pub mod stack;
mod unwind;

#[doc = include_str!("../docs/p0876.md")]
pub mod p0876 {}

pub use census::live_fibers;
pub use fiber::{CreateError, FiberContext, Resumed};
pub use generator::{Consumer, Generator, Input, PushError, Yielder};
pub use scope::{Scope, scope};
pub use unwind::{catch_panic, is_unwind, unwind};
