//! Helpers that the tests of sinew share.
//!
//! - [`child`] runs the body of a test in a process of its own, for tests that end the process.
//! - [`Log`] records events in order, including drops.
//! - [`memory`] reads the kernel's figures about the memory of this process.
//! - [`processor_time`] is the processor time that the process has used.
//! - [`Seed`] makes stress tests repeatable.
//! - [`stack`] fills or overflows the current stack.
//! - [`watch`] ends a test that hangs.

pub mod child;
pub mod log;
pub mod memory;
mod processor;
pub mod seed;
pub mod stack;
pub mod watch;

pub use log::{Log, Noisy};
pub use processor::processor_time;
pub use seed::Seed;
