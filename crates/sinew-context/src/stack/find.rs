//! Finds the stack that an address is on: for code that asks how much of its own stack is left, and
//! for tools that inspect a program.
//!
//! Next: [`overflow`](super::overflow), which has the registry of all stacks.

use super::overflow::registry;
use super::{OWNER_WORDS, stagger, usage};

/// Returns the number of bytes that are left below the caller's frame on the running stack. Returns
/// `None` if the stack is not of this crate, such as the stack of a thread.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack};
///
/// assert_eq!(stack::remaining(), None);
/// let fiber = FiberContext::new(|caller| {
///     assert!(stack::remaining().is_some_and(|bytes| bytes > 100_000));
///     caller
/// })?;
/// assert!(fiber.resume().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remaining() -> Option<usize> {
    let here = crate::arch::stack_pointer();
    find(here).map(|found| here - found.range.start)
}

/// A stack of this crate that [`find`] has found by an address on it, for tools that inspect a
/// program. The stack may have been freed since, or belong to another fiber.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack};
///
/// let local = 7;
/// assert!(stack::find((&raw const local).addr()).is_none()); // the stack of a thread
/// let fiber = FiberContext::new(|caller| caller)?;
/// let found = stack::find(fiber.registers().stack).unwrap();
/// assert_eq!(Some(found.range()), fiber.stack_range());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Found {
    range: core::ops::Range<usize>,
}

/// Finds the stack of this crate that `address` is on, if there is one.
///
/// # Examples
/// ```
/// use sinew_context::stack::{self, ProtectedFixedSize, StackAllocator};
///
/// let stack = ProtectedFixedSize::new(64 * 1024)?.allocate()?;
/// let found = stack::find(stack.low().addr().get() + 100).unwrap();
/// assert_eq!(found.range(), stack.range());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn find(address: usize) -> Option<Found> {
    let slot = registry::find(address)?;
    (slot.low..slot.high).contains(&address).then_some(Found { range: slot.low..slot.high })
}

/// Finds the stack at `address` without a lock: for code that must not wait for the holder of a
/// lock, because that thread may be stopped.
#[doc(hidden)]
pub fn find_without_lock(address: usize) -> Option<Found> {
    let slot = registry::find_in_handler(address)?;
    (slot.low..slot.high).contains(&address).then_some(Found { range: slot.low..slot.high })
}

impl Found {
    /// Returns the address of [`Stack::top`](super::Stack::top) of this stack.
    #[doc(hidden)]
    pub fn top(&self) -> usize {
        self.range.end - OWNER_WORDS
    }

    /// Returns the offset [`Stack::stagger`](super::Stack::stagger) of this stack.
    #[doc(hidden)]
    pub fn stagger(&self) -> usize {
        stagger(self.range.start, self.range.len())
    }

    /// Returns the addresses of the stack.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{self, ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::new(64 * 1024)?.allocate()?;
    /// let found = stack::find(stack.top().addr().get()).unwrap();
    /// assert_eq!(found.range().len(), 64 * 1024);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn range(&self) -> core::ops::Range<usize> {
        self.range.clone()
    }

    /// Returns how many bytes were ever touched; see
    /// [`Stack::high_water_mark`](super::Stack::high_water_mark). Only meaningful for a guarded
    /// stack.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{self, ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::default().allocate()?;
    /// // SAFETY: the address is inside the stack, and nothing runs on it.
    /// unsafe { stack.high().sub(100_000).write(1) };
    /// let found = stack::find(stack.low().addr().get()).unwrap();
    /// assert!(found.high_water_mark().unwrap() >= 100_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn high_water_mark(&self) -> Option<usize> {
        usage::touched_from(self.range.start, self.range.len())
    }
}

/// Returns the owner of the stack that `address` lies on; null if that stack has no owner. `None`
/// if the address is on no stack of this crate, for example on the stack of an OS thread.
pub(crate) fn owner_at(address: usize) -> Option<*mut ()> {
    let slot = registry::find(address)?;
    if address < slot.low {
        return None;
    }
    let words = core::ptr::with_exposed_provenance::<*mut ()>(slot.high - OWNER_WORDS);
    // SAFETY: the slot is mapped, because the caller's address lies on it and is in use. The owner
    // words are always initialised.
    Some(unsafe { words.read() })
}
