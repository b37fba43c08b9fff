//! Past views, for charts and rates.

use super::view::{Process, Runtime, View};
use std::collections::{HashMap, VecDeque};

/// How many views are kept.
const KEPT: usize = 60;

/// The activity of each carrier between views.
#[derive(Default)]
pub(super) struct History {
    last: Option<Last>,
    carriers: HashMap<(String, usize), Past>,
    /// The processor time of the process, as a share of one processor.
    pub(super) cpu: Option<f64>,
}

/// The view that the next one is compared with.
struct Last {
    time_ms: u64,
    process: Process,
    runtimes: Vec<Runtime>,
}

/// Selects one of the charts of a carrier.
pub(super) type Row = fn(&Past) -> &VecDeque<f64>;

/// The past of one carrier, the oldest value first.
#[derive(Default)]
pub(super) struct Past {
    pub(super) switches: VecDeque<f64>,
    pub(super) ready: VecDeque<f64>,
    pub(super) io_events: VecDeque<f64>,
    pub(super) busy: Option<f64>,
}

impl History {
    /// Adds a view. A view of another process starts the history again.
    pub(super) fn add(&mut self, view: &View) {
        if self.last.as_ref().is_some_and(|last| last.process.pid != view.process.pid) {
            *self = History::default();
        }
        if let Some(last) = self.last.take() {
            let elapsed = view.time_ms.saturating_sub(last.time_ms) as f64 / 1e3;
            if elapsed > 0.0 {
                self.compare(&last, view, elapsed);
            }
        }
        let (process, runtimes) = (view.process.clone(), view.runtimes.clone());
        self.last = Some(Last { time_ms: view.time_ms, process, runtimes });
    }

    fn compare(&mut self, last: &Last, view: &View, elapsed: f64) {
        let share = |now: Option<f64>, last: Option<f64>| Some((now? - last?).max(0.0) / elapsed);
        self.cpu = share(view.process.cpu_seconds, last.process.cpu_seconds);
        for runtime in &view.runtimes {
            let same = last.runtimes.iter().find(|last| last.name == runtime.name);
            let Some(before) = same else { continue };
            for (index, (now, last)) in runtime.carriers.iter().zip(&before.carriers).enumerate() {
                let past = self.carriers.entry((runtime.name.clone(), index)).or_default();
                let rate = |now: u64, last: u64| now.saturating_sub(last) as f64 / elapsed;
                keep(&mut past.switches, rate(now.switches, last.switches));
                keep(&mut past.ready, (now.ready + now.shared) as f64);
                keep(&mut past.io_events, rate(now.io_events, last.io_events));
                past.busy = share(now.cpu_seconds, last.cpu_seconds);
            }
        }
    }

    pub(super) fn of(&self, runtime: &str, carrier: usize) -> Option<&Past> {
        self.carriers.get(&(runtime.to_owned(), carrier))
    }

    /// The largest value of any carrier in a chart, so that carriers can be compared.
    pub(super) fn most(&self, row: Row) -> f64 {
        let all = self.carriers.values().flat_map(row);
        all.copied().fold(0.0, f64::max)
    }
}

fn keep(row: &mut VecDeque<f64>, value: f64) {
    row.push_back(value);
    if row.len() > KEPT {
        row.pop_front();
    }
}
