//! Running futures in fibers and on threads.

use crate::fiber::FiberRef;
use crate::fiber::{Signal, current};
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

/// Runs a future to its end, suspending the fiber or blocking the thread until it is ready.
///
/// The caller polls the future. A future that needs a reactor of its own, such as a socket of
/// another runtime, relies on that reactor running on another thread. If the fiber is cancelled,
/// this call unwinds it and drops the future.
///
/// Calls nest: a poll may call `block_on` or [`park`](crate::park()), which take no wake meant for
/// this call. Only the future's waker ends the wait; [`Fiber::unpark`](crate::Fiber::unpark) does
/// not.
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
    // Declared first, so that it is dropped after the future, which may keep wakers.
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

/// The signal of one call of `block_on`.
///
/// The call takes the signal that its fiber or thread keeps, if there is one, and puts it back at
/// the end unless a waker is left that may still set it. A nested call inside a poll finds no kept
/// signal and makes one.
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
