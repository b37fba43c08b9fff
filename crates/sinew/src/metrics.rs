//! Counts that each carrier keeps of itself. Written by its own thread, read by anybody.

use crate::primitive::{AtomicU64, Ordering};

/// One carrier's counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Fibers that were submitted by fibers of this carrier.
    pub(crate) spawned: AtomicU64,
    /// Fibers that ended here.
    pub(crate) finished: AtomicU64,
    /// Unstarted or migratable fibers taken from other carriers.
    pub(crate) stolen: AtomicU64,
    /// Times that the carrier went to sleep.
    pub(crate) slept: AtomicU64,
    /// Dispatches, counted when the carrier looks at its other duties.
    pub(crate) dispatched: AtomicU64,
    /// Deadlines that passed.
    pub(crate) expired: AtomicU64,
}

/// Adds without an atomic read-modify-write: only the owner writes.
#[inline(always)]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    let value = counter.load(Ordering::Relaxed) + count;
    // ORDERING: Release, for `Crew::is_empty`: who reads an end has read the beginnings that its
    // fiber counted before.
    counter.store(value, Ordering::Release);
}
