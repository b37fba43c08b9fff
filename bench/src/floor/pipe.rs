//! Sends a byte through one pipe and back through another, by bare system calls: in one thread, and
//! between two threads.

use super::threads::stay_on;
use crate::measure::{Lap, Timed};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::thread;

pub(crate) const CALLS: &str = "one thread writes and reads both pipes: two writes, two reads";
pub(crate) const THREADS: &str = "2 threads on one processor, blocking";
pub(crate) const FREE_THREADS: &str = "2 threads on any processors, blocking";

fn pass(from: &mut PipeReader, to: &mut PipeWriter) {
    let mut byte = [0];
    from.read_exact(&mut byte).expect("it is open");
    to.write_all(&byte).expect("it is open");
}

/// Makes a round trip in one thread, which never waits.
pub(crate) fn calls() -> Timed {
    let (mut there, mut to) = pipe().expect("there is a pipe");
    let (mut back, mut from) = pipe().expect("there is a pipe");
    Box::new(move |count| {
        let mut byte = [0];
        Lap::run(count, || {
            for _ in 0..count {
                to.write_all(&byte).expect("it is open");
                pass(&mut there, &mut from);
                back.read_exact(&mut byte).expect("it is open");
            }
        })
    })
}

/// Lets two threads make the round trip, on one processor if `together`.
pub(crate) fn threads(together: bool) -> Timed {
    Box::new(move |count| {
        let (mut there, mut to) = pipe().expect("there is a pipe");
        let (mut back, mut from) = pipe().expect("there is a pipe");
        // SAFETY: no preconditions.
        let processor = unsafe { libc::sched_getcpu() }.max(0) as usize;
        let place = move || {
            if together {
                stay_on(processor);
            }
        };
        thread::scope(|scope| {
            scope.spawn(move || {
                place();
                (0..=count).for_each(|_| pass(&mut there, &mut from));
            });
            let lap = scope.spawn(move || {
                place();
                let mut byte = [0];
                let mut round = || {
                    to.write_all(&byte).expect("it is open");
                    back.read_exact(&mut byte).expect("it is open");
                };
                // The first round does not count: after it, the other thread has begun.
                round();
                Lap::run(count, || (0..count).for_each(|_| round()))
            });
            lap.join().expect("it does not panic")
        })
    })
}
