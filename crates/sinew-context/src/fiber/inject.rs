//! Functions injected into another fiber: their return types, and how they get there.

use super::FiberContext;
use crate::context::Context;
use crate::entry::Message;
use core::mem::ManuallyDrop;

/// The return type of a function injected by [`FiberContext::resume_with`]:
/// `Option<FiberContext>`, [`FiberContext`], or `!`.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, unwind};
///
/// let waiting = || {
///     let fiber = FiberContext::new(|caller| caller.resume().expect("what `f` returns"));
///     fiber.unwrap().resume().unwrap()
/// };
/// // Each of the three ends the waiting fiber.
/// assert!(waiting().resume_with(|caller| caller).is_none());
/// assert!(waiting().resume_with(|caller| Some(caller)).is_none());
/// assert!(waiting().resume_with(|caller| unwind(caller)).is_none());
/// ```
#[diagnostic::on_unimplemented(
    message = "a function injected into a fiber returns a fiber, an `Option` of a fiber, or `!`",
    label = "returns `{Self}`",
    note = "return the fiber that the function received, to let the suspended call return it"
)]
pub trait Resumed: sealed::Sealed {
    /// Converts to the value that the suspended call returns.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{FiberContext, Resumed};
    ///
    /// let fiber = FiberContext::new(|caller| caller)?;
    /// let resumed = fiber.into_resumed(); // the value that the suspended call returns
    /// assert!(resumed.is_some_and(|fiber| fiber.is_unstarted()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn into_resumed(self) -> Option<FiberContext>;
}

impl Resumed for Option<FiberContext> {
    fn into_resumed(self) -> Option<FiberContext> {
        self
    }
}

impl Resumed for FiberContext {
    fn into_resumed(self) -> Option<FiberContext> {
        Some(self)
    }
}

impl Resumed for sealed::Never {
    fn into_resumed(self) -> Option<FiberContext> {
        self
    }
}

mod sealed {
    use super::FiberContext;

    /// The type `!`. Stable Rust can name it only as a return type.
    pub(super) type Never = <fn() -> ! as Returns>::Output;

    pub trait Returns {
        type Output;
    }

    impl<R> Returns for fn() -> R {
        type Output = R;
    }

    pub trait Sealed {}
    impl Sealed for Option<FiberContext> {}
    impl Sealed for FiberContext {}
    impl Sealed for Never {}
}

/// A function on its way into another fiber. It lies on the stack of the sender.
#[repr(C)]
pub(super) struct Injection<F> {
    message: Message,
    f: ManuallyDrop<F>,
}

impl<F> Injection<F> {
    pub(super) fn new<R>(f: F) -> Self
    where
        F: FnOnce(FiberContext) -> R,
        R: Resumed,
    {
        let message = Message { deliver: run_injected::<F, R> };
        Injection { message, f: ManuallyDrop::new(f) }
    }
}

/// The message of an [`Injection`]: runs the injected function on the receiver's stack.
///
/// # Safety
/// `message` is the first field of an `Injection<F>` that was not delivered yet. `from` is the
/// sender, which is suspended, and no other value stands for it.
unsafe fn run_injected<F, R>(from: Option<Context>, message: *mut Message) -> Option<FiberContext>
where
    F: FnOnce(FiberContext) -> R,
    R: Resumed,
{
    // SAFETY: the message begins an `Injection<F>`, and its sender is suspended. The function is
    // taken out once, and moved to this stack before it can resume or unwind the sender.
    let (f, caller) = unsafe {
        let f = ManuallyDrop::take(&mut (*message.cast::<Injection<F>>()).f);
        (f, FiberContext::from_context(from.expect("the injecting fiber is suspended")))
    };
    f(caller).into_resumed()
}
