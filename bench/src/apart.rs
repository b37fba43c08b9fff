//! Work that is timed in another process, which stays for all repeats.
//!
//! The process reads how often it is to do the operation, a number on a line, and answers with a
//! line that has the nanoseconds it took and how often it really was. It ends when there are no more
//! numbers. Peers in another language take part this way, as do those that can be configured only
//! once in a process.

use crate::measure::{Lap, Timed};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

struct Apart {
    process: Child,
    /// `None` when it has been told to end.
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Apart {
    fn start(mut command: Command) -> Result<Apart, String> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let questions = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("it was asked for"));
        Ok(Apart { process, questions, answers })
    }

    fn ask(&mut self, count: u64) -> Result<Lap, String> {
        let questions = self.questions.as_mut().expect("it is open until it is dropped");
        let mut answer = String::new();
        writeln!(questions, "{count}")
            .and_then(|()| questions.flush())
            .and_then(|()| self.answers.read_line(&mut answer))
            .map_err(|error| format!("a process that was measured is gone: {error}"))?;
        let mut words = answer.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (Some(Ok(nanoseconds)), Some(Ok(operations))) => {
                Ok(Lap::new(Duration::from_nanos(nanoseconds), operations))
            }
            _ => Err(format!("a process that was measured said {answer:?}")),
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // The end of its input is what ends it; its time counts as ours once it was waited for.
        drop(self.questions.take());
        let _ = self.process.wait();
    }
}

/// Work that the process does. It is started by the first call; who fails once is not asked again.
pub(crate) fn timed(command: impl Fn() -> Result<Command, String> + 'static) -> Timed {
    let mut state = None;
    Box::new(move |count| {
        let apart = state.get_or_insert_with(|| command().and_then(Apart::start));
        let answer = match apart {
            Ok(apart) => apart.ask(count),
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
