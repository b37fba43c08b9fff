//! Functions injected into another fiber: their return types, and how they get there.

use super::Fiber;
use crate::context::Context;
use crate::entry::Message;
use core::mem::ManuallyDrop;

/// The return type of a function injected by [`Fiber::resume_with`]: `Option<Fiber>`, [`Fiber`], or
/// `!`.
#[diagnostic::on_unimplemented(
    message = "a function injected into a fiber returns a fiber, an optional one, or never",
    label = "returns `{Self}`",
    note = "return the fiber it was given, to go on as if it had not been there"
)]
pub trait Resumed: sealed::Sealed {
    /// Converts to the value that the suspended call returns.
    fn into_resumed(self) -> Option<Fiber>;
}

impl Resumed for Option<Fiber> {
    fn into_resumed(self) -> Option<Fiber> {
        self
    }
}

impl Resumed for Fiber {
    fn into_resumed(self) -> Option<Fiber> {
        Some(self)
    }
}

impl Resumed for sealed::Never {
    fn into_resumed(self) -> Option<Fiber> {
        self
    }
}

mod sealed {
    use super::Fiber;

    /// The type `!`. Stable Rust can name it only as a return type.
    pub(super) type Never = <fn() -> ! as Returns>::Output;

    pub trait Returns {
        type Output;
    }

    impl<R> Returns for fn() -> R {
        type Output = R;
    }

    pub trait Sealed {}
    impl Sealed for Option<Fiber> {}
    impl Sealed for Fiber {}
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
        F: FnOnce(Fiber) -> R,
        R: Resumed,
    {
        let message = Message { deliver: run_injected::<F, R> };
        Injection { message, f: ManuallyDrop::new(f) }
    }
}

unsafe fn run_injected<F, R>(from: Option<Context>, message: *mut Message) -> Option<Fiber>
where
    F: FnOnce(Fiber) -> R,
    R: Resumed,
{
    // SAFETY: the message begins an `Injection<F>`, and its sender is suspended. The function is
    // taken out once, and moved to this stack before it can resume or unwind the sender.
    let (f, caller) = unsafe {
        let f = ManuallyDrop::take(&mut (*message.cast::<Injection<F>>()).f);
        (f, Fiber::from_context(from.expect("whoever injects a function is suspended")))
    };
    f(caller).into_resumed()
}
