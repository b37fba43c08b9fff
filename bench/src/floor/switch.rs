//! A context switch by hand: it saves two registers and jumps, without any check.

use super::stacks::Stacks;
use crate::measure::{Lap, Timed};
use crate::peer::round_robin;
use std::arch::{asm, naked_asm};
use std::hint::black_box;

/// A saved context: the address to resume at, rbx, rbp.
pub(super) type Context = *mut [usize; 3];

/// Suspends the caller and resumes `to`; returns the context that switches back.
///
/// # Safety
/// `to` is suspended, and nothing else switches to it.
#[inline(always)]
pub(super) unsafe fn switch(to: Context) -> Context {
    let from;
    // SAFETY: the assembly saves rbx and rbp, which cannot be declared, and declares all other
    // registers.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov rax, rsp",
            "mov rbx, [rdi + 8]",
            "mov rbp, [rdi + 16]",
            "mov rcx, [rdi]",
            "lea rsp, [rdi + 24]",
            "mov rdi, rax",
            "jmp rcx",
            "2:",
            inlateout("rdi") to => from,
            lateout("rax") _, lateout("rcx") _,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    from
}

/// Calls the function in rbx.
///
/// # Safety
/// Only [`switch`] enters it, through a context that [`prepare`] has made: rbx holds the entry
/// function, and rdi the context that the entry function gets.
#[unsafe(naked)]
unsafe extern "C" fn trampoline() {
    naked_asm!("call rbx", "ud2")
}

/// Returns a context that begins in `entry`, which gets the context that started it.
///
/// # Safety
/// `top` is the end of a stack that nothing uses, aligned to 16.
pub(super) unsafe fn prepare(
    top: *mut usize,
    entry: unsafe extern "C" fn(Context) -> !,
) -> Context {
    // SAFETY: the caller promises an unused stack, aligned to 16; `trampoline` finds it aligned.
    unsafe {
        let context: Context = top.sub(5).cast();
        context.write([trampoline as *const () as usize, entry as *const () as usize, 0]);
        context
    }
}

/// Switches back to the context that switched here, for ever.
///
/// # Safety
/// `from` is suspended, and nothing else switches to it.
unsafe extern "C" fn bounce(mut from: Context) -> ! {
    loop {
        // SAFETY: the context that switched here is suspended.
        from = unsafe { switch(from) };
    }
}

pub(crate) fn switch_loop(count: usize) -> Timed {
    let stacks = Stacks::map(count).expect("there is room for the stacks");
    // SAFETY: each context has a stack of its own.
    let make = |slot| unsafe { prepare(stacks.top(slot), bounce) };
    let contexts: Vec<Context> = (0..count).map(make).collect();
    round_robin(contexts, |context| {
        // SAFETY: each context is suspended, and switches back.
        *context = unsafe { switch(*context) };
    })
}

/// Switches back to the context that switched here, once.
///
/// # Safety
/// `from` is suspended, and nothing else switches to it.
unsafe extern "C" fn once(from: Context) -> ! {
    black_box(from);
    // SAFETY: the context that switched here is suspended. It never switches back.
    unsafe { switch(from) };
    unreachable!()
}

pub(crate) fn create() -> Timed {
    let top = Stacks::map(1).expect("there is room for a stack").top(0);
    Box::new(move |count| {
        Lap::run(count, || {
            for _ in 0..count {
                // SAFETY: nothing switches to the previous context again, so its stack is free.
                unsafe {
                    black_box(switch(prepare(top, once)));
                }
            }
        })
    })
}
