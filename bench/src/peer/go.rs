//! Go: the program in `bench/go`, built when it is first needed.

use crate::apart;
use crate::balance::{Crowd, Play, Turn};
use crate::client::{COMPUTE_STEPS, ROOM};
use crate::load::{
    BATCH, CROWD, IDLE, LEAF_STEPS, SHORT, SKYNET_CHILDREN, SKYNET_LEAVES, SKYNET_SUM, SLEEPS,
    Slept, TREE_DEPTH, WAITS, WORK_STEPS,
};
use crate::measure::Timed;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

pub(crate) const MISSING: &str = "not built: there is no `go`, install golang-go";

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/go");

/// Returns the version and the settings; `None` if there is no compiler.
pub(crate) fn settings(processors: u32) -> Option<&'static str> {
    static VERSION: OnceLock<Option<[String; 2]>> = OnceLock::new();
    let known = VERSION.get_or_init(|| {
        let output = Command::new("go").arg("version").output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        // The output is for instance "go version go1.19.8 linux/amd64".
        let version = text.split_whitespace().nth(2)?;
        Some([1, 2].map(|processors| format!("{version}, GOMAXPROCS={processors}")))
    });
    known.as_ref()?.get(processors as usize - 1).map(String::as_str)
}

/// Builds the program beside cargo's output if it is missing or out of date; returns its path.
fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own.ancestors().nth(2).ok_or("this program lies in no directory")?.join("go");
    let program = target.join("sinew-bench-go");
    let changed = ["main.go", "http.go", "io.go", "sync.go"]
        .map(|file| modified(&Path::new(SOURCE).join(file)));
    let changed = changed.into_iter().max().flatten();
    if modified(&program).is_some_and(|built| Some(built) > changed) {
        return Ok(program);
    }
    let output = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(SOURCE)
        .env("GOCACHE", target.join("cache"))
        .output()
        .map_err(|error| format!("cannot run go: {error}"))?;
    match output.status.success() {
        true => Ok(program),
        false => Err(format!("go build failed: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

fn command(processors: u32, arguments: &[String]) -> Result<Command, String> {
    let mut command = Command::new(program()?);
    command.args(arguments).env("GOMAXPROCS", processors.to_string());
    Ok(command)
}

fn timed<const N: usize>(processors: u32, name: &str, numbers: [u64; N]) -> Timed {
    let arguments = arguments(name, numbers);
    apart::timed(move || {
        command(processors, &arguments).inspect_err(|message| eprintln!("sinew-bench: {message}"))
    })
}

fn arguments<const N: usize>(name: &str, numbers: [u64; N]) -> Vec<String> {
    let numbers = numbers.iter().map(u64::to_string);
    std::iter::once(name.to_owned()).chain(numbers).collect()
}

/// Runs the program; returns the figures that it prints, one on a line.
fn figures<const N: usize>(processors: u32, name: &str, numbers: [u64; N]) -> Vec<f64> {
    let output = command(processors, &arguments(name, numbers))
        .and_then(|mut command| command.output().map_err(|error| error.to_string()));
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let figures: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
            if figures.is_empty() {
                eprintln!("sinew-bench: {}", String::from_utf8_lossy(&output.stderr));
            }
            figures
        }
        Err(message) => {
            eprintln!("sinew-bench: {message}");
            Vec::new()
        }
    }
}

fn figure<const N: usize>(processors: u32, name: &str, numbers: [u64; N]) -> f64 {
    figures(processors, name, numbers).first().copied().unwrap_or(f64::NAN)
}

/// The program, as it plays crowds. It ends when its input ends.
struct Crowds {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Crowds {
    fn start() -> Result<Crowds, String> {
        let mut command = command(2, &arguments("crowds", []))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let from = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Crowds { to: child.stdin.take(), child, from })
    }

    fn play(&mut self, crowd: &Crowd) -> std::io::Result<Duration> {
        // A crowd is a line. Fibers are separated by semicolons, and a turn is two numbers.
        let turn = |turn: &Turn| format!("{} {}", turn.sleep.as_micros(), turn.steps);
        let fiber = |turns: &Vec<Turn>| turns.iter().map(turn).collect::<Vec<_>>().join(" ");
        let line = crowd.iter().map(fiber).collect::<Vec<_>>().join(";");
        writeln!(self.to.as_ref().expect("it is open until the drop"), "{line}")?;
        let mut answer = String::new();
        self.from.read_line(&mut answer)?;
        answer.trim().parse().map(Duration::from_nanos).map_err(std::io::Error::other)
    }
}

impl Drop for Crowds {
    fn drop(&mut self) {
        self.to = None;
        let _ = self.child.wait();
    }
}

/// Lets crowds run on two processors.
pub(crate) fn crowds() -> Play {
    let mut go = Crowds::start().unwrap_or_else(|message| panic!("go: {message}"));
    Box::new(move |crowd| go.play(&crowd).expect("go answers"))
}

pub(crate) fn yielding(goroutines: u64) -> Timed {
    timed(1, "yield", [goroutines])
}

pub(crate) fn spawn_seq(processors: u32) -> Timed {
    timed(processors, "spawn_seq", [])
}

pub(crate) fn spawn_batch(processors: u32) -> Timed {
    timed(processors, "spawn_batch", [BATCH])
}

pub(crate) fn fork_join() -> Timed {
    timed(2, "fork_join", [u64::from(TREE_DEPTH), LEAF_STEPS])
}

pub(crate) fn skynet() -> Timed {
    timed(2, "skynet", [SKYNET_LEAVES, SKYNET_CHILDREN, SKYNET_SUM])
}

pub(crate) fn migrate() -> Timed {
    timed(2, "migrate", [CROWD, WAITS, WORK_STEPS])
}

/// Lets the only goroutine sleep for a short time, again and again.
pub(crate) fn sleeping() -> Timed {
    timed(1, "sleep", [SHORT.as_micros() as u64])
}

pub(crate) fn memory(count: u64) -> f64 {
    figure(2, "memory", [count])
}

pub(crate) fn memory_spawn_time(count: u64) -> f64 {
    figure(1, "memory_spawn_time", [count])
}

pub(crate) fn idle(count: u64) -> f64 {
    figure(2, "idle", [count, IDLE.as_millis() as u64])
}

pub(crate) fn timers(count: u64) -> Slept {
    match figures(2, "timers", [count, SLEEPS as u64])[..] {
        [cpu_ms, late_us, settled_us] => Slept { cpu_ms, late_us, settled_us },
        _ => Slept { cpu_ms: f64::NAN, late_us: f64::NAN, settled_us: f64::NAN },
    }
}

/// Returns a benchmark of the suite `sync`, which takes no numbers.
pub(crate) fn sync(processors: u32, name: &str) -> Timed {
    timed(processors, name, [])
}

/// Sends a byte through one pipe and back through another.
pub(crate) fn pipes() -> Timed {
    timed(1, "pipe", [])
}

/// Returns the command that runs the program as an echo server.
pub(crate) fn serve() -> Result<Command, String> {
    command(2, &arguments("echo", [ROOM as u64, COMPUTE_STEPS]))
}

/// Returns the command that runs the program as an HTTP server.
pub(crate) fn serve_hello() -> Result<Command, String> {
    command(2, &arguments("http_hello", []))
}

pub(crate) fn serve_json() -> Result<Command, String> {
    command(2, &arguments("http_json", []))
}
