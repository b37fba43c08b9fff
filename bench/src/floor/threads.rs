//! Threads of the operating system, for comparison, and the processors that they run on.

use crate::load::SHORT;
use crate::measure::{Lap, Timed};
use std::sync::Barrier;
use std::thread;

pub(crate) const SETTINGS: &str = "2 threads on one processor, sched_yield";
pub(crate) const SLEEPING: &str = "std::thread::sleep, the kernel's default slack";

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

/// A thread sleeps for a short time, again and again.
pub(crate) fn sleeping() -> Timed {
    Box::new(|count| Lap::run(count, || (0..count).for_each(|_| thread::sleep(SHORT))))
}

/// Returns a processor that the calling thread may use, counted from the last one. The count wraps
/// around after the first processor.
pub(crate) fn processor_from_last(number: usize) -> usize {
    let mut all: Vec<usize> = processors(&allowed()).collect();
    all.reverse();
    all.get(number % all.len().max(1)).copied().unwrap_or(0)
}

/// Keeps the calling thread on the first processor that it may use, until this value is dropped.
pub(crate) struct OnFirst {
    before: libc::cpu_set_t,
}

impl OnFirst {
    pub(crate) fn stay() -> OnFirst {
        let before = allowed();
        stay_on(processors(&before).next().unwrap_or(0));
        OnFirst { before }
    }

    /// Returns the last processor that the thread could use before. It differs from the first one
    /// if there are two.
    pub(crate) fn last(&self) -> usize {
        processors(&self.before).next_back().unwrap_or(0)
    }
}

impl Drop for OnFirst {
    fn drop(&mut self) {
        // SAFETY: the call only reads the set.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.before), &self.before) };
    }
}

/// Returns the processors that the calling thread may use.
fn allowed() -> libc::cpu_set_t {
    // SAFETY: an all-zero set is an empty one, and the call writes only to the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        set
    }
}

fn processors(set: &libc::cpu_set_t) -> impl DoubleEndedIterator<Item = usize> {
    // SAFETY: the index is below the size of a set.
    (0..libc::CPU_SETSIZE as usize).filter(|one| unsafe { libc::CPU_ISSET(*one, set) })
}

/// Keeps the calling thread on a processor.
pub(crate) fn stay_on(processor: usize) {
    // SAFETY: an all-zero set is an empty one, and the calls access only the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
