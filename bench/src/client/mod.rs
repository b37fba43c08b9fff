//! The load on a server. One client program, in a process of its own, loads all servers; for HTTP
//! it is `wrk`.
//!
//! The client opens its connections and prints an empty line. It starts the load when it reads a
//! line. Between these two moments nothing is under way, and the program reads the processor time
//! and the memory of the server.

mod echo;
mod histogram;
mod idle;
pub(crate) mod wrk;

use crate::apart::Process;
use crate::load::{CALM, mix};
use crate::noise::Idle;
use crate::server::{Server, allow_files};
use std::hint::black_box;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use wrk::Wrk;

/// The bytes of a request and of its answer.
pub(crate) const MESSAGE: usize = 64;

/// The size of a server's buffer. It is larger than a request, so that a read that does not fill it
/// has taken everything.
pub(crate) const ROOM: usize = 256;

/// The first byte of a request that makes the server compute before it answers.
const COMPUTE: u8 = 1;

/// The steps of [`mix`] for a request that computes: 1 ms.
pub(crate) const COMPUTE_STEPS: u64 = 710_000;

/// Computes if the request asks for it. Every server calls this before it answers.
pub(crate) fn compute_if_asked(request: &[u8]) {
    if request.first() == Some(&COMPUTE) {
        black_box(mix(black_box(1), COMPUTE_STEPS));
    }
}

/// The number of connections in `stall` and in `idle_connections`.
pub(crate) const STALLED: u64 = 256;
pub(crate) const IDLE: u64 = 18_000;

/// The most files that a server or a client has open beside its connections.
const FURTHER_FILES: u64 = 100;

/// How long the client waits for a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of processors that a server has.
const PROCESSORS: f64 = 2.0;

/// The time of a measurement, in samples. A p99 needs many requests, and the kernel tells user from
/// system time by a tick of some milliseconds.
const SAMPLES: u32 = 20;

/// The time of a measurement of HTTP, in samples: 3 s by default. It includes the opening of the
/// connections.
const HTTP_SAMPLES: u32 = 50;

/// A kind of load.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// One request is under way on each connection at any time. Gives requests per second, p50 and
    /// p99 of their latency in microseconds, the microseconds of user and of system time that the
    /// server takes for a request, the microseconds of processor time that the client takes for a
    /// request, and the percentage of all processors' time that is not used.
    Echo { connections: u64, threads: u64 },
    /// As `Echo`, from one thread on 256 connections. Each connection at times sends a request that
    /// takes 1 ms of computing. These requests alone ask for this share of the server's processors.
    /// Gives requests per second, p50 and p99 in microseconds, and the requests per second that
    /// computed.
    Stall(f64),
    /// The client opens 18,000 connections and sends nothing. Gives resident bytes and bytes of
    /// page tables for each connection.
    Idle,
    /// wrk sends requests for `/`. [`Wrk`] lists the figures.
    Http(Wrk),
}

impl Load {
    pub(crate) fn measure(self, server: &mut Server, sample: Duration) -> Result<Vec<f64>, String> {
        let time = SAMPLES * sample;
        match self {
            Load::Echo { connections, threads } => {
                let heard = echo(server, [connections, threads], time, 0.0)?;
                let Heard { rate, p50, p99, user, system, client, idle, .. } = heard;
                Ok(vec![rate, p50, p99, user, system, client, idle])
            }
            Load::Stall(share) => {
                // The rate of each connection. A request takes a millisecond, so a processor
                // computes a thousand per second.
                let rate = share * PROCESSORS * 1e3 / STALLED as f64;
                let heard = echo(server, [STALLED, 1], time, rate)?;
                Ok(vec![heard.rate, heard.p50, heard.p99, heard.computed])
            }
            Load::Idle => idle(server),
            Load::Http(wrk) => wrk.measure(server, HTTP_SAMPLES * sample),
        }
    }
}

/// A measurement of an echo server.
struct Heard {
    /// Requests per second: all of them, and the ones that computed.
    rate: f64,
    computed: f64,
    /// Latency in microseconds.
    p50: f64,
    p99: f64,
    /// Microseconds of processor time for a request, of the server and of the client.
    user: f64,
    system: f64,
    client: f64,
    /// Percentage of all processors' time that was not used.
    idle: f64,
}

fn echo(
    server: &mut Server,
    [connections, threads]: [u64; 2],
    time: Duration,
    rate: f64,
) -> Result<Heard, String> {
    let time = time.as_millis();
    let words = [connections.to_string(), threads.to_string(), time.to_string(), rate.to_string()];
    let mut client = start("echo", server.port(), &words)?;
    let before = server.used()?;
    let idle = Idle::start();
    client.tell("")?;
    let [rate, p50, p99, computed, requests, used] = client.hear::<f64, 6>()?;
    let idle = 100.0 * idle.share();
    let after = server.used()?;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / requests;
    Ok(Heard {
        rate,
        computed,
        p50,
        p99,
        user: each(after.user.saturating_sub(before.user)),
        system: each(after.system.saturating_sub(before.system)),
        client: used * 1e6 / requests,
        idle,
    })
}

fn idle(server: &mut Server) -> Result<Vec<f64>, String> {
    let (allowed, needed) = (allow_files(), IDLE + FURTHER_FILES);
    if allowed < needed {
        return Err(format!("{allowed} open files are allowed, {needed} are needed: ulimit -Hn"));
    }
    let before = server.memory();
    let client = start("idle", server.port(), &[IDLE.to_string()])?;
    // The kernel has accepted all connections. The server has accepted them once it has the files,
    // and is done with them once its memory stops growing.
    let deadline = Instant::now() + PATIENCE;
    let mut after = server.memory();
    loop {
        sleep(CALM);
        let now = server.memory();
        if now == after && server.files() as u64 >= IDLE {
            break;
        }
        if Instant::now() > deadline {
            return Err(format!("the server has {} files, and not {IDLE}", server.files()));
        }
        after = now;
    }
    drop(client);
    let each = |index: usize| after[index].saturating_sub(before[index]) as f64 / IDLE as f64;
    Ok(vec![each(0), each(1)])
}

/// Starts a client and waits until its connections are open.
fn start(name: &str, port: u16, words: &[String]) -> Result<Process, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--client", name, &port.to_string()]).args(words);
    let mut client = Process::start(command)?;
    let [] = client.hear::<u64, 0>()?;
    Ok(client)
}

/// Runs in the client's process: does the load that the arguments name.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let word = |index: usize| words.get(index).ok_or("an argument is missing");
    let number = |index: usize| word(index)?.parse::<f64>().map_err(|_| "not a number");
    let port = number(1)? as u16;
    let result = match word(0)?.as_str() {
        "echo" => {
            let task = echo::Task {
                port,
                connections: number(2)? as usize,
                threads: number(3)? as usize,
                time: Duration::from_millis(number(4)? as u64),
                rate: number(5)?,
            };
            echo::run(&task)
        }
        "idle" => idle::run(port, number(2)? as usize),
        other => return Err(format!("there is no client {other:?}")),
    };
    result.map_err(|error| format!("the client failed: {error}"))
}

/// Prints an empty line, which says that the connections are open, and waits for a line.
fn wait_for_start() -> std::io::Result<()> {
    println!();
    std::io::stdin().read_line(&mut String::new()).map(|_| ())
}
