//! The switch itself. Only this module and `sanitizer` hold assembly.
//!
//! # The items of each architecture
//!
//! | item | purpose |
//! | --- | --- |
//! | `switch(to, tag)` | saves the running context in a [`Frame`] on its own stack and continues in `to`; returns the [`Handover`] when another context switches back |
//! | `switch_with(to, message, tag)` | switches like `switch` and hands over a message |
//! | `exit(to, message)` | continues in `to` without saving anything: the running context has ended |
//! | `trampoline` | the first code of a context that never ran; every backtrace ends there |
//! | `thread_pointer()` | returns a word that differs between any two living threads |
//! | `stack_pointer()` | returns an address on the running stack; under a sanitizer the address of a variable may lie elsewhere |
//!
//! `thread_word!` defines a thread-local that stays right when a context moves between threads.
//!
//! # The frame
//!
//! A suspended context is one pointer to a [`Frame`], the lowest bytes of its stack that are in
//! use. All architectures share its shape, because on each of them the compiler can be told about
//! every register but two: the frame pointer and the base register. `switch` is inline assembly
//! that declares all others as overwritten, so the compiler saves only those that hold a live value
//! at that place.
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
//! The saved registers are loaded *before* the jump. So at the address where a context continues,
//! the stack pointer and the registers are those that the compiler's unwind tables expect. A
//! debugger that takes them from the frame needs no knowledge of the switch.
//!
//! # Registers that are not saved
//!
//! Floating-point control (MXCSR and the x87 control word, FPCR, fcsr) belongs to the thread, not
//! to the context. Rust code must not run under changed control bits, so code that changes them
//! must restore them before it switches. Saving them would make a switch up to 50 % more expensive,
//! for a case that the language excludes. `tests/fp_control.rs` shows the consequences.
//!
//! The switch jumps instead of returning: an unpaired return is mispredicted each time.

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

/// The two registers that a switch hands over.
///
/// Frames are aligned, so bit 0 of the first word is free: it says that the second word holds a
/// message. Otherwise the second word is undefined: the common switch has no message and does not
/// clear the register.
///
/// | first word | second word | means |
/// | --- | --- | --- |
/// | frame | undefined | that context has switched here |
/// | frame + 1 | message | that context has switched here, with a message |
/// | 1 | message | a context has exited, with a message |
pub(crate) type Handover = (*mut Frame, usize);

/// Bit 0 of the first word of a [`Handover`]. The assembly contains it as a literal.
pub(crate) const MESSAGE: usize = 1;

/// Alignment of the stack pointer at a call, on every architecture here.
pub(crate) const STACK_ALIGN: usize = 16;

/// The saved state of a suspended context, at the low end of its stack.
#[repr(C, align(8))]
#[derive(Debug)]
pub(crate) struct Frame {
    /// The word that the suspending side left for the holder of the context.
    pub(crate) tag: usize,
    /// The address at which the context continues.
    pub(crate) resume_at: usize,
    /// rbx, x19 or s1. In a frame that never ran: the argument of the trampoline.
    pub(crate) base_register: usize,
    /// rbp, x29 or s0. In a frame that never ran: zero, which ends frame-pointer chains.
    pub(crate) frame_pointer: usize,
}

/// The size of a [`Frame`]. The assembly contains it as a literal.
pub(crate) const FRAME_SIZE: usize = 32;
const _: () = assert!(size_of::<Frame>() == FRAME_SIZE);

/// The function that runs first on a new stack. It receives the two words of the [`Handover`], and
/// the record that was passed to `Context::prepare`.
pub(crate) type FirstFunction =
    unsafe extern "C-unwind" fn(from: *mut Frame, message: usize, record: *mut EntryRecord) -> !;

/// The record that the trampoline reads. Its first word is the function to call.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct EntryRecord {
    pub(crate) entry: FirstFunction,
}
