//! Counters of carriers, in the form that users see.

use crate::carrier::{Crew, crew::Phase};
use crate::metrics::{Counters, Histogram};
use crate::primitive::{AtomicU64, Ordering};
use crate::runtime::Handle;
use core::iter::Sum;
use core::ops::Add;
use std::sync::Arc;

/// Counters of the carriers of a runtime since the runtime was made; see [`Handle::metrics`].
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
    /// How long fibers ran at a time, while that was measured; see [`Handle::measure`].
    pub run_time: Histogram,
    /// How long woken fibers waited until they ran, while that was measured.
    pub latency: Histogram,
}

/// Counters of one carrier. Those that grow start at zero when the runtime is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CarrierMetrics {
    /// Fibers that were started by fibers on this carrier.
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
    /// Waits that their deadlines ended.
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

impl Handle {
    /// Returns the counters of this runtime's carriers.
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
            // The carriers may serve another runtime since this one ended.
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

    /// Starts or stops measuring how long fibers run at a time, and how long woken fibers wait
    /// until they run.
    ///
    /// [`metrics`](Self::metrics) returns both as histograms over all periods of measurement.
    /// Measuring takes some hundred nanoseconds for each dispatch, and nothing when it is off.
    /// [`Builder::measure`](crate::runtime::Builder::measure) turns it on from the beginning.
    ///
    /// Fibers that run on other carriers during this call count from their next dispatch on. The
    /// run time of a carrier's last fiber is counted when the carrier goes on, which may be after
    /// that fiber was joined. If a deadline ended a wait, the time from wake to run begins at the
    /// deadline. If a descriptor ended it, the time begins when the carrier learned of the event.
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

/// Returns all runtimes of the process that have not ended, the oldest first. The default runtime
/// is among them once it was used.
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
