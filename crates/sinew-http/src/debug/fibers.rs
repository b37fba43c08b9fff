//! The data of the page `/debug/fibers`, as JSON.

use super::process::{self, Process};
use super::query::Query;
use super::runtimes::{self, Runtime};
use super::words;
use serde::Serialize;
use sinew::inspect::{Deadlock, FiberInfo, Histogram, WaitInfo};
use sinew::{FiberId, FiberState};
use std::collections::{BTreeMap, HashMap};

/// The content of `/debug/fibers.json`.
#[derive(Serialize)]
pub(super) struct View {
    /// Milliseconds since 1970.
    time_ms: u64,
    process: Process,
    totals: Totals,
    runtimes: Vec<RuntimeView>,
    deadlocks: Vec<Vec<Member>>,
    /// The fiber that answers the request.
    answered_by: u64,
    /// How many fibers match the query, including those before `offset` and beyond `limit`.
    matched: usize,
    offset: usize,
    limit: usize,
    fibers: Vec<FiberView>,
}

/// Counts of all fibers, whether they match the query or not.
#[derive(Serialize)]
struct Totals {
    fibers: usize,
    states: BTreeMap<&'static str, usize>,
    waits: BTreeMap<&'static str, usize>,
}

#[derive(Serialize)]
struct RuntimeView {
    name: String,
    submitted: u64,
    stacks_in_use: usize,
    stacks_warm: usize,
    stacks_cold: usize,
    run_time: Option<TimesView>,
    latency: Option<TimesView>,
    carriers: Vec<CarrierView>,
}

/// A histogram in four numbers, if anything was measured.
#[derive(Serialize)]
struct TimesView {
    count: u64,
    sum_us: u64,
    median_ns: u64,
    p99_ns: u64,
}

#[derive(Serialize)]
struct CarrierView {
    spawned: u64,
    finished: u64,
    switches: u64,
    stolen: u64,
    sleeps: u64,
    remote_wakes: u64,
    timers: u64,
    io_events: u64,
    ready: u64,
    shared: u64,
    stacks_cached: u64,
    /// The processor time of the carrier's thread, where the system reports it.
    cpu_seconds: Option<f64>,
}

#[derive(Serialize)]
struct FiberView {
    id: u64,
    name: Option<String>,
    state: &'static str,
    runtime: Option<String>,
    carrier: Option<usize>,
    age_ms: u64,
    waits: u32,
    pinned: bool,
    migratable: bool,
    cancel_requested: bool,
    wait: Option<WaitView>,
    stack: Option<StackView>,
}

#[derive(Serialize)]
struct WaitView {
    kind: &'static str,
    /// As text, because JavaScript would round the number.
    address: String,
    joins: Option<Other>,
    owner: Option<Other>,
    since_us: u64,
    left_us: Option<u64>,
}

/// The fiber that another fiber waits for. A thread may take its place, and has no name here.
#[derive(Serialize)]
struct Other {
    id: u64,
    name: Option<String>,
}

#[derive(Serialize)]
struct StackView {
    size: usize,
    used: usize,
    high_water_mark: Option<usize>,
}

/// One of the fibers that wait for each other.
#[derive(Serialize)]
struct Member {
    id: u64,
    name: Option<String>,
    wait: Option<&'static str>,
}

/// Inspects the whole program. Takes some milliseconds if there are many fibers.
pub(super) fn look(query: &Query, answered_by: FiberId) -> View {
    let mut fibers = sinew::fibers();
    let totals = Totals::of(&fibers);
    // Look up names among all fibers: the response may leave out a fiber that another one waits
    // for.
    let others = waited_for(&fibers);
    fibers.retain(|info| query.wants(info));
    query.sort(&mut fibers);
    let sent = fibers.iter().skip(query.offset).take(query.limit);
    let threads = process::threads();
    View {
        time_ms: process::now().as_millis() as u64,
        process: Process::look(),
        totals,
        runtimes: runtimes::all()
            .iter()
            .map(|runtime| RuntimeView::of(runtime, &threads))
            .collect(),
        deadlocks: sinew::inspect::deadlocks().iter().map(members).collect(),
        answered_by: answered_by.as_u64(),
        matched: fibers.len(),
        offset: query.offset,
        limit: query.limit,
        fibers: sent.map(|info| FiberView::of(info, &others)).collect(),
    }
}

/// The names of the fibers for which others wait.
fn waited_for(fibers: &[FiberInfo]) -> HashMap<FiberId, Option<String>> {
    let waits = fibers.iter().filter_map(|info| info.wait);
    let mut others: HashMap<FiberId, Option<String>> =
        waits.filter_map(|wait| Some((wait.owner.or(wait.joins)?, None))).collect();
    for info in fibers {
        if let Some(name) = others.get_mut(&info.id()) {
            *name = info.name().map(str::to_owned);
        }
    }
    others
}

impl Totals {
    fn of(fibers: &[FiberInfo]) -> Totals {
        let mut states: BTreeMap<_, _> =
            words::STATES.into_iter().map(|state| (words::state(state), 0)).collect();
        let mut waits = BTreeMap::new();
        for info in fibers {
            *states.entry(words::state(info.state)).or_default() += 1;
            if let (FiberState::Suspended, Some(wait)) = (info.state, info.wait) {
                *waits.entry(words::kind(wait.kind)).or_default() += 1;
            }
        }
        Totals { fibers: fibers.len(), states, waits }
    }
}

impl RuntimeView {
    fn of(runtime: &Runtime, threads: &HashMap<Vec<u8>, f64>) -> RuntimeView {
        let metrics = &runtime.metrics;
        let carrier = |(index, carrier): (usize, &sinew::inspect::CarrierMetrics)| {
            let thread = format!("{}-{index}", runtime.name);
            CarrierView {
                spawned: carrier.spawned,
                finished: carrier.finished,
                switches: carrier.switches,
                stolen: carrier.stolen,
                sleeps: carrier.sleeps,
                remote_wakes: carrier.remote_wakes,
                timers: carrier.timers,
                io_events: carrier.io_events,
                ready: carrier.ready,
                shared: carrier.shared,
                stacks_cached: carrier.stacks_cached,
                cpu_seconds: threads.get(process::kept_of(&thread)).copied(),
            }
        };
        RuntimeView {
            name: runtime.name.clone(),
            submitted: metrics.submitted,
            stacks_in_use: metrics.stacks_in_use,
            stacks_warm: metrics.stacks_warm,
            stacks_cold: metrics.stacks_cold,
            run_time: TimesView::of(&metrics.run_time),
            latency: TimesView::of(&metrics.latency),
            carriers: metrics.carriers.iter().enumerate().map(carrier).collect(),
        }
    }
}

impl TimesView {
    fn of(times: &Histogram) -> Option<TimesView> {
        let quantile = |share| times.quantile(share).map(|time| time.as_nanos() as u64);
        Some(TimesView {
            count: times.count(),
            sum_us: times.sum().as_micros() as u64,
            median_ns: quantile(0.5)?,
            p99_ns: quantile(0.99)?,
        })
    }
}

impl FiberView {
    fn of(info: &FiberInfo, others: &HashMap<FiberId, Option<String>>) -> FiberView {
        FiberView {
            id: info.id().as_u64(),
            name: info.name().map(str::to_owned),
            state: words::state(info.state),
            runtime: info.runtime.as_deref().map(str::to_owned),
            carrier: info.carrier,
            age_ms: info.age.as_millis() as u64,
            waits: info.waits,
            pinned: info.pinned,
            migratable: info.migratable,
            cancel_requested: info.cancel_requested,
            wait: info.wait.as_ref().map(|wait| WaitView::of(wait, others)),
            stack: info.stack().map(|stack| StackView {
                size: stack.size,
                used: stack.used,
                high_water_mark: stack.high_water_mark,
            }),
        }
    }
}

impl WaitView {
    fn of(wait: &WaitInfo, others: &HashMap<FiberId, Option<String>>) -> WaitView {
        let other = |id: FiberId| {
            let name = others.get(&id).cloned().flatten();
            Other { id: id.as_u64(), name }
        };
        WaitView {
            kind: words::kind(wait.kind),
            address: format!("{:#x}", wait.address),
            joins: wait.joins.map(other),
            owner: wait.owner.map(other),
            since_us: wait.since.as_micros() as u64,
            left_us: wait.left.map(|left| left.as_micros() as u64),
        }
    }
}

fn members(deadlock: &Deadlock) -> Vec<Member> {
    let member = |(fiber, wait): (&sinew::Fiber, Option<&WaitInfo>)| Member {
        id: fiber.id().as_u64(),
        name: fiber.name().map(str::to_owned),
        wait: wait.map(|wait| words::kind(wait.kind)),
    };
    deadlock.members().map(member).collect()
}
