//! Stacks that each have their own mapping and guard.

use super::guard::{self, Row};
use super::mapping::{self, Mapping};
use super::{
    DEFAULT_GUARD_SIZE, DEFAULT_STACK_SIZE, Stack, StackAllocator, check_guard, check_size,
    overflow, page_size,
};
use core::ptr::NonNull;
use std::io;

/// Stacks of one size, each with its own mapping and a guard below.
///
/// The stacks share nothing. Three system calls make a stack, and one frees it. Use a
/// [`StackPool`](super::StackPool) for more than a few stacks.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack::ProtectedFixedSize};
///
/// let stacks = ProtectedFixedSize::new(1024 * 1024)?;
/// let fiber = FiberContext::with_allocator(&stacks, |caller| caller)?;
/// assert_eq!(fiber.stack_range().unwrap().len(), 1024 * 1024);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ProtectedFixedSize {
    size: usize,
    guard: usize,
}

impl ProtectedFixedSize {
    /// Makes stacks of `size` usable bytes, a multiple of the page size, with the default guard.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{DEFAULT_GUARD_SIZE, ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::new(64 * 1024)?.allocate()?;
    /// assert_eq!((stack.size(), stack.guard_size()), (64 * 1024, DEFAULT_GUARD_SIZE));
    /// let error = ProtectedFixedSize::new(100_001).unwrap_err();
    /// assert!(error.to_string().contains("100001 is not a multiple of the page size"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(size: usize) -> io::Result<Self> {
        Self::with_guard(size, default_guard())
    }

    /// Makes stacks of `size` usable bytes with a guard of `guard` bytes. Both are multiples of the
    /// page size, and the guard has at least 64 KiB.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// // For code that calls C functions with buffers of half a MiB.
    /// let stack = ProtectedFixedSize::with_guard(2 * 1024 * 1024, 512 * 1024)?.allocate()?;
    /// assert_eq!(stack.guard_size(), 512 * 1024);
    /// assert!(ProtectedFixedSize::with_guard(64 * 1024, 4096).is_err()); // too small a guard
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_guard(size: usize, guard: usize) -> io::Result<Self> {
        check_size(size)?;
        check_guard(guard)?;
        Ok(ProtectedFixedSize { size, guard })
    }
}

/// Returns the default guard size, at least a whole page where pages are larger.
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

// SAFETY: each stack has its own mapping, which no other code knows.
unsafe impl StackAllocator for ProtectedFixedSize {
    fn allocate(&self) -> io::Result<Stack> {
        overflow::arm();
        let map = Mapping::reserve(self.guard + self.size)?;
        map.commit(0, map.len())?;
        // SAFETY: this is the low end of a mapping that is not in use yet.
        unsafe { guard::install(Row::single(map.low(), self.guard), None)? };
        let guard = self.guard;
        // SAFETY: inside the mapping.
        let low = unsafe { map.leak().add(guard) };
        let owner = core::ptr::without_provenance(guard);
        // SAFETY: `size` bytes above the guard are committed and ours. `release` unmaps both, at
        // once if making the stack fails.
        unsafe {
            Stack::from_raw(low, self.size, guard, owner, release)
                .inspect_err(|_| release(low, self.size, owner))
        }
    }
}

/// Unmaps a stack and its guard. `owner` is the size of the guard.
///
/// # Safety
/// `allocate` mapped the guard and the `size` bytes from `low` on, and nothing uses them. Called
/// once.
pub(super) unsafe fn release(low: NonNull<u8>, size: usize, owner: *const ()) {
    let guard = owner.addr();
    // SAFETY: guard and stack are one mapping, made by `allocate`.
    unsafe { mapping::unmap(low.sub(guard), guard + size) };
}
