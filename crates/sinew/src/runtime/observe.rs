//! What a runtime tells of itself: counters, times, and traces of its carriers. `inspect` reads
//! them.

use super::RuntimeHandle;
use crate::carrier::{Crew, crew::Phase};
use crate::inspect::{Metrics, Trace};
use std::io;
use std::sync::Arc;

impl RuntimeHandle {
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
        Metrics::of(self.crew())
    }

    /// Starts or stops measuring how long fibers run at a time, and how long woken fibers wait
    /// until they run.
    ///
    /// [`metrics`](Self::metrics) returns both as histograms over all periods of measurement.
    /// Measuring takes some hundred nanoseconds for each dispatch, and nothing when it is off.
    /// [`runtime::Builder::measure`](crate::runtime::Builder::measure) turns it on from the
    /// beginning.
    ///
    /// A fiber that runs on another carrier during this call is measured from its next dispatch on.
    /// The run time of a carrier's last fiber is counted when the carrier goes on, which may be
    /// after that fiber was joined. If a deadline ended a wait, the time from wake to run begins at
    /// the deadline. If a descriptor ended it, the time begins when the carrier learned of the
    /// event.
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

    /// Begins to record the events on this runtime's carriers: which fibers they run and why the
    /// fibers stop, which fiber wakes which, and when carriers steal and sleep. The trace keeps the
    /// last `events` events of each carrier, 40 bytes each.
    ///
    /// Recording takes some hundred nanoseconds for each dispatch, and nothing when there is no
    /// trace. A busy carrier begins within some tens of dispatches; the caller's carrier begins at
    /// once.
    ///
    /// # Errors
    /// Fails if `events` is zero, or if there is no memory for them.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// let trace = runtime.handle().trace(10_000)?;
    /// runtime.run(|| sinew::yield_now());
    /// let mut file = Vec::new();
    /// trace.write_json(&mut file)?; // for ui.perfetto.dev, or chrome://tracing
    /// assert!(file.starts_with(b"{\"traceEvents\":["));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn trace(&self, events: usize) -> io::Result<Trace> {
        Trace::begin(self.crew_counted(), events)
    }
}

/// Returns all runtimes of the process that have not ended, the oldest first. The default runtime
/// is among them once it was used.
///
/// # Examples
/// ```
/// let runtime = sinew::Runtime::builder().carriers(1).name("small").build()?;
/// for runtime in sinew::runtime::all() {
///     println!("{}: {} switches", runtime.name(), runtime.metrics().total().switches);
/// }
/// assert!(sinew::runtime::all().contains(runtime.handle()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn all() -> Vec<RuntimeHandle> {
    let goes_on = |crew: &Arc<Crew>| matches!(crew.phase(), Phase::Open | Phase::Closing);
    Crew::all().into_iter().filter(goes_on).map(RuntimeHandle::new).collect()
}
