//! A first-in, first-out list for one thread: the fibers that are ready to run on a carrier.
//!
//! Guarantee: a pushed item is popped exactly once, and items are popped in the order of pushes.
//!
//! Next: `carrier::dispatch`, which looks at `run_next` first, and pops here next.

use super::Linked;
use crate::primitive::Ordering;
use core::cell::Cell;
use core::ptr;

/// A list of ready fibers that belongs to one carrier. No operation needs an atomic exchange.
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

    /// Appends `item`.
    ///
    /// # Safety
    /// `item` is alive until it is popped, and its link is in no queue.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, item: *const T) {
        let tail = self.tail.replace(item);
        if self.len.replace(self.len.get() + 1) == 0 {
            self.head.set(item);
        } else {
            // SAFETY: items in the list are alive.
            unsafe { (*tail).link().store(item.cast_mut(), Ordering::Relaxed) };
        }
    }

    /// Appends `item`, and takes the oldest item.
    ///
    /// # Safety
    /// `item` is alive until it is popped, its link is in no queue, and the list is not empty.
    #[inline(always)]
    pub(crate) unsafe fn rotate(&self, item: *const T) -> *const T {
        debug_assert!(!self.is_empty());
        // The length stays the same, which saves a store.
        let head = self.head.get();
        let tail = self.tail.replace(item);
        // SAFETY: items in the list are alive. If there was only one, `tail` is `head`, so its link
        // was just set.
        unsafe {
            (*tail).link().store(item.cast_mut(), Ordering::Relaxed);
            self.head.set((*head).link().load(Ordering::Relaxed));
        }
        head
    }

    /// Takes the oldest item.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<*const T> {
        let len = self.len.get();
        if len == 0 {
            return None;
        }
        self.len.set(len - 1);
        let head = self.head.get();
        // SAFETY: items in the list are alive. The link of the last item is stale, but `head` is
        // not used when the list is empty.
        self.head.set(unsafe { (*head).link().load(Ordering::Relaxed) });
        Some(head)
    }

    /// Returns the oldest item. The caller has checked that the list is not empty; otherwise the
    /// pointer is stale or null.
    #[inline(always)]
    pub(crate) fn first(&self) -> *const T {
        self.head.get()
    }

    /// Returns the item that `pop` would take.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<*const T> {
        (self.len.get() > 0).then(|| self.head.get())
    }
}
