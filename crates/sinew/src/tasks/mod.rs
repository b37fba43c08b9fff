//! Several tasks at once, and what becomes of their results.
//!
//! A task is a closure that runs in a fiber of its own, on the carrier of the fiber that starts it, as
//! by [`spawn_local`](crate::spawn_local): it need not be `Send`, and no other thread takes part.
//! [`Builder::task`](crate::Builder::task) gives a task a name, a stack size, or fiber-locals.
//!
//! | to | use |
//! | --- | --- |
//! | have all results, in order | [`collect_all`] |
//! | have the first so many, or the first | [`collect_n`], [`collect_any`] |
//! | do something with each as it comes | [`for_each`] |
//! | take them one by one, and add tasks meanwhile | [`add_tasks`], [`TaskIterator`] |
//! | do for many at once what each asks for alone | [`BatchDispatcher`] |
//! | the same, once, for a known set that may be on any thread | [`AtomicBatchDispatcher`] |
//!
//! For tasks that may run on every carrier there are [`run_all`](crate::run_all) and
//! [`Group`](crate::Group), and [`scope`](crate::scope()) for those that borrow.
//!
//! # Panics and cancellation
//!
//! A task that panics ends alone; what its panic means to the caller is said at each function. A task
//! that was cancelled, or that there was no stack for, counts as one that panicked; the payload tells
//! ([`is_cancel`](crate::is_cancel)).
//!
//! A caller that is cancelled, or whose [`timeout`](crate::timeout()) is over, is unwound from its wait.
//! Its tasks go on without it, and their results are dropped as they end. The same holds for tasks that
//! were not waited for. Those who want them to end as well give them a
//! [`CancellationToken`](crate::sync::CancellationToken) or call [`TaskIterator::cancel`].
//!
//! On a plain thread, which has no carrier to run tasks on, every function here that starts one panics
//! and says so.

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
