//! What carriers count, for users.

use crate::carrier::{Crew, crew::Phase};
use crate::metrics::{Counters, Histogram};
use crate::primitive::{AtomicU64, Ordering};
use crate::runtime::Handle;
use core::iter::Sum;
use core::ops::Add;
use std::sync::Arc;

/// What the carriers of a runtime have counted since it was made; see [`Handle::metrics`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// Each carrier's own.
    pub carriers: Vec<CarrierMetrics>,
    /// Fibers that were submitted from outside.
    pub submitted: u64,
    /// Stacks that fibers or the caches of carriers have, of the ordinary size.
    pub stacks_in_use: usize,
    /// Stacks that nobody has and that keep their memory.
    pub stacks_warm: usize,
    /// Stacks that nobody has and whose memory was given back.
    pub stacks_cold: usize,
    /// How long fibers ran at a time, while that was measured; see [`Handle::measure`].
    pub run_time: Histogram,
    /// How long fibers that had been woken waited until they ran, while that was measured.
    pub latency: Histogram,
}

/// What one carrier has counted. Those that grow begin with zero when its runtime is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CarrierMetrics {
    /// Fibers that its fibers have started.
    pub spawned: u64,
    /// Fibers that have ended on it.
    pub finished: u64,
    /// Switches from one fiber to another. Counted when the carrier looks at its clock: some tens of
    /// microseconds late while it is busy.
    pub switches: u64,
    /// Fibers that it has taken from other carriers.
    pub stolen: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// Wakes of its fibers by other threads.
    pub remote_wakes: u64,
    /// Waits that were ended by their deadlines.
    pub timers: u64,
    /// Events of descriptors, and ends of operations.
    pub io_events: u64,
    /// Started fibers that are ready to run, when it last looked at its clock.
    pub ready: u64,
    /// Fibers that are ready and may run on any carrier: those that have not started, and migratable
    /// ones.
    pub shared: u64,
    /// Stacks that it has at hand for new fibers, when it last went to sleep.
    pub stacks_cached: u64,
}

impl Handle {
    /// What the carriers of this runtime have counted.
    ///
    /// Counting is always on: each carrier counts for itself, without atomic read-modify-writes.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(2).build()?;
    /// runtime.run(|| sinew::spawn(|| ()).join().unwrap());
    /// let metrics = runtime.handle().metrics();
    /// assert_eq!(metrics.carriers.len(), 2);
    /// assert_eq!(metrics.total().spawned, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        let crew = self.crew();
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
            // The carriers may be another runtime's by now.
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

    /// Begins or ends to measure how long fibers run at a time, and how long those that were woken wait
    /// until they run: [`metrics`](Self::metrics) has both as histograms, over all times that were
    /// measured. It takes some hundred nanoseconds for each dispatch, and nothing when it is off.
    /// [`Builder::measure`](crate::runtime::Builder::measure) has it on from the beginning.
    ///
    /// Fibers that run on other carriers when it is called count from their next dispatch on. How long the
    /// last one ran is counted when its carrier goes on, which may be after it was joined. The time from wake
    /// to run is that from a deadline, if one has ended the wait; for descriptors it begins when the carrier
    /// has learnt of the event.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::new()?;
    /// runtime.handle().measure(true);
    /// runtime.run(|| sinew::sleep(std::time::Duration::from_millis(1)));
    /// runtime.handle().measure(false);
    /// let metrics = runtime.handle().metrics();
    /// println!("99 % ran within {:?} of their wakes", metrics.latency.quantile(0.99));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn measure(&self, measures: bool) {
        let crew = self.crew();
        crew.observers.measure(measures, crew.carriers.len());
        crew.tell_observed();
    }
}

impl Metrics {
    /// The sum over all carriers.
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

/// All runtimes of the process that have not ended, the oldest first. The default one is among them if
/// somebody has needed it.
///
/// # Examples
/// ```
/// let runtime = sinew::Runtime::builder().carriers(1).name("small").build()?;
/// for runtime in sinew::inspect::runtimes() {
///     println!("{}: {} switches", runtime.name(), runtime.metrics().total().switches);
/// }
/// assert!(sinew::inspect::runtimes().contains(runtime.handle()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn runtimes() -> Vec<Handle> {
    let goes_on = |crew: &Arc<Crew>| matches!(crew.phase(), Phase::Open | Phase::Closing);
    Crew::all().into_iter().filter(goes_on).map(Handle::new).collect()
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
