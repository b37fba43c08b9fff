//! Runs several tasks at once, and collects their results.
//!
//! A task is a closure that runs in its own fiber, on the carrier of the fiber that starts it, like
//! a fiber of [`spawn_local`](crate::spawn_local). The closure need not be `Send`, because no other
//! thread runs it. [`FiberBuilder::task`](crate::FiberBuilder::task) gives a task a name, a stack
//! size, or fiber-locals.
//!
//! | to | use |
//! | --- | --- |
//! | get all results, in order | [`collect_all`] |
//! | get the first `n` results, or the first | [`collect_n`], [`collect_any`] |
//! | handle each result as it comes | [`for_each`] |
//! | take results one by one, and add tasks meanwhile | [`add_tasks`], [`TaskIterator`] |
//! | answer many single requests with one call | [`BatchDispatcher`] |
//! | answer a known set of requests, from any thread, with one call | [`AtomicBatchDispatcher`] |
//!
//! For tasks that may run on every carrier, use [`run_all`](crate::run_all) or
//! [`Group`](crate::Group). For tasks that borrow, use [`scope`](crate::scope()).
//!
//! # Panics and cancellation
//!
//! A panic ends only the task that panicked. Each function here says how it passes the panic to the
//! caller. A task that was cancelled, or for which there was no stack, counts as a task that
//! panicked. [`is_cancel`](crate::is_cancel) recognizes the payload of a cancellation.
//!
//! A caller is unwound from its wait if it is cancelled or its [`timeout`](crate::timeout()) has
//! passed. Its tasks go on without it, and their results are dropped when they end. Tasks for which
//! the caller did not wait also go on. To end such tasks, give them a
//! [`CancellationToken`](crate::sync::CancellationToken) or call [`TaskIterator::cancel`].
//!
//! A plain thread has no carrier to run tasks on: there, every function of this module that starts
//! a task panics.

mod collect;
mod dispatch;
mod iterator;
mod task;

pub use collect::{collect_all, collect_any, collect_n, for_each};
pub use dispatch::{
    AtomicBatchDispatcher, BatchDispatcher, BatchFuture, BatchToken, DispatchError,
};
pub use iterator::{TaskIterator, add_tasks};
pub use task::{IntoTask, Task};
