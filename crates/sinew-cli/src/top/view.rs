//! The answer of a server: the part of `/debug/fibers.json` that `sinew top` shows.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct View {
    pub(super) time_ms: u64,
    pub(super) process: Process,
    pub(super) totals: Totals,
    pub(super) runtimes: Vec<Runtime>,
    pub(super) deadlocks: Vec<Vec<Other>>,
    pub(super) answered_by: u64,
    pub(super) matched: usize,
    pub(super) fibers: Vec<Fiber>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) uptime_seconds: Option<f64>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Totals {
    pub(super) fibers: usize,
    pub(super) states: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Runtime {
    pub(super) name: String,
    pub(super) stacks_in_use: usize,
    pub(super) stacks_warm: usize,
    pub(super) stacks_cold: usize,
    pub(super) carriers: Vec<Carrier>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Carrier {
    pub(super) switches: u64,
    pub(super) io_events: u64,
    pub(super) ready: u64,
    pub(super) shared: u64,
    pub(super) cpu_seconds: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Fiber {
    pub(super) id: u64,
    pub(super) name: Option<String>,
    pub(super) state: String,
    pub(super) runtime: Option<String>,
    pub(super) carrier: Option<usize>,
    pub(super) age_ms: u64,
    pub(super) waits: u64,
    pub(super) wait: Option<Wait>,
    pub(super) stack: Option<Stack>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Wait {
    pub(super) kind: String,
    pub(super) joins: Option<Other>,
    pub(super) owner: Option<Other>,
    pub(super) since_us: u64,
    pub(super) left_us: Option<u64>,
}

/// A reference to another fiber.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Other {
    pub(super) id: u64,
    pub(super) name: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stack {
    pub(super) size: u64,
    pub(super) used: u64,
}

impl Other {
    pub(super) fn words(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({})", self.id),
            None => self.id.to_string(),
        }
    }
}
