//! Counters of each carrier. Its own thread writes them, and any thread reads them.
//!
//! A write needs no atomic read-modify-write. This module uses only `primitive`. `carrier` and
//! `spawn` count here. Next: `inspect::metrics`, which shows the counts to users.

mod histogram;

pub(crate) use histogram::Counts;
pub use histogram::Histogram;

use crate::primitive::{AtomicU64, Ordering};

/// The counters of one carrier.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Fibers that code on this carrier has spawned.
    pub(crate) spawned: AtomicU64,
    /// Fibers that ended here.
    pub(crate) finished: AtomicU64,
    /// Unstarted or migratable fibers that this carrier has taken from other carriers.
    pub(crate) stolen: AtomicU64,
    /// Times that the carrier went to sleep.
    pub(crate) slept: AtomicU64,
    /// Dispatches of earlier stints. Updated when the carrier looks at its other duties.
    pub(crate) dispatched: AtomicU64,
    /// Dispatches of the stint under way. Updated when the carrier looks at its other duties.
    pub(crate) begun: AtomicU64,
    /// Waits that ended because their deadline had passed.
    pub(crate) expired: AtomicU64,
    /// Wakes that came from other threads.
    pub(crate) received: AtomicU64,
    /// Started fibers that were ready when the carrier last looked at its duties.
    pub(crate) ready: AtomicU64,
    /// Unused stacks that the carrier kept for new fibers when it last went to sleep.
    pub(crate) stacks: AtomicU64,
}

impl Counters {
    /// Returns a copy of the counters, for later readers.
    pub(crate) fn copy(&self) -> Counters {
        let same = |counter: &AtomicU64| AtomicU64::new(counter.load(Ordering::Relaxed));
        Counters {
            spawned: same(&self.spawned),
            finished: same(&self.finished),
            stolen: same(&self.stolen),
            slept: same(&self.slept),
            dispatched: same(&self.dispatched),
            begun: same(&self.begun),
            expired: same(&self.expired),
            received: same(&self.received),
            ready: same(&self.ready),
            stacks: same(&self.stacks),
        }
    }

    /// Sets all counters to zero, for another crew.
    pub(crate) fn reset(&self) {
        let Counters {
            spawned,
            finished,
            stolen,
            slept,
            dispatched,
            begun,
            expired,
            received,
            ready,
            stacks,
        } = self;
        for counter in
            [spawned, finished, stolen, slept, dispatched, begun, expired, received, ready, stacks]
        {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Adds to a counter that only users read. A build with `sinew_uncounted` leaves it out, for
/// comparison.
#[inline(always)]
pub(crate) fn note(counter: &AtomicU64, count: u64) {
    if !cfg!(sinew_uncounted) {
        add(counter, count);
    }
}

/// Sets a counter that only users read. A build with `sinew_uncounted` leaves it out, for
/// comparison.
#[inline(always)]
pub(crate) fn set(counter: &AtomicU64, value: u64) {
    if !cfg!(sinew_uncounted) {
        counter.store(value, Ordering::Relaxed);
    }
}

/// Adds without an atomic read-modify-write, because only the owner writes.
#[inline(always)]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    let value = counter.load(Ordering::Relaxed) + count;
    // ORDERING: Release, for the loads in `Crew::is_empty`: a thread that reads a fiber's end also
    // sees the beginnings which that fiber counted before.
    counter.store(value, Ordering::Release);
}
