//! may: stackful coroutines on `generator`.
//!
//! A process can configure may's workers only once, so each contender has a process of its own.

use crate::load::{self, BATCH, Gate, LEAF_STEPS, LONG, SHORT, TREE_DEPTH, mix};
use crate::measure::{Lap, Timed};
use may::coroutine::{JoinHandle, sleep, yield_now};
use may::go;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub(crate) const ONE: &str = "0.3.51, set_workers(1), 32 KiB stacks, set_pool_capacity(20000)";
pub(crate) const TWO: &str = "0.3.51, set_workers(2), 32 KiB stacks, set_pool_capacity(20000)";

pub(crate) const ASLEEP: &str = "0.3.51, set_workers(2), 32 KiB stacks, the default pool of 1,000";

pub(crate) const TOO_MANY: &str =
    "a stack and its guard are two mappings, and the kernel allows 65,530";

/// Returns work that a coroutine times.
pub(super) fn timed(workers: usize, lap: impl Fn(u64) -> Lap + Send + Copy + 'static) -> Timed {
    // The capacity exceeds the coroutines of any benchmark: may unmaps a coroutine that does not
    // fit into the pool.
    may::config().set_workers(workers).set_pool_capacity(20_000);
    Box::new(move |count| join(go!(move || lap(count))))
}

pub(super) fn join<T>(coroutine: JoinHandle<T>) -> T {
    coroutine.join().expect("it does not panic")
}

/// Lets `coroutines` coroutines yield in turn.
///
/// The last coroutine to arrive opens the gate. A worker takes new coroutines only when no old one
/// is ready, so a driver that yields until all have arrived would wait for ever.
pub(crate) fn yielding(coroutines: u64) -> Timed {
    timed(1, move |count| {
        let each = count.div_ceil(coroutines);
        let gate = Arc::new((Gate::default(), OnceLock::new()));
        let begin = |_| {
            let gate = gate.clone();
            go!(move || {
                let (gate, start) = &*gate;
                if gate.arrive() == coroutines {
                    start.get_or_init(Instant::now);
                    gate.open();
                }
                while !gate.is_open() {
                    yield_now();
                }
                for _ in 0..each {
                    yield_now();
                }
            })
        };
        let all: Vec<_> = (0..coroutines).map(begin).collect();
        all.into_iter().for_each(join);
        Lap::new(gate.1.get().expect("all have begun").elapsed(), each * coroutines)
    })
}

pub(crate) fn spawn_seq(workers: usize) -> Timed {
    timed(workers, |count| {
        Lap::run(count, || {
            for number in 0..count {
                black_box(join(go!(move || black_box(number))));
            }
        })
    })
}

pub(crate) fn spawn_batch(workers: usize) -> Timed {
    timed(workers, |count| {
        let batches = count.div_ceil(BATCH);
        let mut all = Vec::with_capacity(BATCH as usize);
        Lap::run(batches * BATCH, || {
            for _ in 0..batches {
                all.extend((0..BATCH).map(|number| go!(move || black_box(number))));
                all.drain(..).for_each(|coroutine| {
                    black_box(join(coroutine));
                });
            }
        })
    })
}

/// Lets the only coroutine of a worker sleep for a short time, again and again.
pub(crate) fn sleeping() -> Timed {
    timed(1, |count| Lap::run(count, || (0..count).for_each(|_| sleep(SHORT))))
}

fn tree(depth: u32, index: u64) -> u64 {
    if depth == 0 {
        return mix(index, LEAF_STEPS);
    }
    let right = go!(move || tree(depth - 1, 2 * index + 1));
    let left = tree(depth - 1, 2 * index);
    left.wrapping_add(join(right))
}

pub(crate) fn fork_join() -> Timed {
    timed(2, |count| {
        Lap::run(count, || {
            for _ in 0..count {
                black_box(tree(black_box(TREE_DEPTH), 0));
            }
        })
    })
}

/// Starts `count` coroutines that sleep, and returns when all of them sleep.
fn sleepers(count: u64) {
    static ASLEEP: AtomicU64 = AtomicU64::new(0);
    // The pool keeps its default size. may fills the pool at the start, and a large one would count
    // as memory of the sleepers.
    may::config().set_workers(2);
    join(go!(move || {
        for _ in 0..count {
            drop(go!(|| {
                ASLEEP.fetch_add(1, Ordering::Relaxed);
                sleep(LONG);
            }));
        }
        while ASLEEP.load(Ordering::Relaxed) < count {
            sleep(Duration::from_millis(1));
        }
    }));
}

pub(crate) fn memory(count: u64) -> f64 {
    load::bytes_each(count, || sleepers(count))
}

pub(crate) fn idle(count: u64) -> f64 {
    load::idle_cpu(|| sleepers(count))
}
