//! Deadlines in a heap in which each node has four children. No entry is removed early.
//!
//! A wait that ends before its deadline leaves its entry behind, and only counts it as *stale*. The
//! number of its wait identifies a stale entry, which is dropped when its time comes. When more
//! than half of the heap is stale, a sweep removes all stale entries. So an early end costs one
//! addition, however many timers there are. No fiber has to know the place of its entry. So moving
//! entries touches only the heap, and not the fibers, which are scattered in memory.
//!
//! An entry keeps the low 22 bits of the number of its wait, beside the pointer. If the fiber
//! begins another wait a multiple of 2^22 waits later, that wait has the same low bits, and the
//! stale entry may end it too early. That is harmless for a waiter that looks at the clock when it
//! is woken. Every waiter with a deadline does, except `sleep` outside of deadline scopes.

use crate::primitive::prefetch;

/// An item that can have a deadline.
pub(crate) trait Timed {
    /// Returns the low bits of the number of the wait under way; `None` if the item does not wait.
    fn wait_number(&self) -> Option<u32>;
}

/// Bits of a wait's number that an entry has room for.
const NUMBER_BITS: u32 = 22;
/// Pointers are aligned to 64 bytes, and have 48 bits.
const POINTER_SHIFT: u32 = 6;

/// Returns the bits of a wait's number that are compared.
pub(crate) fn low_bits(number: u64) -> u32 {
    (number & ((1 << NUMBER_BITS) - 1)) as u32
}

struct Timer<T> {
    deadline: u64,
    /// The pointer without the bits that are always zero, and the number of the wait above it.
    item: u64,
    kind: core::marker::PhantomData<*const T>,
}

impl<T> Clone for Timer<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Timer<T> {}

impl<T: Timed> Timer<T> {
    fn new(deadline: u64, item: *const T, number: u32) -> Self {
        let address = item.expose_provenance() as u64;
        debug_assert!(address.is_multiple_of(1 << POINTER_SHIFT) && address >> 48 == 0);
        let item = address >> POINTER_SHIFT | u64::from(number) << (64 - NUMBER_BITS);
        Timer { deadline, item, kind: core::marker::PhantomData }
    }

    fn item(&self) -> *const T {
        let address = self.item << NUMBER_BITS >> NUMBER_BITS << POINTER_SHIFT;
        core::ptr::with_exposed_provenance(address as usize)
    }

    fn number(&self) -> u32 {
        (self.item >> (64 - NUMBER_BITS)) as u32
    }

    /// Returns whether the entry's wait is still under way.
    ///
    /// # Safety
    /// The item is never unmapped.
    unsafe fn is_live(&self) -> bool {
        // SAFETY: the item is never unmapped, as the caller ensures.
        unsafe { (*self.item()).wait_number() == Some(self.number()) }
    }
}

/// The heap. Its items are never unmapped.
pub(crate) struct Timers<T> {
    entries: Vec<Timer<T>>,
    /// Number of stale entries. It may be negative for a moment, because an entry may be popped
    /// before it is counted.
    stale: isize,
}

// SAFETY: the heap only keeps pointers; its users decide which thread may use an item.
unsafe impl<T> Send for Timers<T> {}

const ARITY: usize = 4;
/// Fewer stale entries than this are not worth a sweep.
const FEW: isize = 64;

impl<T: Timed> Timers<T> {
    pub(crate) const fn new() -> Self {
        Timers { entries: Vec::new(), stale: 0 }
    }

    /// Returns the earliest deadline. Its entry may be stale.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.entries.first().map(|entry| entry.deadline)
    }

    /// Returns the earliest deadline of an item that still waits.
    pub(crate) fn earliest_live(&mut self) -> Option<u64> {
        loop {
            let first = *self.entries.first()?;
            // SAFETY: inserted items are never unmapped.
            if unsafe { first.is_live() } {
                return Some(first.deadline);
            }
            self.take_first();
            self.stale -= 1;
        }
    }

    /// Returns the number of entries, stale ones included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns every entry: the item, the number of its wait, and the deadline.
    pub(crate) fn all(&self) -> impl Iterator<Item = (*const T, u32, u64)> {
        self.entries.iter().map(|entry| (entry.item(), entry.number(), entry.deadline))
    }

    /// Adds a deadline for the wait `number` of `item`.
    ///
    /// # Safety
    /// `item` is never unmapped.
    pub(crate) unsafe fn insert(&mut self, deadline: u64, item: *const T, number: u32) {
        self.entries.push(Timer::new(deadline, item, number));
        self.rise(self.entries.len() - 1);
    }

    /// Counts an entry as stale: its wait has ended before its deadline.
    pub(crate) fn leave(&mut self) {
        self.stale += 1;
        if self.stale > FEW && self.stale as usize > self.entries.len() / 2 {
            self.sweep();
        }
    }

    /// Takes out the earliest entry with a deadline not after `now` whose item still waits.
    pub(crate) fn pop_expired(&mut self, now: u64) -> Option<(u64, *const T)> {
        loop {
            let first = *self.entries.first()?;
            if first.deadline > now {
                return None;
            }
            self.take_first();
            // The next two entries to expire are among the first five. Their items are probably not
            // in the cache.
            for near in self.entries.iter().take(1 + ARITY) {
                prefetch(near.item().cast());
            }
            // SAFETY: inserted items are never unmapped.
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
        // SAFETY: inserted items are never unmapped.
        self.entries.retain(|entry| unsafe { entry.is_live() });
        // The sweep also dropped entries that a waiter is about to count as stale. Then the count
        // will be too high, and the next sweep comes a little early.
        self.stale = 0;
        for place in (0..self.entries.len().div_ceil(ARITY)).rev() {
            self.sink(place);
        }
        self.shrink();
    }

    /// Gives memory back that only a burst needed.
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
