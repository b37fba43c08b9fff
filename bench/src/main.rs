//! Measures equal work on sinew, on its peers and on bare floors.
//!
//! A *suite* holds *benchmarks*. Each benchmark runs several *contenders* in turn, repeats that
//! several times, and compares the medians. `suite` lists the work, `measure` times it, `target`
//! holds the figures that sinew has to reach, and `report` prints the results.

mod apart;
mod balance;
mod client;
mod file;
mod floor;
mod http;
mod interval;
mod load;
mod measure;
mod noise;
mod peer;
mod report;
mod series;
mod server;
mod suite;
mod target;
mod turns;

use clap::Parser;
use measure::{Benchmark, Measured, Settings};
use std::io::Write;
use std::process::ExitCode;

/// Benchmarks of sinew beside its peers and bare floors.
#[derive(Parser)]
#[command(name = "sinew-bench", version)]
struct Cli {
    /// Suites or benchmarks to run; all if none is named.
    names: Vec<String>,

    /// How often each contender is measured; at least seven for --check.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,

    /// Milliseconds that one measurement takes, about.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    sample_ms: u64,

    /// Prints the results as JSON instead of a table.
    #[arg(long)]
    json: bool,

    /// Writes a report with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<std::path::PathBuf>,

    /// Fails if a target is missed (the interval of the median lies beyond it), or if a repeat of
    /// sinew failed.
    #[arg(long)]
    check: bool,

    /// Lists the benchmarks and ends.
    #[arg(long)]
    list: bool,

    /// Runs one contender of a benchmark that needs a process of its own.
    #[arg(long, hide = true, num_args = 2)]
    child: Option<Vec<String>>,

    /// Runs the client of a server. Arguments: the load, the port, and the numbers of the load.
    #[arg(long, hide = true, num_args = 1..)]
    client: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("sinew-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode, String> {
    if let Some(words) = &cli.client {
        return client::run(words).map(|()| ExitCode::SUCCESS);
    }
    let benchmarks = suite::all();
    if let Some(child) = &cli.child {
        return measure::child(&benchmarks, &child[0], &child[1]).map(|()| ExitCode::SUCCESS);
    }
    if cli.check && (cli.repeats as usize) < target::LEAST_REPEATS {
        let least = target::LEAST_REPEATS;
        return Err(format!("--check needs at least {least} repeats, not {}", cli.repeats));
    }
    for name in &cli.names {
        if !benchmarks.iter().any(|one| is_named(one, name, &benchmarks)) {
            return Err(format!("there is no suite or benchmark {name:?}; --list shows them"));
        }
    }
    let named = |one| cli.names.iter().any(|name| is_named(one, name, &benchmarks));
    let named: Vec<bool> = benchmarks.iter().map(named).collect();
    let chosen: Vec<_> = benchmarks
        .into_iter()
        .zip(named)
        .filter(|(_, named)| cli.names.is_empty() || *named)
        .map(|(one, _)| one)
        .collect();
    if cli.list {
        for one in &chosen {
            println!("{:<10} {:<20} {}", one.suite, one.name, one.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let settings =
        Settings { repeats: cli.repeats, sample: std::time::Duration::from_millis(cli.sample_ms) };
    let measured: Vec<Measured> =
        chosen.into_iter().flat_map(|one| measure::run(one, &settings)).collect();
    let machine = report::Machine::here();

    let mut out = std::io::stdout().lock();
    let text = if cli.json {
        report::json::render(&machine, &measured)
    } else {
        report::table::render(&machine, &measured)
    };
    out.write_all(text.as_bytes()).map_err(|error| format!("cannot print: {error}"))?;
    if let Some(path) = &cli.html {
        std::fs::write(path, report::html::render(&machine, &measured))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let missed = measured.iter().flat_map(|one| &one.verdicts).any(|verdict| verdict.is_missed());
    let failed = measured
        .iter()
        .flat_map(|one| &one.results)
        .any(|series| series.contender == target::SUBJECT && series.failures() > 0);
    Ok(if cli.check && (missed || failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns whether `name` selects the benchmark: it is the name of the benchmark or of its suite.
/// If no benchmark or suite has this name, it selects all benchmarks that it is a prefix of: `echo`
/// stands for `echo_1`, `echo_64` and `echo_1024`.
fn is_named(one: &Benchmark, name: &str, all: &[Benchmark]) -> bool {
    let is = |one: &Benchmark| one.suite == name || one.name == name;
    let begins = |name| one.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
    is(one) || begins(name) && !all.iter().any(is)
}
