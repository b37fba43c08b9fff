//! The metrics of the process, for Prometheus.

use super::exposition::Exposition;
use super::process::Process;
use super::runtimes::{self, Runtime};
use super::words;
use crate::connection::counts;
use sinew::FiberState;
use sinew::inspect::CarrierMetrics;
use sinew::io::LineLog;
use std::collections::BTreeMap;

/// All metrics, as one text.
pub(super) fn text() -> String {
    let mut out = Exposition::default();
    let runtimes = runtimes::all();
    write_fibers(&mut out);
    write_carriers(&mut out, &runtimes);
    write_runtimes(&mut out, &runtimes);
    write_servers(&mut out);
    write_logs(&mut out);
    write_process(&mut out, &Process::look());
    out.into_text()
}

/// Writes the number of fibers by state, and of suspended ones by kind of wait. Runtimes with equal
/// names are added up.
fn write_fibers(out: &mut Exposition) {
    let mut states: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut waits: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for info in sinew::fibers() {
        let runtime = info.runtime.as_deref().unwrap_or_default().to_owned();
        // Write zeros, too: a missing sample would interrupt a graph.
        for state in words::STATES {
            states.entry((runtime.clone(), words::state(state))).or_default();
        }
        *states.entry((runtime.clone(), words::state(info.state))).or_default() += 1;
        if let (FiberState::Suspended, Some(wait)) = (info.state, info.wait) {
            *waits.entry((runtime, words::kind(wait.kind))).or_default() += 1;
        }
    }
    let mut metric = out.gauge("sinew_fibers", "Fibers that have not ended, by state.");
    for ((runtime, state), count) in &states {
        metric.sample(&[("runtime", runtime), ("state", state)], count);
    }
    let mut metric = out.gauge("sinew_waits", "Suspended fibers, by the kind of their wait.");
    for ((runtime, kind), count) in &waits {
        metric.sample(&[("runtime", runtime), ("kind", kind)], count);
    }
    out.gauge("sinew_deadlocks", "Circles of fibers that wait for each other.")
        .sample(&[], sinew::inspect::deadlocks().len());
}

/// The name of a metric, its help text, and the count of a carrier that it shows.
type Column = (&'static str, &'static str, fn(&CarrierMetrics) -> u64);

const COUNTERS: [Column; 8] = [
    ("sinew_spawned_total", "Fibers that were started by fibers of a carrier.", |c| c.spawned),
    ("sinew_finished_total", "Fibers that have ended on a carrier.", |c| c.finished),
    ("sinew_switches_total", "Switches from one fiber to another.", |c| c.switches),
    ("sinew_stolen_total", "Fibers that a carrier has taken from others.", |c| c.stolen),
    ("sinew_sleeps_total", "How often a carrier went to sleep.", |c| c.sleeps),
    ("sinew_remote_wakes_total", "Wakes of a carrier's fibers by other threads.", |c| {
        c.remote_wakes
    }),
    ("sinew_timers_total", "Waits that ended at their deadline.", |c| c.timers),
    ("sinew_io_events_total", "Events of descriptors, and completed operations.", |c| c.io_events),
];

const GAUGES: [Column; 3] = [
    ("sinew_ready", "Started fibers that are ready to run on a carrier.", |c| c.ready),
    ("sinew_shared", "Ready fibers of a carrier that any carrier may run.", |c| c.shared),
    ("sinew_stacks_cached", "Stacks that a carrier has at hand for new fibers.", |c| {
        c.stacks_cached
    }),
];

fn write_carriers(out: &mut Exposition, runtimes: &[Runtime]) {
    let counters = COUNTERS.iter().map(|column| (column, true));
    let gauges = GAUGES.iter().map(|column| (column, false));
    for ((name, help, count), counts) in counters.chain(gauges) {
        let mut metric = if counts { out.counter(name, help) } else { out.gauge(name, help) };
        for runtime in runtimes {
            for (index, carrier) in runtime.metrics.carriers.iter().enumerate() {
                let labels = [("runtime", &*runtime.name), ("carrier", &index.to_string())];
                metric.sample(&labels, count(carrier));
            }
        }
    }
}

fn write_runtimes(out: &mut Exposition, runtimes: &[Runtime]) {
    let mut metric =
        out.counter("sinew_submitted_total", "Fibers that were submitted from outside.");
    for runtime in runtimes {
        metric.sample(&[("runtime", &runtime.name)], runtime.metrics.submitted);
    }
    let mut metric = out.gauge(
        "sinew_stacks",
        "Stacks of the ordinary size: in use, or free with (warm) and without (cold) memory.",
    );
    for Runtime { name, metrics } in runtimes {
        metric.sample(&[("runtime", name), ("state", "in_use")], metrics.stacks_in_use);
        metric.sample(&[("runtime", name), ("state", "warm")], metrics.stacks_warm);
        metric.sample(&[("runtime", name), ("state", "cold")], metrics.stacks_cold);
    }
    let measured = || runtimes.iter().filter(|runtime| runtime.metrics.run_time.count() > 0);
    if measured().next().is_none() {
        return;
    }
    let mut metric =
        out.histogram("sinew_run_time_seconds", "How long fibers ran at a time, while measured.");
    for runtime in measured() {
        metric.durations(&[("runtime", &runtime.name)], &runtime.metrics.run_time);
    }
    let mut metric = out.histogram(
        "sinew_latency_seconds",
        "How long woken fibers waited until they ran, while measured.",
    );
    for runtime in measured() {
        metric.durations(&[("runtime", &runtime.name)], &runtime.metrics.latency);
    }
}

fn write_servers(out: &mut Exposition) {
    let servers: Vec<_> = counts::of_all()
        .into_iter()
        .map(|(address, metrics)| (address.to_string(), metrics))
        .collect();
    let mut metric = out.gauge("sinew_http_connections", "Connections that are open.");
    for (server, metrics) in &servers {
        metric.sample(&[("server", server)], metrics.connections);
    }
    let mut metric = out.counter("sinew_http_connections_total", "Connections that were accepted.");
    for (server, metrics) in &servers {
        metric.sample(&[("server", server)], metrics.connections_total);
    }
    let mut metric = out.counter("sinew_http_requests_total", "Requests that were received.");
    for (server, metrics) in &servers {
        metric.sample(&[("server", server)], metrics.requests_total);
    }
    let mut metric =
        out.counter("sinew_http_responses_total", "Responses, by the first digit of their status.");
    for (server, metrics) in &servers {
        for (class, count) in
            ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(metrics.responses_total)
        {
            metric.sample(&[("server", server), ("status", class)], count);
        }
    }
}

fn write_logs(out: &mut Exposition) {
    let mut metric = out.counter(
        "sinew_log_lines_dropped_total",
        "Lines that sinew::io::LineLog dropped because nothing read the stream.",
    );
    for (stream, log) in [("stdout", LineLog::stdout()), ("stderr", LineLog::stderr())] {
        metric.sample(&[("stream", stream)], log.dropped());
    }
}

/// Writes the facts of the process, under the names that all Prometheus libraries use.
fn write_process(out: &mut Exposition, process: &Process) {
    if let Some(seconds) = process.cpu_seconds {
        out.counter("process_cpu_seconds_total", "Processor time of the process, user and system.")
            .sample(&[], seconds);
    }
    let gauges: [(&'static str, &str, Option<f64>); 6] = [
        (
            "process_resident_memory_bytes",
            "Memory that is resident.",
            process.resident_bytes.map(|bytes| bytes as f64),
        ),
        (
            "process_virtual_memory_bytes",
            "Memory that is reserved.",
            process.virtual_bytes.map(|bytes| bytes as f64),
        ),
        ("process_open_fds", "Open descriptors.", process.open_fds.map(|count| count as f64)),
        (
            "process_max_fds",
            "How many descriptors may be open.",
            process.max_fds.map(|count| count as f64),
        ),
        ("process_threads", "Threads.", process.threads.map(|count| count as f64)),
        (
            "process_start_time_seconds",
            "Start of the process, in seconds since 1970.",
            process.start_seconds,
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            out.gauge(name, help).sample(&[], value);
        }
    }
}
