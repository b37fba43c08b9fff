//! Starts threads that begin together, for peers that are made for threads.

use crate::measure::Lap;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::Instant;

/// Lets `threads` threads do `operations` operations together. `work` gets the number of its
/// thread.
///
/// The first thread that the barrier releases starts the clock, because the caller may get a
/// processor much later.
pub(super) fn crowd(threads: u64, operations: u64, work: impl Fn(u64) + Sync) -> Lap {
    let begin = Barrier::new(threads as usize);
    let start = OnceLock::new();
    thread::scope(|scope| {
        for number in 0..threads {
            let (begin, start, work) = (&begin, &start, &work);
            scope.spawn(move || {
                begin.wait();
                start.get_or_init(Instant::now);
                work(number);
            });
        }
    });
    Lap::new(start.get().expect("there is a thread").elapsed(), operations)
}
