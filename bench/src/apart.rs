//! Work that is timed in another process, which stays for all repeats.
//!
//! The process reads how often it is to do the operation, a number on a line, and answers with a
//! line that has the nanoseconds it took and how often it really was. It ends when there are no more
//! numbers. Peers in another language take part this way, as do those that can be configured only
//! once in a process.
//!
//! The processes of `server` and `client` are talked to in the same way.

use crate::measure::{Lap, Timed};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

/// A process that is talked to, a line at a time.
pub(crate) struct Process {
    child: Child,
    /// `None` when it has been told to end.
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
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Process { child, input, output })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, line: &str) -> Result<(), String> {
        let input = self.input.as_mut().expect("it is open until it is dropped");
        writeln!(input, "{line}").and_then(|()| input.flush()).map_err(gone)
    }

    /// The numbers on the next line that it prints: so many.
    pub(crate) fn hear<T: FromStr, const N: usize>(&mut self) -> Result<[T; N], String> {
        let numbers = self.hear_all()?;
        let count = numbers.len();
        numbers
            .try_into()
            .map_err(|_| format!("a process that was measured said {count} numbers, and not {N}"))
    }

    /// All numbers on the next line that it prints.
    pub(crate) fn hear_all<T: FromStr>(&mut self) -> Result<Vec<T>, String> {
        let mut line = String::new();
        if self.output.read_line(&mut line).map_err(gone)? == 0 {
            return Err("a process that was measured has ended".to_owned());
        }
        line.split_whitespace()
            .map(|one| one.parse().ok())
            .collect::<Option<Vec<T>>>()
            .ok_or_else(|| format!("a process that was measured said {line:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input is what ends it; its time counts as ours once it was waited for.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

fn gone(error: std::io::Error) -> String {
    format!("a process that was measured is gone: {error}")
}

fn ask(process: &mut Process, count: u64) -> Result<Lap, String> {
    process.tell(&count.to_string())?;
    let [nanoseconds, operations] = process.hear()?;
    Ok(Lap::new(Duration::from_nanos(nanoseconds), operations))
}

/// Work that the process does. It is started by the first call; who fails once is not asked again.
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

/// The other side: does the work as often as the input says.
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
