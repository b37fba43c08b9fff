//! What may run on any carrier: its owner adds and takes at the newest end, everybody takes at the
//! oldest.
//!
//! The algorithm is that of Chase and Lev, with the orderings of Lê, Pop, Cohen and Zappa Nardelli
//! ("Correct and Efficient Work-Stealing for Weak Memory Models"). An index counts all items ever
//! added; the item of index i is in slot i modulo the capacity.
//!
//! Guarantee: what was pushed is returned exactly once, to the owner or to one thief.
//!
//! A buffer that was outgrown stays as long as the deque: a thief may still read a slot of it, and
//! then fails to claim what it read. Buffers double, so what stays is less than what is used.

use crate::primitive::{AtomicPtr, AtomicUsize, Ordering, fence, store_then_fence};
use core::cell::UnsafeCell;
use core::ptr;

/// What trying to take the oldest item gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Steal<T> {
    Taken(*const T),
    Empty,
    /// Somebody else was faster; there may be more.
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
    /// Index of the oldest item. Only grows.
    top: AtomicUsize,
    /// One past the index of the newest item. Written by the owner.
    bottom: AtomicUsize,
    buffer: AtomicPtr<Buffer<T>>,
    /// Every buffer that was ever used, the current one last. The owner's.
    buffers: UnsafeCell<Vec<*mut Buffer<T>>>,
}

// SAFETY: pointers are all that is moved; who may use what they lead to is up to the users. The
// list of buffers is used by the owner alone, as the unsafe functions ask.
unsafe impl<T> Sync for Deque<T> {}
// SAFETY: the same.
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

    /// How many items there are, as far as a look tells; exact for the owner, but for thieves.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        let bottom = self.bottom.load(Ordering::SeqCst);
        let top = self.top.load(Ordering::SeqCst);
        bottom.wrapping_sub(top) as isize as usize
            * usize::from((bottom.wrapping_sub(top) as isize) > 0)
    }

    /// The index that the next pushed item gets: changes with every push and pop of the owner.
    pub(crate) fn mark(&self) -> usize {
        self.bottom.load(Ordering::Relaxed)
    }

    /// Adds `item` as the newest; returns how many there were.
    ///
    /// # Safety
    /// The caller is the owner.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, item: *const T) -> usize {
        let bottom = self.bottom.load(Ordering::Relaxed);
        // ORDERING: Acquire: a slot is reused after the thief that read it has claimed it.
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
        // SAFETY: just made, and kept.
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
        // What was taken may still be in its slot: then there is nothing to pop.
        if !ptr::eq(buffer.slot(newest).load(Ordering::Relaxed), item) {
            return false;
        }
        // SAFETY: as the caller promised. Only the owner adds, so this is the same item.
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
        // ORDERING: a thief that took a later look at `top` sees this store, or we see its claim.
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
        // The last one: whoever moves `top` has it.
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

    /// The oldest items, as far as a look tells: thieves may have them, and whoever they belong to then may be done
    /// with them. Null where there is none.
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

    /// Takes the oldest item. Anybody may.
    pub(crate) fn steal(&self) -> Steal<T> {
        let top = self.top.load(Ordering::SeqCst);
        // ORDERING: the look at `bottom` comes after that at `top`: see `pop`.
        fence(Ordering::SeqCst);
        let bottom = self.bottom.load(Ordering::SeqCst);
        if (bottom.wrapping_sub(top) as isize) <= 0 {
            return Steal::Empty;
        }
        // ORDERING: Acquire: the copies that `grow` made.
        // SAFETY: no buffer is freed while thieves are about.
        let buffer = unsafe { &*self.buffer.load(Ordering::Acquire) };
        let item = buffer.slot(top).load(Ordering::Relaxed);
        // Whether what was read is what the index stood for, this decides.
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
            // SAFETY: made by `Box::into_raw`, and nobody is left to use it.
            drop(unsafe { Box::from_raw(buffer) });
        }
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
#[cfg(all(test, not(sinew_loom)))]
mod tests;
