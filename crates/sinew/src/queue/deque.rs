//! A work-stealing deque: its owner adds and takes at the newest end, any thread takes at the
//! oldest.
//!
//! The algorithm is by Chase and Lev, with the orderings of Lê, Pop, Cohen and Zappa Nardelli
//! ("Correct and Efficient Work-Stealing for Weak Memory Models"). An index counts all items ever
//! added. The item of index i is in slot i modulo the capacity.
//!
//! Guarantee: a pushed item is returned exactly once, to the owner or to one thief.
//!
//! A buffer that was outgrown stays as long as the deque, because a thief may still read a slot of
//! it. That thief then fails to claim the item. Buffers double, so the old buffers together are
//! smaller than the current one.

use crate::primitive::{AtomicPtr, AtomicUsize, Ordering, fence, store_then_fence};
use core::cell::UnsafeCell;
use core::ptr;

/// The result of trying to take the oldest item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Steal<T> {
    Taken(*const T),
    Empty,
    /// Another thread was faster. There may be more items.
    Lost,
}

struct Buffer<T> {
    slots: Box<[AtomicPtr<T>]>,
}

impl<T> Buffer<T> {
    fn new(capacity: usize) -> Box<Self> {
        debug_assert!(capacity.is_power_of_two());
        let slots = (0..capacity).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Box::new(Buffer { slots })
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &AtomicPtr<T> {
        // The capacity is a power of two, so the mask is in bounds.
        &self.slots[index & (self.slots.len() - 1)]
    }
}

/// The deque; see the page of this module.
pub(crate) struct Deque<T> {
    /// Index of the oldest item. It only grows.
    top: AtomicUsize,
    /// One past the index of the newest item. Written by the owner.
    bottom: AtomicUsize,
    buffer: AtomicPtr<Buffer<T>>,
    /// Every buffer that was ever used, the current one last. Only the owner uses this list.
    buffers: UnsafeCell<Vec<*mut Buffer<T>>>,
}

// SAFETY: the deque only moves pointers; its users decide which thread may use an item. Only the
// owner uses the list of buffers, as the unsafe functions require.
unsafe impl<T> Sync for Deque<T> {}
// SAFETY: the deque only moves pointers, as for `Sync`.
unsafe impl<T> Send for Deque<T> {}

impl<T> Deque<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let buffer = Box::into_raw(Buffer::new(capacity));
        Deque {
            top: AtomicUsize::new(0),
            bottom: AtomicUsize::new(0),
            buffer: AtomicPtr::new(buffer),
            buffers: UnsafeCell::new(vec![buffer]),
        }
    }

    /// Returns the number of items at some moment. The owner's own pushes and pops are always
    /// included; thieves may change the number meanwhile.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        let bottom = self.bottom.load(Ordering::SeqCst);
        let top = self.top.load(Ordering::SeqCst);
        bottom.wrapping_sub(top) as isize as usize
            * usize::from((bottom.wrapping_sub(top) as isize) > 0)
    }

    /// Returns the index of the next pushed item. It changes with every push and pop of the owner.
    pub(crate) fn mark(&self) -> usize {
        self.bottom.load(Ordering::Relaxed)
    }

    /// Adds `item` as the newest. Returns how many items there were before.
    ///
    /// # Safety
    /// The caller is the owner.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, item: *const T) -> usize {
        let bottom = self.bottom.load(Ordering::Relaxed);
        // ORDERING: Acquire: a slot is reused only after the thief that read it has claimed the
        // item; pairs with the exchange in `steal`.
        let top = self.top.load(Ordering::Acquire);
        // SAFETY: the current buffer is alive; only the owner replaces it.
        let mut buffer = unsafe { &*self.buffer.load(Ordering::Relaxed) };
        let len = bottom.wrapping_sub(top);
        if len >= buffer.slots.len() {
            // SAFETY: the caller is the owner.
            buffer = unsafe { self.grow(top, bottom) };
        }
        buffer.slot(bottom).store(item.cast_mut(), Ordering::Relaxed);
        // ORDERING: Release publishes the slot and the item; pairs with the load in `steal`.
        self.bottom.store(bottom.wrapping_add(1), Ordering::Release);
        len
    }

    #[cold]
    #[inline(never)]
    unsafe fn grow(&self, top: usize, bottom: usize) -> &Buffer<T> {
        // SAFETY: the current buffer is alive.
        let old = unsafe { &*self.buffer.load(Ordering::Relaxed) };
        let new = Buffer::new(2 * old.slots.len());
        let mut index = top;
        while index != bottom {
            new.slot(index).store(old.slot(index).load(Ordering::Relaxed), Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
        let new = Box::into_raw(new);
        // SAFETY: the caller is the owner.
        unsafe { (*self.buffers.get()).push(new) };
        // ORDERING: Release publishes the copies; pairs with the Acquire in `steal`.
        self.buffer.store(new, Ordering::Release);
        // SAFETY: just made, and kept in `buffers`.
        unsafe { &*new }
    }

    /// Takes the newest item if it is `item`.
    ///
    /// # Safety
    /// The caller is the owner.
    #[inline(always)]
    pub(crate) unsafe fn pop_if(&self, item: *const T, thieves: bool) -> bool {
        let newest = self.bottom.load(Ordering::Relaxed).wrapping_sub(1);
        // SAFETY: the current buffer is alive; only the owner replaces it.
        let buffer = unsafe { &*self.buffer.load(Ordering::Relaxed) };
        // An item that was taken may still be in its slot. Then there is nothing to pop.
        if !ptr::eq(buffer.slot(newest).load(Ordering::Relaxed), item) {
            return false;
        }
        // SAFETY: the caller is the owner. Only the owner adds items, so `pop` takes this one.
        unsafe { self.pop(thieves).is_some() }
    }

    /// Takes the newest item. Needs no atomic read-modify-write if there are no thieves.
    ///
    /// # Safety
    /// The caller is the owner.
    #[inline(always)]
    pub(crate) unsafe fn pop(&self, thieves: bool) -> Option<*const T> {
        let bottom = self.bottom.load(Ordering::Relaxed);
        // A deque that looks empty to its owner is empty: thieves only take.
        if bottom == self.top.load(Ordering::Relaxed) {
            return None;
        }
        let newest = bottom.wrapping_sub(1);
        if !thieves {
            self.bottom.store(newest, Ordering::Relaxed);
            // SAFETY: the current buffer is alive.
            let buffer = unsafe { &*self.buffer.load(Ordering::Relaxed) };
            return Some(buffer.slot(newest).load(Ordering::Relaxed));
        }
        // ORDERING: either a thief that looks at `top` later sees this store, or we see the thief's
        // claim; pairs with the fence in `steal`.
        store_then_fence(&self.bottom, newest);
        let top = self.top.load(Ordering::SeqCst);
        let left = newest.wrapping_sub(top) as isize;
        if left < 0 {
            // Thieves took the rest meanwhile.
            self.bottom.store(bottom, Ordering::Relaxed);
            return None;
        }
        // SAFETY: the current buffer is alive.
        let item = unsafe { &*self.buffer.load(Ordering::Relaxed) }.slot(newest);
        let item = item.load(Ordering::Relaxed).cast_const();
        if left > 0 {
            return Some(item);
        }
        // The last item: the thread that moves `top` has it.
        let won = self
            .top
            .compare_exchange(top, top.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        self.bottom.store(bottom, Ordering::Relaxed);
        won.then_some(item)
    }

    /// Takes the oldest item, without an atomic read-modify-write.
    ///
    /// # Safety
    /// The caller is the owner, and there are no thieves.
    #[inline(always)]
    pub(crate) unsafe fn pop_oldest(&self) -> Option<*const T> {
        let top = self.top.load(Ordering::Relaxed);
        if top == self.bottom.load(Ordering::Relaxed) {
            return None;
        }
        self.top.store(top.wrapping_add(1), Ordering::Relaxed);
        // SAFETY: the current buffer is alive; only the owner replaces it.
        let buffer = unsafe { &*self.buffer.load(Ordering::Relaxed) };
        Some(buffer.slot(top).load(Ordering::Relaxed))
    }

    /// Returns the oldest items, as far as a look tells, with nulls for missing ones. Thieves may
    /// have taken them, and may be done with them.
    ///
    /// # Safety
    /// The caller is the owner.
    pub(crate) unsafe fn oldest<const COUNT: usize>(&self) -> [*const T; COUNT] {
        let top = self.top.load(Ordering::Relaxed);
        let len = self.bottom.load(Ordering::Relaxed).wrapping_sub(top) as isize;
        // SAFETY: the current buffer is alive; only the owner replaces it.
        let buffer = unsafe { &*self.buffer.load(Ordering::Relaxed) };
        core::array::from_fn(|index| {
            if (index as isize) < len {
                buffer.slot(top.wrapping_add(index)).load(Ordering::Relaxed)
            } else {
                ptr::null_mut()
            }
            .cast_const()
        })
    }

    /// Takes the oldest item. Any thread may call this.
    pub(crate) fn steal(&self) -> Steal<T> {
        let top = self.top.load(Ordering::SeqCst);
        // ORDERING: SeqCst fence: `bottom` is read after `top`; pairs with `store_then_fence` in
        // `pop`.
        fence(Ordering::SeqCst);
        let bottom = self.bottom.load(Ordering::SeqCst);
        if (bottom.wrapping_sub(top) as isize) <= 0 {
            return Steal::Empty;
        }
        // ORDERING: Acquire: the copies that `grow` made; pairs with its Release.
        // SAFETY: no buffer is freed before the deque, which is borrowed.
        let buffer = unsafe { &*self.buffer.load(Ordering::Acquire) };
        let item = buffer.slot(top).load(Ordering::Relaxed);
        // This exchange decides whether the slot still held the item of index `top` when it was
        // read.
        match self.top.compare_exchange(
            top,
            top.wrapping_add(1),
            Ordering::SeqCst,
            Ordering::Relaxed,
        ) {
            Ok(_) => Steal::Taken(item),
            Err(_) => Steal::Lost,
        }
    }
}

impl<T> Drop for Deque<T> {
    fn drop(&mut self) {
        for buffer in self.buffers.get_mut().drain(..) {
            // SAFETY: made by `Box::into_raw`, and no thread uses the deque any more.
            drop(unsafe { Box::from_raw(buffer) });
        }
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
#[cfg(all(test, not(sinew_loom)))]
mod tests;
