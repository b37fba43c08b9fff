//! The load of the suite `http`: wrk, a program of its own.
//!
//! wrk runs with two threads. With one thread, any of the faster servers keeps wrk busy all the
//! time while a second processor is partly idle: the rates would show the speed of wrk. With two
//! threads both processors are busy, and the rate depends on the processor time that the server
//! leaves to wrk.

use super::{FURTHER_FILES, PATIENCE};
use crate::load::CALM;
use crate::server::{Server, allow_files};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const MISSING: &str = "there is no load: no `wrk`, install wrk";

const SCRIPT: &str = include_str!("wrk.lua");

/// The number of requests under way on a connection if they are pipelined.
const DEPTH: u32 = 16;

/// The time of the warm-up. wrk accepts whole seconds only.
const WARM_UP: Duration = Duration::from_secs(1);

/// The most connections of the warm-up. A server may keep memory of closed connections, which would
/// count for the open ones.
const WARM_UP_CONNECTIONS: u64 = 100;

/// The number of files that a server may open when it is first used, beside its connections.
const OPENED_LATE: usize = 10;

/// How long before the end of wrk the memory is read. At its end wrk closes its connections.
const BEFORE_END: Duration = Duration::from_millis(100);

/// Requests on connections that stay open.
#[derive(Clone, Copy)]
pub(crate) struct Wrk {
    connections: u64,
    pipelined: bool,
    tls: bool,
}

/// The figures that wrk prints after a run.
struct Heard {
    requests: f64,
    seconds: f64,
    p99_us: f64,
}

impl Wrk {
    pub(crate) const fn new(connections: u64) -> Wrk {
        Wrk { connections, pipelined: false, tls: false }
    }

    pub(crate) const fn pipelined(self) -> Wrk {
        Wrk { pipelined: true, ..self }
    }

    pub(crate) const fn tls(self) -> Wrk {
        Wrk { tls: true, ..self }
    }

    /// Gives requests per second, p99 of their latency in microseconds, microseconds of user and of
    /// system time that the server took for a request, and its resident memory in MiB.
    ///
    /// Pipelined requests have no latency: wrk takes the time of a batch, but corrects it by the
    /// rate of single requests, and then at times finds no percentile.
    pub(super) fn measure(self, server: &mut Server, time: Duration) -> Result<Vec<f64>, String> {
        let (allowed, needed) = (allow_files(), self.connections + FURTHER_FILES);
        if allowed < needed {
            return Err(format!(
                "{allowed} open files are allowed, {needed} are needed: ulimit -Hn"
            ));
        }
        let script = Script::write()?;
        let files = server.files();
        let few = Wrk { connections: self.connections.min(WARM_UP_CONNECTIONS), ..self };
        few.run(server, &script, WARM_UP)?;
        wait_until_closed(server, files)?;
        let before = server.used()?;
        let (heard, memory) = self.run(server, &script, time)?;
        // Opening and closing the connections is part of the server's work.
        wait_until_closed(server, files)?;
        let after = server.used()?;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / heard.requests;
        let mut figures = vec![heard.requests / heard.seconds];
        if !self.pipelined {
            figures.push(heard.p99_us);
        }
        figures.extend([
            each(after.user.saturating_sub(before.user)),
            each(after.system.saturating_sub(before.system)),
            memory as f64 / f64::from(1 << 20),
        ]);
        Ok(figures)
    }

    /// Runs wrk; returns its figures and the server's resident memory while the connections are
    /// open.
    fn run(
        self,
        server: &Server,
        script: &Script,
        time: Duration,
    ) -> Result<(Heard, usize), String> {
        let seconds = time.as_secs_f64().round().max(1.0);
        let start = Instant::now();
        let child = self.start(server.port(), script, seconds as u64)?;
        let end = start + Duration::from_secs_f64(seconds);
        sleep(end.saturating_duration_since(Instant::now()).saturating_sub(BEFORE_END));
        let [memory, _] = server.memory();
        let output = child.wait_with_output().map_err(|error| format!("wrk: {error}"))?;
        Ok((heard(&output)?, memory))
    }

    fn start(self, port: u16, script: &Script, seconds: u64) -> Result<Child, String> {
        let scheme = if self.tls { "https" } else { "http" };
        let depth = if self.pipelined { DEPTH } else { 1 };
        Command::new("wrk")
            .arg("-t2")
            .arg(format!("-c{}", self.connections))
            .arg(format!("-d{seconds}s"))
            // An answer that comes before the end counts for the latency and not as an error.
            .arg(format!("--timeout={}s", seconds + 1))
            .arg("-s")
            .arg(&script.0)
            .arg(format!("{scheme}://127.0.0.1:{port}/"))
            .args(["--", &depth.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run wrk: {error}"))
    }
}

/// Waits until a server has noticed that its connections were closed. `files` is the number of
/// files that it had open before.
fn wait_until_closed(server: &Server, files: usize) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        sleep(CALM);
        match server.files() {
            left if left <= files + OPENED_LATE => return Ok(()),
            left if Instant::now() > deadline => {
                return Err(format!("the server has {left} files, though its client is gone"));
            }
            _ => {}
        }
    }
}

/// Parses the output of wrk. Any error that wrk counts is an error here: if requests fail, the
/// figures belong to a different load.
fn heard(output: &Output) -> Result<Heard, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("figures "));
    let numbers: Vec<f64> = line
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect();
    match numbers[..] {
        [requests, time, p99_us, 0.0, 0.0, 0.0, 0.0, 0.0] if requests > 0.0 => {
            Ok(Heard { requests, seconds: time / 1e6, p99_us })
        }
        [requests, _, _, connect, read, write, timeout, status] => Err(format!(
            "wrk had {requests} answers, and errors: connect {connect}, read {read}, write {write}, \
             timeout {timeout}, status {status}"
        )),
        _ => Err(format!("wrk: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Returns whether wrk is installed.
pub(crate) fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    // wrk ends with an error after printing its version. That it could be started is enough.
    *THERE.get_or_init(|| Command::new("wrk").arg("-v").output().is_ok())
}

/// A temporary file with the script for wrk, removed on drop.
struct Script(PathBuf);

impl Script {
    fn write() -> Result<Script, String> {
        let name = format!("sinew-bench-{}.lua", std::process::id());
        let script = Script(std::env::temp_dir().join(name));
        std::fs::write(&script.0, SCRIPT)
            .map_err(|error| format!("cannot write {}: {error}", script.0.display()))?;
        Ok(script)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
