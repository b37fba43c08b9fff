//! Deadlines: a heap with four children a node, in which everybody knows its place.
//!
//! An item's place is kept in the item, so that it is removed without a search. All operations are
//! of the order of the logarithm of the number of items, with two or three cache lines a level.

/// What can have a deadline. The place belongs to the heap that the item is in.
pub(crate) trait Timed {
    fn place(&self) -> u32;
    fn set_place(&self, place: u32);
}

/// The place of an item that is in no heap.
pub(crate) const NOWHERE: u32 = u32::MAX;

struct Entry<T> {
    deadline: u64,
    item: *const T,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Entry<T> {}

/// The heap. What is in it must live until it is taken out.
pub(crate) struct Timers<T> {
    entries: Vec<Entry<T>>,
}

// SAFETY: pointers are all that is kept; who may use what they lead to is up to the users.
unsafe impl<T> Send for Timers<T> {}

const ARITY: usize = 4;

impl<T: Timed> Timers<T> {
    pub(crate) const fn new() -> Self {
        Timers { entries: Vec::new() }
    }

    /// The earliest deadline.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.entries.first().map(|entry| entry.deadline)
    }

    /// Adds `item`, which is in no heap.
    ///
    /// # Safety
    /// `item` is alive until it is taken out.
    pub(crate) unsafe fn insert(&mut self, deadline: u64, item: *const T) {
        let place = self.entries.len();
        self.entries.push(Entry { deadline, item });
        self.rise(place);
    }

    /// Takes `item` out, if it is in.
    ///
    /// # Safety
    /// `item` is in this heap or in none.
    pub(crate) unsafe fn remove(&mut self, item: &T) -> bool {
        let place = item.place();
        if place == NOWHERE {
            return false;
        }
        self.take_from(place as usize);
        true
    }

    /// Takes out the earliest, if its deadline is not after `now`.
    pub(crate) fn pop_expired(&mut self, now: u64) -> Option<*const T> {
        let first = *self.entries.first()?;
        if first.deadline > now {
            return None;
        }
        self.take_from(0);
        Some(first.item)
    }

    fn take_from(&mut self, place: usize) {
        let taken = self.entries[place];
        // SAFETY: what is in the heap is alive.
        unsafe { (*taken.item).set_place(NOWHERE) };
        let last = self.entries.pop().expect("the heap has the item that is taken out");
        if place < self.entries.len() {
            self.entries[place] = last;
            let sunk = self.sink(place);
            if sunk == place {
                self.rise(place);
            }
        }
        // What a burst needed is not kept for ever.
        if self.entries.capacity() > 1024 && self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.capacity() / 2);
        }
    }

    #[inline]
    fn put(&mut self, place: usize, entry: Entry<T>) {
        self.entries[place] = entry;
        // SAFETY: what is in the heap is alive.
        unsafe { (*entry.item).set_place(place as u32) };
    }

    fn rise(&mut self, mut place: usize) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.entries[parent].deadline <= entry.deadline {
                break;
            }
            self.put(place, self.entries[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize) -> usize {
        let entry = self.entries[place];
        loop {
            let first = place * ARITY + 1;
            let end = (first + ARITY).min(self.entries.len());
            let Some(least) = (first..end).min_by_key(|&child| self.entries[child].deadline) else {
                break;
            };
            if entry.deadline <= self.entries[least].deadline {
                break;
            }
            self.put(place, self.entries[least]);
            place = least;
        }
        self.put(place, entry);
        place
    }
}

#[cfg(all(test, not(sinew_loom)))]
mod tests;
