//! The same with threads of the operating system, for orientation.

use crate::measure::{Lap, Timed};
use std::sync::Barrier;
use std::thread;

pub(crate) const SETTINGS: &str = "2 threads on one processor, sched_yield";

/// Two threads on one processor yield to each other.
pub(crate) fn yielding() -> Timed {
    Box::new(|count| {
        let each = count.div_ceil(2);
        // SAFETY: no preconditions.
        let processor = unsafe { libc::sched_getcpu() }.max(0) as usize;
        let begin = Barrier::new(3);
        thread::scope(|scope| {
            let work = || {
                stay_on(processor);
                begin.wait();
                for _ in 0..each {
                    thread::yield_now();
                }
            };
            let threads = [scope.spawn(work), scope.spawn(work)];
            begin.wait();
            Lap::run(2 * each, || {
                threads.into_iter().for_each(|one| one.join().expect("it does not panic"));
            })
        })
    })
}

/// The last processor that the calling thread may use.
pub(crate) fn last_processor() -> usize {
    // SAFETY: an all-zero set is an empty one; the calls read and write the set alone.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..libc::CPU_SETSIZE as usize).rfind(|one| libc::CPU_ISSET(*one, &set)).unwrap_or(0)
    }
}

/// Keeps the calling thread on a processor.
pub(crate) fn stay_on(processor: usize) {
    // SAFETY: an all-zero set is an empty one; the calls read and write the set alone.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
