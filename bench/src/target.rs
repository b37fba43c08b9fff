//! What sinew has to reach, and whether it did.
//!
//! A target is a ratio of medians, sinew to a peer, or to the peer with the best median of several.
//! Its interval is that of the ratios of the repeats, pair by pair. Missed means that the whole
//! interval lies beyond the target, met that the median does not and the interval reaches it; what
//! lies in between is unclear.

use crate::measure::{Series, median};
use serde::Serialize;

/// The name of the contender that targets are for if they name no other.
pub(crate) const SUBJECT: &str = "sinew";

/// What sinew has to reach.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// The contender that it is for.
    who: &'static str,
    limit: Limit,
}

/// At most or at least so many times the best of some peers, or at most a figure.
#[derive(Clone, Copy)]
enum Limit {
    Most { ratio: f64, of: &'static [&'static str] },
    Least { ratio: f64, of: &'static [&'static str] },
    Figure(f64),
}

impl Target {
    pub(crate) fn at_most(ratio: f64, of: &'static [&'static str]) -> Target {
        Target { who: SUBJECT, limit: Limit::Most { ratio, of } }
    }

    /// For what is the better the greater it is.
    pub(crate) fn at_least(ratio: f64, of: &'static [&'static str]) -> Target {
        Target { who: SUBJECT, limit: Limit::Least { ratio, of } }
    }

    pub(crate) fn at_most_figure(figure: f64) -> Target {
        Target { who: SUBJECT, limit: Limit::Figure(figure) }
    }

    /// The same for another contender.
    pub(crate) fn by(self, who: &'static str) -> Target {
        Target { who, ..self }
    }
}

#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Met,
    Unclear,
    Missed,
    Unknown,
}

#[derive(Serialize)]
pub(crate) struct Verdict {
    pub(crate) target: String,
    pub(crate) limit: f64,
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
    pub(crate) outcome: Outcome,
}

impl Verdict {
    pub(crate) fn is_missed(&self) -> bool {
        self.outcome == Outcome::Missed
    }
}

pub(crate) fn judge(target: Target, results: &[Series]) -> Verdict {
    let find =
        |name: &str| results.iter().find(|one| one.contender == name && !one.figures.is_empty());
    let to_best = |sign: &str, ratio: f64, of: &[&'static str], less_is_better: bool| {
        let present = of.iter().filter_map(|name| find(name));
        let order = |a: &&Series, b: &&Series| a.median().total_cmp(&b.median());
        let best = if less_is_better { present.min_by(order) } else { present.max_by(order) };
        let missing: Vec<&str> = of.iter().copied().filter(|name| find(name).is_none()).collect();
        let text = format!("{sign} {ratio:.2}x {}", name_of(of, best, &missing));
        (text, ratio, find(target.who).zip(best).map(ratios))
    };
    let (mut text, limit, ratios) = match target.limit {
        Limit::Figure(figure) => {
            let figures = find(target.who).map(|one| one.figures.clone());
            (format!("<= {figure}"), figure, figures)
        }
        Limit::Most { ratio, of } => to_best("<=", ratio, of, true),
        Limit::Least { ratio, of } => to_best(">=", ratio, of, false),
    };
    if target.who != SUBJECT {
        text = format!("for {} {text}", target.who);
    }
    let Some(ratios) = ratios else {
        return Verdict {
            target: text,
            limit,
            median: f64::NAN,
            least: f64::NAN,
            greatest: f64::NAN,
            outcome: Outcome::Unknown,
        };
    };
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let middle = median(&ratios);
    let (missed, met) = match target.limit {
        Limit::Least { .. } => (greatest < limit, middle >= limit),
        _ => (least > limit, middle <= limit),
    };
    let outcome = if missed {
        Outcome::Missed
    } else if met {
        Outcome::Met
    } else {
        Outcome::Unclear
    };
    Verdict { target: text, limit, median: middle, least, greatest, outcome }
}

/// The peer that a target is for. Of several it is the best; without those that are missing, the
/// best may be another, so they are named.
fn name_of(of: &[&str], best: Option<&Series>, missing: &[&str]) -> String {
    if let [one] = of {
        return (*one).to_owned();
    }
    let mut text = format!("the best of {}", of.join(", "));
    if let Some(best) = best {
        text = format!("{}, {text}", best.contender);
    }
    if !missing.is_empty() {
        text += &format!(" (missing: {})", missing.join(", "));
    }
    text
}

/// What the subject took in relation to a peer, repeat by repeat.
fn ratios((subject, peer): (&Series, &Series)) -> Vec<f64> {
    subject.figures.iter().zip(&peer.figures).map(|(a, b)| a / b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(contender: &'static str, figures: [f64; 3]) -> Series {
        Series { contender, settings: "", missing: None, figures: figures.to_vec() }
    }

    fn outcome(target: Target, figures: [f64; 3]) -> Outcome {
        let peers = [series("slow", [50.0; 3]), series("fast", [100.0; 3])];
        judge(target, &[vec![series(SUBJECT, figures)], peers.into()].concat()).outcome
    }

    #[test]
    fn a_time_is_judged_by_the_least_peer() {
        let target = Target::at_most(0.5, &["slow", "fast"]);
        assert_eq!(outcome(target, [20.0, 25.0, 30.0]), Outcome::Met);
        assert_eq!(outcome(target, [20.0, 26.0, 30.0]), Outcome::Unclear);
        assert_eq!(outcome(target, [26.0, 26.0, 30.0]), Outcome::Missed);
    }

    #[test]
    fn a_rate_is_judged_by_the_greatest_peer() {
        let target = Target::at_least(0.5, &["slow", "fast"]);
        assert_eq!(outcome(target, [40.0, 50.0, 60.0]), Outcome::Met);
        assert_eq!(outcome(target, [40.0, 49.0, 60.0]), Outcome::Unclear);
        assert_eq!(outcome(target, [40.0, 49.0, 49.0]), Outcome::Missed);
    }

    #[test]
    fn without_the_contender_nothing_is_known() {
        let target = Target::at_most(0.5, &["slow"]).by("another");
        assert_eq!(outcome(target, [1.0; 3]), Outcome::Unknown);
    }
}
