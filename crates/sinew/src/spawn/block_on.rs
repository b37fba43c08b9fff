//! Futures in fibers.

use super::handle::current;
use crate::fiber::FiberRef;
use crate::park::Signal;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

/// Waits for a future: suspends the fiber, or blocks the thread, until it is ready.
///
/// The future is polled here. One that needs a reactor of its own (a socket of another runtime)
/// must find that running on another thread. A cancelled fiber is unwound from here, and drops the
/// future.
///
/// Calls nest: a poll may call `block_on` or [`park`](crate::park()), which take no wake of this call. Nor does
/// [`Fiber::unpark`](crate::Fiber::unpark) end it: only the future's waker does.
///
/// # Examples
/// ```
/// let answer = sinew::block_on(async { 42 });
/// assert_eq!(answer, 42);
///
/// sinew::run(|| {
///     let fiber = sinew::spawn(|| 7);
///     let both = sinew::block_on(async { fiber.await.unwrap() + 1 });
///     assert_eq!(both, 8);
/// });
/// ```
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    // Dropped after the future, which may keep wakers.
    let signal = Borrowed::new();
    let mut future = pin!(future);
    let waker = Waker::from(signal.signal.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        signal.signal.wait();
    }
}

/// The signal of one call of `block_on`: taken from the fiber or thread if it keeps one, and put back unless a waker is
/// left that may still give it. A call inside a poll finds none there, and makes another.
struct Borrowed {
    signal: Arc<Signal>,
    owner: FiberRef,
}

impl Borrowed {
    fn new() -> Borrowed {
        let owner = FiberRef::new(current().control());
        let kept = owner.extra_or_new().signal.take();
        Borrowed { signal: kept.unwrap_or_else(|| Arc::new(Signal::new())), owner }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(signal) = Arc::get_mut(&mut self.signal) {
            signal.reset();
            self.owner.extra_or_new().signal.set(Some(self.signal.clone()));
        }
    }
}
