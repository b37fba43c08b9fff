//! The switch itself: the only place, with `sanitizer`, that holds assembly.
//!
//! # What each architecture supplies
//!
//! | item | what it does |
//! | --- | --- |
//! | `switch(to, tag)` | saves the running context in a [`Frame`] on its own stack, goes on in `to`; returns when somebody switches back, with what they handed over |
//! | `switch_with(to, message, tag)` | the same, handing over a message |
//! | `exit(to, message)` | goes on in `to` without saving anything: the running context has ended |
//! | `trampoline` | where a context that never ran begins; ends every backtrace |
//! | `thread_pointer()` | a word that differs between threads that live at the same time |
//! | `stack_pointer()` | an address on the running stack; that of a variable may lie elsewhere under a sanitizer |
//!
//! For those who move contexts between threads, `thread_word!` is a thread-local that stays right.
//!
//! # The frame
//!
//! A suspended context is one pointer: to a [`Frame`], the lowest bytes of its stack in use.
//! All architectures share its shape, because on each of them the compiler can be told about
//! every register but two: the frame pointer and its base register.
//! `switch` is inline assembly that declares all others as overwritten, so the compiler saves
//! just those that hold something alive at that place.
//!
//! ```text
//!              higher addresses
//!            | frames of the suspended functions     |
//! frame + 32 | ...................................... |  sp after the switch back
//! frame + 24 | frame pointer                          |
//! frame + 16 | base register                          |
//! frame +  8 | where to go on (the end of the asm)    |
//! frame +  0 | tag (the caller's word: a host, …)     |  <- Context
//!              lower addresses, unused
//! ```
//!
//! The saved registers are loaded *before* the jump, so at the address where a context goes on,
//! stack pointer and registers are exactly what the compiler's unwind tables expect there.
//! A debugger that takes them from the frame needs no knowledge of the switch.
//!
//! # What is not saved
//!
//! Floating-point control (MXCSR and the x87 control word, FPCR, fcsr) belongs to the thread,
//! not to the context. Rust code must not run under changed control bits anyway; whoever changes
//! them restores them before it switches. Saving them would cost up to half as much again for a
//! case the language excludes. `tests/fp_control.rs` shows what happens.
//!
//! Jumps, not returns, change the stack: an unpaired return is a misprediction each time.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64.rs")]
mod imp;
mod thread_word;

#[cfg(not(any(
    all(target_arch = "x86_64", unix),
    all(target_arch = "aarch64", unix),
    all(target_arch = "riscv64", unix)
)))]
compile_error!(
    "sinew-context has a switch for x86_64, aarch64 and riscv64 on Unix; see docs/platforms.md"
);

pub(crate) use imp::{exit, stack_pointer, switch, switch_with, thread_pointer, trampoline};

/// What a switch hands over, in two registers.
///
/// Frames are aligned, so bit 0 of the first word is free to say that the second one holds a
/// message; otherwise that is whatever the register held. The common switch has no message and
/// so need not clear it.
///
/// | first word | second word | means |
/// | --- | --- | --- |
/// | frame | anything | that context has switched here |
/// | frame + 1 | message | that context has switched here, with a message |
/// | 1 | message | a context has exited, with a message |
pub(crate) type Handover = (*mut Frame, usize);

/// Bit 0 of the first word of a [`Handover`]; the assembly spells it out.
pub(crate) const MESSAGE: usize = 1;

/// Alignment of the stack pointer at a call, on every architecture here.
pub(crate) const STACK_ALIGN: usize = 16;

/// The saved state of a suspended context, at the low end of its stack.
#[repr(C, align(8))]
#[derive(Debug)]
pub(crate) struct Frame {
    /// The word that the suspending side left for those who hold the context.
    pub(crate) tag: usize,
    /// Where the context goes on.
    pub(crate) resume_at: usize,
    /// rbx, x19 or s1. In a frame that never ran: the argument of the trampoline.
    pub(crate) base_register: usize,
    /// rbp, x29 or s0. In a frame that never ran: zero, which ends frame-pointer chains.
    pub(crate) frame_pointer: usize,
}

/// Size of a [`Frame`]; the assembly spells it out.
pub(crate) const FRAME_SIZE: usize = 32;
const _: () = assert!(size_of::<Frame>() == FRAME_SIZE);

/// What runs first on a new stack: gets the two words of the [`Handover`], and the record that
/// `Context::prepare` was given.
pub(crate) type Entry =
    unsafe extern "C-unwind" fn(from: *mut Frame, message: usize, record: *mut EntryRecord) -> !;

/// The record that the trampoline reads: its first word is the function to call.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct EntryRecord {
    pub(crate) entry: Entry,
}
