//! Stacks from the heap, without a guard.

use super::{Stack, StackAllocator, check_size};
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc};
use std::io;

/// Stacks of one size from the heap, without kernel calls and without a guard.
///
/// For programs that account for their memory themselves, or for kernels where mappings are
/// expensive. Recursion that is too deep writes below the stack, so making a `FixedSize` is
/// `unsafe`. [`StackPool`](super::StackPool) is as fast, and safe.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack::FixedSize};
///
/// // SAFETY: the fibers below need less than 63 KiB.
/// let stacks = unsafe { FixedSize::new(64 * 1024)? };
/// let fiber = FiberContext::with_allocator(&stacks, |caller| caller)?;
/// assert_eq!(fiber.stack_range().unwrap().len(), 64 * 1024);
/// assert!(fiber.resume().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FixedSize {
    size: usize,
}

impl FixedSize {
    /// Makes stacks of `size` bytes, a multiple of the page size.
    ///
    /// # Safety
    /// The code that runs on these stacks needs at most `size` bytes less 1 KiB. Code that needs
    /// more overwrites other memory.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{FixedSize, StackAllocator};
    ///
    /// // SAFETY: no code runs on these stacks.
    /// let stacks = unsafe { FixedSize::new(64 * 1024)? };
    /// assert_eq!(stacks.allocate()?.guard_size(), 0);
    /// // SAFETY: as above.
    /// let error = unsafe { FixedSize::new(3000) }.unwrap_err();
    /// assert!(error.to_string().contains("3000 is below the minimum"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub unsafe fn new(size: usize) -> io::Result<Self> {
        check_size(size)?;
        Ok(FixedSize { size })
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 16).expect("the size was checked by `new`")
    }
}

// SAFETY: the heap gives each block to one owner.
unsafe impl StackAllocator for FixedSize {
    fn allocate(&self) -> io::Result<Stack> {
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc(Self::layout(self.size)) };
        let Some(low) = NonNull::new(memory) else {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!("the heap has no room for a stack of {} bytes", self.size),
            ));
        };
        // SAFETY: the block is ours, aligned and of that size. `release` frees it with the layout
        // of its allocation, at once if making the stack fails.
        unsafe {
            Stack::from_raw(low, self.size, 0, core::ptr::null(), release)
                .inspect_err(|_| release(low, self.size, core::ptr::null()))
        }
    }
}

/// Frees the memory of a stack.
///
/// # Safety
/// `allocate` allocated the `size` bytes from `low` on, and nothing uses them. Called once.
unsafe fn release(low: NonNull<u8>, size: usize, _: *const ()) {
    // SAFETY: the block was allocated with this layout.
    unsafe { dealloc(low.as_ptr(), FixedSize::layout(size)) };
}
