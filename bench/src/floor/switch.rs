//! A switch by hand: no check of any kind, two registers, a jump.

use crate::measure::{Lap, Timed};
use crate::peer::round_robin;
use std::arch::{asm, naked_asm};
use std::hint::black_box;

const STACK_SIZE: usize = 256 * 1024;

/// A saved context: resume address, rbx, rbp.
type Context = *mut [usize; 3];

#[inline(always)]
unsafe fn switch(to: Context) -> Context {
    let from;
    // SAFETY: saves what the compiler cannot be told of, and declares the rest.
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

/// Enters the function in rbx.
#[unsafe(naked)]
unsafe extern "C" fn trampoline() {
    naked_asm!("call rbx", "ud2")
}

unsafe fn prepare(top: *mut usize, entry: unsafe extern "C" fn(Context) -> !) -> Context {
    // SAFETY: the caller gives the end of an unused stack, aligned to 16.
    unsafe {
        let context: Context = top.sub(5).cast();
        context.write([trampoline as *const () as usize, entry as *const () as usize, 0]);
        context
    }
}

/// The top of a new stack, at a different cache line for each `index`.
fn stack_top(index: usize) -> *mut usize {
    // SAFETY: a new mapping.
    unsafe {
        let low = libc::mmap(
            std::ptr::null_mut(),
            STACK_SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(low, libc::MAP_FAILED);
        low.byte_add(STACK_SIZE - index % 40 * 64).cast()
    }
}

unsafe extern "C" fn bounce(mut from: Context) -> ! {
    loop {
        // SAFETY: whoever switched here is suspended.
        from = unsafe { switch(from) };
    }
}

pub(crate) fn switch_loop(count: usize) -> Timed {
    // SAFETY: each has a stack of its own.
    let make = |index| unsafe { prepare(stack_top(index), bounce) };
    let contexts: Vec<Context> = (0..count).map(make).collect();
    round_robin(contexts, |context| {
        // SAFETY: each is suspended, and comes back.
        *context = unsafe { switch(*context) };
    })
}

unsafe extern "C" fn once(from: Context) -> ! {
    black_box(from);
    // SAFETY: whoever switched here is suspended; nobody comes back.
    unsafe { switch(from) };
    unreachable!()
}

pub(crate) fn create() -> Timed {
    let top = stack_top(0);
    Box::new(move |count| {
        Lap::run(count, || {
            for _ in 0..count {
                // SAFETY: the context before is not used again, so its stack is free.
                unsafe {
                    black_box(switch(prepare(top, once)));
                }
            }
        })
    })
}
