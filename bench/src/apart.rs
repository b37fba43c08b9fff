//! Times work in another process, which lives for all repeats.
//!
//! The process reads a count of operations, one number on a line. It answers with a line of two
//! numbers: the nanoseconds that the work took, and the operations that it really did. It ends when
//! its input ends. Peers in another language run in this way, and so do peers that a process can
//! configure only once.
//!
//! `server` and `client` also talk to their processes over these pipes, with messages of their own.

use crate::measure::{Lap, Timed};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

/// A child process that exchanges lines with this one.
pub(crate) struct Process {
    child: Child,
    /// `None` once the input is closed, which tells the process to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Result<Process, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("the output is a pipe"));
        Ok(Process { child, input, output })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, line: &str) -> Result<(), String> {
        let input = self.input.as_mut().expect("the input is open until the drop");
        writeln!(input, "{line}").and_then(|()| input.flush()).map_err(gone)
    }

    /// Reads the next line of the process, which must have `N` numbers.
    pub(crate) fn hear<T: FromStr, const N: usize>(&mut self) -> Result<[T; N], String> {
        let numbers = self.hear_all()?;
        let count = numbers.len();
        numbers
            .try_into()
            .map_err(|_| format!("a measured process printed {count} numbers instead of {N}"))
    }

    /// Reads all numbers on the next line of the process.
    pub(crate) fn hear_all<T: FromStr>(&mut self) -> Result<Vec<T>, String> {
        let mut line = String::new();
        if self.output.read_line(&mut line).map_err(gone)? == 0 {
            return Err("a measured process has ended".to_owned());
        }
        line.split_whitespace()
            .map(|one| one.parse().ok())
            .collect::<Option<Vec<T>>>()
            .ok_or_else(|| format!("a measured process printed {line:?} instead of numbers"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Closing its input ends the process. The kernel adds its processor time to
        // `RUSAGE_CHILDREN` only once this process has waited for it.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

fn gone(error: std::io::Error) -> String {
    format!("cannot talk to a measured process: {error}")
}

fn ask(process: &mut Process, count: u64) -> Result<Lap, String> {
    process.tell(&count.to_string())?;
    let [nanoseconds, operations] = process.hear()?;
    Ok(Lap::new(Duration::from_nanos(nanoseconds), operations))
}

/// Returns work that a process does. The first call starts the process. After one failure every
/// further call fails without asking again.
pub(crate) fn timed(command: impl Fn() -> Result<Command, String> + 'static) -> Timed {
    let mut state = None;
    Box::new(move |count| {
        let process = state.get_or_insert_with(|| command().and_then(Process::start));
        let answer = match process {
            Ok(process) => ask(process, count),
            Err(_) => return Lap::failed(),
        };
        match answer {
            Ok(lap) => lap,
            Err(message) => {
                eprintln!("sinew-bench: {message}");
                state = Some(Err(message));
                Lap::failed()
            }
        }
    })
}

/// Runs in the child process: does the work as often as each line of the input says.
pub(crate) fn serve(mut work: Timed) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| format!("cannot read: {error}"))?;
        let count = line.trim().parse().map_err(|_| format!("{line:?} is not a number"))?;
        let lap = work(count);
        writeln!(out, "{} {}", lap.time().as_nanos(), lap.operations())
            .and_then(|()| out.flush())
            .map_err(|error| format!("cannot answer: {error}"))?;
    }
    Ok(())
}
