//! The switch for riscv64, the standard calling convention with or without floating point.
//!
//! The compiler cannot be told that s0 (the frame pointer) or s1 is overwritten, so the switch
//! saves those two. sp is the context itself, and pc is the label at the end of the block. gp and
//! tp belong to the thread. Everything else is a declared clobber.

use super::{EntryRecord, Frame, Handover};
use core::arch::{asm, naked_asm};

/// The switch. `$hand_over` is the instruction that makes the first word of the handover from a4.
macro_rules! switch_by {
    ($hand_over:literal, $to:ident, $tag:ident, $($message:tt)*) => {{
        let from;
        let received;
        // SAFETY: the block leaves the stack pointer and the two undeclared registers unchanged:
        // the switch back loads them from the frame that is pushed here.
        unsafe {
            asm!(
                // Push a `Frame`.
                "lla a3, 2f",
                "addi sp, sp, -32",
                "sd a2, 0(sp)",
                "sd a3, 8(sp)",
                "sd s1, 16(sp)",
                "sd s0, 24(sp)",
                "mv a4, sp",
                // Load the target's registers.
                "ld a3, 8(a0)",
                "ld s1, 16(a0)",
                "ld s0, 24(a0)",
                "addi sp, a0, 32",
                // The target receives the suspended frame in a0 and the message in a1.
                $hand_over,
                // A jump through ra or t0 would move the return-address predictor.
                "jr a3",
                "2:",
                inlateout("a0") $to => from,
                $($message)* received,
                inlateout("a2") $tag => _,
                lateout("a3") _, lateout("a4") _,
                lateout("s2") _, lateout("s3") _, lateout("s4") _, lateout("s5") _,
                lateout("s6") _, lateout("s7") _, lateout("s8") _, lateout("s9") _,
                lateout("s10") _, lateout("s11") _,
                lateout("fs0") _, lateout("fs1") _, lateout("fs2") _, lateout("fs3") _,
                lateout("fs4") _, lateout("fs5") _, lateout("fs6") _, lateout("fs7") _,
                lateout("fs8") _, lateout("fs9") _, lateout("fs10") _, lateout("fs11") _,
                clobber_abi("C"),
            );
        }
        (from, received)
    }};
}

/// Suspends the running context and continues in `to`.
///
/// # Safety
/// `to` is a suspended context that no other code resumes, and its stack is alive. Both sides agree
/// on the meaning of `tag`.
#[inline(always)]
pub(crate) unsafe fn switch(to: *mut Frame, tag: usize) -> Handover {
    switch_by!("mv a0, a4", to, tag, lateout("a1"))
}

/// Suspends the running context, continues in `to` and hands it `message`.
///
/// # Safety
/// As for [`switch`].
#[inline(always)]
pub(crate) unsafe fn switch_with(to: *mut Frame, message: usize, tag: usize) -> Handover {
    switch_by!("addi a0, a4, 1", to, tag, inlateout("a1") message =>)
}

/// Ends the running context and continues in `to`.
///
/// # Safety
/// As for [`switch`]. In addition, nothing on the running stack needs to be dropped.
#[inline(always)]
pub(crate) unsafe fn exit(to: *mut Frame, message: usize) -> ! {
    // SAFETY: `to` is suspended. Nothing is saved, because no context switches back here.
    unsafe {
        asm!(
            "ld a3, 8(a0)",
            "ld s1, 16(a0)",
            "ld s0, 24(a0)",
            "addi sp, a0, 32",
            // No frame, with a message.
            "li a0, 1",
            "jr a3",
            in("a0") to,
            in("a1") message,
            options(noreturn),
        )
    }
}

/// Begins a context: jumps to the entry function of the record in s1.
///
/// It jumps with a return address instead of calling: the function never returns, and a call would
/// leave an unused entry in the return-address predictor.
///
/// On arrival a0 and a1 are as after a `switch`, s0 is zero, sp is 16-byte aligned.
/// `.cfi_undefined ra` says that this frame has no caller, so every unwinder stops here.
///
/// # Safety
/// Only the first switch to a frame that `Context::prepare` made may jump here.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn trampoline() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined ra",
        "mv a2, s1",
        "ld a3, {entry}(s1)",
        "la ra, 2f",
        "jr a3",
        // The entry function does not return. Unwinders look up the address before this one.
        "2:",
        "unimp",
        ".cfi_endproc",
        entry = const core::mem::offset_of!(EntryRecord, entry),
    )
}

/// Returns the thread pointer register.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let word;
    // SAFETY: reads a register; not `pure`, so that the compiler reads it again after each switch.
    unsafe { asm!("mv {}, tp", out(reg) word, options(nostack, preserves_flags, nomem)) }
    word
}

/// Returns the stack pointer.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let word;
    // SAFETY: reads a register.
    unsafe { asm!("mv {}, sp", out(reg) word, options(nostack, preserves_flags, nomem)) }
    word
}
