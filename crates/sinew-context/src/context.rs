//! A suspended flow of control as one pointer, and the two ways to leave one for another.
//!
//! This is the raw layer: it moves control and a word of the caller's, and checks nothing.
//! [`Fiber`](crate::Fiber) is the safe type on top of it; a scheduler that keeps its own
//! control blocks uses this module directly.
//!
//! # Protocol
//!
//! A context is *prepared*, then alternates between *running* and *suspended*, then *exits*.
//! While it is suspended exactly one [`Context`] value stands for it, and that value is used up
//! by the switch that resumes it; no value stands for a running one.
//! The switch hands over where control came from and, if the sender wants, a message: a word whose
//! meaning is between the two sides.
//! Another word, the *tag*, stays behind in the suspended frame, readable by whoever holds the
//! context: a fiber keeps its host there.
//!
//! Next: `arch`, which does it, and `sanitizer`, which tells the tools about it.

use crate::arch::{self, EntryRecord, FRAME_SIZE, Frame, Handover, MESSAGE, STACK_ALIGN};
use crate::sanitizer::{self, Note};
use core::ptr::NonNull;

/// A suspended flow of control.
///
/// Copying the value does not copy the context: only one of the copies may be switched to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Context(NonNull<Frame>);

/// Where a suspended context stands: what a debugger or a stack walker starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Registers {
    /// The address at which it goes on; not a return address, but the next instruction.
    pub instruction: usize,
    /// The stack pointer at that address.
    pub stack: usize,
    /// The frame pointer (rbp, x29, s0) at that address.
    pub frame: usize,
    /// The other register that the switch saves (rbx, x19, s1).
    pub base: usize,
}

/// Where in the frame of a suspended context its registers are, for debuggers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FrameLayout {
    /// See [`Registers::instruction`].
    pub resume_at: usize,
    /// See [`Registers::frame`].
    pub frame_pointer: usize,
    /// See [`Registers::base`].
    pub base_register: usize,
    /// Its size: the stack pointer is behind it.
    pub size: usize,
}

/// The one of this machine.
pub const FRAME_LAYOUT: FrameLayout = FrameLayout {
    resume_at: core::mem::offset_of!(Frame, resume_at),
    frame_pointer: core::mem::offset_of!(Frame, frame_pointer),
    base_register: core::mem::offset_of!(Frame, base_register),
    size: FRAME_SIZE,
};

impl Registers {
    /// Those of a context that is suspended at `address`, from a copy of its stack: `read` gives the
    /// word at an address, if it is in the copy.
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

/// The first words of a record that a new context is given: the function it begins with.
///
/// Put it first in a `#[repr(C)]` struct to give the entry function more.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    entry: EntryRecord,
    start: Note,
}

/// The function that a context begins with. It must call [`Arrival::begin`] with the first two
/// words, and never return.
pub type Entry =
    unsafe extern "C-unwind" fn(first: *mut (), second: usize, record: *mut Record) -> !;

/// What a context finds when it runs again: who switched to it, and the message.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    words: Handover,
}

impl Record {
    /// Makes a record that starts `entry`.
    pub const fn new(entry: Entry) -> Self {
        // SAFETY: both are functions of the same ABI that take a pointer, a word and a pointer; a
        // record begins with its `EntryRecord`.
        let entry = unsafe { core::mem::transmute::<Entry, arch::Entry>(entry) };
        Record { entry: EntryRecord { entry }, start: Note::new() }
    }
}

impl Context {
    /// Lays out a context that begins with the record's entry function at the first switch.
    ///
    /// The topmost byte it may use is below `top`, which is rounded down to what the calling
    /// convention asks; `bounds` are the lowest and highest address of the whole stack.
    ///
    /// # Safety
    /// `top` and at least 256 bytes below it lie on a stack that is writable and unused, inside
    /// `bounds`, and lives until the context has exited. `record` stays where it is until then.
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
        // SAFETY: the caller vouches for the memory below `top` and for the record.
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

    /// The record, if this context was prepared and never ran.
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

    /// The word that was left in the frame when the context was suspended or prepared.
    ///
    /// # Safety
    /// The context is suspended.
    #[inline(always)]
    pub unsafe fn tag(self) -> usize {
        // SAFETY: the frame of a suspended context does not change.
        unsafe { sanitizer::tag(self.0.as_ref().tag) }
    }

    /// The registers from which a stack walker starts.
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

    /// The lowest address of the stack that the suspended context uses.
    #[inline(always)]
    pub fn address(self) -> usize {
        self.0.as_ptr().addr()
    }

    /// As one pointer, for a control block; [`Context::from_ptr`] takes it back.
    #[inline(always)]
    pub fn as_ptr(self) -> NonNull<()> {
        self.0.cast()
    }

    /// The context of which [`Context::as_ptr`] gave the pointer.
    ///
    /// # Safety
    /// `pointer` came from `as_ptr`.
    #[inline(always)]
    pub unsafe fn from_ptr(pointer: NonNull<()>) -> Context {
        Context(pointer.cast())
    }
}

impl Arrival {
    /// Takes the two words that an [`Entry`] function was given: the first thing it does.
    ///
    /// # Safety
    /// Called once, at the start of a context, with the words that its entry function was given.
    #[inline(always)]
    pub unsafe fn begin(first: *mut (), second: usize) -> Arrival {
        let arrival = Arrival { words: (first.cast(), second) };
        // SAFETY: as the caller promised.
        unsafe { sanitizer::begin(arrival.frame()) };
        arrival
    }

    /// Whether there is a message, or the other side has exited: whether there is anything to do
    /// but to go on.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.words.0.addr() & MESSAGE == 0
    }

    /// The message, if the other side sent one. One that has exited always did.
    #[inline(always)]
    pub fn message(&self) -> Option<usize> {
        (!self.is_plain()).then_some(self.words.1)
    }

    /// The context that switched here and is suspended now; `None` if it has exited.
    #[inline(always)]
    pub fn from(&self) -> Option<Context> {
        NonNull::new(self.frame()).map(Context)
    }

    /// The same, for a plain arrival.
    ///
    /// # Safety
    /// [`is_plain`](Self::is_plain) is true: then somebody has switched here and is suspended.
    #[inline(always)]
    pub unsafe fn from_plain(&self) -> Context {
        // SAFETY: a plain first word is the frame itself.
        Context(unsafe { NonNull::new_unchecked(self.words.0) })
    }

    /// The message, for those who always send one; what it is of a plain arrival is not defined.
    #[inline(always)]
    pub fn word(&self) -> usize {
        self.words.1
    }

    /// The context that switched here.
    ///
    /// # Safety
    /// It has not exited.
    #[inline(always)]
    pub unsafe fn from_suspended(&self) -> Context {
        // SAFETY: as the caller promised, there is a frame.
        Context(unsafe { NonNull::new_unchecked(self.frame()) })
    }

    #[inline(always)]
    fn frame(&self) -> *mut Frame {
        self.words.0.map_addr(|word| word & !MESSAGE)
    }
}

/// Suspends the running context under `tag` and goes on in `to`.
///
/// Returns when somebody switches back.
///
/// # Safety
/// `to` is suspended, nobody else will switch to it, its stack is alive, and what the two sides
/// agreed about messages holds. The caller keeps nothing across the call that another context
/// of the same thread may end: see `docs/soundness.md`.
#[inline(always)]
pub unsafe fn switch(to: Context, tag: usize) -> Arrival {
    announced!(to, tag, |frame, tag| arch::switch(frame, tag))
}

/// Suspends the running context under `tag` and goes on in `to`, handing it `message`.
///
/// # Safety
/// As for [`switch`].
#[inline(always)]
pub unsafe fn switch_with(to: Context, message: usize, tag: usize) -> Arrival {
    announced!(to, tag, |frame, tag| arch::switch_with(frame, message, tag))
}

/// Switches, and tells the sanitizers before and after.
///
/// A macro, not a function: between the announcement and the switch no function may be entered or
/// left, because a sanitizer would count that for the other context.
macro_rules! announced {
    ($to:ident, $tag:ident, |$frame:ident, $noted:ident| $switch:expr) => {{
        let mut note = Note::new();
        // SAFETY: `to` is suspended, so its frame and its note are alive; ours is on this stack
        // and outlives the suspension. The switch asks for what the caller promised.
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

/// Ends the running context and goes on in `to`, handing it `message`.
///
/// The stack that is left is unused as soon as `to` runs; the message is the way to tell it so.
///
/// # Safety
/// As for [`switch`]; nothing on the running stack needs to be dropped any more.
#[inline(always)]
pub unsafe fn exit(to: Context, message: usize) -> ! {
    // SAFETY: as the caller promised.
    unsafe {
        let frame = to.0.as_ptr();
        sanitizer::leave_for_good((*frame).tag);
        arch::exit(frame, message)
    }
}

/// Forgets what the tools were told of a context: the last thing before its stack is reused.
///
/// # Safety
/// The context has exited or never ran; `record` is the one it was prepared with.
#[inline(always)]
pub unsafe fn retire(record: *mut Record) {
    // SAFETY: as the caller promised.
    unsafe { sanitizer::retire(&raw mut (*record).start) };
}
