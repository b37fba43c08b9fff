//! The only place that imports atomics: the standard library's, or loom's in a model. It also has a
//! spin lock for short sections, a futex, and helpers for cache lines.
//!
//! The *backend* is `standard.rs`, or `model.rs` in a model. Both define the names that the models
//! use; only `standard.rs` has a futex. Models build a small part of the crate, from a crate root
//! of their own, `models.rs`.
//!
//! In the order of dependencies this module is the first: it uses no other module, and most others
//! use it. Next: `fiber` and `queue`.

#[cfg_attr(not(sinew_loom), path = "primitive/standard.rs")]
#[cfg_attr(sinew_loom, path = "primitive/model.rs")]
mod backend;

pub(crate) use backend::*;

/// A value that other threads write often, alone in its two cache lines. One line is not enough,
/// because the CPU fetches lines in pairs.
#[repr(align(128))]
pub(crate) struct Alone<T>(T);

impl<T> Alone<T> {
    pub(crate) const fn new(value: T) -> Alone<T> {
        Alone(value)
    }
}

impl<T> core::ops::Deref for Alone<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Prefetches a cache line that will be needed soon. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch changes nothing and never faults.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
