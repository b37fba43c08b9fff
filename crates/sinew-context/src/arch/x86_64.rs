//! The switch for x86_64, System V calling convention.
//!
//! The compiler cannot be told that rbx or rbp is overwritten, so the switch saves those two. rsp
//! is the context itself, and rip is the label at the end of the block. Everything else, including
//! the vector registers, is a declared clobber.

use super::{EntryRecord, Frame, Handover};
use core::arch::{asm, naked_asm};

/// The switch. `$hand_over` is the instruction that makes the first word of the handover from rdi.
///
/// rax holds the target, and afterwards the frame that control came from. Functions return in rax,
/// so a fiber that comes out of a call goes into a switch without being moved.
macro_rules! switch_by {
    ($hand_over:literal, $to:ident, $tag:ident, $($message:tt)*) => {{
        let from;
        let received;
        // SAFETY: the block leaves the stack pointer and the two undeclared registers unchanged:
        // the switch back loads them from the frame that is pushed here. It uses the stack below
        // rsp, which is free because `nostack` is not given.
        unsafe {
            asm!(
                // Push a `Frame`, last field first.
                "push rbp",
                "push rbx",
                "lea rcx, [rip + 2f]",
                "push rcx",
                "push rdx",
                "mov rdi, rsp",
                // Load the target's registers. `lea`, not `pop`, moves the stack pointer: the
                // loads depend on rax alone and start before the stack pointer is known.
                "mov rcx, [rax + 8]",
                "mov rbx, [rax + 16]",
                "mov rbp, [rax + 24]",
                "lea rsp, [rax + 32]",
                // The target receives the suspended frame in rax and the message in rsi.
                $hand_over,
                // A jump, because a return would be mispredicted.
                "jmp rcx",
                "2:",
                inlateout("rax") $to => from,
                $($message)* received,
                inlateout("rdx") $tag => _,
                lateout("rdi") _, lateout("rcx") _,
                lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
                clobber_abi("sysv64"),
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
    switch_by!("mov rax, rdi", to, tag, lateout("rsi"))
}

/// Suspends the running context, continues in `to` and hands it `message`.
///
/// # Safety
/// As for [`switch`].
#[inline(always)]
pub(crate) unsafe fn switch_with(to: *mut Frame, message: usize, tag: usize) -> Handover {
    switch_by!("lea rax, [rdi + 1]", to, tag, inlateout("rsi") message =>)
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
            "mov rcx, [rax + 8]",
            "mov rbx, [rax + 16]",
            "mov rbp, [rax + 24]",
            "lea rsp, [rax + 32]",
            // No frame, with a message.
            "mov eax, 1",
            "jmp rcx",
            in("rax") to,
            in("rsi") message,
            options(noreturn),
        )
    }
}

/// Begins a context: jumps to the entry function of the record in rbx.
///
/// It jumps with a return address instead of calling: the function never returns, and a call would
/// leave an unused entry in the return-address predictor.
///
/// On arrival rax and rsi are as after a `switch`, rbp is zero, rsp is 16-byte aligned.
/// `.cfi_undefined rip` says that this frame has no caller, so every unwinder stops here.
///
/// # Safety
/// Only the first switch to a frame that `Context::prepare` made may jump here.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn trampoline() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rdi, rax",
        "mov rdx, rbx",
        "lea rcx, [rip + 2f]",
        "push rcx",
        "jmp [rbx + {entry}]",
        // The entry function does not return. Unwinders look up the address before this one.
        "2:",
        "ud2",
        ".cfi_endproc",
        entry = const core::mem::offset_of!(EntryRecord, entry),
    )
}

/// Returns the address of the thread's control block, which the ABI keeps at fs:0 (gs:0 on macOS).
#[inline(always)]
pub(crate) fn thread_pointer() -> usize {
    let word;
    // SAFETY: reads one word that the ABI guarantees; not `pure`, so that the compiler reads it
    // again after each switch.
    unsafe {
        #[cfg(not(target_vendor = "apple"))]
        asm!("mov {}, fs:0", out(reg) word, options(nostack, preserves_flags, readonly));
        #[cfg(target_vendor = "apple")]
        asm!("mov {}, gs:0", out(reg) word, options(nostack, preserves_flags, readonly));
    }
    word
}

/// Returns the stack pointer.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let word;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) word, options(nostack, preserves_flags, nomem)) }
    word
}
