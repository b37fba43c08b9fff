//! The confidence interval of a statistic over some repeats, by a bootstrap.
//!
//! The bootstrap draws as many repeats as there are, with replacement, and computes the statistic
//! of each draw. The interval leaves out the lowest and the highest 0.5 % of the results.
//!
//! Guarantee: the interval covers the true value of a median, or of a ratio of two medians, in at
//! least 95 of 100 runs of seven repeats or more. An interval that leaves out the usual 2.5 % on
//! each side would cover the value in 87 of 100 runs of seven repeats. More repeats narrow the
//! interval on both sides.

use crate::load::mix;

/// The number of draws.
const DRAWS: usize = 4_000;

/// The number of draws that the interval leaves out at each end.
const TAIL: usize = DRAWS / 200;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Returns the interval of `statistic`, a function of the indices of the drawn repeats. A draw for
/// which `statistic` returns `None` does not count. Returns `None` if no draw counts. Equal input
/// gives equal output.
pub(crate) fn interval(
    repeats: usize,
    statistic: impl Fn(&[usize]) -> Option<f64>,
) -> Option<Interval> {
    let mut chance = 1;
    let mut indices = vec![0; repeats];
    let mut drawn: Vec<f64> = (0..DRAWS)
        .filter_map(|_| {
            for index in &mut indices {
                chance = mix(chance, 3);
                *index = (chance >> 33) as usize % repeats;
            }
            statistic(&indices)
        })
        .collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let tail = TAIL * drawn.len() / DRAWS;
    Some(Interval { low: *drawn.get(tail)?, high: *drawn.get(drawn.len() - 1 - tail)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::median;

    fn of_median(figures: &[f64]) -> Interval {
        let statistic =
            |indices: &[usize]| Some(median(indices.iter().map(|index| figures[*index]).collect()));
        interval(figures.len(), statistic).expect("there are figures")
    }

    /// Returns figures that are skewed as times are: most lie near 1, a few far above. Their median
    /// is 1.25.
    fn skewed(seed: u64, count: usize) -> Vec<f64> {
        let mut state = mix(seed, 5);
        let mut next = || {
            state = mix(state, 3);
            let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
            1.0 + uniform * uniform
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn no_figure_lies_outside_the_interval_of_seven() {
        let figures = [5.0, 1.0, 4.0, 2.0, 7.0, 3.0, 6.0];
        assert_eq!(of_median(&figures), Interval { low: 1.0, high: 7.0 });
    }

    #[test]
    fn the_interval_of_fifteen_leaves_outliers_out() {
        let mut figures: Vec<f64> = (10..23).map(f64::from).collect();
        figures.extend([0.001, 1e9]);
        let interval = of_median(&figures);
        assert!(interval.low >= 10.0 && interval.high <= 22.0, "{interval:?}");
    }

    #[test]
    fn equal_figures_have_an_interval_without_width() {
        assert_eq!(of_median(&[2.5; 7]), Interval { low: 2.5, high: 2.5 });
    }

    #[test]
    fn draws_without_a_result_do_not_count() {
        let only_first = |indices: &[usize]| indices.contains(&0).then_some(1.0);
        assert_eq!(interval(7, only_first), Some(Interval { low: 1.0, high: 1.0 }));
        assert_eq!(interval(7, |_| None), None);
    }

    #[test]
    fn the_interval_covers_the_true_median_in_95_of_100_runs() {
        for count in [7, 9, 15] {
            let runs = 200;
            let covers = |run: &u64| {
                let interval = of_median(&skewed(1_000 * count as u64 + run, count));
                (interval.low..=interval.high).contains(&1.25)
            };
            let covered = (0..runs).filter(covers).count();
            assert!(covered * 100 >= 95 * runs as usize, "{covered} of {runs} with {count}");
        }
    }

    #[test]
    fn the_interval_covers_the_true_ratio_of_medians_in_95_of_100_runs() {
        for count in [7, 9, 15] {
            let runs = 200;
            let covers = |run: &u64| {
                let (one, other) = (skewed(2 * run, count), skewed(2 * run + 1, count));
                let median_of = |figures: &[f64], indices: &[usize]| {
                    median(indices.iter().map(|index| figures[*index]).collect())
                };
                let ratio =
                    |indices: &[usize]| Some(median_of(&one, indices) / median_of(&other, indices));
                let interval = interval(count, ratio).expect("there are figures");
                (interval.low..=interval.high).contains(&1.0)
            };
            let covered = (0..runs).filter(covers).count();
            assert!(covered * 100 >= 95 * runs as usize, "{covered} of {runs} with {count}");
        }
    }

    #[test]
    fn more_repeats_narrow_the_interval() {
        let width = |count| {
            let interval = of_median(&skewed(42, count));
            interval.high - interval.low
        };
        let widths = [7, 21, 63, 189].map(width);
        assert!(widths.is_sorted_by(|wide, narrow| wide > narrow), "{widths:?}");
    }
}
