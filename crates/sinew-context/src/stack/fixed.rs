//! Stacks from the heap, without a guard.

use super::{Stack, StackAllocator, check_size};
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc};
use std::io;

/// Stacks of one size from the heap, without kernel calls and without a guard.
///
/// For programs that count their memory themselves, or for kernels where mappings are expensive.
/// Recursion that is too deep writes below the stack, so making one is `unsafe`.
/// [`StackPool`](super::StackPool) is as fast, and safe.
#[derive(Clone, Copy, Debug)]
pub struct FixedSize {
    size: usize,
}

impl FixedSize {
    /// Makes stacks of `size` bytes, a multiple of the page.
    ///
    /// # Safety
    /// No code that runs on these stacks needs more than `size` bytes less 1 KiB: it would
    /// overwrite other memory.
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
                format!("the heap has no {} bytes for a stack", self.size),
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

unsafe fn release(low: NonNull<u8>, size: usize, _: *const ()) {
    // SAFETY: the block was allocated with this layout.
    unsafe { dealloc(low.as_ptr(), FixedSize::layout(size)) };
}
