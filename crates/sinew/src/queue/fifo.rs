//! First in, first out, for one thread.

use super::Linked;
use crate::primitive::Ordering;
use core::cell::Cell;
use core::ptr;

/// A list of ready fibers that belongs to one carrier. No operation is atomic.
pub(crate) struct Fifo<T> {
    head: Cell<*const T>,
    tail: Cell<*const T>,
    len: Cell<usize>,
}

impl<T: Linked> Fifo<T> {
    pub(crate) const fn new() -> Self {
        Fifo { head: Cell::new(ptr::null()), tail: Cell::new(ptr::null()), len: Cell::new(0) }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Appends.
    ///
    /// # Safety
    /// `item` is alive until it is popped, and its link is in no queue.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, item: *const T) {
        let tail = self.tail.replace(item);
        if self.len.replace(self.len.get() + 1) == 0 {
            self.head.set(item);
        } else {
            // SAFETY: what is in the list is alive.
            unsafe { (*tail).link().store(item.cast_mut(), Ordering::Relaxed) };
        }
    }

    /// Appends `item` and takes the oldest.
    ///
    /// # Safety
    /// As for `push`; the list is not empty.
    #[inline(always)]
    pub(crate) unsafe fn rotate(&self, item: *const T) -> *const T {
        debug_assert!(!self.is_empty());
        // The length stays: one store less to wait for.
        let head = self.head.get();
        let tail = self.tail.replace(item);
        // SAFETY: what is in the list is alive. If there was one only, its link is that of the head.
        unsafe {
            (*tail).link().store(item.cast_mut(), Ordering::Relaxed);
            self.head.set((*head).link().load(Ordering::Relaxed));
        }
        head
    }

    /// Takes the oldest.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<*const T> {
        let len = self.len.get();
        if len == 0 {
            return None;
        }
        self.len.set(len - 1);
        let head = self.head.get();
        // SAFETY: what is in the list is alive. The link of the last one is stale, and not used.
        self.head.set(unsafe { (*head).link().load(Ordering::Relaxed) });
        Some(head)
    }

    /// The oldest, of a list that is not empty.
    #[inline(always)]
    pub(crate) fn first(&self) -> *const T {
        self.head.get()
    }

    /// The one that `pop` would return.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<*const T> {
        (self.len.get() > 0).then(|| self.head.get())
    }
}
