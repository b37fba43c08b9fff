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
/// The value stands for a flow of control that is not running: a function with its own stack, or an
/// OS thread that has switched away. [`resume`](Self::resume) consumes the value, suspends the
/// caller and continues there. The `FiberContext` that `resume` returns stands for the flow of
/// control that switched back. So each suspended fiber is represented by exactly one value, and the
/// running one by none. Resuming a fiber that runs or has ended is not possible.
///
/// There is no scheduler and no parent: a fiber can switch to any other fiber that it holds. A
/// `FiberContext`, and an `Option<FiberContext>`, is as large as a pointer.
///
/// # Ending
///
/// A fiber ends in one of four ways:
/// - its function returns the fiber to continue with;
/// - the fiber calls [`unwind`];
/// - another fiber injects `unwind` into it: `fiber.resume_with(unwind)`;
/// - its value is dropped, which injects `unwind` too.
///
/// Dropping a suspended fiber runs the destructors on the fiber's stack while the dropping side
/// waits, then frees the stack. Dropping a fiber that never ran drops its closure.
///
/// The value of an OS thread (`main` included) may be dropped too. Threads are not unwound: the
/// thread's own frames stay suspended for good, as if the value had been forgotten. From then on
/// the thread runs the fiber that dropped the value.
///
/// A forgotten fiber keeps its stack for ever.
///
/// A panic that escapes the function ends the process with a message, because no frame is left that
/// could catch it. Catch panics inside, with [`catch_panic`](crate::catch_panic), which lets the
/// unwinding of a dropped fiber pass.
///
/// Dropping a suspended fiber unwinds it as a panic would: a `std` mutex whose guard is on its
/// stack is poisoned.
///
/// # Where it can be resumed
///
/// A fiber that was made on a plain thread can be resumed only on that thread: a `FiberContext` is
/// not `Send`. A fiber that was made in a fiber of a runtime can be resumed only in that fiber of
/// the runtime.
///
/// ```compile_fail,E0277
/// let fiber = sinew_context::FiberContext::new(|caller| caller).unwrap();
/// std::thread::spawn(move || fiber.resume());
/// ```
///
/// # Examples
/// ```
/// use sinew_context::FiberContext;
///
/// let fiber = FiberContext::new(|caller| {
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
pub struct FiberContext {
    context: Context,
    /// Makes the type `!Send`: the stack may hold values of any type, among them references to
    /// thread-locals.
    not_send: PhantomData<*mut ()>,
}

impl FiberContext {
    /// Makes a fiber that runs `f`, on a stack of its own with a guard below.
    ///
    /// Nothing runs until the fiber is first resumed. `f` receives the fiber that resumed it, and
    /// returns the fiber to continue with when it is done.
    ///
    /// Each call maps a stack of 256 KiB and each end unmaps it: use
    /// [`with_allocator`](Self::with_allocator) and a pool to make many.
    ///
    /// # Aborts
    /// If the first switch to the fiber is the end of another fiber: then no suspended fiber
    /// exists that `f` could receive. [`with_entry`](Self::with_entry) makes fibers that can be
    /// started like this.
    ///
    /// # Errors
    /// If there is no memory for a stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::FiberContext;
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// let ran = Rc::new(Cell::new(false));
    /// let theirs = ran.clone();
    /// let fiber = FiberContext::new(move |caller| {
    ///     theirs.set(true);
    ///     caller
    /// })?;
    /// assert!(!ran.get()); // the fiber has not started
    /// assert!(fiber.resume().is_none());
    /// assert!(ran.get());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new<F>(f: F) -> io::Result<FiberContext>
    where
        F: FnOnce(FiberContext) -> FiberContext + 'static,
    {
        Self::with_allocator(&ProtectedFixedSize::default(), f)
    }

    /// Makes a fiber that runs `f` on a stack of `allocator`.
    ///
    /// # Errors
    /// If the allocator has no stack, or `f` does not fit on it. `f` is dropped then. To keep `f`
    /// for another try, allocate the stack first and use [`on_stack`](Self::on_stack).
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{FiberContext, stack::StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// for _ in 0..100 {
    ///     let fiber = FiberContext::with_allocator(&pool, |caller| caller)?;
    ///     assert!(fiber.resume().is_none());
    /// }
    /// assert_eq!(pool.stats().reused, 99); // all fibers but the first
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_allocator<A, F>(allocator: &A, f: F) -> io::Result<FiberContext>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(FiberContext) -> FiberContext + 'static,
    {
        // SAFETY: `f` borrows nothing.
        unsafe { entry::create_in(allocator, FromSuspended(f)) }
    }

    /// Makes a fiber that the end of another fiber can start, too.
    ///
    /// `f` receives `None` if the first switch to this fiber was the end of another fiber, or if a
    /// function injected before the start returned `None`. Schedulers in which one task ends into
    /// the next need this.
    ///
    /// # Errors
    /// If the allocator has no stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{FiberContext, stack::ProtectedFixedSize};
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// let main: Rc<Cell<Option<FiberContext>>> = Rc::default();
    /// let second = FiberContext::with_entry(&ProtectedFixedSize::default(), {
    ///     let main = main.clone();
    ///     move |from| {
    ///         assert!(from.is_none()); // the first fiber has ended
    ///         main.take().expect("the first fiber kept it")
    ///     }
    /// })?;
    /// let first = FiberContext::new(move |caller| {
    ///     main.set(Some(caller));
    ///     second // ends the first fiber and starts the second
    /// })?;
    /// assert!(first.resume().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_entry<A, F>(allocator: &A, f: F) -> io::Result<FiberContext>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(Option<FiberContext>) -> FiberContext + 'static,
    {
        // SAFETY: `f` borrows nothing.
        unsafe { entry::create_in(allocator, FromAnyone(f)) }
    }

    /// Makes a fiber that runs `f` on a stack that the caller has allocated.
    ///
    /// # Errors
    /// If `f` does not fit on the stack. The error gives the stack and `f` back.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{FiberContext, stack::{ProtectedFixedSize, StackAllocator}};
    ///
    /// let stack = ProtectedFixedSize::new(64 * 1024)?.allocate()?;
    /// let range = stack.range();
    /// let fiber = FiberContext::on_stack(stack, |caller| caller)?;
    /// assert_eq!(fiber.stack_range(), Some(range));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_stack<F>(stack: Stack, f: F) -> Result<FiberContext, CreateError<F>>
    where
        F: FnOnce(FiberContext) -> FiberContext + 'static,
    {
        // SAFETY: `f` borrows nothing.
        let created = unsafe { entry::create(stack, FromSuspended(f)) };
        created.map_err(|error| error.map(|FromSuspended(f)| f))
    }

    /// Suspends the caller and continues in this fiber.
    ///
    /// Returns when another fiber switches back to the caller: `Some` with that other fiber, which
    /// is suspended then, or `None` if it has ended. The other fiber need not be the fiber that was
    /// resumed here.
    ///
    /// # Panics
    /// If this fiber belongs to another host: another thread, or another fiber of the runtime. The
    /// fiber stays suspended for good then. `resume` also panics if another fiber injects a
    /// function into the suspended caller by [`resume_with`](Self::resume_with), and that function
    /// panics.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::FiberContext;
    ///
    /// let fiber = FiberContext::new(|caller| {
    ///     caller.resume().expect("the caller resumes the fiber once more")
    /// })?;
    /// let fiber = fiber.resume().expect("the fiber is suspended in `resume`");
    /// assert!(fiber.resume().is_none()); // it has ended
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    #[track_caller]
    #[must_use = "dropping the fiber that switched back unwinds it"]
    pub fn resume(self) -> Option<FiberContext> {
        // Convert first. A value that might still be dropped would be kept in memory across the
        // switch, and the switch would wait for its address to be loaded.
        let to = self.into_context();
        // SAFETY: the context is suspended.
        let home = Host::from_tag(unsafe { to.tag() });
        if !home.is_plain_thread() {
            return Self::resume_by_hook(to);
        }
        // SAFETY: `self` was the only value of a suspended fiber of this host, and `into_context`
        // consumed it.
        unsafe { receive(context::switch(to, home.tag())) }
    }

    /// Suspends the caller and runs `f` on top of this fiber, as if the call in which the fiber is
    /// suspended had called `f`.
    ///
    /// `f` receives the suspended caller. The suspended call returns the result of `f`. If `f`
    /// panics, the panic goes through this fiber's frames. In a fiber that never ran, `f` runs
    /// before the fiber's function, which receives the result of `f`.
    ///
    /// `f` may return an `Option<FiberContext>` or a `FiberContext`, or not return at all, as
    /// [`unwind`] does. `f` is `'static` because it may itself be suspended for longer than the
    /// caller lives; [`Scope::resume_with`](crate::Scope::resume_with) takes closures that borrow.
    ///
    /// If `f` drops the fiber that it receives, the caller is unwound. To panic into a fiber and
    /// come back, `f` must first store the received fiber where the function that catches the panic
    /// finds it.
    ///
    /// # Panics
    /// If this fiber belongs to another host; see [`resume`](Self::resume).
    ///
    /// # Examples
    /// ```
    /// use sinew_context::FiberContext;
    ///
    /// let fiber = FiberContext::new(|caller| caller.resume().expect("resumed once more"))?;
    /// let fiber = fiber.resume().expect("suspended in its own resume");
    /// let ended = fiber.resume_with(|caller| {
    ///     println!("on the fiber's stack");
    ///     caller // the fiber's own `resume` returns this
    /// });
    /// assert!(ended.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "dropping the fiber that switched back unwinds it"]
    #[track_caller]
    pub fn resume_with<F, R>(self, f: F) -> Option<FiberContext>
    where
        F: FnOnce(FiberContext) -> R + 'static,
        R: Resumed,
    {
        // SAFETY: `f` borrows nothing.
        unsafe { self.inject(f) }
    }

    /// Injects `f` as [`resume_with`](Self::resume_with) does, but allows it to borrow.
    ///
    /// # Safety
    /// Everything that `f` borrows outlives `f`: it stays until `f` has returned or has been
    /// unwound.
    #[track_caller]
    pub(crate) unsafe fn inject<F, R>(self, f: F) -> Option<FiberContext>
    where
        F: FnOnce(FiberContext) -> R,
        R: Resumed,
    {
        let to = self.into_context();
        let host = Self::home_is_here(to);
        let mut injection = Injection::new(f);
        let message = (&raw mut injection).expose_provenance();
        // SAFETY: `to` was the only value of a suspended fiber of this host. The injection lies on
        // this stack, which stays suspended while the receiver reads it.
        unsafe { receive(context::switch_with(to, message, host.tag())) }
    }

    /// Whether the fiber can be resumed here: it was made on the running thread, or in the running
    /// fiber of a runtime.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::FiberContext;
    ///
    /// let fiber = FiberContext::new(|caller| caller)?;
    /// assert!(fiber.is_at_home()); // this thread has made it
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn is_at_home(&self) -> bool {
        self.home().is_current()
    }

    /// Whether the fiber was never resumed.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::FiberContext;
    ///
    /// let fiber = FiberContext::new(|caller| caller.resume().unwrap())?;
    /// assert!(fiber.is_unstarted());
    /// let fiber = fiber.resume().unwrap();
    /// assert!(!fiber.is_unstarted());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_unstarted(&self) -> bool {
        // SAFETY: the context is suspended as long as this value exists.
        unsafe { self.context.unstarted().is_some() }
    }

    /// Whether the value stands for an OS thread, or a runtime's fiber, that has switched away.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::FiberContext;
    ///
    /// let fiber = FiberContext::new(|caller| {
    ///     assert!(caller.is_thread()); // the thread waits in its `resume`
    ///     caller
    /// })?;
    /// assert!(!fiber.is_thread());
    /// assert!(fiber.resume().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_thread(&self) -> bool {
        Header::at(self.context.address()).is_none()
    }

    /// Returns the addresses of the fiber's stack; `None` for a thread.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{FiberContext, stack::DEFAULT_STACK_SIZE};
    ///
    /// let fiber = FiberContext::new(|caller| {
    ///     assert_eq!(caller.stack_range(), None); // a thread
    ///     caller
    /// })?;
    /// assert_eq!(fiber.stack_range().unwrap().len(), DEFAULT_STACK_SIZE);
    /// assert!(fiber.resume().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_range(&self) -> Option<core::ops::Range<usize>> {
        Header::at(self.context.address()).map(|header| header.stack().range())
    }

    /// Returns how many bytes of its stack the suspended fiber uses; `None` for a thread.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::FiberContext;
    ///
    /// let fiber = FiberContext::new(|caller| {
    ///     let mut frame = [0_u8; 20_000];
    ///     std::hint::black_box(&mut frame);
    ///     let caller = caller.resume().unwrap(); // suspended, with the array on its stack
    ///     std::hint::black_box(&mut frame);
    ///     caller
    /// })?;
    /// let fiber = fiber.resume().unwrap();
    /// assert!(fiber.stack_used().unwrap() > 20_000);
    /// assert!(fiber.resume().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_used(&self) -> Option<usize> {
        Some(self.stack_range()?.end - self.context.address())
    }

    /// Returns how many bytes of its stack were ever touched, exact to one page; `None` for a
    /// thread. See [`Stack::high_water_mark`](crate::stack::Stack::high_water_mark).
    ///
    /// # Examples
    /// ```
    /// use sinew_context::FiberContext;
    ///
    /// fn deep() {
    ///     std::hint::black_box(&mut [1_u8; 150_000]);
    /// }
    ///
    /// let fiber = FiberContext::new(|caller| {
    ///     deep();
    ///     caller.resume().unwrap()
    /// })?;
    /// let fiber = fiber.resume().unwrap();
    /// assert!(fiber.stack_high_water_mark().unwrap() > 150_000);
    /// assert!(fiber.stack_used().unwrap() < 150_000); // `deep` has returned
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_high_water_mark(&self) -> Option<usize> {
        Header::at(self.context.address())?.stack().high_water_mark()
    }

    /// Gives the memory below the suspended frames back to the kernel. Use it for a fiber that has
    /// used much of its stack and will stay suspended for long. Does nothing for threads and heap
    /// stacks.
    ///
    /// # Examples
    /// ```
    /// # use sinew_context::FiberContext;
    /// # fn deep() {
    /// #     std::hint::black_box(&mut [1_u8; 150_000]);
    /// # }
    /// let fiber = FiberContext::new(|caller| {
    ///     deep(); // needs more than 150,000 bytes of stack
    ///     caller.resume().unwrap()
    /// })?;
    /// let fiber = fiber.resume().unwrap();
    /// assert!(fiber.stack_high_water_mark().unwrap() > 150_000);
    /// fiber.trim();
    /// assert!(fiber.stack_high_water_mark().unwrap() < 150_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn trim(&self) {
        if let Some(header) = Header::at(self.context.address()) {
            // SAFETY: the fiber is suspended, and its lowest frame is at that address.
            unsafe { crate::stack::discard_below(header.stack(), self.context.address()) };
        }
    }

    /// Returns the registers with which the fiber continues, for debuggers and stack walkers.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::FiberContext;
    ///
    /// let fiber = FiberContext::new(|caller| caller.resume().unwrap())?;
    /// let fiber = fiber.resume().unwrap();
    /// let registers = fiber.registers();
    /// assert!(fiber.stack_range().unwrap().contains(&registers.stack));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn registers(&self) -> Registers {
        // SAFETY: the context is suspended as long as this value exists.
        unsafe { self.context.registers() }
    }

    #[inline(always)]
    pub(crate) fn home(&self) -> Host {
        // SAFETY: the context is suspended as long as this value exists.
        Host::from_tag(unsafe { self.context.tag() })
    }

    /// Makes the value that stands for a suspended context.
    ///
    /// # Safety
    /// The context is suspended. It belongs to a fiber, or to a thread that was suspended by a
    /// switch to a fiber of this crate. No other value stands for it.
    #[inline(always)]
    pub(crate) unsafe fn from_context(context: Context) -> FiberContext {
        FiberContext { context, not_send: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn into_context(self) -> Context {
        ManuallyDrop::new(self).context
    }

    /// Returns the host of the fiber. Panics if the fiber cannot be resumed here.
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

    /// Resumes `to` after the runtime's hook has confirmed the host, or panics.
    ///
    /// A separate function with its own switch, so that the common path keeps its registers.
    #[inline(never)]
    #[track_caller]
    fn resume_by_hook(to: Context) -> Option<FiberContext> {
        let host = Self::home_is_here(to);
        // SAFETY: `to` is the only value of a suspended fiber of this host, which was just checked.
        unsafe { receive(context::switch(to, host.tag())) }
    }
}

/// Panics because a fiber was resumed outside of its host. The fiber stays suspended: it cannot be
/// unwound here either.
#[cold]
#[inline(never)]
#[track_caller]
fn refuse(home: Host) -> ! {
    let host = Host::current();
    panic!("a fiber of {home} was resumed in {host}; it can go on only where it was made");
}

impl Drop for FiberContext {
    fn drop(&mut self) {
        let home = self.home();
        if !home.is_current() {
            let host = Host::current();
            // Leave the fiber suspended, with its stack: nothing else is safe.
            let leak = format_args!(
                "a fiber of {home} was dropped in {host}; it is leaked, since it can be unwound \
                 only where it was made"
            );
            if std::thread::panicking() {
                return hook::report(format_args!("sinew: {leak}"));
            }
            panic!("{leak}");
        }
        // SAFETY: this is the only value of a suspended fiber, and it is not used after this.
        unsafe {
            if let Some(record) = self.context.unstarted() {
                return entry::discard(record);
            }
        }
        match Header::at(self.context.address()) {
            // The frames of a thread stay as they are.
            None => {}
            Some(header) if header.is_unwinding() => hook::fatal(format_args!(
                "sinew: a fiber was dropped while its unwinding was suspended in a destructor; \
                 aborting, since a fiber can be unwound only once"
            )),
            Some(_) => {
                // SAFETY: the value is not used after this.
                let fiber = unsafe { FiberContext::from_context(self.context) };
                if fiber.resume_with(unwind).is_some() {
                    unreachable!("only the ended fiber's header held the fiber that waits here");
                }
            }
        }
    }
}

impl fmt::Debug for FiberContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FiberContext").field(&self.context.as_ptr()).finish()
    }
}

// No two values that exist at the same time are equal. Fibers are ordered by address; the order of
// a fiber is stable until it is resumed.

impl PartialEq for FiberContext {
    fn eq(&self, other: &Self) -> bool {
        self.context == other.context
    }
}

impl Eq for FiberContext {}

impl PartialOrd for FiberContext {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FiberContext {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.context.cmp(&other.context)
    }
}

impl core::hash::Hash for FiberContext {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.context.hash(state);
    }
}
