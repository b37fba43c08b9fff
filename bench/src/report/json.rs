//! Renders the results as JSON.

use super::Machine;
use crate::measure::Measured;
use serde::Serialize;

#[derive(Serialize)]
struct Report<'a> {
    machine: &'a Machine,
    benchmarks: &'a [Measured],
}

pub(crate) fn render(machine: &Machine, benchmarks: &[Measured]) -> String {
    let report = Report { machine, benchmarks };
    serde_json::to_string_pretty(&report).expect("plain data can be serialised") + "\n"
}
