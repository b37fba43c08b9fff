//! A work-stealing deque: its owner adds and takes at the newest end, and any thread takes at the
//! oldest end.
//!
//! The algorithm is by Chase and Lev, with the orderings of Lê, Pop, Cohen and Zappa Nardelli
//! ("Correct and Efficient Work-Stealing for Weak Memory Models"). An index counts all items ever
//! added. The item of index i is in cell i modulo the capacity.
//!
//! Guarantee: a pushed item is returned exactly once, to the owner or to one thief.
//!
//! [`Deque`] is the half that every thread has: it steals. [`OwnerDeque`] is the owner's half.
//!
//! A buffer that was outgrown stays as long as the deque, because a thief may still read a cell of
//! it. The owner no longer writes there, so the cell still holds the item of its index, and the
//! thief may claim that item. Buffers double, so the old buffers together are smaller than the
//! current one.

use crate::primitive::{AtomicPtr, AtomicUsize, Ordering, fence, store_then_fence};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr;

/// The result of [`Deque::steal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Steal<T> {
    Taken(*const T),
    Empty,
    /// Another thread took the item first. There may be more items.
    Lost,
}

struct Buffer<T> {
    cells: Box<[AtomicPtr<T>]>,
}

impl<T> Buffer<T> {
    fn new(capacity: usize) -> Box<Self> {
        debug_assert!(capacity.is_power_of_two());
        let cells = (0..capacity).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Box::new(Buffer { cells })
    }

    #[inline(always)]
    fn cell(&self, index: usize) -> &AtomicPtr<T> {
        // The capacity is a power of two, so the mask is in bounds.
        &self.cells[index & (self.cells.len() - 1)]
    }
}

/// The deque, as thieves see it; see the page of this module.
pub(crate) struct Deque<T> {
    /// Index of the oldest item. It only grows.
    top: AtomicUsize,
    /// One past the index of the newest item. Written by the owner.
    bottom: AtomicUsize,
    buffer: AtomicPtr<Buffer<T>>,
    /// Every buffer that was ever used, the current one last. Only the owner uses this list.
    buffers: UnsafeCell<Vec<*mut Buffer<T>>>,
}

// SAFETY: the deque only moves pointers; its users decide which thread may use an item. Only
// `OwnerDeque` uses the list of buffers, and it is on one thread.
unsafe impl<T> Sync for Deque<T> {}
// SAFETY: the deque only moves pointers; its users decide which thread may use an item. The owner's
// list of buffers moves with it.
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

    /// Returns the owner's half.
    ///
    /// # Safety
    /// All owner's halves that exist at a time are on one thread.
    #[inline(always)]
    pub(crate) unsafe fn owner(&self) -> OwnerDeque<'_, T> {
        OwnerDeque(self, PhantomData)
    }

    /// Returns the number of items at some moment. The owner's own pushes and pops are always
    /// included; thieves may change the number meanwhile.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        // ORDERING: SeqCst: a carrier's last look comes after its fence in `Idle::sleep`; pairs
        // with the publisher's fence in `Idle::wants_wake`.
        let bottom = self.bottom.load(Ordering::SeqCst);
        let top = self.top.load(Ordering::SeqCst);
        bottom.wrapping_sub(top) as isize as usize
            * usize::from((bottom.wrapping_sub(top) as isize) > 0)
    }

    /// Returns a number that changes when an item is added or taken.
    pub(crate) fn mark(&self) -> usize {
        self.bottom
            .load(Ordering::Relaxed)
            .wrapping_add(self.top.load(Ordering::Relaxed).rotate_left(usize::BITS / 2))
    }

    /// Takes the oldest item. Any thread may call this.
    pub(crate) fn steal(&self) -> Steal<T> {
        let top = self.top.load(Ordering::SeqCst);
        // ORDERING: SeqCst fence: `bottom` is read after `top`; pairs with `store_then_fence` in
        // `pop`. The load of `bottom` also acquires the cell and the item; pairs with the Release
        // in `push`.
        fence(Ordering::SeqCst);
        let bottom = self.bottom.load(Ordering::SeqCst);
        if (bottom.wrapping_sub(top) as isize) <= 0 {
            return Steal::Empty;
        }
        // ORDERING: Acquire shows the copies that `grow` made; pairs with its Release.
        // SAFETY: no buffer is freed before the deque, which is borrowed.
        let buffer = unsafe { &*self.buffer.load(Ordering::Acquire) };
        let item = buffer.cell(top).load(Ordering::Relaxed);
        // This exchange decides whether the cell still held the item of index `top` when it was
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

/// The owner's half of a deque: adds items, and takes the newest.
///
/// There is one owner at a time; [`Deque::owner`] has the obligation. This value is as small as a
/// reference, and is passed by value, so that it stays in a register.
pub(crate) struct OwnerDeque<'a, T>(&'a Deque<T>, PhantomData<*mut ()>);

impl<T> Clone for OwnerDeque<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for OwnerDeque<'_, T> {}

impl<'a, T> OwnerDeque<'a, T> {
    /// Adds `item` as the newest. Returns how many items there were before.
    #[inline(always)]
    pub(crate) fn push(self, item: *const T) -> usize {
        let bottom = self.0.bottom.load(Ordering::Relaxed);
        // ORDERING: Acquire: a cell is reused only after the thief that read it has claimed the
        // item; pairs with the exchange in `steal`.
        let top = self.0.top.load(Ordering::Acquire);
        // SAFETY: the current buffer is alive; only the owner replaces it.
        let mut buffer = unsafe { &*self.0.buffer.load(Ordering::Relaxed) };
        let len = bottom.wrapping_sub(top);
        if len >= buffer.cells.len() {
            buffer = self.grow(top, bottom);
        }
        buffer.cell(bottom).store(item.cast_mut(), Ordering::Relaxed);
        // ORDERING: Release publishes the cell and the item; pairs with the load in `steal`.
        self.0.bottom.store(bottom.wrapping_add(1), Ordering::Release);
        len
    }

    /// Replaces the full buffer by one with twice the capacity, and copies the items.
    #[cold]
    #[inline(never)]
    fn grow(self, top: usize, bottom: usize) -> &'a Buffer<T> {
        // SAFETY: the current buffer is alive.
        let old = unsafe { &*self.0.buffer.load(Ordering::Relaxed) };
        let new = Buffer::new(2 * old.cells.len());
        let mut index = top;
        while index != bottom {
            new.cell(index).store(old.cell(index).load(Ordering::Relaxed), Ordering::Relaxed);
            index = index.wrapping_add(1);
        }
        let new = Box::into_raw(new);
        // SAFETY: only the owner uses the list, and nothing else has a reference to it here.
        unsafe { (*self.0.buffers.get()).push(new) };
        // ORDERING: Release publishes the copies; pairs with the Acquire in `steal`.
        self.0.buffer.store(new, Ordering::Release);
        // SAFETY: just made, and kept in `buffers`.
        unsafe { &*new }
    }

    /// Takes the newest item if it is `item`.
    ///
    /// # Safety
    /// As for [`pop`](Self::pop).
    #[inline(always)]
    pub(crate) unsafe fn pop_if(self, item: *const T, thieves: bool) -> bool {
        let newest = self.0.bottom.load(Ordering::Relaxed).wrapping_sub(1);
        // SAFETY: the current buffer is alive; only the owner replaces it.
        let buffer = unsafe { &*self.0.buffer.load(Ordering::Relaxed) };
        // An item that was taken may still be in its cell. Then there is nothing to pop.
        if !ptr::eq(buffer.cell(newest).load(Ordering::Relaxed), item) {
            return false;
        }
        // Only the owner adds items, so `pop` takes this one.
        // SAFETY: as the caller promised.
        unsafe { self.pop(thieves).is_some() }
    }

    /// Takes the newest item. Needs no atomic read-modify-write if there are no thieves.
    ///
    /// # Safety
    /// If `thieves` is false, no other thread steals from the deque meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn pop(self, thieves: bool) -> Option<*const T> {
        let bottom = self.0.bottom.load(Ordering::Relaxed);
        // A deque that looks empty to its owner is empty: thieves only take.
        if bottom == self.0.top.load(Ordering::Relaxed) {
            return None;
        }
        let newest = bottom.wrapping_sub(1);
        if !thieves {
            self.0.bottom.store(newest, Ordering::Relaxed);
            // SAFETY: the current buffer is alive.
            let buffer = unsafe { &*self.0.buffer.load(Ordering::Relaxed) };
            return Some(buffer.cell(newest).load(Ordering::Relaxed));
        }
        // ORDERING: SeqCst; pairs with the fence in `steal`. Either a thief reads this lower
        // `bottom`, or the `top` that we read next is at least as new as the one that the thief has
        // read.
        store_then_fence(&self.0.bottom, newest);
        let top = self.0.top.load(Ordering::SeqCst);
        let left = newest.wrapping_sub(top) as isize;
        if left < 0 {
            // Thieves took the rest meanwhile.
            self.0.bottom.store(bottom, Ordering::Relaxed);
            return None;
        }
        // SAFETY: the current buffer is alive.
        let item = unsafe { &*self.0.buffer.load(Ordering::Relaxed) }.cell(newest);
        let item = item.load(Ordering::Relaxed).cast_const();
        if left > 0 {
            return Some(item);
        }
        // This is the last item. The thread that moves `top` gets it.
        let won = self
            .0
            .top
            .compare_exchange(top, top.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        self.0.bottom.store(bottom, Ordering::Relaxed);
        won.then_some(item)
    }

    /// Takes the oldest item, without an atomic read-modify-write.
    ///
    /// # Safety
    /// No other thread steals from the deque meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn pop_oldest(self) -> Option<*const T> {
        let top = self.0.top.load(Ordering::Relaxed);
        if top == self.0.bottom.load(Ordering::Relaxed) {
            return None;
        }
        self.0.top.store(top.wrapping_add(1), Ordering::Relaxed);
        // SAFETY: the current buffer is alive; only the owner replaces it.
        let buffer = unsafe { &*self.0.buffer.load(Ordering::Relaxed) };
        Some(buffer.cell(top).load(Ordering::Relaxed))
    }

    /// Returns up to `COUNT` of the oldest items, and nulls for the rest. The result is a hint:
    /// thieves may have taken an item meanwhile, and may be done with it.
    pub(crate) fn oldest<const COUNT: usize>(self) -> [*const T; COUNT] {
        let top = self.0.top.load(Ordering::Relaxed);
        let len = self.0.bottom.load(Ordering::Relaxed).wrapping_sub(top) as isize;
        // SAFETY: the current buffer is alive; only the owner replaces it.
        let buffer = unsafe { &*self.0.buffer.load(Ordering::Relaxed) };
        core::array::from_fn(|index| {
            if (index as isize) < len {
                buffer.cell(top.wrapping_add(index)).load(Ordering::Relaxed)
            } else {
                ptr::null_mut()
            }
            .cast_const()
        })
    }
}

impl<T> Drop for Deque<T> {
    fn drop(&mut self) {
        for buffer in self.buffers.get_mut().drain(..) {
            // SAFETY: `Box::into_raw` made the pointer, and `&mut self` shows that no thread uses
            // the deque any more.
            drop(unsafe { Box::from_raw(buffer) });
        }
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
