//! Stacks with a mapping and a guard each.

use super::guard::{self, Row};
use super::mapping::{self, Mapping};
use super::{
    DEFAULT_GUARD_SIZE, DEFAULT_STACK_SIZE, Stack, StackAllocator, check_guard, check_size,
    overflow, page_size,
};
use core::ptr::NonNull;
use std::io;

/// Stacks of one size, each a mapping of its own with a guard below.
///
/// Simple and without sharing: three system calls to make one, one to free it.
/// Use a [`StackPool`](super::StackPool) for more than a few.
#[derive(Clone, Copy, Debug)]
pub struct ProtectedFixedSize {
    size: usize,
    guard: usize,
}

impl ProtectedFixedSize {
    /// Stacks of `size` usable bytes, a multiple of the page, with a guard of 64 KiB.
    pub fn new(size: usize) -> io::Result<Self> {
        Self::with_guard(size, default_guard())
    }

    /// The same with a guard of `guard` bytes, a multiple of the page and at least 64 KiB.
    pub fn with_guard(size: usize, guard: usize) -> io::Result<Self> {
        check_size(size)?;
        check_guard(guard)?;
        Ok(ProtectedFixedSize { size, guard })
    }
}

/// The default guard, which is a whole page where pages are larger.
pub(super) fn default_guard() -> usize {
    DEFAULT_GUARD_SIZE.max(page_size())
}

impl Default for ProtectedFixedSize {
    fn default() -> Self {
        let page = page_size();
        ProtectedFixedSize {
            size: DEFAULT_STACK_SIZE.next_multiple_of(page),
            guard: default_guard(),
        }
    }
}

// SAFETY: each stack is a mapping of its own, which nobody else knows.
unsafe impl StackAllocator for ProtectedFixedSize {
    fn allocate(&self) -> io::Result<Stack> {
        overflow::arm();
        let map = Mapping::reserve(self.guard + self.size)?;
        map.commit(0, map.len())?;
        // SAFETY: the low end of a mapping that is not in use yet.
        unsafe { guard::install(Row::single(map.low(), self.guard), None)? };
        let guard = self.guard;
        // SAFETY: inside the mapping.
        let low = unsafe { map.leak().add(guard) };
        let owner = core::ptr::without_provenance(guard);
        // SAFETY: `size` bytes above the guard are committed and ours; `release` unmaps both, at
        // once if there is no stack.
        unsafe {
            Stack::from_raw(low, self.size, guard, owner, release)
                .inspect_err(|_| release(low, self.size, owner))
        }
    }
}

/// `owner` is the size of the guard.
pub(super) unsafe fn release(low: NonNull<u8>, size: usize, owner: *const ()) {
    let guard = owner.addr();
    // SAFETY: guard and stack are one mapping, made by `allocate`.
    unsafe { mapping::unmap(low.sub(guard), guard + size) };
}
