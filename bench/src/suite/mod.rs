//! The benchmarks. Each suite is a file that lists its benchmarks.

pub(crate) mod context;
pub(crate) mod http;
pub(crate) mod io;
pub(crate) mod manager;
pub(crate) mod runtime;
pub(crate) mod sync;

use crate::client::Load;
use crate::measure::{Also, Benchmark, Contender, Serve, Timed, Work};
use crate::peer::go;
use crate::target::Target;
use std::process::Command;

pub(crate) fn all() -> Vec<Benchmark> {
    let mut all = context::benchmarks();
    all.extend(runtime::benchmarks());
    all.extend(sync::benchmarks());
    all.extend(manager::benchmarks());
    all.extend(io::benchmarks());
    all.extend(http::benchmarks());
    all
}

const FLOOR: &str = "floor";
const TOKIO: &str = "tokio";
const CURRENT: &str = "tokio-ct";
const SMOL: &str = "smol";
const MAY: &str = "may";
const GO: &str = "go";
const THREADS: &str = "threads";

/// The peers on one processor.
const ON_ONE: &[&str] = &[CURRENT, TOKIO, SMOL, MAY, GO];

fn at_most(ratio: f64, of: &'static [&'static str]) -> Target {
    Target::at_most(ratio, of)
}

/// Returns a contender that makes its runtime when it is first measured, and keeps it.
fn timed(
    name: &'static str,
    settings: &'static str,
    make: impl Fn() -> Timed + 'static,
) -> Contender {
    Contender { name, settings, work: Work::lazy(make) }
}

fn apart(
    name: &'static str,
    settings: &'static str,
    make: impl Fn() -> Timed + 'static,
) -> Contender {
    Contender { name, settings, work: Work::Apart(Box::new(make)) }
}

fn figure(name: &'static str, settings: &'static str, figure: fn() -> f64) -> Contender {
    Contender { name, settings, work: Work::Figure(figure) }
}

fn go_timed(processors: u32, make: impl Fn() -> Timed + 'static) -> Contender {
    go_timed_as(GO, processors, make)
}

fn go_timed_as(
    name: &'static str,
    processors: u32,
    make: impl Fn() -> Timed + 'static,
) -> Contender {
    match go::settings(processors) {
        Some(settings) => timed(name, settings, make),
        None => missing(name, "", go::MISSING),
    }
}

fn go_figure(processors: u32, make: fn() -> f64) -> Contender {
    match go::settings(processors) {
        Some(settings) => figure(GO, settings, make),
        None => missing(GO, "", go::MISSING),
    }
}

/// Returns a contender that serves from a process of this program.
fn server(name: &'static str, settings: &'static str, serve: fn() -> u16, load: Load) -> Contender {
    Contender { name, settings, work: Work::Server(Serve::Here(serve), load) }
}

fn go_server(serve: fn() -> Result<Command, String>, load: Load) -> Contender {
    match go::settings(2) {
        Some(settings) => {
            Contender { name: GO, settings, work: Work::Server(Serve::Program(serve), load) }
        }
        None => missing(GO, "", go::MISSING),
    }
}

fn missing(name: &'static str, settings: &'static str, why: &'static str) -> Contender {
    Contender { name, settings, work: Work::Missing(why) }
}

fn also(name: &'static str, what: &'static str, unit: &'static str, targets: Vec<Target>) -> Also {
    Also { name, what, unit, targets }
}
