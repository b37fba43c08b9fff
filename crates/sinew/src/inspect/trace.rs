//! Traces: the events of carriers, one by one.

use super::json::Json;
use super::snapshot::fibers;
use crate::carrier::Crew;
use crate::carrier::observe::{BY_CARRIER, BY_THREAD, Event, Record, Recording};
use crate::fiber::FiberId;
use crate::fiber::WaitKind;
use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// A recording of the events on a runtime's carriers; see
/// [`RuntimeHandle::trace`](crate::RuntimeHandle::trace). The recording ends when this value is
/// dropped.
///
/// # Examples
/// ```
/// let runtime = sinew::Runtime::builder().carriers(1).build()?;
/// let trace = runtime.handle().trace(1000)?; // the last 1000 events of each carrier
/// runtime.run(|| sinew::yield_now());
/// assert!(trace.events().len() >= 2);
/// drop(trace); // ends the recording
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub struct Trace {
    crew: Arc<Crew>,
    recording: Arc<Recording>,
    /// For each carrier, the number of the first event that was not emitted yet.
    #[cfg(feature = "tracing")]
    emitted: std::sync::Mutex<Vec<u64>>,
}

/// An event on a carrier, as [`Trace::events`] returns it.
///
/// # Examples
/// ```
/// let runtime = sinew::Runtime::builder().carriers(1).build()?;
/// let trace = runtime.handle().trace(1000)?;
/// runtime.run(|| sinew::yield_now());
/// for event in trace.events() {
///     assert_eq!(event.carrier, 0);
///     println!("{:?}: {:?}", event.at, event.kind);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TraceEvent {
    /// The carrier, as a number in its runtime.
    pub carrier: usize,
    /// Time since the beginning of the trace.
    pub at: Duration,
    /// The kind of event.
    pub kind: TraceKind,
}

/// The kind of a [`TraceEvent`].
///
/// # Examples
/// ```
/// use sinew::inspect::TraceKind;
/// use std::time::Duration;
///
/// let runtime = sinew::Runtime::builder().carriers(1).build()?;
/// let trace = runtime.handle().trace(1000)?;
/// runtime.run(|| sinew::sleep(Duration::from_millis(1)));
/// let slept = trace.events().iter().any(|event| match event.kind {
///     TraceKind::Wait { kind, .. } => kind == sinew::WaitKind::Sleep,
///     _ => false,
/// });
/// assert!(slept);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TraceKind {
    /// The carrier dispatched a fiber.
    Start {
        /// The fiber.
        fiber: FiberId,
        /// Time and origin of the fiber's wake. `None` if the fiber had not waited, or if its wait
        /// began before the trace.
        woken: Option<(Duration, WokenBy)>,
    },
    /// A fiber stopped, to wait.
    Wait {
        /// The fiber.
        fiber: FiberId,
        /// The kind of wait.
        kind: WaitKind,
        /// The object of the wait: an address, the number of a descriptor, or the id of the fiber
        /// that is joined.
        address: usize,
    },
    /// A fiber stopped to let others run, or was woken before it had stopped to wait.
    Yield {
        /// The fiber.
        fiber: FiberId,
    },
    /// A fiber ended.
    End {
        /// The fiber.
        fiber: FiberId,
    },
    /// The carrier took fibers from another carrier.
    Steal {
        /// The carrier that had the fibers before.
        victim: usize,
        /// The number of fibers.
        count: usize,
    },
    /// The carrier found nothing to do and went to sleep.
    Sleep,
    /// The carrier woke up.
    Awake,
}

/// The origin of a fiber's wake; see [`TraceKind::Start`].
///
/// # Examples
/// ```
/// use sinew::inspect::{TraceKind, WokenBy};
/// use std::time::Duration;
///
/// let runtime = sinew::Runtime::builder().carriers(1).build()?;
/// let trace = runtime.handle().trace(1000)?;
/// runtime.run(|| sinew::sleep(Duration::from_millis(1)));
/// // The carrier woke the fiber when its time was over.
/// let woken = trace.events().iter().any(|event| match event.kind {
///     TraceKind::Start { woken: Some((_, by)), .. } => by == WokenBy::Carrier,
///     _ => false,
/// });
/// assert!(woken);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WokenBy {
    /// Another fiber.
    Fiber(FiberId),
    /// A carrier, because a deadline had passed or a descriptor was ready.
    Carrier,
    /// A thread that is not a carrier.
    Thread,
}

impl fmt::Display for WokenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WokenBy::Fiber(id) => write!(f, "fiber {id}"),
            WokenBy::Carrier => f.write_str("a carrier"),
            WokenBy::Thread => f.write_str("a thread"),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("runtime", &self.crew.settings.name).finish_non_exhaustive()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.crew.observers.remove_trace(&self.recording);
        self.crew.tell_observed();
    }
}

impl Trace {
    /// Begins to record, for each carrier of `crew`, its last `events` events.
    pub(crate) fn begin(crew: Arc<Crew>, events: usize) -> io::Result<Trace> {
        if events == 0 {
            let text = "a trace of 0 events would be empty; 100000 events are a good start";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let count = crew.carriers.len();
        let recording = Recording::new(count, events).ok_or_else(|| {
            let text = format!("no memory for {events} events on each of {count} carriers");
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        })?;
        let recording = Arc::new(recording);
        crew.observers.add_trace(recording.clone());
        crew.tell_observed();
        Ok(Trace {
            #[cfg(feature = "tracing")]
            emitted: std::sync::Mutex::new(vec![0; count]),
            crew,
            recording,
        })
    }

    /// Returns the events that the trace still keeps, the earliest first. Events that happen during
    /// the call may be missing.
    ///
    /// # Examples
    /// ```
    /// use sinew::inspect::TraceKind;
    ///
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// let trace = runtime.handle().trace(100)?;
    /// runtime.run(|| ());
    /// assert!(trace.events().iter().any(|event| matches!(event.kind, TraceKind::Start { .. })));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn events(&self) -> Vec<TraceEvent> {
        let carriers = self.recording.carriers.iter().enumerate();
        let mut events: Vec<_> = carriers
            .flat_map(|(carrier, records)| {
                records.read(0).into_iter().map(move |(_, record)| self.event(carrier, record))
            })
            .collect();
        events.sort_by_key(|event| event.at);
        events
    }

    fn event(&self, carrier: usize, record: Record) -> TraceEvent {
        let since = |at: u64| Duration::from_nanos(at.saturating_sub(self.recording.since));
        let (at, event) = Event::read(record);
        let kind = match event {
            Event::Start { fiber, woken } => {
                let woken = woken.map(|(when, by)| {
                    let by = match by {
                        BY_CARRIER => WokenBy::Carrier,
                        BY_THREAD => WokenBy::Thread,
                        fiber => WokenBy::Fiber(FiberId::new(fiber)),
                    };
                    (since(when), by)
                });
                TraceKind::Start { fiber: FiberId::new(fiber), woken }
            }
            Event::Wait { fiber, kind, address } => {
                TraceKind::Wait { fiber: FiberId::new(fiber), kind, address }
            }
            Event::Yield { fiber } => TraceKind::Yield { fiber: FiberId::new(fiber) },
            Event::End { fiber } => TraceKind::End { fiber: FiberId::new(fiber) },
            Event::Steal { victim, count } => TraceKind::Steal { victim, count },
            Event::Sleep => TraceKind::Sleep,
            Event::Awake => TraceKind::Awake,
        };
        TraceEvent { carrier, at: since(at), kind }
    }

    /// Collects the names of fibers that have run, as far as they are known.
    fn names(&self) -> HashMap<FiberId, String> {
        let alive = fibers().into_iter();
        let mut names: HashMap<_, _> =
            alive.filter_map(|info| Some((info.id(), info.name()?.to_owned()))).collect();
        let recorded = self.recording.names.lock().clone();
        names.extend(recorded.into_iter().map(|(id, name)| (FiberId::new(id), name.to_string())));
        names
    }

    /// Returns how many events were overwritten for lack of room. The kept events may begin later
    /// for one carrier than for another.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::new()?;
    /// let trace = runtime.handle().trace(100_000)?;
    /// runtime.run(|| ());
    /// assert_eq!(trace.lost(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lost(&self) -> u64 {
        self.recording.carriers.iter().map(|records| records.lost()).sum()
    }

    /// Writes the kept events in the format of Chrome's trace viewer, which Perfetto
    /// (ui.perfetto.dev) reads as well. Each carrier is a track, with a slice for each run of a
    /// fiber. Arrows lead from each waker to the run of the fiber that it woke.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// let trace = runtime.handle().trace(100_000)?;
    /// runtime.run(|| ());
    /// let mut json = Vec::new(); // or a file in a `BufWriter`
    /// trace.write_json(&mut json)?;
    /// assert!(String::from_utf8_lossy(&json).contains("traceEvents"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let mut drawing = Drawing::new(self.names());
        for carrier in 0..self.crew.carriers.len() {
            let name = format!("{} carrier {carrier}", self.crew.settings.name);
            drawing.marks.push(Mark::new("M", "thread_name".into(), carrier).with("name", name));
        }
        self.events().iter().for_each(|event| drawing.add(event));
        drawing.end();
        let mut json = Json::new(out);
        json.object(|json| {
            json.key("traceEvents")?;
            let runtime = u64::from(self.crew.number);
            json.list(drawing.marks.iter(), |json, mark| mark.write(json, runtime))?;
            json.number("lost", self.lost())?;
            json.text("displayTimeUnit", "ns")
        })?;
        json.end()
    }

    /// Emits the events since the previous call as events of the [`tracing`] crate, and returns
    /// their number. They have the target `sinew::trace`, the level `TRACE`, the fields `carrier`
    /// and `at` (nanoseconds since the beginning of the trace), and the fields of the event.
    ///
    /// Subscribers run on the calling thread, never in a switch. Call this often enough that no
    /// events are lost, for instance in a fiber of its own.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let runtime = sinew::Runtime::new()?;
    /// let trace = runtime.handle().trace(10_000)?;
    /// runtime.run(move || {
    ///     sinew::sleep(Duration::from_millis(1));
    ///     assert!(trace.emit() > 0);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "tracing")]
    pub fn emit(&self) -> usize {
        let mut next = self.emitted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut events = Vec::new();
        for (carrier, records) in self.recording.carriers.iter().enumerate() {
            for (number, record) in records.read(next[carrier]) {
                next[carrier] = number + 1;
                events.push(self.event(carrier, record));
            }
        }
        drop(next);
        events.sort_by_key(|event| event.at);
        events.iter().for_each(emit);
        events.len()
    }
}

#[cfg(feature = "tracing")]
fn emit(event: &TraceEvent) {
    macro_rules! trace {
        ($($rest:tt)*) => {
            tracing::event!(
                target: "sinew::trace",
                tracing::Level::TRACE,
                carrier = event.carrier,
                at = event.at.as_nanos() as u64,
                $($rest)*
            )
        };
    }
    match event.kind {
        TraceKind::Start { fiber, woken: None } => trace!(fiber = fiber.as_u64(), "start"),
        TraceKind::Start { fiber, woken: Some((when, by)) } => {
            trace!(
                fiber = fiber.as_u64(),
                woken = when.as_nanos() as u64,
                by = ?by,
                "start"
            );
        }
        TraceKind::Wait { fiber, kind, address } => {
            trace!(fiber = fiber.as_u64(), kind = ?kind, address, "wait");
        }
        TraceKind::Yield { fiber } => trace!(fiber = fiber.as_u64(), "yield"),
        TraceKind::End { fiber } => trace!(fiber = fiber.as_u64(), "end"),
        TraceKind::Steal { victim, count } => trace!(victim, count, "steal"),
        TraceKind::Sleep => trace!("sleep"),
        TraceKind::Awake => trace!("awake"),
    }
}

/// One entry of the trace file.
struct Mark {
    phase: &'static str,
    name: String,
    carrier: usize,
    at: Duration,
    long: Option<Duration>,
    flow: Option<u64>,
    details: Vec<(&'static str, String)>,
}

impl Mark {
    fn new(phase: &'static str, name: String, carrier: usize) -> Mark {
        let at = Duration::ZERO;
        Mark { phase, name, carrier, at, long: None, flow: None, details: Vec::new() }
    }

    fn at(self, at: Duration) -> Mark {
        Mark { at, ..self }
    }

    fn with(mut self, key: &'static str, value: String) -> Mark {
        self.details.push((key, value));
        self
    }

    fn write<W: Write>(&self, json: &mut Json<'_, W>, runtime: u64) -> io::Result<()> {
        json.object(|json| {
            json.text("ph", self.phase)?;
            json.text("name", &self.name)?;
            json.number("pid", std::process::id().into())?;
            json.number("tid", (runtime << 16) + self.carrier as u64)?;
            json.micros("ts", self.at)?;
            if let Some(long) = self.long {
                json.micros("dur", long)?;
            }
            if let Some(flow) = self.flow {
                json.text("cat", "wake")?;
                json.number("id", flow)?;
                // The arrow ends at the slice that it points into.
                json.text("bp", "e")?;
            }
            if self.phase == "i" {
                json.text("s", "t")?;
            }
            if self.details.is_empty() {
                return Ok(());
            }
            json.key("args")?;
            json.object(|json| {
                self.details.iter().try_for_each(|(key, value)| json.text(key, value))
            })
        })
    }
}

/// A slice that has begun and not ended.
struct Slice {
    mark: Mark,
    fiber: Option<FiberId>,
}

/// The trace file under construction. Events are added in their order.
struct Drawing {
    marks: Vec<Mark>,
    names: HashMap<FiberId, String>,
    /// The open slice of each carrier.
    now: HashMap<usize, Slice>,
    /// When and on which carrier each fiber was dispatched.
    dispatched: HashMap<FiberId, Vec<(Duration, usize)>>,
    flows: u64,
    last: Duration,
}

impl Drawing {
    fn new(names: HashMap<FiberId, String>) -> Drawing {
        let (now, dispatched) = (HashMap::new(), HashMap::new());
        Drawing { marks: Vec::new(), names, now, dispatched, flows: 0, last: Duration::ZERO }
    }

    fn add(&mut self, event: &TraceEvent) {
        let TraceEvent { carrier, at, kind } = *event;
        self.last = at;
        match kind {
            TraceKind::Start { fiber, woken } => {
                let name = match self.names.get(&fiber) {
                    Some(name) => format!("{name} ({fiber})"),
                    None => format!("fiber {fiber}"),
                };
                let mut mark = Mark::new("X", name, carrier).at(at);
                if let Some((when, by)) = woken {
                    let waited = format!("{:?}", at.saturating_sub(when));
                    mark = mark.with("woken by", by.to_string()).with("waited to run", waited);
                    self.arrow(when, by, (at, carrier));
                }
                self.begin(carrier, Slice { mark, fiber: Some(fiber) });
                self.dispatched.entry(fiber).or_default().push((at, carrier));
            }
            TraceKind::Wait { fiber, kind, address } => {
                let what = kind.operation();
                let why = match (kind, address) {
                    (_, 0) => what.to_owned(),
                    (WaitKind::Join, id) => format!("{what} of fiber {id}"),
                    (WaitKind::Readable | WaitKind::Writable, fd) => format!("{what} {fd}"),
                    _ => format!("{what} {address:#x}"),
                };
                self.stop(carrier, at, fiber, why);
            }
            TraceKind::Yield { fiber } => self.stop(carrier, at, fiber, "yield".to_owned()),
            TraceKind::End { fiber } => self.stop(carrier, at, fiber, "its end".to_owned()),
            TraceKind::Steal { victim, count } => {
                let mark = Mark::new("i", "steal".into(), carrier).at(at);
                let mark = mark.with("from carrier", victim.to_string());
                self.marks.push(mark.with("fibers", count.to_string()));
            }
            TraceKind::Sleep => {
                let mark = Mark::new("X", "asleep".into(), carrier).at(at);
                self.begin(carrier, Slice { mark, fiber: None });
            }
            TraceKind::Awake => self.finish(carrier, at),
        }
    }

    /// Draws an arrow from the waker's run to the run of the woken fiber.
    fn arrow(&mut self, when: Duration, by: WokenBy, (at, carrier): (Duration, usize)) {
        let WokenBy::Fiber(waker) = by else { return };
        let Some(dispatched) = self.dispatched.get(&waker) else { return };
        let before = dispatched.partition_point(|(at, _)| *at <= when);
        let Some((_, from)) = before.checked_sub(1).map(|index| dispatched[index]) else { return };
        self.flows += 1;
        for (phase, at, carrier) in [("s", when, from), ("f", at, carrier)] {
            let mark = Mark::new(phase, "wake".into(), carrier).at(at);
            self.marks.push(Mark { flow: Some(self.flows), ..mark });
        }
    }

    fn begin(&mut self, carrier: usize, slice: Slice) {
        self.finish(carrier, slice.mark.at);
        self.now.insert(carrier, slice);
    }

    fn stop(&mut self, carrier: usize, at: Duration, fiber: FiberId, why: String) {
        if let Some(slice) = self.now.get_mut(&carrier)
            && slice.fiber == Some(fiber)
        {
            slice.mark.details.push(("stopped for", why));
        }
        self.finish(carrier, at);
    }

    fn finish(&mut self, carrier: usize, at: Duration) {
        if let Some(Slice { mut mark, .. }) = self.now.remove(&carrier) {
            mark.long = Some(at.saturating_sub(mark.at));
            self.marks.push(mark);
        }
    }

    /// Ends every open slice at the last event.
    fn end(&mut self) {
        let under_way: Vec<_> = self.now.keys().copied().collect();
        under_way.into_iter().for_each(|carrier| self.finish(carrier, self.last));
    }
}
