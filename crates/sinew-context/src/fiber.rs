//! The first-class fiber: a suspended flow of control that can be held, moved and resumed.
//!
//! Next: `entry`, where a fiber begins and ends.

mod error;
mod inject;

pub use error::CreateError;
pub use inject::Resumed;

use inject::Injection;

use crate::context::{self, Context, Registers};
use crate::entry::{self, FromAnyone, FromSuspended, Header, receive};
use crate::hook;
use crate::host::Host;
use crate::stack::{ProtectedFixedSize, Stack, StackAllocator};
use crate::unwind::unwind;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use std::io;

/// A suspended fiber.
///
/// The value stands for a flow of control that is not running: a function with its own stack, or
/// an OS thread that has switched away. [`resume`](Self::resume) uses the value up, suspends the
/// caller and goes on there; what it returns stands for whoever switched back. So each suspended
/// fiber is represented by exactly one value, and the running one by none: resuming a fiber that
/// runs or has ended is not possible.
///
/// There is no scheduler and no parent: a fiber switches to any other it holds.
/// The size is that of a pointer, also of an `Option<Fiber>`.
///
/// # Ending
///
/// A fiber ends when its function returns the fiber to go on with, when [`unwind`] is called on
/// it, when another fiber injects that (`fiber.resume_with(unwind)`), or when its value is
/// dropped, which does the same. Dropping runs the destructors on the fiber's stack while the
/// dropping side waits, then frees the stack. A fiber that never ran has its closure dropped.
///
/// The value of an OS thread (`main` included) may be dropped too. Threads are not unwound: the
/// thread's own frames stay suspended for good, as if the value had been forgotten, and the fiber
/// that dropped it is what the thread runs from then on.
///
/// A forgotten fiber keeps its stack for ever.
///
/// A panic that escapes the function ends the process, with a message: there is no frame left
/// that could catch it. Catch panics inside, with [`catch_panic`](crate::catch_panic), which lets
/// the unwinding of a dropped fiber pass.
///
/// Dropping a suspended fiber unwinds it as a panic would: a `std` mutex whose guard is on its
/// stack is poisoned.
///
/// # Where it can be resumed
///
/// On the thread that made it: a `Fiber` is not `Send`. If a runtime is present, in the fiber of
/// the runtime that made it.
///
/// ```compile_fail,E0277
/// let fiber = sinew_context::Fiber::new(|caller| caller).unwrap();
/// std::thread::spawn(move || fiber.resume());
/// ```
///
/// # Examples
/// ```
/// use sinew_context::Fiber;
///
/// let fiber = Fiber::new(|caller| {
///     println!("in the fiber");
///     let caller = caller.resume().expect("the caller resumes us");
///     println!("in the fiber again");
///     caller // ends the fiber and goes on in the caller
/// })?;
/// let fiber = fiber.resume().expect("it switched back and can go on");
/// println!("back in the caller");
/// assert!(fiber.resume().is_none()); // it has ended
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a dropped fiber is unwound"]
#[repr(transparent)]
pub struct Fiber {
    context: Context,
    /// The stack holds values of any type, references to thread-locals among them.
    not_send: PhantomData<*mut ()>,
}

impl Fiber {
    /// Makes a fiber that runs `f`, on a stack of its own with a guard below.
    ///
    /// Nothing runs until the fiber is first resumed. `f` gets the fiber that resumed it and
    /// returns the one to go on with when it is done.
    ///
    /// Each call maps a stack of 256 KiB and each end unmaps it: use
    /// [`with_allocator`](Self::with_allocator) and a pool to make many.
    ///
    /// # Aborts
    /// If the first to switch to the fiber is one that has just ended, there is nobody to give
    /// to `f`: such a fiber is made by [`with_entry`](Self::with_entry).
    ///
    /// # Errors
    /// If there is no memory for a stack.
    pub fn new<F>(f: F) -> io::Result<Fiber>
    where
        F: FnOnce(Fiber) -> Fiber + 'static,
    {
        Self::with_allocator(&ProtectedFixedSize::default(), f)
    }

    /// Makes a fiber that runs `f` on a stack of `allocator`.
    ///
    /// # Errors
    /// If the allocator has no stack, or `f` does not fit on it. Nothing is lost: to keep `f` for
    /// another try, allocate the stack first and use [`on_stack`](Self::on_stack).
    pub fn with_allocator<A, F>(allocator: &A, f: F) -> io::Result<Fiber>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(Fiber) -> Fiber + 'static,
    {
        // SAFETY: `f` borrows nothing.
        unsafe { entry::create_in(allocator, FromSuspended(f)) }
    }

    /// Makes a fiber whose function can also be started by a fiber that has ended.
    ///
    /// `f` gets `None` if the fiber that switched to it first did so by ending, or if a function
    /// injected before the start returned `None`. Schedulers, in which one task ends into the
    /// next, need this.
    ///
    /// # Errors
    /// As [`with_allocator`](Self::with_allocator).
    pub fn with_entry<A, F>(allocator: &A, f: F) -> io::Result<Fiber>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(Option<Fiber>) -> Fiber + 'static,
    {
        // SAFETY: `f` borrows nothing.
        unsafe { entry::create_in(allocator, FromAnyone(f)) }
    }

    /// Makes a fiber that runs `f` on a stack that is there already.
    ///
    /// # Errors
    /// If `f` does not fit on the stack; the error gives both back.
    pub fn on_stack<F>(stack: Stack, f: F) -> Result<Fiber, CreateError<F>>
    where
        F: FnOnce(Fiber) -> Fiber + 'static,
    {
        // SAFETY: `f` borrows nothing.
        let created = unsafe { entry::create(stack, FromSuspended(f)) };
        created.map_err(|error| error.map(|FromSuspended(f)| f))
    }

    /// Suspends the caller and goes on in this fiber.
    ///
    /// Returns when somebody switches back to the caller: `Some` with the fiber that did and is
    /// now suspended, `None` if it has ended. Which fiber that is depends on the program; it need
    /// not be the one resumed here.
    ///
    /// # Panics
    /// If this fiber belongs to another host: another thread or another fiber of the runtime.
    /// It stays suspended for good then. Panics too if a function that panics is injected into
    /// the caller by [`resume_with`](Self::resume_with) while it is suspended.
    #[inline]
    #[track_caller]
    #[must_use = "dropping the fiber that switched back unwinds it"]
    pub fn resume(self) -> Option<Fiber> {
        // First of all: a value that might still be dropped would be kept in memory across the
        // switch, and its address be waited for in front of it.
        let to = self.into_context();
        // SAFETY: the context is suspended.
        let home = Host::from_tag(unsafe { to.tag() });
        if !home.is_plain_thread() {
            return Self::resume_by_hook(to);
        }
        // SAFETY: `self` was the one value of a suspended fiber of this host, and is used up.
        unsafe { receive(context::switch(to, home.tag())) }
    }

    /// Suspends the caller and runs `f` on top of this fiber, as if the call in which it is
    /// suspended had called `f`.
    ///
    /// `f` gets the suspended caller. What it returns is what the suspended call returns in this
    /// fiber. If it panics, the panic goes through this fiber's frames. In a fiber that never
    /// ran, `f` runs before its function, which gets what `f` returns.
    ///
    /// `f` may return `Option<Fiber>`, a `Fiber`, or not at all, as [`unwind`] does.
    /// It is `'static` because it may itself be suspended, for longer than the caller lives;
    /// [`Scope::resume_with`](crate::Scope::resume_with) takes closures that borrow.
    ///
    /// If `f` lets go of the fiber it gets, the caller is unwound. To panic into a fiber and come
    /// back, put that fiber first where the function that catches the panic finds it.
    ///
    /// # Panics
    /// As [`resume`](Self::resume).
    ///
    /// # Examples
    /// ```
    /// use sinew_context::Fiber;
    ///
    /// let fiber = Fiber::new(|caller| caller.resume().expect("resumed once more"))?;
    /// let fiber = fiber.resume().expect("suspended in its own resume");
    /// let ended = fiber.resume_with(|caller| {
    ///     println!("on the fiber's stack");
    ///     caller // what the fiber's own resume returns
    /// });
    /// assert!(ended.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "dropping the fiber that switched back unwinds it"]
    #[track_caller]
    pub fn resume_with<F, R>(self, f: F) -> Option<Fiber>
    where
        F: FnOnce(Fiber) -> R + 'static,
        R: Resumed,
    {
        // SAFETY: `f` borrows nothing.
        unsafe { self.inject(f) }
    }

    /// As [`resume_with`](Self::resume_with), for closures that borrow.
    ///
    /// # Safety
    /// Nothing that `f` borrows ends before `f` has returned or been unwound.
    #[track_caller]
    pub(crate) unsafe fn inject<F, R>(self, f: F) -> Option<Fiber>
    where
        F: FnOnce(Fiber) -> R,
        R: Resumed,
    {
        let to = self.into_context();
        let host = Self::home_is_here(to);
        let mut injection = Injection::new(f);
        let message = (&raw mut injection).expose_provenance();
        // SAFETY: as in `resume`; the injection lies on this stack, which is suspended while the
        // receiver reads it.
        unsafe { receive(context::switch_with(to, message, host.tag())) }
    }

    /// Whether the fiber can be resumed where this is called: on its thread, in its runtime fiber.
    #[inline]
    pub fn is_at_home(&self) -> bool {
        self.home().is_current()
    }

    /// Whether the fiber was never resumed.
    pub fn is_unstarted(&self) -> bool {
        // SAFETY: the context is suspended as long as this value exists.
        unsafe { self.context.unstarted().is_some() }
    }

    /// Whether the value stands for an OS thread, or a runtime's fiber, that has switched away.
    pub fn is_thread(&self) -> bool {
        Header::at(self.context.address()).is_none()
    }

    /// Addresses of the fiber's stack; `None` for a thread.
    pub fn stack_range(&self) -> Option<core::ops::Range<usize>> {
        Header::at(self.context.address()).map(|header| header.stack().range())
    }

    /// Bytes of its stack that the fiber uses while suspended; `None` for a thread.
    pub fn stack_used(&self) -> Option<usize> {
        Some(self.stack_range()?.end - self.context.address())
    }

    /// Bytes of its stack that were ever touched, right within one page; see
    /// [`Stack::high_water_mark`](crate::stack::Stack::high_water_mark).
    pub fn stack_high_water_mark(&self) -> Option<usize> {
        Header::at(self.context.address())?.stack().high_water_mark()
    }

    /// Gives the memory below the suspended frames back to the kernel. For a fiber that will wait
    /// for long after it used much of its stack. Does nothing for threads and heap stacks.
    pub fn trim(&self) {
        if let Some(header) = Header::at(self.context.address()) {
            // SAFETY: the fiber is suspended, with its lowest frame at that address.
            unsafe { crate::stack::discard_below(header.stack(), self.context.address()) };
        }
    }

    /// Where the fiber goes on, for debuggers and stack walkers.
    pub fn registers(&self) -> Registers {
        // SAFETY: the context is suspended as long as this value exists.
        unsafe { self.context.registers() }
    }

    #[inline(always)]
    pub(crate) fn home(&self) -> Host {
        // SAFETY: the context is suspended as long as this value exists.
        Host::from_tag(unsafe { self.context.tag() })
    }

    /// # Safety
    /// The context is suspended, belongs to a fiber or thread that switched by this crate's
    /// fibers, and no other value stands for it.
    #[inline(always)]
    pub(crate) unsafe fn from_context(context: Context) -> Fiber {
        Fiber { context, not_send: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn into_context(self) -> Context {
        ManuallyDrop::new(self).context
    }

    /// The host of a fiber that may be resumed here.
    #[inline(always)]
    #[track_caller]
    fn home_is_here(context: Context) -> Host {
        // SAFETY: the context is suspended.
        let home = Host::from_tag(unsafe { context.tag() });
        if !home.is_current() {
            refuse(home);
        }
        home
    }

    /// [`resume`](Self::resume) where a runtime has to be asked, or where it is refused.
    ///
    /// Apart, with a switch of its own, so that the common one keeps its registers.
    #[inline(never)]
    #[track_caller]
    fn resume_by_hook(to: Context) -> Option<Fiber> {
        let host = Self::home_is_here(to);
        // SAFETY: as in `resume`.
        unsafe { receive(context::switch(to, host.tag())) }
    }
}

/// Panics for a fiber that is resumed away from home. It stays suspended: it cannot be unwound
/// here either.
#[cold]
#[inline(never)]
#[track_caller]
fn refuse(home: Host) -> ! {
    let host = Host::current();
    panic!("a fiber of {home} was resumed in {host}; it can go on only where it was made");
}

impl Drop for Fiber {
    fn drop(&mut self) {
        let home = self.home();
        if !home.is_current() {
            let host = Host::current();
            // Left suspended, with its stack: nothing else is safe.
            let leak = format_args!(
                "a fiber of {home} was dropped in {host}; it is leaked, since it can be unwound \
                 only where it was made"
            );
            if std::thread::panicking() {
                return hook::report(format_args!("sinew: {leak}"));
            }
            panic!("{leak}");
        }
        // SAFETY: the one value of a suspended fiber; it is not used after this.
        unsafe {
            if let Some(record) = self.context.unstarted() {
                return entry::discard(record);
            }
        }
        match Header::at(self.context.address()) {
            // A thread's frames stay as they are.
            None => {}
            Some(header) if header.is_unwinding() => hook::fatal(format_args!(
                "sinew: a fiber was dropped while a destructor that ran because it is being \
                 unwound had switched away; aborting, since it can be unwound only once"
            )),
            Some(_) => {
                // SAFETY: the value is not used after this.
                let fiber = unsafe { Fiber::from_context(self.context) };
                if fiber.resume_with(unwind).is_some() {
                    unreachable!("nobody but the fiber that ends holds the one that waits for it");
                }
            }
        }
    }
}

impl fmt::Debug for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fiber").field(&self.context.as_ptr()).finish()
    }
}

// No two values that exist at the same time are equal; the order is that of the addresses, the
// same as long as the fiber is not resumed.

impl PartialEq for Fiber {
    fn eq(&self, other: &Self) -> bool {
        self.context == other.context
    }
}

impl Eq for Fiber {}

impl PartialOrd for Fiber {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fiber {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.context.cmp(&other.context)
    }
}

impl core::hash::Hash for Fiber {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.context.hash(state);
    }
}
