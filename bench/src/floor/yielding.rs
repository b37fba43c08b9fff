//! Yields by hand: each context puts itself last and switches to the first.
//!
//! The list of ready contexts is linked through their saved frames. A frame holds the link, the
//! address to resume at and two registers, all in one cache line. Parts of a runtime that a yield
//! does not need are left out: the list never runs empty, no context ends or waits, and nothing is
//! checked.

use super::stacks::Stacks;
use crate::measure::{Lap, Timed};
use std::arch::{asm, naked_asm};

pub(crate) const FIFO: &str = "by hand: a FIFO through the saved frames, prefetch, no checks";

/// A suspended context: the link, the address to resume at, rbx and rbp.
type Frame = [usize; 4];

/// The ready contexts, without the running one. There is always at least one.
#[repr(C)]
struct Fifo {
    first: *mut Frame,
    last: *mut Frame,
}

/// Lets the first context run; returns when it is the caller's turn again.
///
/// # Safety
/// All frames in the list belong to suspended contexts.
#[inline(always)]
unsafe fn pass_on(fifo: *mut Fifo) {
    // SAFETY: the assembly saves the registers that cannot be declared and declares all others. The
    // context resumes at label 2 with its own stack pointer, and with `fifo` still in rdi.
    unsafe {
        asm!(
            // Save the context, and append it to the list.
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "push rax",
            "mov rcx, [rdi + 8]",
            "mov [rcx], rsp",
            "mov [rdi + 8], rsp",
            // Take the first context, and prefetch the frame after it.
            "mov rcx, [rdi]",
            "mov rax, [rcx]",
            "mov [rdi], rax",
            "prefetcht0 [rax]",
            "mov rbx, [rcx + 16]",
            "mov rbp, [rcx + 24]",
            "lea rsp, [rcx + 32]",
            "jmp [rcx + 8]",
            "2:",
            inlateout("rdi") fifo => _,
            lateout("rax") _, lateout("rcx") _,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
}

/// Calls [`yield_for_ever`] with the list, which is in rdi whenever a context resumes.
///
/// # Safety
/// Only [`pass_on`] enters it, through a frame that [`prepare`] has made.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    naked_asm!("call {}", "ud2", sym yield_for_ever)
}

/// Yields to the contexts in the list, for ever.
///
/// # Safety
/// `fifo` is valid, and all frames in the list belong to suspended contexts.
unsafe extern "C" fn yield_for_ever(fifo: *mut Fifo) -> ! {
    loop {
        // SAFETY: `Fifo::of` puts only suspended contexts into the list, and so does `pass_on`.
        unsafe { pass_on(fifo) };
    }
}

/// Returns a context that begins in [`begin`].
///
/// # Safety
/// `top` is the end of a stack that nothing uses, aligned to 16.
unsafe fn prepare(top: *mut usize) -> *mut Frame {
    // SAFETY: the caller promises an unused stack, aligned to 16; `begin` finds it empty and
    // aligned.
    unsafe {
        let frame: *mut Frame = top.sub(4).cast();
        frame.write([0, begin as *const () as usize, 0, 0]);
        frame
    }
}

impl Fifo {
    /// Returns a list of `count` contexts that have not begun. Their stacks live until the process
    /// ends.
    fn of(count: usize) -> Fifo {
        let stacks = Stacks::map(count).expect("there is room for the stacks");
        // SAFETY: each slot is a new stack.
        let frames = (0..count).map(|slot| unsafe { prepare(stacks.top(slot)) });
        let frames: Vec<*mut Frame> = frames.collect();
        for pair in frames.windows(2) {
            // SAFETY: `prepare` has written both, and none of the contexts has run.
            unsafe { (*pair[0])[0] = pair[1] as usize };
        }
        Fifo { first: frames[0], last: frames[count - 1] }
    }
}

/// Lets `count` contexts, at least two, yield in turn. The caller is one of them.
pub(crate) fn fifo(count: u64) -> Timed {
    let mut fifo = Box::new(Fifo::of(count as usize - 1));
    Box::new(move |yields| {
        let rounds = yields.div_ceil(count);
        Lap::run(rounds * count, || {
            for _ in 0..rounds {
                // SAFETY: all other contexts are in the list.
                unsafe { pass_on(&raw mut *fifo) };
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: usize = usize::MAX;

    /// Returns the ready contexts in the order of the list: the address at which each resumes, or
    /// `BEGIN` if it has not begun.
    fn ready(fifo: &Fifo) -> Vec<usize> {
        let mut all = Vec::new();
        let mut next = fifo.first;
        loop {
            // SAFETY: all frames in the list belong to suspended contexts.
            let [link, resume, ..] = unsafe { *next };
            all.push(if resume == begin as *const () as usize { BEGIN } else { resume });
            if next == fifo.last {
                return all;
            }
            next = link as *mut Frame;
        }
    }

    #[test]
    fn each_context_runs_in_a_round_and_is_ready_again_after_it() {
        let mut fifo = Fifo::of(4);
        assert_eq!(ready(&fifo), [BEGIN; 4]);
        for _ in 0..3 {
            // SAFETY: all other contexts are in the list.
            unsafe { pass_on(&raw mut fifo) };
            let after = ready(&fifo);
            assert!(after.len() == 4 && !after.contains(&BEGIN), "{after:x?}");
        }
    }
}
