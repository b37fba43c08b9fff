//! Deadlines: a heap with four children a node, from which nobody is taken out early.
//!
//! A wait that ends before its deadline leaves its entry behind and only counts it as *stale*. A
//! stale entry is told by the number of its wait, and dropped when its time comes; when more than
//! half of the heap is stale, all of it is swept at once. So leaving costs an addition, however
//! many timers there are, and no entry has to know its place: moving entries touches the heap alone,
//! not the fibers, which lie all over the memory.
//!
//! An entry keeps the low bits of the number of its wait, beside the pointer. A wait that is a
//! multiple of 2^22 waits later could be taken for it; it is then woken too early, and everybody
//! who waits with a deadline looks at the clock when woken.

use crate::primitive::prefetch;

/// What can have a deadline.
pub(crate) trait Timed {
    /// Low bits of the number of the wait under way; `None` if it does not wait.
    fn wait_number(&self) -> Option<u32>;
}

/// Bits of the number of a wait that an entry has room for.
const NUMBER_BITS: u32 = 22;
/// Pointers are aligned to 64 bytes, and have 48 bits.
const POINTER_SHIFT: u32 = 6;

/// The bits of the number of a wait that are compared.
pub(crate) fn low_bits(number: u64) -> u32 {
    (number & ((1 << NUMBER_BITS) - 1)) as u32
}

struct Entry<T> {
    deadline: u64,
    /// The pointer without the bits that are always zero, and the number of the wait above it.
    item: u64,
    kind: core::marker::PhantomData<*const T>,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Entry<T> {}

impl<T: Timed> Entry<T> {
    fn new(deadline: u64, item: *const T, number: u32) -> Self {
        let address = item.expose_provenance() as u64;
        debug_assert!(address.is_multiple_of(1 << POINTER_SHIFT) && address >> 48 == 0);
        let item = address >> POINTER_SHIFT | u64::from(number) << (64 - NUMBER_BITS);
        Entry { deadline, item, kind: core::marker::PhantomData }
    }

    fn item(&self) -> *const T {
        let address = self.item << NUMBER_BITS >> NUMBER_BITS << POINTER_SHIFT;
        core::ptr::with_exposed_provenance(address as usize)
    }

    fn number(&self) -> u32 {
        (self.item >> (64 - NUMBER_BITS)) as u32
    }

    /// # Safety
    /// What is pointed to is never unmapped.
    unsafe fn is_live(&self) -> bool {
        // SAFETY: as the caller promised.
        unsafe { (*self.item()).wait_number() == Some(self.number()) }
    }
}

/// The heap. What was ever in it is never unmapped.
pub(crate) struct Timers<T> {
    entries: Vec<Entry<T>>,
    /// Entries whose waits have ended, as far as is known: one may be popped before it is counted.
    stale: isize,
}

// SAFETY: pointers are all that is kept; who may use what they lead to is up to the users.
unsafe impl<T> Send for Timers<T> {}

const ARITY: usize = 4;
/// Fewer stale entries than this are not worth a sweep.
const FEW: isize = 64;

impl<T: Timed> Timers<T> {
    pub(crate) const fn new() -> Self {
        Timers { entries: Vec::new(), stale: 0 }
    }

    /// The earliest deadline, of an entry that may be stale.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.entries.first().map(|entry| entry.deadline)
    }

    /// The earliest deadline of one that still waits.
    pub(crate) fn earliest_live(&mut self) -> Option<u64> {
        loop {
            let first = *self.entries.first()?;
            // SAFETY: what was inserted is never unmapped.
            if unsafe { first.is_live() } {
                return Some(first.deadline);
            }
            self.take_first();
            self.stale -= 1;
        }
    }

    /// How many entries there are, stale ones included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Every item that has a deadline, the number of the wait that this is for, and the deadline.
    pub(crate) fn all(&self) -> impl Iterator<Item = (*const T, u32, u64)> {
        self.entries.iter().map(|entry| (entry.item(), entry.number(), entry.deadline))
    }

    /// Adds a deadline for the wait `number` of `item`.
    ///
    /// # Safety
    /// `item` is never unmapped.
    pub(crate) unsafe fn insert(&mut self, deadline: u64, item: *const T, number: u32) {
        self.entries.push(Entry::new(deadline, item, number));
        self.rise(self.entries.len() - 1);
    }

    /// Counts one whose wait has ended before its deadline.
    pub(crate) fn leave(&mut self) {
        self.stale += 1;
        if self.stale > FEW && self.stale as usize > self.entries.len() / 2 {
            self.sweep();
        }
    }

    /// Takes out the earliest whose deadline is not after `now` and which still waits.
    pub(crate) fn pop_expired(&mut self, now: u64) -> Option<(u64, *const T)> {
        loop {
            let first = *self.entries.first()?;
            if first.deadline > now {
                return None;
            }
            self.take_first();
            // One of these is the next but one: what it points to is far away.
            for near in self.entries.iter().take(1 + ARITY) {
                prefetch(near.item().cast());
            }
            // SAFETY: what was inserted is never unmapped.
            if unsafe { first.is_live() } {
                return Some((first.deadline, first.item()));
            }
            self.stale -= 1;
        }
    }

    /// Takes out the first entry.
    #[inline]
    fn take_first(&mut self) {
        let Some(last) = self.entries.pop() else { return };
        if !self.entries.is_empty() {
            self.entries[0] = last;
            self.sink(0);
        }
        self.shrink();
    }

    /// Drops all stale entries.
    #[cold]
    fn sweep(&mut self) {
        // SAFETY: what was inserted is never unmapped.
        self.entries.retain(|entry| unsafe { entry.is_live() });
        // One that is about to be counted was dropped as well: its count will be one too many, and
        // the next sweep a little early.
        self.stale = 0;
        for place in (0..self.entries.len().div_ceil(ARITY)).rev() {
            self.sink(place);
        }
        self.shrink();
    }

    /// What a burst needed is not kept for ever.
    fn shrink(&mut self) {
        if self.entries.capacity() > 1024 && self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.capacity() / 2);
        }
    }

    fn rise(&mut self, mut place: usize) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.entries[parent].deadline <= entry.deadline {
                break;
            }
            self.entries[place] = self.entries[parent];
            place = parent;
        }
        self.entries[place] = entry;
    }

    fn sink(&mut self, mut place: usize) {
        let Some(&entry) = self.entries.get(place) else { return };
        loop {
            let first = place * ARITY + 1;
            let end = (first + ARITY).min(self.entries.len());
            let Some(least) = (first..end).min_by_key(|&child| self.entries[child].deadline) else {
                break;
            };
            if entry.deadline <= self.entries[least].deadline {
                break;
            }
            self.entries[place] = self.entries[least];
            place = least;
        }
        self.entries[place] = entry;
    }
}

#[cfg(all(test, not(sinew_loom)))]
mod tests;
