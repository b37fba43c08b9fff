use super::*;
use crate::load::mix;

fn series(contender: &'static str, figures: impl IntoIterator<Item = f64>) -> Series {
    let mut series = Series::new(contender, "");
    figures.into_iter().for_each(|figure| series.push(figure));
    series
}

/// Returns the verdict on a subject with these figures, beside one peer that always takes 50 and
/// another that always takes 100.
fn verdict(target: Target, figures: &[f64]) -> Verdict {
    let constant = |name, figure| series(name, figures.iter().map(|_| figure));
    let subject = series(SUBJECT, figures.iter().copied());
    judge(target, &[subject, constant("fifty", 50.0), constant("hundred", 100.0)])
}

fn outcome(target: Target, figures: &[f64]) -> Outcome {
    verdict(target, figures).outcome
}

/// Returns a limit of 25: half of the peer that takes less.
fn time() -> Target {
    Target::at_most(0.5, &["fifty", "hundred"])
}

/// Returns figures between 20 and 30. For some seeds more of them lie on one side of 25.
fn scattered(seed: u64, count: usize) -> Vec<f64> {
    let mut state = mix(seed, 5);
    let lean = (state >> 40) % 8;
    let mut next = || {
        state = mix(state, 3);
        let figure = 20.0 + ((state >> 33) % 1_000) as f64 / 100.0;
        if (state >> 20) % 8 < lean { figure.max(25.5) } else { figure.min(24.5) }
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn a_time_is_judged_by_the_peer_that_takes_least() {
    assert_eq!(outcome(time(), &[20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 25.0]), Outcome::Met);
    assert_eq!(outcome(time(), &[20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0]), Outcome::Unclear);
    assert_eq!(outcome(time(), &[26.0, 27.0, 28.0, 29.0, 30.0, 31.0, 99.0]), Outcome::Missed);
}

#[test]
fn a_rate_is_judged_by_the_peer_with_most() {
    let target = Target::at_least(0.5, &["fifty", "hundred"]);
    assert_eq!(outcome(target, &[50.0, 51.0, 52.0, 53.0, 54.0, 55.0, 99.0]), Outcome::Met);
    assert_eq!(outcome(target, &[49.0, 51.0, 52.0, 53.0, 54.0, 55.0, 99.0]), Outcome::Unclear);
    assert_eq!(outcome(target, &[1.0, 44.0, 45.0, 46.0, 47.0, 48.0, 49.0]), Outcome::Missed);
}

#[test]
fn a_figure_is_judged_by_its_median() {
    let target = Target::at_most_figure(25.0);
    let verdict = verdict(target, &[20.0, 30.0, 20.0, 30.0, 22.0, 21.0, 23.0]);
    assert_eq!((verdict.value, verdict.outcome), (22.0, Outcome::Unclear));
    assert_eq!(outcome(target, &[20.0; 7]), Outcome::Met);
    assert_eq!(outcome(target, &[26.0; 7]), Outcome::Missed);
}

#[test]
fn the_value_is_a_ratio_of_medians_and_no_median_of_ratios() {
    let subject = series(SUBJECT, [2.0, 2.0, 2.0, 2.0, 9.0, 9.0, 9.0]);
    let peer = series("peer", [9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 2.0]);
    // The ratios of the repeats are 0.2 three times, 2, 4.5 and 9 twice: their median is 2.
    assert_eq!(judge(Target::at_most(0.5, &["peer"]), &[subject, peer]).value, 1.0);
}

#[test]
fn repeats_are_paired_by_index_when_some_fail() {
    // The machine becomes slower from repeat to repeat. Both contenders take equally long in each
    // repeat.
    let drift: Vec<f64> = (0..10).map(|repeat| f64::from(1 << repeat)).collect();
    let gap = |name, gap: usize| {
        let mut series = Series::new(name, "");
        for (repeat, figure) in drift.iter().enumerate() {
            if repeat == gap {
                series.push_failure("it broke".to_owned());
            } else {
                series.push(*figure);
            }
        }
        series
    };
    let verdict = judge(Target::at_most(1.0, &["peer"]), &[gap(SUBJECT, 1), gap("peer", 8)]);
    assert_eq!((verdict.low, verdict.value, verdict.high), (1.0, 1.0, 1.0));
    assert_eq!(verdict.outcome, Outcome::Met);
}

#[test]
fn a_lucky_repeat_excuses_nothing_once_there_are_ten() {
    let with_luck = |count: usize| {
        let figures: Vec<f64> =
            (0..count).map(|repeat| if repeat % 10 == 0 { 20.0 } else { 30.0 }).collect();
        outcome(time(), &figures)
    };
    assert_eq!(
        [7, 10, 20, 70].map(with_luck),
        [Outcome::Unclear, Outcome::Missed, Outcome::Missed, Outcome::Missed]
    );
}

#[test]
fn more_repeats_make_a_verdict_sharper_and_never_kinder() {
    let mut sharpened = 0;
    for seed in 0..30 {
        let figures = scattered(seed, 9);
        let [few, more, many] = [1, 3, 9].map(|times| outcome(time(), &figures.repeat(times)));
        for (before, after) in [(few, more), (more, many)] {
            if before == Outcome::Unclear {
                sharpened += usize::from(after != Outcome::Unclear);
            } else {
                assert_eq!(after, before, "seed {seed}: {figures:?}");
            }
        }
    }
    assert!(sharpened >= 10, "only {sharpened} verdicts became clear");
}

#[test]
fn six_repeats_tell_nothing() {
    let verdict = verdict(time(), &[99.0; 6]);
    assert_eq!(verdict.outcome, Outcome::Unknown);
    assert!(verdict.target.ends_with("(left out: fifty, hundred)"), "{}", verdict.target);
}

#[test]
fn a_peer_with_six_repeats_is_left_out_and_named() {
    let mut weak = series("weak", [1.0; 6]);
    weak.push_failure("it broke".to_owned());
    let results = [series(SUBJECT, [25.0; 7]), weak, series("sound", [50.0; 7])];
    let verdict = judge(Target::at_most(0.5, &["weak", "sound"]), &results);
    assert_eq!(verdict.outcome, Outcome::Met);
    assert_eq!(verdict.target, "<= 0.50x sound, the best of weak, sound (left out: weak)");
}

#[test]
fn the_interval_takes_the_best_peer_of_each_draw() {
    // The two peers take turns at being the faster one. The subject is always as fast as the slower
    // one.
    let a = [10.0, 20.0, 10.0, 20.0, 10.0, 20.0, 10.0, 20.0, 10.0];
    let b = [20.0, 10.0, 20.0, 10.0, 20.0, 10.0, 20.0, 10.0, 20.0];
    let results = [series(SUBJECT, [20.0; 9]), series("a", a), series("b", b)];
    let verdict = judge(Target::at_most(1.0, &["a", "b"]), &results);
    assert_eq!((verdict.low, verdict.high, verdict.outcome), (2.0, 2.0, Outcome::Missed));
}

#[test]
fn without_the_contender_nothing_is_known() {
    let target = Target::at_most(0.5, &["fifty"]).by("another");
    let verdict = verdict(target, &[1.0; 7]);
    assert_eq!(verdict.outcome, Outcome::Unknown);
    assert_eq!(verdict.target, "for another <= 0.50x fifty (left out: fifty)");
}
