//! The figures of one contender, one for each repeat.
//!
//! A repeat that fails leaves a gap, so that an index names one repeat for all contenders. `target`
//! pairs the contenders by index.

use serde::Serialize;

#[derive(Clone, Serialize)]
pub(crate) struct Series {
    pub(crate) contender: &'static str,
    pub(crate) settings: &'static str,
    /// Why the contender takes no part, or how its last failed repeat failed.
    pub(crate) problem: Option<String>,
    /// `None` where the repeat failed.
    pub(crate) figures: Vec<Option<f64>>,
}

impl Series {
    pub(crate) fn new(contender: &'static str, settings: &'static str) -> Series {
        Series { contender, settings, problem: None, figures: Vec::new() }
    }

    /// Adds the figure of the next repeat.
    pub(crate) fn push(&mut self, figure: f64) {
        self.figures.push(Some(figure));
    }

    /// Adds a gap for the next repeat, which failed for this reason.
    pub(crate) fn push_failure(&mut self, reason: String) {
        self.figures.push(None);
        self.problem = Some(reason);
    }

    /// Returns the figures of the repeats that did not fail.
    pub(crate) fn present(&self) -> impl Iterator<Item = f64> {
        self.figures.iter().flatten().copied()
    }

    /// Returns whether no repeat gave a figure.
    pub(crate) fn is_empty(&self) -> bool {
        self.present().next().is_none()
    }

    pub(crate) fn failures(&self) -> usize {
        self.figures.iter().filter(|figure| figure.is_none()).count()
    }

    pub(crate) fn median(&self) -> f64 {
        median(self.present().collect())
    }

    pub(crate) fn least(&self) -> f64 {
        self.present().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn greatest(&self) -> f64 {
        self.present().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns the settings and, after failures, how many repeats failed and why the last one did.
    pub(crate) fn remark(&self) -> String {
        match (&self.problem, self.failures()) {
            (Some(problem), failures @ 1..) => {
                let repeats = self.figures.len();
                format!("{}; {failures} of {repeats} repeats failed: {problem}", self.settings)
            }
            _ => self.settings.to_owned(),
        }
    }
}

/// Returns the median; not a number if there are no figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => figures[odd / 2],
        even => (figures[even / 2 - 1] + figures[even / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 100.0, 2.0]), 3.0);
        assert_eq!(median(vec![4.0, 1.0, 100.0]), 4.0);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_failed_repeat_leaves_a_gap_that_no_figure_counts() {
        let mut series = Series::new("peer", "settings");
        series.push(3.0);
        series.push_failure("it broke".to_owned());
        series.push(1.0);
        assert_eq!(series.figures, [Some(3.0), None, Some(1.0)]);
        assert_eq!((series.least(), series.median(), series.greatest()), (1.0, 2.0, 3.0));
        assert_eq!(series.remark(), "settings; 1 of 3 repeats failed: it broke");
    }
}
