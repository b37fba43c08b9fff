//! Floating-point control bits belong to the thread: a switch neither saves nor restores them.
//!
//! Rust code must not run under changed control bits. So each test does nothing but switch between
//! its two assembly blocks, and a switch does no arithmetic.

use sinew_context::FiberContext;

#[cfg(target_arch = "x86_64")]
fn control() -> (u32, u16) {
    let (mut mxcsr, mut x87) = (0_u32, 0_u16);
    // SAFETY: stores two control words.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack));
        std::arch::asm!("fnstcw [{}]", in(reg) &raw mut x87, options(nostack));
    }
    (mxcsr & 0xFFC0, x87)
}

#[cfg(target_arch = "x86_64")]
unsafe fn set_control((mxcsr, x87): (u32, u16)) {
    // SAFETY: the caller restores the previous control words before any arithmetic.
    unsafe {
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr, options(nostack));
        std::arch::asm!("fldcw [{}]", in(reg) &raw const x87, options(nostack));
    }
}

#[cfg(target_arch = "x86_64")]
fn with_other_rounding((mxcsr, x87): (u32, u16)) -> (u32, u16) {
    (mxcsr | 0x6000, x87 | 0x0C00)
}

#[cfg(target_arch = "aarch64")]
fn control() -> u64 {
    let fpcr;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) fpcr) };
    fpcr
}

#[cfg(target_arch = "aarch64")]
unsafe fn set_control(fpcr: u64) {
    // SAFETY: the caller restores the previous control word before any arithmetic.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) fpcr) };
}

#[cfg(target_arch = "aarch64")]
fn with_other_rounding(fpcr: u64) -> u64 {
    fpcr | 0b11 << 22
}

#[cfg(target_arch = "riscv64")]
fn control() -> u64 {
    let mode;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("frrm {}", out(reg) mode) };
    mode
}

#[cfg(target_arch = "riscv64")]
unsafe fn set_control(mode: u64) {
    // SAFETY: the caller restores the previous mode before any arithmetic.
    unsafe { std::arch::asm!("fsrm {}", in(reg) mode) };
}

#[cfg(target_arch = "riscv64")]
fn with_other_rounding(_: u64) -> u64 {
    1
}

#[test]
fn control_bits_set_in_a_fiber_stay_set_after_a_switch() {
    let before = control();
    let fiber = FiberContext::new(move |caller| {
        // SAFETY: restored below, before any arithmetic.
        unsafe { set_control(with_other_rounding(before)) };
        let caller = caller.resume().unwrap();
        assert!(control() == before, "and the fiber sees what the caller set");
        caller
    });
    let fiber = fiber.unwrap().resume();
    let during = control();
    // SAFETY: restores the control words that were set at the start.
    unsafe { set_control(before) };
    assert!(during == with_other_rounding(before));
    assert!(fiber.unwrap().resume().is_none());
}
