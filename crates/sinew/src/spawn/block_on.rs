//! Futures in fibers.

use super::handle::current;
use crate::fiber::{FiberRef, WaitKind};
use crate::park;
use core::future::Future;
use core::mem::ManuallyDrop;
use core::pin::pin;
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Waits for a future: suspends the fiber, or blocks the thread, until it is ready.
///
/// The future is polled here. One that needs a reactor of its own (a socket of another runtime)
/// must find that running on another thread. A cancelled fiber is unwound from here, and drops the
/// future.
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
    let mut future = pin!(future);
    let waker = waker(current());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        park::park_as(WaitKind::Future);
    }
}

/// A waker that unparks a fiber or a thread. Its data is a counted reference.
fn waker(fiber: super::Fiber) -> Waker {
    let data = FiberRef::new(fiber.control()).into_counted().cast::<()>();
    // SAFETY: the functions below keep the count.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// # Safety
/// `data` is that of a waker that is alive.
unsafe fn borrowed(data: *const ()) -> ManuallyDrop<FiberRef> {
    // SAFETY: the waker keeps its reference.
    ManuallyDrop::new(unsafe { FiberRef::from_counted(data.cast()) })
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: called with the data of a waker.
    let fiber = unsafe { borrowed(data) };
    let copy = FiberRef::clone(&*fiber);
    RawWaker::new(copy.into_counted().cast(), &VTABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: called with the data of a waker that is used up.
    let fiber = unsafe { FiberRef::from_counted(data.cast()) };
    park::unpark(&fiber);
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: called with the data of a waker.
    let fiber = unsafe { borrowed(data) };
    park::unpark(&fiber);
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: called with the data of a waker that is used up.
    drop(unsafe { FiberRef::from_counted(data.cast()) });
}
