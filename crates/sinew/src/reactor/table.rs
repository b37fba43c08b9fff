//! The slots of all descriptors, by number.
//!
//! Descriptors are small numbers, because the kernel gives out the smallest free number. The table
//! grows by pieces, each twice as large as the one before. It never moves or shrinks.

use super::slot::Slot;
use crate::primitive::{AtomicPtr, Ordering};
use core::ptr;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::os::fd::RawFd;

/// Slots in the first piece.
const FIRST: usize = 64;
/// Enough pieces for all possible numbers.
const PIECES: usize = 26;

static TABLE: [AtomicPtr<Slot>; PIECES] = [const { AtomicPtr::new(ptr::null_mut()) }; PIECES];

/// Returns the slot of a descriptor, and makes it if necessary.
///
/// # Panics
/// Panics if the number is negative. No descriptor is negative.
pub(super) fn slot(fd: RawFd) -> &'static Slot {
    let (piece, offset) = place(fd);
    let mut slots = load(piece);
    if slots.is_null() {
        slots = grow(piece);
    }
    // SAFETY: the offset is within the piece, which is never freed.
    unsafe { &*slots.add(offset) }
}

/// Returns the slot of a descriptor, if its piece of the table exists.
pub(super) fn known(fd: RawFd) -> Option<&'static Slot> {
    let (piece, offset) = place(fd);
    let slots = load(piece);
    // SAFETY: the offset is within the piece, which is never freed.
    (!slots.is_null()).then(|| unsafe { &*slots.add(offset) })
}

/// Calls `each` with every slot and its number, until `each` returns false.
pub(super) fn for_each(mut each: impl FnMut(RawFd, &'static Slot) -> bool) {
    for piece in 0..PIECES {
        let slots = load(piece);
        if slots.is_null() {
            continue;
        }
        for offset in 0..len(piece) {
            let fd = (len(piece) - FIRST + offset) as RawFd;
            // SAFETY: the offset is within the piece, which is never freed.
            if !each(fd, unsafe { &*slots.add(offset) }) {
                return;
            }
        }
    }
}

fn place(fd: RawFd) -> (usize, usize) {
    let fd = usize::try_from(fd).expect("descriptors are not negative");
    let piece = (fd / FIRST + 1).ilog2() as usize;
    (piece, fd - FIRST * ((1 << piece) - 1))
}

fn len(piece: usize) -> usize {
    FIRST << piece
}

fn load(piece: usize) -> *mut Slot {
    // ORDERING: Acquire shows the zeroed slots; pairs with the Release in `grow`.
    TABLE[piece].load(Ordering::Acquire)
}

#[cold]
fn grow(piece: usize) -> *mut Slot {
    let layout = Layout::array::<Slot>(len(piece)).expect("a piece of the table fits into memory");
    // SAFETY: the layout is not empty, and all zero is an unused slot.
    let new = unsafe { alloc_zeroed(layout) }.cast::<Slot>();
    if new.is_null() {
        handle_alloc_error(layout);
    }
    // ORDERING: AcqRel: Release publishes the zeroed slots; Acquire shows the slots that another
    // thread has made. Pairs with itself and with `load`.
    match TABLE[piece].compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(other) => {
            // SAFETY: this thread has just allocated the memory with this layout, and has not
            // published it.
            unsafe { std::alloc::dealloc(new.cast(), layout) };
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_place_of_its_own() {
        let mut last = (0, usize::MAX);
        for fd in 0..100_000 {
            let (piece, offset) = place(fd);
            assert!(offset < len(piece), "{fd}");
            let next = if piece == last.0 { last.1.wrapping_add(1) } else { 0 };
            assert_eq!(offset, next, "{fd}");
            last = (piece, offset);
        }
        let (piece, offset) = place(RawFd::MAX);
        assert!(piece < PIECES && offset < len(piece));
    }
}
