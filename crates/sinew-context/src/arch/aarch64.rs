//! The switch for aarch64, AAPCS64.
//!
//! The compiler cannot be told that x19 or x29 is overwritten, so the switch saves those two. sp is
//! the context itself, and pc is the label at the end of the block. x18 belongs to the platform and
//! is never touched. Everything else is a declared clobber, including v8-v15, whose low halves the
//! calling convention would preserve.

use super::{EntryRecord, Frame, Handover};
use core::arch::{asm, naked_asm};

/// The switch. `$hand_over` is the instruction that makes the first word of the handover from x4.
macro_rules! switch_by {
    ($hand_over:literal, $to:ident, $tag:ident, $($message:tt)*) => {{
        let from;
        let received;
        // SAFETY: the block leaves the stack pointer and the two undeclared registers unchanged:
        // the switch back loads them from the frame that is pushed here.
        unsafe {
            asm!(
                // Push a `Frame`.
                "adr x3, 2f",
                "stp x2, x3, [sp, #-32]!",
                "stp x19, x29, [sp, #16]",
                "mov x4, sp",
                // Load the target's registers.
                "ldr x3, [x0, #8]",
                "ldp x19, x29, [x0, #16]",
                "add sp, x0, #32",
                // The target receives the suspended frame in x0 and the message in x1.
                $hand_over,
                "br x3",
                "2:",
                inlateout("x0") $to => from,
                $($message)* received,
                inlateout("x2") $tag => _,
                lateout("x3") _, lateout("x4") _,
                lateout("x20") _, lateout("x21") _, lateout("x22") _, lateout("x23") _,
                lateout("x24") _, lateout("x25") _, lateout("x26") _, lateout("x27") _,
                lateout("x28") _, lateout("x30") _,
                lateout("v8") _, lateout("v9") _, lateout("v10") _, lateout("v11") _,
                lateout("v12") _, lateout("v13") _, lateout("v14") _, lateout("v15") _,
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
    switch_by!("mov x0, x4", to, tag, lateout("x1"))
}

/// Suspends the running context, continues in `to` and hands it `message`.
///
/// # Safety
/// As for [`switch`].
#[inline(always)]
pub(crate) unsafe fn switch_with(to: *mut Frame, message: usize, tag: usize) -> Handover {
    switch_by!("add x0, x4, #1", to, tag, inlateout("x1") message =>)
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
            "ldr x3, [x0, #8]",
            "ldp x19, x29, [x0, #16]",
            "add sp, x0, #32",
            // No frame, with a message.
            "mov x0, #1",
            "br x3",
            in("x0") to,
            in("x1") message,
            options(noreturn),
        )
    }
}

/// Begins a context: jumps to the entry function of the record in x19.
///
/// It jumps with a return address instead of calling: the function never returns, and a call would
/// leave an unused entry in the return-address predictor.
///
/// On arrival x0 and x1 are as after a `switch`, x29 is zero, sp is 16-byte aligned.
/// `.cfi_undefined lr` says that this frame has no caller, so every unwinder stops here.
///
/// # Safety
/// Only the first switch to a frame that `Context::prepare` made may jump here.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn trampoline() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined lr",
        "mov x2, x19",
        "ldr x3, [x19, #{entry}]",
        "adr lr, 2f",
        "br x3",
        // The entry function does not return. Unwinders look up the address before this one.
        "2:",
        "brk #1",
        ".cfi_endproc",
        entry = const core::mem::offset_of!(EntryRecord, entry),
    )
}

/// Returns the thread pointer register.
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let word;
    // SAFETY: reads a register; not `pure`, so that the compiler reads it again after each switch.
    unsafe {
        #[cfg(not(target_vendor = "apple"))]
        asm!("mrs {}, tpidr_el0", out(reg) word, options(nostack, preserves_flags, nomem));
        // Apple's kernel keeps the number of the processor in the low bits.
        #[cfg(target_vendor = "apple")]
        asm!("mrs {0}, tpidrro_el0", "and {0}, {0}, #~7", out(reg) word,
            options(nostack, nomem));
    }
    word
}

/// Returns the stack pointer.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let word;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, sp", out(reg) word, options(nostack, preserves_flags, nomem)) }
    word
}
