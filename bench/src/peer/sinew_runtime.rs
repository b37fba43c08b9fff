//! sinew's contenders in the suite `runtime`.

use crate::balance::{Play, Turn};
use crate::load::{
    self, BATCH, CROWD, Gate, LEAF_STEPS, LONG, Naps, SHORT, SKYNET_CHILDREN, SKYNET_LEAVES,
    SKYNET_SUM, SLEEPS, Slept, TREE_DEPTH, WAITS, WORK_STEPS, mix,
};
use crate::measure::{Lap, Timed};
use sinew::{JoinHandle, Runtime, park, sleep, spawn, spawn_local, yield_now};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) const ONE: &str = "1 carrier, 256 KiB guarded stacks";
pub(crate) const TWO: &str = "2 carriers, 256 KiB guarded stacks";
pub(crate) const MIGRATABLE: &str = "2 carriers, migratable fibers";
pub(crate) const BOUND: &str = "2 carriers, spawn: a fiber is bound to the carrier that starts it";
pub(crate) const LOCAL: &str = "2 carriers, spawn_local: fibers never leave the first carrier";

fn runtime(carriers: usize) -> Runtime {
    Runtime::builder().carriers(carriers).build().expect("a runtime can be made")
}

/// Returns work that a fiber times.
pub(super) fn timed(carriers: usize, lap: impl Fn(u64) -> Lap + Send + Copy + 'static) -> Timed {
    let runtime = runtime(carriers);
    Box::new(move |count| runtime.run(move || lap(count)))
}

pub(super) fn join<T>(fiber: JoinHandle<T>) -> T {
    fiber.join().expect("it does not panic")
}

/// Lets `fibers` fibers yield in turn.
pub(crate) fn yielding(fibers: u64) -> Timed {
    timed(1, move |count| {
        let each = count.div_ceil(fibers);
        let gate = Arc::new(Gate::default());
        let begin = |_| {
            let gate = gate.clone();
            spawn(move || {
                gate.arrive();
                while !gate.is_open() {
                    yield_now();
                }
                for _ in 0..each {
                    yield_now();
                }
            })
        };
        let all: Vec<_> = (0..fibers).map(begin).collect();
        while gate.arrived() < fibers {
            yield_now();
        }
        Lap::run(each * fibers, || {
            gate.open();
            all.into_iter().for_each(join);
        })
    })
}

pub(crate) fn spawn_seq(carriers: usize) -> Timed {
    timed(carriers, |count| {
        Lap::run(count, || {
            for number in 0..count {
                black_box(join(spawn(move || black_box(number))));
            }
        })
    })
}

pub(crate) fn spawn_batch(carriers: usize) -> Timed {
    timed(carriers, |count| {
        let batches = count.div_ceil(BATCH);
        let mut all = Vec::with_capacity(BATCH as usize);
        Lap::run(batches * BATCH, || {
            for _ in 0..batches {
                all.extend((0..BATCH).map(|number| spawn(move || black_box(number))));
                all.drain(..).for_each(|fiber| {
                    black_box(join(fiber));
                });
            }
        })
    })
}

fn tree(depth: u32, index: u64) -> u64 {
    if depth == 0 {
        return mix(index, LEAF_STEPS);
    }
    let right = spawn(move || tree(depth - 1, 2 * index + 1));
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

fn skynet_node(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return first;
    }
    let share = leaves / SKYNET_CHILDREN;
    let child = |index| spawn(move || skynet_node(first + index * share, share));
    let children: [_; SKYNET_CHILDREN as usize] = std::array::from_fn(|index| child(index as u64));
    children.into_iter().map(join).sum()
}

pub(crate) fn skynet() -> Timed {
    timed(2, |count| {
        Lap::run(count, || {
            for _ in 0..count {
                assert_eq!(skynet_node(0, black_box(SKYNET_LEAVES)), SKYNET_SUM);
            }
        })
    })
}

/// Starts `count` fibers that sleep, and returns when all of them sleep. The runtime is leaked.
fn sleepers(carriers: usize, count: u64) {
    static ASLEEP: AtomicU64 = AtomicU64::new(0);
    let runtime = runtime(carriers);
    runtime.run(move || {
        for _ in 0..count {
            drop(spawn(|| {
                ASLEEP.fetch_add(1, Ordering::Relaxed);
                sleep(LONG);
            }));
        }
        while ASLEEP.load(Ordering::Relaxed) < count {
            yield_now();
        }
    });
    std::mem::forget(runtime);
}

pub(crate) fn memory(count: u64) -> f64 {
    load::bytes_each(count, || sleepers(2, count))
}

pub(crate) fn memory_spawn_time(count: u64) -> f64 {
    load::time_each(count, || sleepers(1, count))
}

pub(crate) fn idle(count: u64) -> f64 {
    load::idle_cpu(|| sleepers(2, count))
}

pub(crate) fn timers(count: u64) -> Slept {
    let runtime = runtime(2);
    Slept::measure(|| {
        runtime.run(move || {
            let sleeper = |number| {
                spawn(move || {
                    let mut naps = Naps::of(number);
                    std::array::from_fn::<f32, SLEEPS, _>(|_| nap(naps.next()))
                })
            };
            let all: Vec<_> = (0..count).map(sleeper).collect();
            all.into_iter().map(join).collect()
        })
    })
}

fn nap(duration: Duration) -> f32 {
    let start = Instant::now();
    sleep(duration);
    load::late(start, duration)
}

/// Lets the only fiber of a carrier sleep for a short time, again and again.
pub(crate) fn sleeping() -> Timed {
    timed(1, |count| Lap::run(count, || (0..count).for_each(|_| sleep(SHORT))))
}

/// Yields and computes in turn.
fn toil(number: u64) {
    for _ in 0..WAITS {
        yield_now();
        black_box(mix(number, WORK_STEPS));
    }
}

fn crowd(begin: impl Fn(u64) -> JoinHandle<()> + Send + Copy + 'static) -> Timed {
    timed(2, move |count| {
        Lap::run(count, || {
            for _ in 0..count {
                let all: Vec<_> = (0..CROWD).map(begin).collect();
                all.into_iter().for_each(join);
            }
        })
    })
}

pub(crate) fn migrate() -> Timed {
    crowd(|number| {
        // SAFETY: the fiber holds numbers only, and calls nothing that uses a thread-local.
        let builder = unsafe { sinew::FiberBuilder::new().migratable() };
        builder.spawn(move || toil(number)).expect("the settings are valid")
    })
}

pub(crate) fn migrate_bound() -> Timed {
    crowd(|number| spawn(move || toil(number)))
}

pub(crate) fn migrate_local() -> Timed {
    crowd(|number| spawn_local(move || toil(number)))
}

/// Lets crowds run on two carriers.
pub(crate) fn crowds() -> Play {
    let runtime = runtime(2);
    Box::new(move |crowd| {
        runtime.run(|| {
            let start = Instant::now();
            let take_turns = |turns: Vec<Turn>| {
                spawn(move || {
                    for turn in turns {
                        match turn.sleep.is_zero() {
                            true => yield_now(),
                            false => sleep(turn.sleep),
                        }
                        black_box(mix(1, turn.steps));
                    }
                })
            };
            let all: Vec<_> = crowd.into_iter().map(take_turns).collect();
            all.into_iter().for_each(join);
            start.elapsed()
        })
    })
}

/// Spawns a fiber that parks, and cancels it there.
///
/// The fiber wakes the driver right before it parks. A fiber that is cancelled before it has begun
/// would not be unwound at all.
pub(crate) fn unwind() -> Timed {
    timed(1, |count| {
        let driver = sinew::current();
        Lap::run(count, || {
            for _ in 0..count {
                let driver = driver.clone();
                let fiber = spawn(move || {
                    driver.unpark();
                    park();
                    unreachable!("it is cancelled, not woken");
                });
                park();
                fiber.cancel();
                let result: std::thread::Result<()> = fiber.join();
                assert!(result.is_err_and(|payload| sinew::is_cancel(&*payload)));
            }
        })
    })
}
