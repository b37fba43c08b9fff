//! Counters of each carrier. Its own thread writes them, and any thread reads them.

mod histogram;

pub(crate) use histogram::Counts;
pub use histogram::Histogram;

use crate::primitive::{AtomicU64, Ordering};

/// The counters of one carrier.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Fibers that fibers of this carrier have submitted.
    pub(crate) spawned: AtomicU64,
    /// Fibers that ended here.
    pub(crate) finished: AtomicU64,
    /// Unstarted or migratable fibers taken from other carriers.
    pub(crate) stolen: AtomicU64,
    /// Times that the carrier went to sleep.
    pub(crate) slept: AtomicU64,
    /// Dispatches of earlier ticks, and of the tick under way. Both are updated when the carrier
    /// looks at its other duties.
    pub(crate) dispatched: AtomicU64,
    pub(crate) begun: AtomicU64,
    /// Deadlines that passed.
    pub(crate) expired: AtomicU64,
    /// Wakes that came from other threads.
    pub(crate) received: AtomicU64,
    /// Started fibers that were ready when the carrier last looked at its duties, and stacks at
    /// hand when it last went to sleep.
    pub(crate) ready: AtomicU64,
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
