//! A ring of the last records of one thread. Any thread can read it while the owner writes.
//!
//! The writer never waits, and overwrites records that were not read in time. It counts a record as
//! begun before it writes, and as ended afterwards. A reader copies the ended records, and then
//! reads how many records have begun. It drops every copy whose place the writer has begun to
//! overwrite.

use crate::primitive::{AtomicU64, Ordering, fence};

/// A ring of records of `WORDS` numbers each.
pub(crate) struct Recent<const WORDS: usize> {
    places: Box<[[AtomicU64; WORDS]]>,
    /// How many records the writer has begun.
    begun: AtomicU64,
    /// How many records the writer has ended.
    ended: AtomicU64,
}

impl<const WORDS: usize> Recent<WORDS> {
    /// Makes room for `count` records, at least one. Returns `None` if there is no memory.
    pub(crate) fn new(count: usize) -> Option<Recent<WORDS>> {
        let mut places = Vec::new();
        places.try_reserve_exact(count.max(1)).ok()?;
        places.extend((0..count.max(1)).map(|_| core::array::from_fn(|_| AtomicU64::new(0))));
        let places = places.into_boxed_slice();
        Some(Recent { places, begun: AtomicU64::new(0), ended: AtomicU64::new(0) })
    }

    fn place(&self, number: u64) -> &[AtomicU64; WORDS] {
        &self.places[(number % self.places.len() as u64) as usize]
    }

    /// Adds a record. Only one thread may do this at a time.
    pub(crate) fn push(&self, record: [u64; WORDS]) {
        let number = self.begun.load(Ordering::Relaxed);
        self.begun.store(number + 1, Ordering::Relaxed);
        // ORDERING: Release fence: a reader that has read a word of this record also reads that the
        // record has begun; pairs with the Acquire fence in `read`.
        fence(Ordering::Release);
        for (word, value) in self.place(number).iter().zip(record) {
            word.store(value, Ordering::Relaxed);
        }
        // ORDERING: Release publishes the record; pairs with the Acquire in `read`.
        self.ended.store(number + 1, Ordering::Release);
    }

    /// Returns how many records were overwritten.
    pub(crate) fn lost(&self) -> u64 {
        self.ended.load(Ordering::Relaxed).saturating_sub(self.places.len() as u64)
    }

    /// Returns the records from number `from` on that the writer has not overwritten, each with its
    /// number.
    pub(crate) fn read(&self, from: u64) -> Vec<(u64, [u64; WORDS])> {
        // ORDERING: Acquire shows the ended records; pairs with the Release in `push`.
        let ended = self.ended.load(Ordering::Acquire);
        let room = self.places.len() as u64;
        let mut records: Vec<_> = (from.max(ended.saturating_sub(room))..ended)
            .map(|number| {
                (number, self.place(number).each_ref().map(|word| word.load(Ordering::Relaxed)))
            })
            .collect();
        // ORDERING: Acquire fence: `begun` is read after the records; pairs with the Release fence
        // in `push`.
        fence(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Relaxed);
        records.retain(|(number, _)| begun <= number + room);
        records
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;

#[cfg(all(test, not(sinew_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept() {
        let recent = Recent::<2>::new(3).unwrap();
        assert!(recent.read(0).is_empty());
        (0..5).for_each(|value| recent.push([value, 10 * value]));
        assert_eq!(recent.read(0), [(2, [2, 20]), (3, [3, 30]), (4, [4, 40])]);
        assert_eq!(recent.read(4), [(4, [4, 40])]);
        assert!(recent.read(5).is_empty());
        assert_eq!(recent.lost(), 2);
    }

    #[test]
    fn a_ring_that_does_not_fit_memory_is_refused() {
        assert!(Recent::<8>::new(usize::MAX / 64).is_none());
        assert!(Recent::<8>::new(usize::MAX).is_none());
    }
}
