//! A histogram of durations. Counting takes so little time that it does not disturb the
//! measurement.

/// Counts durations in nanoseconds, in steps of at most a sixty-fourth of the duration.
pub(super) struct Histogram {
    counts: Vec<u64>,
}

/// The steps between a power of two and the next, as a power of two.
const STEPS: u32 = 6;

impl Histogram {
    pub(super) fn new() -> Histogram {
        Histogram { counts: vec![0; 64 << STEPS] }
    }

    pub(super) fn note(&mut self, nanoseconds: u64) {
        self.counts[step_of(nanoseconds)] += 1;
    }

    /// Adds all durations that another histogram counts.
    pub(super) fn add(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
    }

    /// Returns the duration, in microseconds, that this share of all durations did not exceed.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let all: u64 = self.counts.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reaches = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        let step = self.counts.iter().position(reaches).unwrap_or(0);
        middle_of(step) / 1e3
    }
}

fn step_of(nanoseconds: u64) -> usize {
    let power = (nanoseconds | 1).ilog2();
    let shift = power.saturating_sub(STEPS);
    // Below two to the power of STEPS a step is one nanosecond, and `shift` is zero.
    ((shift as usize) << STEPS) + (nanoseconds >> shift) as usize
}

/// Returns the middle of a step, in nanoseconds.
fn middle_of(step: usize) -> f64 {
    let first = step & ((1 << STEPS) - 1);
    match step >> STEPS {
        0 => first as f64,
        // The number of the row includes the leading bit, so `first` holds only the bits after it.
        row => ((first + (1 << STEPS)) as f64 + 0.5) * 2_f64.powi(row as i32 - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_step_is_near_what_was_noted() {
        for nanoseconds in [0, 1, 63, 64, 65, 127, 128, 1_000, 65_535, 1_234_567, 98_765_432_100] {
            let middle = middle_of(step_of(nanoseconds));
            assert!(
                (middle - nanoseconds as f64).abs() <= nanoseconds as f64 / 64.0,
                "{nanoseconds}"
            );
        }
    }

    #[test]
    fn a_quantile_is_exceeded_by_the_rest() {
        let mut histogram = Histogram::new();
        (1..=1_000).for_each(|microseconds| histogram.note(microseconds * 1_000));
        assert!((histogram.quantile(0.50) - 500.0).abs() < 8.0);
        assert!((histogram.quantile(0.99) - 990.0).abs() < 16.0);
    }
}
