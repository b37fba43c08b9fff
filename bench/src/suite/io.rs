//! The suite `io`: sockets, pipes and files.

use super::{CURRENT, FLOOR, GO, MAY, THREADS, TOKIO};
use super::{also, apart, at_most, go_server, go_timed, missing, server, timed};
use crate::client::Load;
use crate::file;
use crate::floor::{epoll, pipe, pread};
use crate::measure::{Benchmark, Contender, Work};
use crate::peer::fio::Engine;
use crate::peer::{fio, go, may_io, sinew_io, sinew_runtime, threads_io, tokio, tokio_io};
use crate::target::{SUBJECT, Target};

const FIO_PSYNC: &str = "fio-psync";
const FIO_URING: &str = "fio-uring";

/// The floors of an echo: two threads, and one thread. A target is for the better floor.
const FLOOR_ALONE: &str = "floor-1";
const FLOORS: &[&str] = &[FLOOR, FLOOR_ALONE];

/// The peers that are libraries or languages.
const PEERS: &[&str] = &[TOKIO, MAY, GO];

/// sinew with fibers that get a stack with their first byte.
const DEFERRED: &str = "deferred";

pub(crate) fn benchmarks() -> Vec<Benchmark> {
    let mut all = Vec::from(echoes());
    all.push(pipes());
    all.extend(files());
    all.extend(stalls());
    all.push(idle_connections());
    all
}

fn echoes() -> [Benchmark; 5] {
    [
        echo("echo_1", "64 B TCP echo, 1 connection: requests per second", 1, 1),
        echo("echo_64", "64 B TCP echo, 64 connections: requests per second", 64, 1),
        echo("echo_1024", "64 B TCP echo, 1,024 connections: requests per second", 1_024, 1),
        echo(
            "echo_64_spread",
            "64 B TCP echo, 64 connections of a client on both processors: requests per second",
            64,
            2,
        ),
        echo(
            "echo_1024_spread",
            "64 B TCP echo, 1,024 connections of a client on both processors: requests per second",
            1_024,
            2,
        ),
    ]
}

/// Returns an echo benchmark whose client has `connections` connections and `threads` threads.
fn echo(name: &'static str, what: &'static str, connections: u64, threads: u64) -> Benchmark {
    let load = Load::Echo { connections, threads };
    let for_both = |target: Target| [target, target.by(DEFERRED)];
    let rate = [Target::at_least(0.98, FLOORS), Target::at_least(1.0, PEERS)].map(for_both);
    let p99 = [at_most(1.15, FLOORS), at_most(1.2, PEERS)].map(for_both);
    Benchmark {
        unit: "requests/s",
        contenders: vec![
            server(SUBJECT, sinew_io::STARTED, sinew_io::serve_started, load),
            server(DEFERRED, sinew_io::SERVER, sinew_io::serve, load),
            server(FLOOR, epoll::TWO, epoll::serve, load),
            server(FLOOR_ALONE, epoll::ONE, epoll::serve_alone, load),
            server(TOKIO, tokio_io::SERVER, tokio_io::serve, load),
            server(MAY, may_io::SERVER, may_io::serve, load),
            go_server(go::serve, load),
            server(THREADS, threads_io::SERVER, threads_io::serve, load),
        ],
        targets: rate.concat(),
        also: vec![
            also("p50", "64 B TCP echo: median latency", "us", vec![]),
            also("p99", "64 B TCP echo: latency p99", "us", p99.concat()),
            also(
                "user",
                "64 B TCP echo: user time of the server",
                "us/request",
                vec![at_most(0.5, &[MAY]), at_most(0.6, &[TOKIO])],
            ),
            also("system", "64 B TCP echo: system time of the server", "us/request", vec![]),
            also("client", "64 B TCP echo: processor time of the client", "us/request", vec![]),
            also("idle", "64 B TCP echo: unused processor time", "%", vec![]),
        ],
        ..empty(name, what)
    }
}

fn pipes() -> Benchmark {
    Benchmark {
        unit: "ns/round",
        contenders: vec![
            timed(SUBJECT, sinew_runtime::ONE, sinew_io::pipes),
            timed(FLOOR, pipe::CALLS, pipe::calls),
            timed(CURRENT, tokio::CURRENT, tokio_io::pipes),
            apart(MAY, may_io::PIPES, may_io::pipes),
            go_timed(1, go::pipes),
            timed(THREADS, pipe::THREADS, || pipe::threads(true)),
            timed("threads-any", pipe::FREE_THREADS, || pipe::threads(false)),
        ],
        targets: vec![at_most(0.7, &[CURRENT, MAY, GO, THREADS])],
        ..empty("pipe", "2 fibers exchange a byte through 2 pipes, there and back, 1 carrier")
    }
}

fn files() -> [Benchmark; 2] {
    [
        Benchmark {
            contenders: vec![
                reader(timed(SUBJECT, sinew_io::DIRECT, || sinew_io::read(1))),
                reader(timed(FLOOR, pread::SETTINGS, pread::read)),
                fio(FIO_PSYNC, Engine::Psync),
                fio(FIO_URING, Engine::Uring),
                reader(timed(CURRENT, tokio_io::BLOCKING, || tokio_io::read(1))),
            ],
            targets: vec![Target::at_least(1.5, &[FIO_PSYNC, FIO_URING])],
            ..read("file_1", "4 KiB random reads of 256 MiB on tmpfs, 1 fiber")
        },
        Benchmark {
            contenders: vec![
                reader(timed(SUBJECT, sinew_io::DIRECT, || sinew_io::read(file::DEPTH))),
                reader(timed(FLOOR, pread::SETTINGS, pread::read)),
                fio(FIO_PSYNC, Engine::Psync),
                fio(FIO_URING, Engine::Uring16),
                reader(timed(CURRENT, tokio_io::BLOCKING, || tokio_io::read(file::DEPTH))),
            ],
            targets: vec![Target::at_least(0.9, &[FIO_PSYNC, FIO_URING])],
            ..read("file_16", "4 KiB random reads of 256 MiB on tmpfs, 16 fibers on 1 carrier")
        },
    ]
}

fn read(name: &'static str, what: &'static str) -> Benchmark {
    Benchmark { unit: "reads/s", ..empty(name, what) }
}

fn stalls() -> [Benchmark; 2] {
    [
        stall(
            "stall_64",
            "echo, 256 connections; computing asks for 64 % of 2 processors",
            0.64,
            1.5,
        ),
        stall("stall_160", "echo; computing asks for 160 % of 2 processors", 1.6, 5.0),
    ]
}

fn stall(name: &'static str, what: &'static str, share: f64, ratio: f64) -> Benchmark {
    let load = Load::Stall(share);
    Benchmark {
        unit: "requests/s",
        contenders: vec![
            server(SUBJECT, sinew_io::MIGRATABLE, sinew_io::serve_migratable, load),
            server("bound", sinew_io::SERVER, sinew_io::serve, load),
            server(FLOOR, epoll::TWO, epoll::serve, load),
            server(TOKIO, tokio_io::SERVER, tokio_io::serve, load),
            go_server(go::serve, load),
        ],
        targets: vec![Target::at_least(ratio, &[FLOOR])],
        also: vec![
            also("p50", "echo with computing: median latency of all requests", "us", vec![]),
            also("p99", "echo with computing: latency p99 of all requests", "us", vec![]),
            also(
                "computed",
                "echo with computing: rate of the requests that computed 1 ms",
                "requests/s",
                vec![],
            ),
        ],
        ..empty(name, what)
    }
}

fn idle_connections() -> Benchmark {
    Benchmark {
        unit: "bytes",
        contenders: vec![
            server(SUBJECT, sinew_io::STARTED, sinew_io::serve_started, Load::Idle),
            server(DEFERRED, sinew_io::SERVER, sinew_io::serve, Load::Idle),
            server(TOKIO, tokio_io::SERVER, tokio_io::serve, Load::Idle),
            server(MAY, may_io::SERVER, may_io::serve, Load::Idle),
            go_server(go::serve, Load::Idle),
        ],
        targets: vec![at_most(1.6, &[GO]), at_most(0.3, &[GO]).by(DEFERRED)],
        also: vec![also("tables", "page tables of an idle TCP connection", "bytes", vec![])],
        ..empty("idle_connections", "18,000 idle TCP connections: resident bytes for each")
    }
}

/// Returns the contender, or marks it as missing if there is no place for the file.
fn reader(contender: Contender) -> Contender {
    match file::is_possible() {
        true => contender,
        false => missing(contender.name, contender.settings, file::MISSING),
    }
}

fn fio(name: &'static str, engine: Engine) -> Contender {
    match engine.settings() {
        Some(settings) => reader(Contender {
            name,
            settings,
            // fio starts threads and builds its structures before it reads. A longer run makes that
            // negligible.
            work: Work::Figures(Box::new(move |sample| engine.read(10 * sample))),
        }),
        None => missing(name, "", fio::MISSING),
    }
}

fn empty(name: &'static str, what: &'static str) -> Benchmark {
    Benchmark {
        suite: "io",
        name,
        what,
        unit: "",
        contenders: Vec::new(),
        targets: Vec::new(),
        also: Vec::new(),
    }
}
