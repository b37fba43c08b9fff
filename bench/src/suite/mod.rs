//! What is measured. A suite is a file that lists its benchmarks.

pub(crate) mod context;
pub(crate) mod runtime;

use crate::measure::Benchmark;

pub(crate) fn all() -> Vec<Benchmark> {
    let mut all = context::benchmarks();
    all.extend(runtime::benchmarks());
    all
}
