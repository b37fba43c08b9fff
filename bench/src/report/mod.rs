//! Renders the results: as a table, as JSON, or as an HTML page.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod table;

use serde::Serialize;
use std::fs::read_to_string;

/// The machine that ran the benchmarks.
#[derive(Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) kernel: String,
    pub(crate) profile: &'static str,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: model.map_or("unknown", |(_, name)| name.trim()).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
            kernel: kernel.trim().to_owned(),
            profile: option_env!("SINEW_BENCH_PROFILE").unwrap_or(if cfg!(debug_assertions) {
                "debug"
            } else {
                "optimised"
            }),
        }
    }

    pub(crate) fn line(&self) -> String {
        format!(
            "{} x {}, Linux {}, {} build",
            self.processors, self.processor, self.kernel, self.profile
        )
    }
}
