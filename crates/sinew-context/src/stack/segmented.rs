//! Stacks that grow on demand.

use super::mapping::discard;
use super::protected::ProtectedFixedSize;
use super::{MIN_STACK_SIZE, Stack, StackAllocator, check};
use core::ptr::NonNull;
use std::io;

/// Stacks that start small and grow as far as the program recurses.
///
/// A compiler with split stacks would chain segments. Here a large reservation of addresses is
/// committed page by page as it is touched. This grows the stack too, costs nothing per call, and
/// keeps pointers into the stack valid. [`FiberContext::trim`](crate::FiberContext::trim) gives
/// back memory that a suspended fiber no longer uses. The whole stack goes back to the kernel when
/// its fiber ends.
///
/// The reservation is 64 MiB of addresses, or the limit passed to [`Segmented::with_limit`]. It
/// counts towards `ulimit -v`, and on kernels with strict overcommit (mode 2) towards the commit
/// limit.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack::Segmented};
///
/// fn depth(levels: usize) -> usize {
///     let frame = [levels; 128]; // 1 KiB
///     if levels == 0 { 0 } else { 1 + depth(std::hint::black_box(&frame)[7] - 1) }
/// }
///
/// let fiber = FiberContext::with_allocator(&Segmented::new(64 * 1024)?, |caller| {
///     assert_eq!(depth(10_000), 10_000); // ten MiB
///     caller.resume().unwrap()
/// })?;
/// let fiber = fiber.resume().unwrap();
/// assert!(fiber.stack_high_water_mark().unwrap() > 10 * 1024 * 1024);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Segmented {
    initial: usize,
    inner: ProtectedFixedSize,
}

impl Segmented {
    /// The default limit of a stack's growth, in bytes.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{Segmented, StackAllocator};
    ///
    /// let stack = Segmented::new(64 * 1024)?.allocate()?;
    /// assert!(stack.size() <= Segmented::DEFAULT_LIMIT);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const DEFAULT_LIMIT: usize = 64 * 1024 * 1024;

    /// Makes stacks that commit `initial` bytes when they are made, and grow to the larger of
    /// `initial` and 64 MiB at most. `initial` is a multiple of the page size.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{Segmented, StackAllocator};
    ///
    /// let stack = Segmented::new(128 * 1024)?.allocate()?;
    /// assert_eq!(stack.size(), Segmented::DEFAULT_LIMIT);
    /// assert!(stack.high_water_mark().unwrap() >= 128 * 1024); // committed
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(initial: usize) -> io::Result<Self> {
        Self::with_limit(initial, Self::DEFAULT_LIMIT.max(initial))
    }

    /// Makes stacks that commit `initial` bytes when they are made, and grow to `limit` bytes at
    /// most.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{Segmented, StackAllocator};
    ///
    /// let stack = Segmented::with_limit(64 * 1024, 1024 * 1024)?.allocate()?;
    /// assert_eq!(stack.size(), 1024 * 1024);
    /// assert!(Segmented::with_limit(128 * 1024, 64 * 1024).is_err()); // starts above the limit
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_limit(initial: usize, limit: usize) -> io::Result<Self> {
        check("initial stack size", initial, MIN_STACK_SIZE)?;
        check("stack limit", limit, MIN_STACK_SIZE)?;
        if initial > limit {
            return Err(super::invalid(format_args!(
                "initial stack size {initial} is above the limit of {limit} bytes"
            )));
        }
        Ok(Segmented { initial, inner: ProtectedFixedSize::new(limit)? })
    }
}

// SAFETY: `ProtectedFixedSize` makes the stacks and keeps the promise.
unsafe impl StackAllocator for Segmented {
    fn allocate(&self) -> io::Result<Stack> {
        let stack = self.inner.allocate()?;
        // Commit the first part, so that the fiber does not fault its way through it.
        // SAFETY: this is the upper end of the new stack, which nothing uses yet.
        unsafe { populate(stack.high().sub(self.initial), self.initial)? };
        Ok(stack)
    }
}

/// Commits `len` bytes from `low` on, in whole pages.
///
/// # Safety
/// The range is writable memory of ours that holds only zeros.
unsafe fn populate(low: NonNull<u8>, len: usize) -> io::Result<()> {
    #[cfg(all(target_os = "linux", not(sinew_force_fallback)))]
    {
        const MADV_POPULATE_WRITE: i32 = 23;
        // SAFETY: the caller promised writable memory of ours.
        if unsafe { libc::madvise(low.as_ptr().cast(), len, MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        if io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
            return Err(super::mapping::explain("commit", len));
        }
    }
    // A kernel before 5.14, or another system: touch each page.
    for offset in (0..len).step_by(super::page_size()) {
        // SAFETY: the caller promised writable memory of ours that holds only zeros.
        unsafe { low.add(offset).write_volatile(0) };
    }
    Ok(())
}

/// Gives back the whole pages of a stack that lie below `used`.
///
/// # Safety
/// Nothing below `used` on this stack is in use, and no code runs on the stack.
pub(crate) unsafe fn discard_below(stack: &Stack, used: usize) {
    let page = super::page_size();
    let unused = (used & !(page - 1)).saturating_sub(stack.low().addr().get());
    if unused > 0 && stack.guard_size() > 0 {
        // SAFETY: the caller promised that nothing below `used` is in use.
        unsafe { discard(stack.low(), unused) };
    }
}
