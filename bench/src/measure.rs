//! Measures the contenders of a benchmark.
//!
//! Contenders take turns, so that other load on the machine hits them alike. Their order changes
//! from repeat to repeat. A measurement repeats the work for about the sample time and gives a
//! figure for one operation. The report gives the median, the least and the greatest figure; a
//! verdict needs at least seven repeats.
//!
//! A benchmark may take several figures at once, such as a rate and a latency. The program shows
//! and judges each of them like a benchmark of its own.
//!
//! Next: `turns` computes the order; `target` judges.

use crate::apart;
use crate::client::Load;
use crate::noise::Noise;
use crate::series::Series;
use crate::server::{self, Foreign, Server};
use crate::target::{Target, Verdict, judge};
use crate::turns;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) struct Settings {
    pub(crate) repeats: u32,
    pub(crate) sample: Duration,
}

/// A benchmark: the work, its contenders, and the targets for sinew.
pub(crate) struct Benchmark {
    pub(crate) suite: &'static str,
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// The unit of a figure, for instance `ns/switch`. A unit that begins with `ns`, `us` or `ms`
    /// is a time. A unit that ends with `/s` is a rate.
    pub(crate) unit: &'static str,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) targets: Vec<Target>,
    /// Further figures of this measurement, in the order in which a contender returns them.
    pub(crate) also: Vec<Also>,
}

/// A figure that a measurement takes beside the first one of its benchmark.
pub(crate) struct Also {
    /// The suffix to the benchmark's name.
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) targets: Vec<Target>,
}

/// A contender of a benchmark.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// Version and settings.
    pub(crate) settings: &'static str,
    pub(crate) work: Work,
}

pub(crate) enum Work {
    /// Does the operation about as often as it is asked to.
    Timed(Timed),
    /// Does the operation about as often as it is asked to, in a process of its own that lives for
    /// all repeats. For peers that a process can configure only once.
    Apart(Box<dyn Fn() -> Timed>),
    /// Gives a figure, in a new process for each measurement.
    Figure(fn() -> f64),
    /// Gives all figures of the benchmark, from a measurement of about the given time.
    Figures(Figures),
    /// Serves a load, in a new process for each measurement.
    Server(Serve, Load),
    /// Cannot take part on this machine, for the given reason.
    Missing(&'static str),
}

impl Work {
    /// Returns work that `make` prepares when it is first measured.
    pub(crate) fn lazy(make: impl Fn() -> Timed + 'static) -> Work {
        let mut made = None;
        Work::Timed(Box::new(move |count| made.get_or_insert_with(&make)(count)))
    }
}

/// Work that takes the number of operations to do.
pub(crate) type Timed = Box<dyn FnMut(u64) -> Lap>;

/// A measurement that takes all figures at once, or returns the reason why it cannot.
pub(crate) type Figures = Box<dyn FnMut(Duration) -> Result<Vec<f64>, String>>;

/// The ways to start the process of a server.
#[derive(Clone, Copy)]
pub(crate) enum Serve {
    /// This program. The function starts to serve on a port of the loopback address and returns the
    /// port.
    Here(fn() -> u16),
    /// Another program, which speaks the protocol of [`server::answer`].
    Program(fn() -> Result<Command, String>),
    /// Another program that does not speak the protocol. A process of this program starts it and
    /// speaks for it.
    Foreign(fn() -> Result<Foreign, String>),
}

/// The time that a number of operations took.
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

    /// Returns a lap that another process or library has timed.
    pub(crate) fn new(time: Duration, operations: u64) -> Lap {
        Lap { time, operations }
    }

    /// Returns the lap of a failed run, which the results show as missing.
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

    /// Returns the time of one operation; not a number if the run failed.
    fn nanoseconds(&self) -> f64 {
        self.time.as_nanos() as f64 / self.operations as f64
    }
}

#[derive(Serialize)]
pub(crate) struct Measured {
    pub(crate) suite: &'static str,
    pub(crate) name: String,
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) results: Vec<Series>,
    pub(crate) verdicts: Vec<Verdict>,
    /// The processor time that other processes took during the measurement, as a share of one
    /// processor.
    pub(crate) noise: f64,
}

/// Measures all contenders of a benchmark in turns; returns a result for each figure of the
/// benchmark.
pub(crate) fn run(mut benchmark: Benchmark, settings: &Settings) -> Vec<Measured> {
    let noise = Noise::start();
    let empty: Vec<Series> = benchmark
        .contenders
        .iter()
        .map(|contender| Series {
            problem: match contender.work {
                Work::Missing(reason) => Some(reason.to_owned()),
                _ => None,
            },
            ..Series::new(contender.name, contender.settings)
        })
        .collect();
    let mut results = vec![empty; 1 + benchmark.also.len()];
    for contender in &mut benchmark.contenders {
        let (benchmark, name) = (benchmark.name, contender.name);
        match contender.work {
            Work::Apart(_) => {
                contender.work = Work::Timed(apart::timed(move || own_child(benchmark, name)));
            }
            Work::Server(serve, load) => {
                contender.work = Work::Figures(Box::new(move |sample| {
                    let command = match serve {
                        Serve::Here(_) | Serve::Foreign(_) => own_child(benchmark, name)?,
                        Serve::Program(command) => command()?,
                    };
                    load.measure(&mut Server::start(command)?, sample)
                }));
            }
            _ => {}
        }
    }
    let mut counts = vec![0_u64; benchmark.contenders.len()];
    for repeat in 0..settings.repeats {
        for index in turns::order(benchmark.contenders.len(), repeat as usize) {
            let contender = &mut benchmark.contenders[index];
            progress(&format!(
                "{}/{} {} of {}: {}",
                benchmark.suite,
                benchmark.name,
                repeat + 1,
                settings.repeats,
                contender.name
            ));
            let figures = match &mut contender.work {
                Work::Missing(_) | Work::Apart(_) | Work::Server(..) => continue,
                Work::Timed(work) => {
                    if counts[index] == 0 {
                        counts[index] = calibrate(work, settings.sample);
                    }
                    Ok(vec![in_unit(benchmark.unit, work(counts[index]).nanoseconds())])
                }
                Work::Figure(_) => {
                    in_child(benchmark.name, contender.name).map(|figure| vec![figure])
                }
                Work::Figures(work) => work(settings.sample),
            };
            note(&mut results, index, figures);
        }
    }
    progress("");
    // End the child processes here. Their processor time is known only then, and would otherwise
    // count as noise.
    drop(benchmark.contenders);
    let noise = noise.share();
    let first = (benchmark.name.to_owned(), benchmark.what, benchmark.unit, benchmark.targets);
    let also = benchmark.also.into_iter().map(|also| {
        (format!("{}_{}", benchmark.name, also.name), also.what, also.unit, also.targets)
    });
    std::iter::once(first)
        .chain(also)
        .zip(results)
        .map(|((name, what, unit, targets), results)| Measured {
            suite: benchmark.suite,
            name,
            what,
            unit,
            verdicts: targets.iter().map(|target| judge(*target, &results)).collect(),
            results,
            noise,
        })
        .collect()
}

/// Adds the figures of one measurement of a contender, or the reason why there are none.
fn note(results: &mut [Vec<Series>], contender: usize, figures: Result<Vec<f64>, String>) {
    let complete = |figures: &Vec<f64>| {
        figures.len() == results.len() && !figures.iter().any(|figure| figure.is_nan())
    };
    let reason = match figures {
        Ok(figures) if complete(&figures) => {
            for (result, figure) in results.iter_mut().zip(figures) {
                result[contender].push(figure);
            }
            return;
        }
        Ok(_) => None,
        Err(message) => message.lines().last().map(str::to_owned),
    };
    let reason = reason.unwrap_or_else(|| "it gave no figure; run it alone to see why".to_owned());
    for result in results {
        result[contender].push_failure(reason.clone());
    }
}

/// Returns how many operations fill the sample time. The trial runs warm up caches and pools.
fn calibrate(work: &mut dyn FnMut(u64) -> Lap, sample: Duration) -> u64 {
    let mut count = 1;
    loop {
        let lap = work(count);
        if lap.is_failed() {
            return 1;
        }
        if lap.time >= sample / 4 {
            // Run it twice: another process may have slowed down the first run, and the count would
            // be too small.
            let again = work(count);
            if again.time >= sample / 4 {
                let nanoseconds = lap.nanoseconds().min(again.nanoseconds());
                return (sample.as_nanos() as f64 / nanoseconds).max(1.0) as u64;
            }
        }
        count *= 4;
    }
}

/// Converts the nanoseconds of one operation to the unit of a benchmark.
fn in_unit(unit: &str, nanoseconds: f64) -> f64 {
    match unit.split('/').next() {
        _ if unit.ends_with("/s") => 1e9 / nanoseconds,
        Some("us") => nanoseconds / 1e3,
        Some("ms") => nanoseconds / 1e6,
        _ => nanoseconds,
    }
}

/// Returns the command that runs one contender in a child process of this program.
fn own_child(benchmark: &str, contender: &str) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--child", benchmark, contender]);
    Ok(command)
}

/// Runs one contender in a process of its own and reads its figure.
fn in_child(benchmark: &str, contender: &str) -> Result<f64, String> {
    let output = own_child(benchmark, contender)?.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Runs in the child process: runs one contender and prints its figures.
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
        Some(Work::Server(Serve::Here(serve), _)) => server::answer(serve()),
        Some(Work::Server(Serve::Foreign(start), _)) => start()?.answer(),
        _ => Err(format!("{name} has no contender {contender} that runs alone")),
    }
}

/// Shows the progress, if standard error is a terminal.
fn progress(text: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{text}");
        let _ = err.flush();
    }
}
