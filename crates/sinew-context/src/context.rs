//! A suspended flow of control as one pointer, and the two ways to leave one for another.
//!
//! This is the raw layer. It moves control and one word of the caller's, and checks nothing.
//! [`Fiber`](crate::Fiber) is the safe type on top of it. A scheduler that keeps its own control
//! blocks uses this module directly.
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
//! Next: `arch`, which performs the switch, and `sanitizer`, which announces it to the tools.

use crate::arch::{self, EntryRecord, FRAME_SIZE, Frame, Handover, MESSAGE, STACK_ALIGN};
use crate::sanitizer::{self, Note};
use core::ptr::NonNull;

/// A suspended flow of control.
///
/// Copying the value does not copy the context: only one of the copies may be switched to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Context(NonNull<Frame>);

/// The registers of a suspended context, from which a debugger or a stack walker starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Registers {
    /// The address of the next instruction. It is not a return address.
    pub instruction: usize,
    /// The stack pointer at that address.
    pub stack: usize,
    /// The frame pointer (rbp, x29, s0) at that address.
    pub frame: usize,
    /// The other register that the switch saves (rbx, x19, s1).
    pub base: usize,
}

/// Offsets of the saved registers in the frame of a suspended context, for debuggers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FrameLayout {
    /// See [`Registers::instruction`].
    pub resume_at: usize,
    /// See [`Registers::frame`].
    pub frame_pointer: usize,
    /// See [`Registers::base`].
    pub base_register: usize,
    /// The size of the frame. The stack pointer after the switch is the frame's address plus this.
    pub size: usize,
}

/// The frame layout of this machine.
pub const FRAME_LAYOUT: FrameLayout = FrameLayout {
    resume_at: core::mem::offset_of!(Frame, resume_at),
    frame_pointer: core::mem::offset_of!(Frame, frame_pointer),
    base_register: core::mem::offset_of!(Frame, base_register),
    size: FRAME_SIZE,
};

impl Registers {
    /// Reads the registers of a context that is suspended at `address` from a copy of its stack.
    /// `read` returns the word at an address, or `None` if the copy does not hold it.
    pub fn read_from(address: usize, read: impl Fn(usize) -> Option<usize>) -> Option<Registers> {
        let word = |offset: usize| read(address.checked_add(offset)?);
        Some(Registers {
            instruction: word(core::mem::offset_of!(Frame, resume_at))?,
            stack: address.checked_add(FRAME_SIZE)?,
            frame: word(core::mem::offset_of!(Frame, frame_pointer))?,
            base: word(core::mem::offset_of!(Frame, base_register))?,
        })
    }
}

/// The first words of the record that a new context receives: the function it begins with.
///
/// To give the entry function more, put a `Record` first in a `#[repr(C)]` struct.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    entry: EntryRecord,
    start: Note,
}

/// The function that a context begins with. It must call [`Arrival::begin`] with its first two
/// arguments, and never return.
pub type Entry =
    unsafe extern "C-unwind" fn(first: *mut (), second: usize, record: *mut Record) -> !;

/// The result of a switch: the context that control came from, and the message.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    words: Handover,
}

impl Record {
    /// Makes a record that starts `entry`.
    pub const fn new(entry: Entry) -> Self {
        // SAFETY: both types are functions of the same ABI that take a pointer, a word and a
        // pointer. A `Record` begins with its `EntryRecord`, so a pointer to one is a pointer to
        // the other.
        let entry = unsafe { core::mem::transmute::<Entry, arch::Entry>(entry) };
        Record { entry: EntryRecord { entry }, start: Note::new() }
    }
}

impl Context {
    /// Lays out a context that begins with the record's entry function at the first switch.
    ///
    /// `top` is rounded down to the alignment of the calling convention; the context uses the bytes
    /// below it. `bounds` are the lowest and highest address of the whole stack.
    ///
    /// # Safety
    /// `top` and at least 256 bytes below it lie on a stack that is writable and unused, inside
    /// `bounds`. The stack lives until the context has exited, and `record` stays in place until
    /// then.
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
    #[inline(always)]
    pub unsafe fn tag(self) -> usize {
        // SAFETY: the frame of a suspended context does not change.
        unsafe { sanitizer::tag(self.0.as_ref().tag) }
    }

    /// Returns the registers from which a stack walker starts.
    ///
    /// # Safety
    /// The context is suspended.
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

    /// Returns the lowest address of the stack that the suspended context uses.
    #[inline(always)]
    pub fn address(self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Converts the context to one pointer, for a control block; [`Context::from_ptr`] converts
    /// back.
    #[inline(always)]
    pub fn as_ptr(self) -> NonNull<()> {
        self.0.cast()
    }

    /// Returns the context that [`Context::as_ptr`] converted to `pointer`.
    ///
    /// # Safety
    /// `pointer` came from `as_ptr`.
    #[inline(always)]
    pub unsafe fn from_ptr(pointer: NonNull<()>) -> Context {
        Context(pointer.cast())
    }
}

impl Arrival {
    /// Receives the two words of an [`Entry`] function. The function calls this first.
    ///
    /// # Safety
    /// Called once, at the start of a context, with the two words that its entry function received.
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
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.words.0.addr() & MESSAGE == 0
    }

    /// Returns the message, if the other side sent one. A context that has exited always did.
    #[inline(always)]
    pub fn message(&self) -> Option<usize> {
        (!self.is_plain()).then_some(self.words.1)
    }

    /// Returns the context that switched here and is suspended; `None` if it has exited.
    #[inline(always)]
    pub fn from(&self) -> Option<Context> {
        NonNull::new(self.frame()).map(Context)
    }

    /// Returns the context that switched here without a message.
    ///
    /// # Safety
    /// [`is_plain`](Self::is_plain) is true: then a context has switched here and is suspended.
    #[inline(always)]
    pub unsafe fn from_plain(&self) -> Context {
        // SAFETY: a plain first word is the frame itself.
        Context(unsafe { NonNull::new_unchecked(self.words.0) })
    }

    /// Returns the message word, for protocols that always send one. Undefined for a plain arrival.
    #[inline(always)]
    pub fn word(&self) -> usize {
        self.words.1
    }

    /// Returns the context that switched here.
    ///
    /// # Safety
    /// That context has not exited.
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
/// their agreement about messages. The caller keeps nothing across the call that another context of
/// the same thread may end: see `docs/soundness.md`.
#[inline(always)]
pub unsafe fn switch(to: Context, tag: usize) -> Arrival {
    announced!(to, tag, |frame, tag| arch::switch(frame, tag))
}

/// Suspends the running context under `tag` and continues in `to`, handing it `message`.
///
/// # Safety
/// As for [`switch`].
#[inline(always)]
pub unsafe fn switch_with(to: Context, message: usize, tag: usize) -> Arrival {
    announced!(to, tag, |frame, tag| arch::switch_with(frame, message, tag))
}

/// Switches, and announces the switch to the sanitizers before and after.
///
/// A macro, not a function: no function may be entered or left between the announcement and the
/// switch, because a sanitizer would count that for the other context.
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
/// The stack of the ended context is unused as soon as `to` runs. The message tells `to` so.
///
/// # Safety
/// As for [`switch`]. In addition, nothing on the running stack needs to be dropped.
#[inline(always)]
pub unsafe fn exit(to: Context, message: usize) -> ! {
    // SAFETY: the caller promised that `to` is suspended and its stack alive.
    unsafe {
        let frame = to.0.as_ptr();
        sanitizer::leave_for_good((*frame).tag);
        arch::exit(frame, message)
    }
}

/// Makes the tools forget a context. Must be the last step before its stack is reused.
///
/// # Safety
/// The context has exited or never ran, and it was prepared with `record`.
#[inline(always)]
pub unsafe fn retire(record: *mut Record) {
    // SAFETY: the caller promised that the context is over, so its stack is unused.
    unsafe { sanitizer::retire(&raw mut (*record).start) };
}
