//! Ending a fiber from any depth.
//!
//! # Protocol
//!
//! `unwind(to)` stores `to` in the fiber's header and raises a panic whose payload has a private
//! type, without calling the panic hook. Destructors run. The fiber's first frame recognises the
//! payload, takes `to` out of the header and exits to it.
//!
//! The payload holds no data. It must reach the first frame, though, because `to` waits for this
//! fiber to end. Code that catches the payload and raises it again (`resume_unwind`) is fine. The
//! process reports and aborts if code drops the payload, returns from the entry function without
//! it, or continues after it and is unwound a second time.

use crate::arch;
use crate::entry::Header;
use crate::fiber::FiberContext;
use crate::hook::{fatal, tell_unwinding};
use std::any::Any;
use std::panic::{UnwindSafe, resume_unwind};

/// The payload of an unwinding. The type is private, so that no other code can make one.
struct Unwinding;

impl Drop for Unwinding {
    fn drop(&mut self) {
        swallowed();
    }
}

/// Reports that the payload did not reach the first frame, and aborts.
#[cold]
pub(crate) fn swallowed() -> ! {
    fatal(format_args!(
        "sinew: the unwinding of a fiber was caught and not raised again; aborting, since another \
         fiber waits for its end. After `catch_unwind`, raise a payload again if \
         `sinew_context::is_unwind` recognises it"
    ))
}

/// Ends the running fiber: runs its destructors from the innermost frame outwards, then continues
/// in `to`, which receives `None`.
///
/// It works at any depth. It can also be injected: `fiber.resume_with(unwind)` ends `fiber` and
/// returns to the caller, as dropping `fiber` does.
///
/// # Panics
/// On the stack of an OS thread or of a runtime's own fiber. These did not begin as a
/// [`FiberContext`], and end by returning.
///
/// # Aborts
/// If the fiber is being unwound already, or if code on the way catches the unwinding and does not
/// raise it again. With `panic = "abort"` it always aborts, because nothing can be unwound.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, unwind};
///
/// let fiber = FiberContext::new(|caller| {
///     fn deep(caller: FiberContext) -> ! {
///         let _dropped_on_the_way = vec![1, 2, 3];
///         unwind(caller)
///     }
///     deep(caller)
/// })?;
/// assert!(fiber.resume().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn unwind(to: FiberContext) -> ! {
    let Some(header) = Header::at(arch::stack_pointer()) else {
        panic!(
            "unwind called outside of a `FiberContext`: an OS thread or a runtime's fiber ends by \
             returning"
        );
    };
    if cfg!(panic = "abort") {
        fatal(format_args!(
            "sinew: a fiber cannot be unwound under panic = \"abort\"; let it return instead of \
             dropping it while it is suspended"
        ));
    }
    if header.is_unwinding() {
        swallowed();
    }
    header.begin_unwinding(to);
    tell_unwinding(true);
    resume_unwind(Box::new(Unwinding))
}

/// Runs `f` and catches a panic in it, but lets the unwinding of a fiber pass.
///
/// Use it on a fiber where a thread would use [`std::panic::catch_unwind`].
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, catch_panic};
///
/// let fiber = FiberContext::new(|caller| {
///     let result = catch_panic(|| "seven".parse::<u32>().unwrap());
///     assert!(result.is_err());
///     caller
/// })?;
/// assert!(fiber.resume().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn catch_panic<R>(f: impl FnOnce() -> R + UnwindSafe) -> std::thread::Result<R> {
    std::panic::catch_unwind(f).map_err(|payload| {
        if is_unwind(&*payload) {
            resume_unwind(payload);
        }
        payload
    })
}

/// Whether a caught panic is the unwinding of a fiber, which must be raised again.
///
/// [`catch_panic`] raises it again.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, is_unwind, unwind};
/// use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
///
/// let fiber = FiberContext::new(|caller| {
///     let result = catch_unwind(AssertUnwindSafe(|| caller.resume()));
///     let payload = result.expect_err("the fiber is unwound while it is suspended");
///     assert!(is_unwind(&*payload));
///     resume_unwind(payload)
/// })?;
/// let fiber = fiber.resume().unwrap();
/// assert!(fiber.resume_with(unwind).is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn is_unwind(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Unwinding>()
}

/// Disposes of the payload of an unwinding that has reached the first frame.
pub(crate) fn arrived(payload: Box<dyn Any + Send>) {
    if let Ok(unwinding) = payload.downcast::<Unwinding>() {
        core::mem::forget(*unwinding);
        tell_unwinding(false);
    }
}
