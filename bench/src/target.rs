//! The targets that sinew has to reach, and the verdict on each.
//!
//! A target is a ratio of medians: sinew's to a peer's. With several peers, the peer with the worst
//! ratio for sinew decides. Subject and peer are paired by repeat: a repeat in which either failed
//! counts for neither. The ratio has an interval (see `interval`). The target is *met* if the whole
//! interval lies on the good side, *missed* if the whole interval lies beyond, and *unclear* if the
//! interval straddles the target. More repeats narrow the interval and turn unclear into met or
//! missed.

use crate::interval::{Interval, interval};
use crate::series::{Series, median};
use serde::Serialize;

/// The number of repeats that a verdict needs.
pub(crate) const LEAST_REPEATS: usize = 7;

/// The contender to which a target applies, unless the target names another one.
pub(crate) const SUBJECT: &str = "sinew";

/// A limit that a contender has to keep.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// The contender that has to keep the limit.
    who: &'static str,
    limit: Limit,
}

/// At most or at least `ratio` times the best of some peers, or at most a figure.
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

    /// Returns a target for a figure of which more is better, such as a rate.
    pub(crate) fn at_least(ratio: f64, of: &'static [&'static str]) -> Target {
        Target { who: SUBJECT, limit: Limit::Least { ratio, of } }
    }

    pub(crate) fn at_most_figure(figure: f64) -> Target {
        Target { who: SUBJECT, limit: Limit::Figure(figure) }
    }

    /// Returns this target for another contender.
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
    /// The ratio of medians, or the median if the target is a figure. The value and its interval
    /// are not numbers if there are too few repeats.
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) outcome: Outcome,
}

impl Verdict {
    pub(crate) fn is_missed(&self) -> bool {
        self.outcome == Outcome::Missed
    }

    /// Returns the value and its interval, as a report shows them after the outcome.
    pub(crate) fn figures(&self) -> String {
        match self.outcome {
            Outcome::Unknown => format!(", needs {LEAST_REPEATS} repeats of both"),
            _ => format!(", {:.2} ({:.2} to {:.2})", self.value, self.low, self.high),
        }
    }
}

pub(crate) fn judge(target: Target, results: &[Series]) -> Verdict {
    let (sign, limit, suffix) = match target.limit {
        Limit::Most { ratio, .. } => ("<=", ratio, "x "),
        Limit::Least { ratio, .. } => (">=", ratio, "x "),
        Limit::Figure(figure) => ("<=", figure, ""),
    };
    let comparison = Comparison::new(target, results);
    let whom = match target.limit {
        Limit::Figure(_) => String::new(),
        Limit::Most { of, .. } | Limit::Least { of, .. } => comparison.name(of),
    };
    let mut text = match target.who {
        SUBJECT => String::new(),
        other => format!("for {other} "),
    };
    text += &format!("{sign} {limit:.2}{suffix}{whom}");
    let known = comparison.ratio().zip(comparison.interval());
    let Some((value, Interval { low, high })) = known else {
        let (value, low, high) = (f64::NAN, f64::NAN, f64::NAN);
        return Verdict { target: text, limit, value, low, high, outcome: Outcome::Unknown };
    };
    let (good, beyond) = match target.limit {
        Limit::Least { .. } => (low >= limit, high < limit),
        _ => (high <= limit, low > limit),
    };
    let outcome = match (good, beyond) {
        (true, _) => Outcome::Met,
        (_, true) => Outcome::Missed,
        _ => Outcome::Unclear,
    };
    Verdict { target: text, limit, value, low, high, outcome }
}

/// The figures of a subject and of a peer, by repeat; `None` for a repeat in which either failed.
struct Pairs {
    peer: &'static str,
    figures: Vec<Option<(f64, f64)>>,
}

impl Pairs {
    fn new(subject: &Series, peer: &Series) -> Pairs {
        let pairs = subject.figures.iter().zip(&peer.figures);
        Pairs { peer: peer.contender, figures: pairs.map(|(a, b)| (*a).zip(*b)).collect() }
    }

    /// Pairs each figure of the subject with the number one in place of a peer's.
    fn alone(subject: &Series) -> Pairs {
        let figures = subject.figures.iter().map(|figure| figure.map(|figure| (figure, 1.0)));
        Pairs { peer: "", figures: figures.collect() }
    }

    fn are_enough(&self) -> bool {
        self.figures.iter().flatten().count() >= LEAST_REPEATS
    }

    /// Returns the ratio of the medians over the repeats with these indices.
    fn ratio(&self, indices: &[usize]) -> Option<f64> {
        let present = indices.iter().filter_map(|index| self.figures[*index]);
        let (subject, peer): (Vec<f64>, Vec<f64>) = present.unzip();
        let ratio = median(subject) / median(peer);
        (!ratio.is_nan()).then_some(ratio)
    }
}

/// A subject and the peers of a target.
struct Comparison {
    peers: Vec<Pairs>,
    repeats: usize,
    /// Whether a greater ratio is worse.
    less_is_better: bool,
}

impl Comparison {
    /// Pairs the subject with each peer. Leaves out peers without enough pairs.
    fn new(target: Target, results: &[Series]) -> Comparison {
        let find = |name: &str| results.iter().find(|one| one.contender == name);
        let subject = find(target.who);
        let peers = match target.limit {
            Limit::Figure(_) => subject.map(Pairs::alone).into_iter().collect(),
            Limit::Most { of, .. } | Limit::Least { of, .. } => {
                let peers = of.iter().filter_map(|name| find(name));
                let paired = subject.map(|subject| peers.map(|peer| Pairs::new(subject, peer)));
                paired.map(Iterator::collect).unwrap_or_default()
            }
        };
        Comparison {
            peers: Vec::into_iter(peers).filter(Pairs::are_enough).collect(),
            repeats: subject.map_or(0, |subject| subject.figures.len()),
            less_is_better: !matches!(target.limit, Limit::Least { .. }),
        }
    }

    /// Returns the peer with the worst ratio over the repeats with these indices, and the ratio.
    fn worst(&self, indices: &[usize]) -> Option<(&'static str, f64)> {
        let ratios = self.peers.iter().filter_map(|one| Some((one.peer, one.ratio(indices)?)));
        let order = |a: &(&str, f64), b: &(&str, f64)| a.1.total_cmp(&b.1);
        if self.less_is_better { ratios.max_by(order) } else { ratios.min_by(order) }
    }

    fn of_all(&self) -> Option<(&'static str, f64)> {
        self.worst(&Vec::from_iter(0..self.repeats))
    }

    fn ratio(&self) -> Option<f64> {
        self.of_all().map(|(_, ratio)| ratio)
    }

    fn interval(&self) -> Option<Interval> {
        interval(self.repeats, |indices| self.worst(indices).map(|(_, ratio)| ratio))
    }

    /// Names the peer that decides, and the peers that are left out, because one of them might have
    /// decided.
    fn name(&self, of: &[&str]) -> String {
        let mut text = match (of, self.of_all()) {
            ([one], _) => (*one).to_owned(),
            (_, Some((worst, _))) => format!("{worst}, the best of {}", of.join(", ")),
            (_, None) => format!("the best of {}", of.join(", ")),
        };
        let is_left_out = |name: &&&str| !self.peers.iter().any(|one| one.peer == **name);
        let left_out: Vec<&str> = of.iter().filter(is_left_out).copied().collect();
        if !left_out.is_empty() {
            text += &format!(" (left out: {})", left_out.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests;
