//! Counted references to control blocks: they keep a block from serving another fiber.
//!
//! [`Life`](super::life::Life) counts them. The holder of the last one gives the block back to the
//! slab.

use super::control::Control;
use super::slab;
use core::ptr;

/// A counted reference to a control block.
#[derive(Debug)]
pub(crate) struct FiberRef(ptr::NonNull<Control>);

// SAFETY: a reference gives access to atomics, and to plain fields by the rules on the page of
// `control`.
unsafe impl Send for FiberRef {}
// SAFETY: as for `Send`.
unsafe impl Sync for FiberRef {}

impl FiberRef {
    /// Takes over a counted reference.
    ///
    /// # Safety
    /// The caller owns a reference, and gives it away.
    #[inline(always)]
    pub(crate) unsafe fn from_counted(control: *const Control) -> FiberRef {
        // SAFETY: pointers to blocks are not null.
        FiberRef(unsafe { ptr::NonNull::new_unchecked(control.cast_mut()) })
    }

    /// Adds a reference to a block that is alive.
    pub(crate) fn new(control: &Control) -> FiberRef {
        control.life.acquire();
        FiberRef(ptr::NonNull::from(control))
    }

    /// Gives the reference away without dropping it; [`from_counted`](Self::from_counted) takes it
    /// back.
    pub(crate) fn into_counted(self) -> *const Control {
        core::mem::ManuallyDrop::new(self).0.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *const Control {
        self.0.as_ptr()
    }
}

impl core::ops::Deref for FiberRef {
    type Target = Control;
    #[inline(always)]
    fn deref(&self) -> &Control {
        // SAFETY: the reference keeps the block alive.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for FiberRef {
    fn clone(&self) -> Self {
        FiberRef::new(self)
    }
}

impl Drop for FiberRef {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the block is alive until the last reference is dropped, and this was the last if
        // `release` returns true.
        unsafe {
            if self.0.as_ref().life.release() {
                slab::free(self.0.as_ptr());
            }
        }
    }
}
