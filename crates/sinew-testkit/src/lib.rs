//! What the tests of sinew share.
//!
//! [`child`] runs a test's body in a process of its own, for what ends a process; [`Log`] records
//! what happened in which order, drops included; [`memory`] reads what the kernel says about
//! this process, and [`processor_time`] what it has cost; [`Seed`] makes stress tests repeatable; [`stack`] uses a stack up; [`watch`] ends a
//! test that hangs.

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
