//! Counters of carriers, in the form that users see.

use crate::carrier::Crew;
use crate::metrics::{Counters, Histogram};
use crate::primitive::{AtomicU64, Ordering};
use core::iter::Sum;
use core::ops::Add;

/// Counters of the carriers of a runtime since the runtime was made.
/// [`RuntimeHandle::metrics`](crate::RuntimeHandle::metrics) returns them.
///
/// # Examples
/// ```
/// let runtime = sinew::Runtime::builder().carriers(2).build()?;
/// runtime.spawn(|| ()).join().unwrap();
/// let metrics = runtime.handle().metrics();
/// assert_eq!(metrics.carriers.len(), 2);
/// assert_eq!(metrics.submitted, 1); // from this thread, which is outside of the runtime
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// The counters of each carrier.
    pub carriers: Vec<CarrierMetrics>,
    /// Fibers that were submitted from outside of the runtime.
    pub submitted: u64,
    /// Stacks of the ordinary size that fibers or the caches of carriers hold.
    pub stacks_in_use: usize,
    /// Unused stacks that keep their memory.
    pub stacks_warm: usize,
    /// Unused stacks that have given their memory back.
    pub stacks_cold: usize,
    /// How long fibers ran at a time, while that was measured; see
    /// [`RuntimeHandle::measure`](crate::RuntimeHandle::measure).
    pub run_time: Histogram,
    /// How long woken fibers waited until they ran, while that was measured; see
    /// [`RuntimeHandle::measure`](crate::RuntimeHandle::measure).
    pub latency: Histogram,
}

/// Counters of one carrier since its runtime was made. `ready`, `shared` and `stacks_cached` are no
/// counters: they are the latest known numbers.
///
/// # Examples
/// ```
/// let runtime = sinew::Runtime::builder().carriers(1).build()?;
/// runtime.run(|| (0..3).for_each(|_| sinew::spawn(|| ()).join().unwrap()));
/// let carrier = runtime.handle().metrics().carriers[0];
/// assert_eq!(carrier.spawned, 3);
/// assert!(carrier.finished >= 3);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CarrierMetrics {
    /// Fibers that fibers on this carrier have spawned.
    pub spawned: u64,
    /// Fibers that have ended on this carrier.
    pub finished: u64,
    /// Switches from one fiber to another. A busy carrier adds them some tens of microseconds late,
    /// when it looks at its clock.
    pub switches: u64,
    /// Fibers that this carrier has taken from other carriers.
    pub stolen: u64,
    /// How often this carrier went to sleep.
    pub sleeps: u64,
    /// Wakes of this carrier's fibers by other threads.
    pub remote_wakes: u64,
    /// Waits that ended because their deadline had passed.
    pub timers: u64,
    /// Events of descriptors, and completed operations.
    pub io_events: u64,
    /// Started fibers that were ready to run when the carrier last looked at its clock.
    pub ready: u64,
    /// Ready fibers that may run on any carrier: unstarted fibers and migratable ones.
    pub shared: u64,
    /// Stacks that the carrier had at hand for new fibers when it last went to sleep.
    pub stacks_cached: u64,
}

impl Metrics {
    /// Reads the counters of a crew.
    pub(crate) fn of(crew: &Crew) -> Metrics {
        let stacks = crew.pool.stats();
        let (mut run_time, mut latency) = (Histogram::default(), Histogram::default());
        for times in crew.observers.times().iter().flat_map(|times| times.iter()) {
            run_time.merge(&times.run.read());
            latency.merge(&times.latency.read());
        }
        let carriers = crew.carriers.iter().enumerate();
        let mut carriers: Vec<_> = carriers
            .map(|(index, carrier)| count(crew, index, &carrier.counters, carrier.deque.len()))
            .collect();
        if let Some(last) = crew.last_counts.get() {
            // This runtime has ended, and its carriers may serve another one by now.
            let last = last.iter().enumerate();
            carriers = last.map(|(index, counters)| count(crew, index, counters, 0)).collect();
        }
        Metrics {
            carriers,
            submitted: crew.submitted(),
            stacks_in_use: stacks.in_use,
            stacks_warm: stacks.warm,
            stacks_cold: stacks.cold,
            run_time,
            latency,
        }
    }

    /// Returns the sum over all carriers.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(2).build()?;
    /// runtime.run(|| (0..10).for_each(|_| sinew::spawn(|| ()).join().unwrap()));
    /// assert_eq!(runtime.handle().metrics().total().spawned, 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn total(&self) -> CarrierMetrics {
        self.carriers.iter().copied().sum()
    }
}

fn count(crew: &Crew, index: usize, counters: &Counters, shared: usize) -> CarrierMetrics {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    CarrierMetrics {
        spawned: get(&counters.spawned),
        finished: get(&counters.finished),
        switches: get(&counters.dispatched) + get(&counters.begun),
        stolen: get(&counters.stolen),
        sleeps: get(&counters.slept),
        remote_wakes: get(&counters.received),
        timers: get(&counters.expired),
        io_events: crew.drivers[index].events(),
        ready: get(&counters.ready),
        shared: shared as u64,
        stacks_cached: get(&counters.stacks),
    }
}

impl Add for CarrierMetrics {
    type Output = CarrierMetrics;

    fn add(self, other: CarrierMetrics) -> CarrierMetrics {
        CarrierMetrics {
            spawned: self.spawned + other.spawned,
            finished: self.finished + other.finished,
            switches: self.switches + other.switches,
            stolen: self.stolen + other.stolen,
            sleeps: self.sleeps + other.sleeps,
            remote_wakes: self.remote_wakes + other.remote_wakes,
            timers: self.timers + other.timers,
            io_events: self.io_events + other.io_events,
            ready: self.ready + other.ready,
            shared: self.shared + other.shared,
            stacks_cached: self.stacks_cached + other.stacks_cached,
        }
    }
}

impl Sum for CarrierMetrics {
    fn sum<I: Iterator<Item = CarrierMetrics>>(all: I) -> CarrierMetrics {
        all.fold(CarrierMetrics::default(), CarrierMetrics::add)
    }
}
