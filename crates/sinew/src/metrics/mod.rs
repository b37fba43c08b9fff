//! Counts that each carrier keeps of itself. Written by its own thread, read by anybody.

mod histogram;

pub(crate) use histogram::Counts;
pub use histogram::Histogram;

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
    /// Dispatches, counted when the carrier looks at its other duties; and those since the last that
    /// it counted then.
    pub(crate) dispatched: AtomicU64,
    pub(crate) begun: AtomicU64,
    /// Deadlines that passed.
    pub(crate) expired: AtomicU64,
    /// Wakes that came from other threads.
    pub(crate) received: AtomicU64,
    /// Started fibers that were ready, and stacks at hand, when the carrier last looked at its duties.
    pub(crate) ready: AtomicU64,
    pub(crate) stacks: AtomicU64,
}

impl Counters {
    /// The same counts, for those who look later.
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

    /// Begins anew, for another crew.
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

/// Adds to what is counted for users only; not at all if the build leaves that out, to be compared with.
#[inline(always)]
pub(crate) fn note(counter: &AtomicU64, count: u64) {
    if !cfg!(sinew_uncounted) {
        add(counter, count);
    }
}

/// Sets what is counted for users only, in the same way.
#[inline(always)]
pub(crate) fn set(counter: &AtomicU64, value: u64) {
    if !cfg!(sinew_uncounted) {
        counter.store(value, Ordering::Relaxed);
    }
}

/// Adds without an atomic read-modify-write: only the owner writes.
#[inline(always)]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    let value = counter.load(Ordering::Relaxed) + count;
    // ORDERING: Release, for `Crew::is_empty`: who reads an end has read the beginnings that its
    // fiber counted before.
    counter.store(value, Ordering::Release);
}
