//! How things are measured.
//!
//! The contenders of a benchmark take turns, so that whatever else the machine does hits them
//! alike. A measurement repeats the work for about the sample time and gives a figure for one
//! operation. From at least seven of them come median, least and greatest.
//!
//! A target is a ratio of medians, sinew to a peer, or to the peer with the least median of several.
//! Its interval is that of the ratios of the repeats, pair by pair. Missed means that the whole interval lies beyond the target, met that
//! the median does not and the interval reaches it; what lies in between is unclear.

use crate::apart;
use crate::noise::Noise;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) struct Settings {
    pub(crate) repeats: u32,
    pub(crate) sample: Duration,
}

/// One row of the targets: what is done, by whom, and what sinew has to reach.
pub(crate) struct Benchmark {
    pub(crate) suite: &'static str,
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// What a figure counts, for instance `ns/switch`. A time is given in the unit that it begins
    /// with: `ns`, `us` or `ms`.
    pub(crate) unit: &'static str,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) targets: Vec<Target>,
}

/// One that takes part.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// Version and settings.
    pub(crate) settings: &'static str,
    pub(crate) work: Work,
}

pub(crate) enum Work {
    /// Does the operation about that many times.
    Timed(Timed),
    /// The same, in a process of its own that is there for all repeats: for those who can be
    /// configured once in a process only.
    Apart(Box<dyn Fn() -> Timed>),
    /// Gives a figure, in a process of its own.
    Figure(fn() -> f64),
    /// Cannot take part here, for this reason.
    Missing(&'static str),
}

impl Work {
    /// Repeated work of which `make` prepares what it needs, when it is first measured.
    pub(crate) fn lazy(make: impl Fn() -> Timed + 'static) -> Work {
        let mut made = None;
        Work::Timed(Box::new(move |count| made.get_or_insert_with(&make)(count)))
    }
}

/// Work that can be repeated.
pub(crate) type Timed = Box<dyn FnMut(u64) -> Lap>;

/// What a number of operations took.
pub(crate) struct Lap {
    time: Duration,
    operations: u64,
}

impl Lap {
    /// Runs `work`, which does `operations` operations.
    pub(crate) fn run(operations: u64, work: impl FnOnce()) -> Lap {
        let start = Instant::now();
        work();
        Lap { time: start.elapsed(), operations }
    }

    /// What somebody else measured.
    pub(crate) fn new(time: Duration, operations: u64) -> Lap {
        Lap { time, operations }
    }

    /// Nothing was done, which the results show as missing.
    pub(crate) fn failed() -> Lap {
        Lap { time: Duration::ZERO, operations: 0 }
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    fn is_failed(&self) -> bool {
        self.operations == 0
    }

    /// Not a number if it failed.
    fn nanoseconds(&self) -> f64 {
        self.time.as_nanos() as f64 / self.operations as f64
    }
}

/// What sinew has to reach: at most `ratio` times the best of some peers, or at most a figure.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtMost { ratio: f64, of: &'static [&'static str] },
    AtMostFigure(f64),
}

/// The name of the contender that the targets are for.
pub(crate) const SUBJECT: &str = "sinew";

#[derive(Serialize)]
pub(crate) struct Measured {
    pub(crate) suite: &'static str,
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) results: Vec<Series>,
    pub(crate) verdicts: Vec<Verdict>,
    /// Share of the machine that other processes took meanwhile.
    pub(crate) noise: f64,
}

#[derive(Serialize)]
pub(crate) struct Series {
    pub(crate) contender: &'static str,
    pub(crate) settings: &'static str,
    /// Why there are no figures.
    pub(crate) missing: Option<&'static str>,
    pub(crate) figures: Vec<f64>,
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

impl Series {
    pub(crate) fn median(&self) -> f64 {
        median(&self.figures)
    }

    pub(crate) fn least(&self) -> f64 {
        self.figures.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn greatest(&self) -> f64 {
        self.figures.iter().copied().fold(0.0, f64::max)
    }
}

pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

/// Measures all contenders of a benchmark in turns.
pub(crate) fn run(mut benchmark: Benchmark, settings: &Settings) -> Measured {
    let noise = Noise::start();
    let mut results: Vec<Series> = benchmark
        .contenders
        .iter()
        .map(|contender| Series {
            contender: contender.name,
            settings: contender.settings,
            missing: match contender.work {
                Work::Missing(reason) => Some(reason),
                _ => None,
            },
            figures: Vec::new(),
        })
        .collect();
    for contender in &mut benchmark.contenders {
        if let Work::Apart(_) = contender.work {
            let (benchmark, name) = (benchmark.name, contender.name);
            contender.work = Work::Timed(apart::timed(move || own_child(benchmark, name)));
        }
    }
    let scale = nanoseconds_in(benchmark.unit);
    let mut counts = vec![0_u64; results.len()];
    for repeat in 0..settings.repeats {
        for (index, contender) in benchmark.contenders.iter_mut().enumerate() {
            progress(&format!(
                "{}/{} {} of {}: {}",
                benchmark.suite,
                benchmark.name,
                repeat + 1,
                settings.repeats,
                contender.name
            ));
            let figure = match &mut contender.work {
                Work::Missing(_) | Work::Apart(_) => continue,
                Work::Timed(work) => {
                    if counts[index] == 0 {
                        counts[index] = calibrate(work, settings.sample);
                    }
                    work(counts[index]).nanoseconds() / scale
                }
                Work::Figure(_) => in_child(benchmark.name, contender.name).unwrap_or(f64::NAN),
            };
            if figure.is_nan() {
                results[index].missing = Some("it failed; run it alone to see why");
            } else {
                results[index].figures.push(figure);
            }
        }
    }
    progress("");
    // Processes that were kept end here: only then is their time known, and not taken for noise.
    drop(benchmark.contenders);
    let verdicts = benchmark.targets.iter().map(|target| judge(*target, &results)).collect();
    Measured {
        suite: benchmark.suite,
        name: benchmark.name,
        what: benchmark.what,
        unit: benchmark.unit,
        results,
        verdicts,
        noise: noise.share(),
    }
}

/// How many operations fill the sample time; warms everything up on the way.
fn calibrate(work: &mut dyn FnMut(u64) -> Lap, sample: Duration) -> u64 {
    let mut count = 1;
    loop {
        let lap = work(count);
        if lap.is_failed() {
            return 1;
        }
        if lap.time >= sample / 4 {
            // Twice: once may be because the machine was elsewhere, and the count would be too small.
            let again = work(count);
            if again.time >= sample / 4 {
                let nanoseconds = lap.nanoseconds().min(again.nanoseconds());
                return (sample.as_nanos() as f64 / nanoseconds).max(1.0) as u64;
            }
        }
        count *= 4;
    }
}

/// How many nanoseconds are one of what a unit begins with; other units are not of time.
fn nanoseconds_in(unit: &str) -> f64 {
    match unit.split('/').next() {
        Some("us") => 1e3,
        Some("ms") => 1e6,
        _ => 1.0,
    }
}

fn judge(target: Target, results: &[Series]) -> Verdict {
    let find =
        |name: &str| results.iter().find(|one| one.contender == name && !one.figures.is_empty());
    let (text, limit, ratios) = match target {
        Target::AtMostFigure(figure) => {
            let figures = find(SUBJECT).map(|one| one.figures.clone());
            (format!("<= {figure}"), figure, figures)
        }
        Target::AtMost { ratio, of } => {
            let present = of.iter().filter_map(|name| find(name));
            let best = present.min_by(|a, b| a.median().total_cmp(&b.median()));
            let missing: Vec<&str> =
                of.iter().copied().filter(|name| find(name).is_none()).collect();
            let text = format!("<= {ratio:.2}x {}", name_of(of, best, &missing));
            (text, ratio, find(SUBJECT).zip(best).map(ratios))
        }
    };
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
    let outcome = if least > limit {
        Outcome::Missed
    } else if middle <= limit {
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

/// This program, which is to run one contender.
fn own_child(benchmark: &str, contender: &str) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--child", benchmark, contender]);
    Ok(command)
}

/// Runs one contender in a process of its own, and reads its figure.
fn in_child(benchmark: &str, contender: &str) -> Result<f64, String> {
    let output = own_child(benchmark, contender)?.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The other side: runs one contender and prints what it gives.
pub(crate) fn child(benchmarks: &[Benchmark], name: &str, contender: &str) -> Result<(), String> {
    let work = benchmarks
        .iter()
        .filter(|one| one.name == name)
        .flat_map(|one| &one.contenders)
        .find(|one| one.name == contender)
        .map(|one| &one.work);
    match work {
        Some(Work::Figure(figure)) => {
            println!("{}", figure());
            Ok(())
        }
        Some(Work::Apart(make)) => apart::serve(make()),
        _ => Err(format!("{name} has no contender {contender} that runs alone")),
    }
}

/// Shows what is being done, on a terminal only.
fn progress(text: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{text}");
        let _ = err.flush();
    }
}
