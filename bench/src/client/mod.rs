//! What a server has to bear: the same program for all of them, in a process of its own. For HTTP it
//! is `wrk`.
//!
//! The client opens its connections and prints an empty line; what it does next begins when it is
//! told a line. So processor time and memory of the server are looked at while nothing is under way.

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

/// Bytes of a request and of its answer.
pub(crate) const MESSAGE: usize = 64;

/// Bytes that a server has room for: more than a request, so that it can tell from one read that there
/// is no more.
pub(crate) const ROOM: usize = 256;

/// First byte of a request that makes the server compute before it answers.
const COMPUTE: u8 = 1;

/// Steps of [`mix`] that such a request takes: 1 ms.
pub(crate) const COMPUTE_STEPS: u64 = 710_000;

/// Computes if a request asks for it; every server calls this before it answers.
pub(crate) fn compute_if_asked(request: &[u8]) {
    if request.first() == Some(&COMPUTE) {
        black_box(mix(black_box(1), COMPUTE_STEPS));
    }
}

/// Connections in `stall` and in `idle_connections`.
pub(crate) const STALLED: u64 = 256;
pub(crate) const IDLE: u64 = 18_000;

/// Files that a server or a client has open beside its connections, at most.
const FURTHER_FILES: u64 = 100;

/// How long a server may let everybody wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Processors that a server has.
const PROCESSORS: f64 = 2.0;

/// A measurement takes so many samples' time: a latency that one in a hundred requests exceeds needs
/// many requests, and the kernel tells user from system time by a tick of some milliseconds.
const SAMPLES: u32 = 20;

/// The same for HTTP, where connections are opened meanwhile: 3 s, if nothing else is asked for.
const HTTP_SAMPLES: u32 = 50;

/// What is done with a server.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// On each connection one request is under way at any time. Gives requests per second, p50 and p99
    /// of their latency in microseconds, the microseconds of user and of system time that the server
    /// takes for a request, the microseconds of processor time that the client takes for a request,
    /// and the percentage of all processors' time that is not used.
    Echo { connections: u64, threads: u64 },
    /// The same from one thread on 256 connections, each of which at times sends a request that takes
    /// 1 ms of computing: so often that these alone ask for this share of the server's processors.
    /// Gives requests per second, p50 and p99 in microseconds, and the requests that computed per
    /// second.
    Stall(f64),
    /// 18,000 connections are opened, and nothing is sent. Gives resident bytes and bytes of page
    /// tables for each.
    Idle,
    /// Requests for `/` under wrk. See [`Wrk`] for what it gives.
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
                // Requests of each connection per second: they take a millisecond, and there are a
                // thousand on each processor.
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
    /// Requests per second, and those of them that computed.
    rate: f64,
    computed: f64,
    /// Latency in microseconds.
    p50: f64,
    p99: f64,
    /// Microseconds of processor time for a request: of the server, and of the client.
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
    // The kernel has accepted all of them. The server has too when it has the files, and is done with
    // them when it grows no more.
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

/// Starts a client and waits until it has its connections.
fn start(name: &str, port: u16, words: &[String]) -> Result<Process, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--client", name, &port.to_string()]).args(words);
    let mut client = Process::start(command)?;
    let [] = client.hear::<u64, 0>()?;
    Ok(client)
}

/// The other side: is the client.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let word = |index: usize| words.get(index).ok_or("a word is missing");
    let number = |index: usize| word(index)?.parse::<f64>().map_err(|_| "it is not a number");
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

/// Tells that the connections are there, and waits for a line.
fn wait_for_start() -> std::io::Result<()> {
    println!();
    std::io::stdin().read_line(&mut String::new()).map(|_| ())
}
