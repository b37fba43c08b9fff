//! What is measured. A suite is a file that lists its benchmarks.

pub(crate) mod context;

use crate::measure::Benchmark;

pub(crate) fn all() -> Vec<Benchmark> {
    context::benchmarks()
}
