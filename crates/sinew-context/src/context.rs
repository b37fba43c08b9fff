//! A suspended flow of control as one pointer, and the two ways to leave the running one: a switch
//! suspends it, an exit ends it.
//!
//! This is the raw layer. It passes control and one word from the running context to another, and
//! checks nothing. [`FiberContext`](crate::FiberContext) is the safe type on top of it. A scheduler
//! that keeps its own control blocks uses this module directly.
//!
//! # Protocol
//!
//! A context is *prepared*, then alternates between *running* and *suspended*, then *exits*.
//! Exactly one [`Context`] value stands for a suspended context, and the switch that resumes the
//! context consumes that value. No value stands for a running context. A switch tells the target
//! which context control came from. It may also carry a message: a word whose meaning the two sides
//! agree on. Another word, the *tag*, stays behind in the suspended frame, where the holder of the
//! context can read it: a fiber keeps its host there.
//!
//! # Examples
//!
//! A control block and an entry function, which the examples of this module's items use:
#![doc = concat!("```\n", include_str!("../docs/echo.rs"), "```")]
//!
//! The main context sends a message, and then lets the other context exit:
//! ```
//! # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
//! let (_block, echo) = Block::prepare(echo);
//! // SAFETY: each value is switched to once. The context exits before its block is dropped.
//! unsafe {
//!     let answer = context::switch_with(echo, 21, 0);
//!     assert_eq!(answer.message(), Some(42));
//!     let end = context::switch_with(answer.from_suspended(), 0, 0);
//!     assert_eq!((end.from(), end.message()), (None, Some(99)));
//! }
//! ```
//!
//! Next: `arch`, which performs the switch, and `sanitizer`, which announces it to the tools.

mod registers;

pub use registers::{FRAME_LAYOUT, FrameLayout, Registers};

use crate::arch::{self, EntryRecord, FRAME_SIZE, Frame, Handover, MESSAGE, STACK_ALIGN};
use crate::sanitizer::{self, Note};
use core::ptr::NonNull;

/// A suspended flow of control.
///
/// Copying the value does not copy the context: only one of the copies may be switched to.
///
/// # Examples
/// ```
/// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
/// let (_block, context) = Block::prepare(echo);
/// let word = context.as_ptr(); // a scheduler keeps it in its control block
/// // SAFETY: the word came from `as_ptr`.
/// assert_eq!(unsafe { Context::from_ptr(word) }, context);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Context(NonNull<Frame>);

/// The beginning of the record that a new context receives. It holds the entry function.
///
/// To pass more to the entry function, put a `Record` first in a `#[repr(C)]` struct.
///
/// # Examples
/// ```
/// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
/// #[repr(C)]
/// struct Task {
///     record: Record,
///     name: &'static str,
/// }
///
/// let mut task = Task { record: Record::new(echo), name: "first" };
/// // The entry function receives this pointer, and finds its task by a cast.
/// let record = (&raw mut task).cast::<Record>();
/// // SAFETY: the record is the first field of the task, which is in place.
/// assert_eq!(unsafe { (*record.cast::<Task>()).name }, "first");
/// # assert_eq!(&raw mut task.record, record);
/// ```
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    entry: EntryRecord,
    start: Note,
}

/// The function that a context begins with. It must call [`Arrival::begin`] with its first two
/// arguments, and never return.
///
/// # Examples
/// ```
/// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
/// let first: FirstFunction = echo;
/// let (_block, context) = Block::prepare(first);
/// // SAFETY: the context is suspended: it has not run.
/// assert_eq!(unsafe { context.tag() }, 5);
/// ```
pub type FirstFunction =
    unsafe extern "C-unwind" fn(first: *mut (), second: usize, record: *mut Record) -> !;

/// The result of a switch: the context that control came from, and the message.
///
/// # Examples
/// ```
/// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
/// let (_block, echo) = Block::prepare(echo);
/// // SAFETY: each value is switched to once. The context exits before its block is dropped.
/// unsafe {
///     let arrival = context::switch_with(echo, 21, 0);
///     assert_eq!((arrival.from().is_some(), arrival.message()), (true, Some(42)));
///     let arrival = context::switch_with(arrival.from_suspended(), 0, 0);
///     assert_eq!((arrival.from(), arrival.message()), (None, Some(99))); // it has exited
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    words: Handover,
}

impl Record {
    /// Makes a record that starts `entry`.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::default().allocate()?;
    /// let bounds = (stack.low().as_ptr(), stack.high().as_ptr());
    /// let mut record = Record::new(echo);
    /// // SAFETY: the stack is unused. It and the record stay until the context is retired.
    /// unsafe {
    ///     let context = Context::prepare(stack.top().as_ptr(), bounds, &raw mut record, 0);
    ///     assert_eq!(context.unstarted(), Some(&raw mut record));
    ///     context::retire(&raw mut record);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn new(entry: FirstFunction) -> Self {
        // SAFETY: both types are functions of the same ABI that take a pointer, a word and a
        // pointer. A `Record` begins with its `EntryRecord`, so a pointer to one is a pointer to
        // the other.
        let entry = unsafe { core::mem::transmute::<FirstFunction, arch::FirstFunction>(entry) };
        Record { entry: EntryRecord { entry }, start: Note::new() }
    }
}

impl Context {
    /// Prepares a context on an unused stack. The first switch to it calls the record's entry
    /// function.
    ///
    /// `top` is rounded down to the alignment of the calling convention; the context uses the bytes
    /// below it. `bounds` are the lowest and highest address of the whole stack. [`tag`](Self::tag)
    /// returns `tag` until the context first runs.
    ///
    /// # Safety
    /// `top` and at least 256 bytes below it lie on a stack that is writable and unused, inside
    /// `bounds`. The stack lives until the context has exited, and `record` stays in place until
    /// then.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::default().allocate()?;
    /// let bounds = (stack.low().as_ptr(), stack.high().as_ptr());
    /// let mut record = Record::new(echo);
    /// // SAFETY: the stack is unused. It and the record stay until the context has exited.
    /// unsafe {
    ///     let context = Context::prepare(stack.top().as_ptr(), bounds, &raw mut record, 5);
    ///     assert_eq!(context.tag(), 5);
    ///     let arrival = context::switch_with(context, 0, 0); // starts `echo`, which exits
    ///     assert_eq!((arrival.from(), arrival.message()), (None, Some(99)));
    ///     context::retire(&raw mut record);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub unsafe fn prepare(
        top: *mut u8,
        bounds: (*mut u8, *mut u8),
        record: *mut Record,
        tag: usize,
    ) -> Context {
        let aligned = top.wrapping_sub(top.addr() % STACK_ALIGN);
        let frame = aligned.wrapping_sub(FRAME_SIZE).cast::<Frame>();
        debug_assert!((frame.addr() + FRAME_SIZE).is_multiple_of(STACK_ALIGN));
        // SAFETY: the caller promised unused memory below `top` and a record that stays.
        unsafe {
            let tag = sanitizer::prepare(&raw mut (*record).start, bounds, tag);
            frame.write(Frame {
                tag,
                resume_at: arch::trampoline as *const () as usize,
                base_register: record.expose_provenance(),
                frame_pointer: 0,
            });
            Context(NonNull::new_unchecked(frame))
        }
    }

    /// Returns the record, if this context was prepared and never ran.
    ///
    /// # Safety
    /// The context is suspended.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, echo) = Block::prepare(echo);
    /// // SAFETY: the context is suspended each time. Each value is switched to once.
    /// unsafe {
    ///     assert!(echo.unstarted().is_some());
    ///     let echo = context::switch(echo, 0).from_suspended();
    ///     assert!(echo.unstarted().is_none());
    ///     context::switch_with(echo, 0, 0); // it exits
    /// }
    /// ```
    #[inline]
    pub unsafe fn unstarted(self) -> Option<*mut Record> {
        // SAFETY: the frame of a suspended context does not change.
        let frame = unsafe { self.0.as_ref() };
        (frame.resume_at == arch::trampoline as *const () as usize)
            .then(|| core::ptr::with_exposed_provenance_mut(frame.base_register))
    }

    /// Returns the word that was left in the frame when the context was suspended or prepared.
    ///
    /// # Safety
    /// The context is suspended.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, context) = Block::prepare(echo);
    /// // SAFETY: the context is suspended: it has not started.
    /// assert_eq!(unsafe { context.tag() }, 5); // as passed to `Context::prepare`
    /// ```
    #[inline(always)]
    pub unsafe fn tag(self) -> usize {
        // SAFETY: the frame of a suspended context does not change.
        unsafe { sanitizer::tag(self.0.as_ref().tag) }
    }

    /// Returns the registers from which a stack walker starts.
    ///
    /// # Safety
    /// The context is suspended.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, context) = Block::prepare(echo);
    /// // SAFETY: the context is suspended: it has not started.
    /// let registers = unsafe { context.registers() };
    /// assert!(registers.stack > context.address());
    /// assert_eq!(registers.frame, 0); // it has no caller: a backtrace ends here
    /// ```
    pub unsafe fn registers(self) -> Registers {
        // SAFETY: the frame of a suspended context does not change.
        let frame = unsafe { self.0.as_ref() };
        Registers {
            instruction: frame.resume_at,
            stack: self.address() + FRAME_SIZE,
            frame: frame.frame_pointer,
            base: frame.base_register,
        }
    }

    /// Returns the lowest address that the suspended context uses on its stack.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// use sinew_context::stack;
    ///
    /// let (_block, context) = Block::prepare(echo);
    /// let stack = stack::find(context.address()).unwrap();
    /// assert!(stack.range().end - context.address() < 1024); // it has not started
    /// ```
    #[inline(always)]
    pub fn address(self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Converts the context to one pointer, for a control block; [`Context::from_ptr`] converts
    /// back.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, context) = Block::prepare(echo);
    /// assert_eq!(context.as_ptr().addr().get(), context.address());
    /// ```
    #[inline(always)]
    pub fn as_ptr(self) -> NonNull<()> {
        self.0.cast()
    }

    /// Returns the context that [`Context::as_ptr`] converted to `pointer`.
    ///
    /// # Safety
    /// `pointer` came from `as_ptr`.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// use std::sync::atomic::{AtomicPtr, Ordering};
    ///
    /// let (_block, context) = Block::prepare(echo);
    /// let kept = AtomicPtr::new(context.as_ptr().as_ptr());
    /// let taken = kept.swap(std::ptr::null_mut(), Ordering::Relaxed);
    /// // SAFETY: the pointer came from `as_ptr`.
    /// let taken = std::ptr::NonNull::new(taken).map(|word| unsafe { Context::from_ptr(word) });
    /// assert_eq!(taken, Some(context));
    /// ```
    #[inline(always)]
    pub unsafe fn from_ptr(pointer: NonNull<()>) -> Context {
        Context(pointer.cast())
    }
}

impl Arrival {
    /// Makes the first arrival of a context from the first two arguments of its [`FirstFunction`],
    /// which calls this before anything else.
    ///
    /// # Safety
    /// Called once, at the start of a context, with the two words that its entry function received.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// unsafe extern "C-unwind" fn entry(first: *mut (), second: usize, _: *mut Record) -> ! {
    ///     // SAFETY: the words come from the first switch. Its sender is suspended.
    ///     unsafe {
    ///         let arrival = Arrival::begin(first, second);
    ///         context::exit(arrival.from_suspended(), arrival.word() + 1)
    ///     }
    /// }
    /// let (_block, context) = Block::prepare(entry);
    /// // SAFETY: the context is suspended, and this is its only switch.
    /// let arrival = unsafe { context::switch_with(context, 6, 0) };
    /// assert_eq!(arrival.message(), Some(7));
    /// ```
    #[inline(always)]
    pub unsafe fn begin(first: *mut (), second: usize) -> Arrival {
        let arrival = Arrival { words: (first.cast(), second) };
        // SAFETY: the caller promised that the words come from a switch that just started this
        // context.
        unsafe { sanitizer::begin(arrival.frame()) };
        arrival
    }

    /// Whether the other side is suspended and sent no message, so that there is nothing to do but
    /// continue.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, echo) = Block::prepare(echo);
    /// // SAFETY: each value is switched to once. The context exits before its block is dropped.
    /// unsafe {
    ///     let arrival = context::switch(echo, 0);
    ///     assert!(arrival.is_plain());
    ///     let arrival = context::switch_with(arrival.from_plain(), 0, 0);
    ///     assert!(!arrival.is_plain()); // it has exited
    /// }
    /// ```
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.words.0.addr() & MESSAGE == 0
    }

    /// Returns the message, if the other side sent one. A context that exits always sends one.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, echo) = Block::prepare(echo);
    /// // SAFETY: each value is switched to once. The context exits before its block is dropped.
    /// unsafe {
    ///     let answer = context::switch(echo, 0);
    ///     assert_eq!(answer.message(), None);
    ///     let last = context::switch_with(answer.from_suspended(), 0, 0);
    ///     assert_eq!(last.message(), Some(99)); // passed to `context::exit`
    /// }
    /// ```
    #[inline(always)]
    pub fn message(&self) -> Option<usize> {
        (!self.is_plain()).then_some(self.words.1)
    }

    /// Returns the context that switched here and is suspended; `None` if it has exited.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, echo) = Block::prepare(echo);
    /// let mut suspended = Some(echo);
    /// for message in [2, 1, 0] {
    ///     let context = suspended.expect("it exits at the message 0");
    ///     // SAFETY: each value of the context is switched to once, until it exits.
    ///     suspended = unsafe { context::switch_with(context, message, 0) }.from();
    /// }
    /// assert_eq!(suspended, None);
    /// ```
    #[inline(always)]
    pub fn from(&self) -> Option<Context> {
        NonNull::new(self.frame()).map(Context)
    }

    /// Returns the context that switched here without a message.
    ///
    /// # Safety
    /// [`is_plain`](Self::is_plain) is true: then a context has switched here and is suspended.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, mut echo) = Block::prepare(echo);
    /// // SAFETY: `echo` answers a switch without a message by one without a message.
    /// unsafe {
    ///     echo = context::switch(echo, 0).from_plain();
    ///     assert_eq!(echo.tag(), 7); // under which `echo` has suspended itself
    ///     context::switch_with(echo, 0, 0); // it exits
    /// }
    /// ```
    #[inline(always)]
    pub unsafe fn from_plain(&self) -> Context {
        // SAFETY: a plain first word is the frame itself.
        Context(unsafe { NonNull::new_unchecked(self.words.0) })
    }

    /// Returns the message word, for protocols that always send one. After a plain arrival the word
    /// has no meaning.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, echo) = Block::prepare(echo);
    /// // SAFETY: the context is suspended, and this is its only switch.
    /// let arrival = unsafe { context::switch_with(echo, 0, 0) };
    /// assert_eq!(arrival.word(), 99); // a context that exits always sends a message
    /// ```
    #[inline(always)]
    pub fn word(&self) -> usize {
        self.words.1
    }

    /// Returns the context that switched here.
    ///
    /// # Safety
    /// That context has not exited.
    ///
    /// # Examples
    /// ```
    /// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
    /// let (_block, mut echo) = Block::prepare(echo);
    /// // SAFETY: `echo` exits at the message 0 only.
    /// unsafe {
    ///     echo = context::switch_with(echo, 21, 0).from_suspended(); // with a message
    ///     echo = context::switch(echo, 0).from_suspended(); // without one
    ///     assert_eq!(context::switch_with(echo, 0, 0).from(), None);
    /// }
    /// ```
    #[inline(always)]
    pub unsafe fn from_suspended(&self) -> Context {
        // SAFETY: the caller promised that the other side has not exited, so the frame is not null.
        Context(unsafe { NonNull::new_unchecked(self.frame()) })
    }

    #[inline(always)]
    fn frame(&self) -> *mut Frame {
        self.words.0.map_addr(|word| word & !MESSAGE)
    }
}

/// Suspends the running context under `tag` and continues in `to`.
///
/// Returns when another context switches back.
///
/// # Safety
/// `to` is suspended, no other code will switch to it, and its stack is alive. The two sides keep
/// their agreement about messages. Across the call, the caller keeps no borrow that another context
/// of the same thread, or the end of that thread, may cut short: see `docs/soundness.md`.
///
/// # Examples
/// ```
/// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
/// let (_block, echo) = Block::prepare(echo);
/// // SAFETY: each value is switched to once. The context exits before its block is dropped.
/// unsafe {
///     let arrival = context::switch(echo, 0);
///     let echo = arrival.from().expect("`echo` has switched back");
///     assert_eq!(echo.tag(), 7); // `echo` has suspended itself under this tag
///     context::switch_with(echo, 0, 0); // it exits
/// }
/// ```
#[inline(always)]
pub unsafe fn switch(to: Context, tag: usize) -> Arrival {
    announced!(to, tag, |frame, tag| arch::switch(frame, tag))
}

/// Suspends the running context under `tag` and continues in `to`, handing it `message`.
///
/// # Safety
/// As for [`switch`].
///
/// # Examples
/// ```
/// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
/// let (_block, mut echo) = Block::prepare(echo);
/// for message in [1, 10, 100] {
///     // SAFETY: each value of the context is switched to once, and `echo` answers these messages.
///     unsafe {
///         let answer = context::switch_with(echo, message, 0);
///         assert_eq!(answer.message(), Some(2 * message));
///         echo = answer.from_suspended();
///     }
/// }
/// # // SAFETY: the last switch: `echo` exits.
/// # assert_eq!(unsafe { context::switch_with(echo, 0, 0) }.from(), None);
/// ```
#[inline(always)]
pub unsafe fn switch_with(to: Context, message: usize, tag: usize) -> Arrival {
    announced!(to, tag, |frame, tag| arch::switch_with(frame, message, tag))
}

/// Switches, and announces the switch to the sanitizers before and after.
///
/// It is a macro, not a function: no function may be entered or left between the announcement and
/// the switch, because a sanitizer would count the call for the other context.
macro_rules! announced {
    ($to:ident, $tag:ident, |$frame:ident, $noted:ident| $switch:expr) => {{
        let mut note = Note::new();
        // SAFETY: `to` is suspended, so its frame and its note are alive. Our note is on this stack
        // and outlives the suspension. The caller keeps the contract of the switch.
        unsafe {
            let $frame = $to.0.as_ptr();
            let $noted = sanitizer::leave(&mut note, $tag, (*$frame).tag);
            let arrival = Arrival { words: $switch };
            sanitizer::come_back(&mut note, arrival.frame());
            arrival
        }
    }};
}
use announced;

/// Ends the running context and continues in `to`, handing it `message`.
///
/// The stack of the ended context is unused as soon as `to` runs. The message tells `to` that the
/// context has ended.
///
/// # Safety
/// As for [`switch`]. In addition, nothing on the running stack needs to be dropped.
///
/// # Examples
/// ```
/// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
/// unsafe extern "C-unwind" fn entry(first: *mut (), second: usize, _: *mut Record) -> ! {
///     // SAFETY: the words come from the first switch. No value needs dropping.
///     unsafe { context::exit(Arrival::begin(first, second).from_suspended(), 7) }
/// }
/// let (_block, context) = Block::prepare(entry);
/// // SAFETY: the context is suspended, and this is its only switch.
/// let arrival = unsafe { context::switch(context, 0) };
/// assert_eq!((arrival.from(), arrival.message()), (None, Some(7)));
/// ```
#[inline(always)]
pub unsafe fn exit(to: Context, message: usize) -> ! {
    // SAFETY: the caller promised that `to` is suspended and its stack alive.
    unsafe {
        let frame = to.0.as_ptr();
        sanitizer::leave_for_good((*frame).tag);
        arch::exit(frame, message)
    }
}

/// Makes the sanitizers forget a context. Call it as the last step before the context's stack is
/// reused.
///
/// # Safety
/// The context has exited or never ran, and it was prepared with `record`.
///
/// # Examples
/// ```
/// # mod m { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/echo.rs")); } use m::*;
/// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
///
/// let stack = ProtectedFixedSize::default().allocate()?;
/// let (top, bounds) = (stack.top().as_ptr(), (stack.low().as_ptr(), stack.high().as_ptr()));
/// let mut record = Record::new(echo);
/// for _ in 0..2 {
///     // SAFETY: the stack is unused. It and the record stay until the context has exited.
///     unsafe {
///         let context = Context::prepare(top, bounds, &raw mut record, 0);
///         assert_eq!(context::switch_with(context, 0, 0).from(), None); // it has exited
///         context::retire(&raw mut record); // the next round uses the stack again
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline(always)]
pub unsafe fn retire(record: *mut Record) {
    // SAFETY: the caller promised that the context is over, so its stack is unused.
    unsafe { sanitizer::retire(&raw mut (*record).start) };
}
