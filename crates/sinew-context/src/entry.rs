//! How a fiber begins and ends: the record at the top of its stack, and its first function.
//!
//! # Protocol
//!
//! `create` takes a stack and writes a [`Parcel`] to its top: the header that this module works
//! with, and the closure. The header's address goes into the stack's owner words, so that `unwind`
//! can find it from any depth. The context is prepared to begin in [`first_function`].
//!
//! A fiber ends in one place, the end of `first_function`, after its closure has returned or has
//! been unwound. At that point the stack holds no value of the user's. `first_function` exits to
//! the next fiber with the header's `ended` message. The next fiber receives the message, takes the
//! stack out of the header and drops it. So no stack is freed by code that runs on it.
//!
//! # Messages
//!
//! The word that a switch carries points to a [`Message`]. The receiver runs the message's function
//! before it returns to its caller. There are two kinds of messages: `ended`, and the function that
//! `resume_with` injects.
//!
//! Next: `unwind`, which ends a fiber before its closure returns.

use crate::arch;
use crate::census::CountedBy;
use crate::context::{self, Arrival, Context, Record};
use crate::fiber::{CreateError, FiberContext};
use crate::hook::fatal;
use crate::host::Host;
use crate::stack::{self, Stack, StackAllocator};
use crate::unwind;
use core::cell::Cell;
use core::mem::{ManuallyDrop, offset_of};
use core::panic::AssertUnwindSafe;
use std::any::Any;
use std::io;

/// An action that the receiver of a switch performs before it continues.
#[repr(C)]
pub(crate) struct Message {
    /// Receives the context that control came from, and this message. Returns the result of
    /// `resume`.
    pub(crate) deliver:
        unsafe fn(from: Option<Context>, message: *mut Message) -> Option<FiberContext>,
}

/// Converts the arrival of a switch into the result of `resume`.
///
/// # Safety
/// The arrival comes from a switch between fibers of this crate, and is received once.
#[inline(always)]
pub(crate) unsafe fn receive(arrival: Arrival) -> Option<FiberContext> {
    let Some(message) = arrival.message() else {
        // SAFETY: each switch makes one context, and only this call takes it.
        return Some(unsafe { FiberContext::from_context(arrival.from_plain()) });
    };
    let message = core::ptr::with_exposed_provenance_mut::<Message>(message);
    // SAFETY: the message is alive: it lies on the stack of the sender, which is suspended, or in
    // the header of a fiber that has just ended.
    unsafe { ((*message).deliver)(arrival.from(), message) }
}

/// The state of a fiber besides its closure.
#[repr(C)]
pub(crate) struct Header {
    record: Record,
    ended: Message,
    /// Drops the closure of a fiber that never ran.
    drop_closure: unsafe fn(*mut Header),
    /// The fiber to continue with when the current unwinding reaches the first frame.
    unwind_to: Cell<Option<FiberContext>>,
    /// The stack that the fiber runs on. The code that frees the stack takes it out first.
    stack: ManuallyDrop<Stack>,
}

#[repr(C)]
struct Parcel<F> {
    header: Header,
    /// Taken out when the fiber starts.
    closure: ManuallyDrop<F>,
}

/// The least room, in bytes, that must be left on the stack below the closure.
const LEAST_ROOM: usize = 1024;

/// The greatest number of copies of the closure that calling it leaves on the fiber's stack.
const COPIES: usize = if cfg!(debug_assertions) { 8 } else { 2 };

/// Makes a fiber that will run `f` on a stack of `allocator`.
///
/// # Safety
/// Everything that `f` borrows outlives the fiber.
#[inline]
pub(crate) unsafe fn create_in<A, F>(allocator: &A, f: F) -> io::Result<FiberContext>
where
    A: StackAllocator + ?Sized,
    F: EntryFunction,
{
    let stack = allocator.allocate()?;
    // SAFETY: the caller promised that everything `f` borrows outlives the fiber.
    unsafe { create(stack, f) }.map_err(io::Error::from)
}

/// Makes a fiber that will run `f` on `stack`. Gives both back if `f` does not fit.
///
/// # Safety
/// Everything that `f` borrows outlives the fiber.
#[inline]
pub(crate) unsafe fn create<F>(stack: Stack, f: F) -> Result<FiberContext, CreateError<F>>
where
    F: EntryFunction,
{
    let align = align_of::<Parcel<F>>().max(16);
    let top = stack.top();
    let stagger = stack.stagger();
    let copies = COPIES * size_of::<F>();
    let needed = size_of::<Parcel<F>>() + copies + align + stagger + LEAST_ROOM;
    if needed > stack.size() {
        return Err(CreateError::new(too_small::<F>(needed, stack.size()), stack, f));
    }
    let parcel = top.as_ptr().wrapping_sub(size_of::<Parcel<F>>());
    let parcel = parcel.wrapping_sub(parcel.addr() % align).cast::<Parcel<F>>();
    let bounds = (stack.low().as_ptr(), stack.high().as_ptr());
    // SAFETY: `needed` fits, so record and first frame lie inside the stack, which is ours and
    // unused. The record stays in place until `take_back` or `discard` frees the stack.
    unsafe {
        let header = parcel.cast::<Header>();
        stack.set_owner(header.cast());
        parcel.write(Parcel {
            header: Header {
                record: Record::new(first_function::<F>),
                ended: Message { deliver: take_back },
                drop_closure: drop_closure::<F>,
                unwind_to: Cell::new(None),
                stack: ManuallyDrop::new(stack),
            },
            closure: ManuallyDrop::new(f),
        });
        let sp = parcel.cast::<u8>().wrapping_sub(stagger);
        let tag = Host::current().tag();
        Ok(FiberContext::from_context(Context::prepare(sp, bounds, header.cast(), tag)))
    }
}

#[cold]
fn too_small<F>(needed: usize, size: usize) -> io::Error {
    stack::invalid(format_args!(
        "the closure has {} bytes and needs a stack of {} bytes, but the stack has {size}; use a \
         larger stack, or box the captured values",
        size_of::<F>(),
        needed.next_multiple_of(stack::page_size()),
    ))
}

/// The first function of every fiber.
///
/// # Safety
/// The trampoline calls it, once for each fiber, with the words of the first switch to a fiber that
/// `create::<F>` made, and with the record of that fiber.
unsafe extern "C-unwind" fn first_function<F>(
    first: *mut (),
    second: usize,
    record: *mut Record,
) -> !
where
    F: EntryFunction,
{
    let parcel = record.cast::<Parcel<F>>();
    let counted = CountedBy::this_thread();
    // A misaligned stack fails much later, and only in code that uses vector registers.
    debug_assert!(arch::stack_pointer().is_multiple_of(arch::STACK_ALIGN));
    // SAFETY: the trampoline called this, so the words come from a switch to a fiber that
    // `create::<F>` made. The closure is taken out once, here.
    let result = unsafe {
        let arrival = Arrival::begin(first, second);
        std::panic::catch_unwind(AssertUnwindSafe(|| {
            // Take the closure first: if an injected function unwinds, the closure is dropped too.
            let closure = ManuallyDrop::take(&mut (*parcel).closure);
            closure.call(receive(arrival))
        }))
    };
    // SAFETY: this is the fiber's own header, and the stack holds no value of the user's.
    unsafe {
        let header = &*record.cast::<Header>();
        let next = match result {
            Ok(next) if header.unwind_to_is_none() => next,
            other => end_of_unwinding(header, other),
        };
        counted.ended();
        leave(header, next)
    }
}

/// Exits to `next`, which frees this stack.
///
/// # Safety
/// `header` belongs to the running fiber, and its stack holds nothing that needs dropping.
#[inline(always)]
unsafe fn leave(header: *const Header, next: FiberContext) -> ! {
    let next = next.into_context();
    // SAFETY: `next` is suspended.
    let home = Host::from_tag(unsafe { next.tag() });
    if !home.is_current() {
        no_way_home(home);
    }
    // SAFETY: `next` is suspended, ours, and of this host. The header is alive until `next` runs.
    unsafe {
        let message = (&raw const (*header).ended).expose_provenance();
        context::exit(next, message)
    }
}

#[cold]
#[inline(never)]
fn no_way_home(home: Host) -> ! {
    fatal(format_args!(
        "sinew: a fiber ended by returning a fiber of another host ({home}); aborting, since that \
         fiber cannot run here"
    ))
}

/// Returns the fiber that runs after a fiber that was unwound. Aborts if a panic escaped the entry
/// function, or if the unwinding was swallowed or belongs to another fiber.
#[cold]
#[inline(never)]
fn end_of_unwinding(
    header: &Header,
    result: Result<FiberContext, Box<dyn Any + Send>>,
) -> FiberContext {
    match (result, header.unwind_to.take()) {
        (Err(payload), to) if unwind::is_unwind(&*payload) => {
            unwind::arrived(payload);
            to.unwrap_or_else(|| {
                fatal(format_args!(
                    "sinew: the unwinding of one fiber was raised in another; aborting, since \
                     neither can go on"
                ))
            })
        }
        (Ok(_), _) => unwind::swallowed(),
        (Err(payload), _) => fatal(format_args!(
            "sinew: a panic escaped the entry function of a fiber ({}); aborting, since no frame \
             is left that could catch it",
            panic_text(&*payload)
        )),
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with a payload that is not text")
}

/// The `ended` message: frees the stack of the fiber that has just ended.
///
/// # Safety
/// `message` is the `ended` field of the header of a fiber that has exited to the caller. It is
/// delivered once.
unsafe fn take_back(_: Option<Context>, message: *mut Message) -> Option<FiberContext> {
    // SAFETY: the message is the `ended` field of a header whose fiber has exited to this one.
    unsafe { free(message.byte_sub(offset_of!(Header, ended)).cast()) };
    None
}

/// Gives back the stack on which the header lies.
///
/// # Safety
/// The fiber has exited or never ran, and `free` is called once for it.
unsafe fn free(header: *mut Header) {
    // SAFETY: nothing on that stack is in use. The `Stack` is moved out before its memory is freed.
    unsafe {
        context::retire(&raw mut (*header).record);
        let stack = ManuallyDrop::take(&mut (*header).stack);
        stack.set_owner(core::ptr::null_mut());
        drop(stack);
    }
}

/// Ends a fiber that never ran: drops its closure and frees its stack, on the caller's stack.
///
/// # Safety
/// `record` belongs to a fiber that never ran, and the caller owns the fiber's context.
pub(crate) unsafe fn discard(record: *mut Record) {
    /// Frees the stack even if the closure's destructor panics.
    struct Free(*mut Header);
    impl Drop for Free {
        fn drop(&mut self) {
            // SAFETY: the fiber never ran, and is not used after this.
            unsafe { free(self.0) };
        }
    }
    let free = Free(record.cast());
    // SAFETY: the fiber never ran, so the closure is still in place.
    unsafe { ((*free.0).drop_closure)(free.0) };
}

/// Drops the closure of a fiber that never ran.
///
/// # Safety
/// `create::<F>` made the header. Its fiber never ran, and its closure was not dropped before.
unsafe fn drop_closure<F>(header: *mut Header) {
    // SAFETY: `create::<F>` made the header, and its fiber never ran.
    unsafe { ManuallyDrop::drop(&mut (*header.cast::<Parcel<F>>()).closure) };
}

impl Header {
    /// Returns the header of the fiber that owns the stack at `address`; `None` on the stack of an
    /// OS thread or of a runtime's own context.
    pub(crate) fn at<'a>(address: usize) -> Option<&'a Header> {
        let owner = stack::owner_at(address)?;
        // SAFETY: the owner words hold null or the header of the fiber on that stack, which lives
        // as long as the fiber's frames.
        unsafe { owner.cast::<Header>().as_ref() }
    }

    pub(crate) fn stack(&self) -> &Stack {
        &self.stack
    }

    #[inline(always)]
    fn unwind_to_is_none(&self) -> bool {
        // SAFETY: only reads the discriminant, and only this thread uses the cell.
        unsafe { (*self.unwind_to.as_ptr()).is_none() }
    }

    /// Whether an unwinding has begun and has not reached the first frame.
    pub(crate) fn is_unwinding(&self) -> bool {
        !self.unwind_to_is_none()
    }

    /// Records the fiber to continue with after the unwinding that begins here.
    pub(crate) fn begin_unwinding(&self, to: FiberContext) {
        self.unwind_to.set(Some(to));
    }
}

/// The function that a fiber runs first. It receives the result of the first switch to the fiber,
/// and returns the fiber to continue with.
pub(crate) trait EntryFunction {
    fn call(self, from: Option<FiberContext>) -> FiberContext;
}

/// An entry function that needs the suspended fiber that started it.
pub(crate) struct FromSuspended<F>(pub(crate) F);

impl<F: FnOnce(FiberContext) -> FiberContext> EntryFunction for FromSuspended<F> {
    #[inline]
    fn call(self, from: Option<FiberContext>) -> FiberContext {
        match from {
            Some(from) => (self.0)(from),
            None => no_caller(),
        }
    }
}

/// An entry function that can start without a suspended caller: after the end of another fiber.
pub(crate) struct FromAnyone<F>(pub(crate) F);

impl<F: FnOnce(Option<FiberContext>) -> FiberContext> EntryFunction for FromAnyone<F> {
    #[inline]
    fn call(self, from: Option<FiberContext>) -> FiberContext {
        (self.0)(from)
    }
}

#[cold]
#[inline(never)]
fn no_caller() -> ! {
    fatal(format_args!(
        "sinew: a fiber was started by a fiber that has ended, but its function needs a suspended \
         caller; aborting, since there is none. Make it with `FiberContext::with_entry`"
    ))
}
