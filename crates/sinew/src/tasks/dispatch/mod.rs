//! Dispatchers. A dispatcher gathers values into a batch, processes the batch with one call, and
//! returns a future for each value.
//!
//! [`batch`] gathers the values that fibers of one carrier add until its job runs. [`atomic`]
//! gathers the values of a known set of tokens. Both end in [`run`], which settles every future of
//! a batch, however the dispatch function ends.

mod atomic;
mod batch;
mod error;
mod future;

pub use atomic::{AtomicBatchDispatcher, BatchToken};
pub use batch::BatchDispatcher;
pub use error::DispatchError;
pub use future::BatchFuture;

use crate::fiber::is_cancel;
use crate::park::raise;
use future::Promise;
use sinew_context::is_unwind;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls the function with all values. Gives each future its result, or gives an error to all
/// futures.
///
/// A panic becomes the error of the futures and goes no further. Three things go on in the caller:
/// its cancellation, the unwinding of a first-class fiber that calls this, and a panic in a batch
/// that has no futures.
fn run<V, R>(values: Vec<V>, promises: Vec<Promise<R>>, f: impl FnOnce(Vec<V>) -> Vec<R>) {
    match catch_unwind(AssertUnwindSafe(|| f(values))) {
        Ok(results) if results.len() == promises.len() => {
            promises.into_iter().zip(results).for_each(|(promise, result)| promise.set(Ok(result)));
        }
        Ok(results) => {
            let error =
                DispatchError::WrongCount { values: promises.len(), results: results.len() };
            fail(promises, &error);
        }
        Err(payload) => {
            let cancelled = is_cancel(&*payload) || is_unwind(&*payload);
            let goes_on = cancelled || promises.is_empty();
            let error = if cancelled {
                DispatchError::Cancelled
            } else {
                DispatchError::panicked(&*payload)
            };
            fail(promises, &error);
            if goes_on {
                raise::pass_on(payload);
            }
        }
    }
}

/// Gives a copy of the error to every future.
fn fail<R>(promises: impl IntoIterator<Item = Promise<R>>, error: &DispatchError) {
    promises.into_iter().for_each(|promise| promise.set(Err(error.clone())));
}
