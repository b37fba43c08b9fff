//! tokio: tasks are futures, polled by one thread or by several.

use crate::balance::{Play, Turn};
use crate::load::{
    self, BATCH, CROWD, Gate, LEAF_STEPS, LONG, Naps, SHORT, SKYNET_CHILDREN, SKYNET_LEAVES,
    SKYNET_SUM, SLEEPS, Slept, TREE_DEPTH, WAITS, WORK_STEPS, mix,
};
use crate::measure::{Lap, Timed};
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};
use tokio::spawn;
use tokio::task::yield_now;
use tokio::time::sleep;

pub(crate) const CURRENT: &str = "1.54.1, current_thread";
pub(crate) const ONE: &str = "1.54.1, multi_thread, 1 worker";
pub(crate) const TWO: &str = "1.54.1, multi_thread, 2 workers";

/// Returns a runtime on the calling thread.
pub(crate) fn current() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime can be made")
}

/// Returns a runtime with `count` threads of its own.
pub(crate) fn workers(count: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(count).enable_time().build().expect("a runtime can be made")
}

/// Returns work that a task times: tokio spawns faster from a worker than from the thread in
/// `block_on`.
pub(super) fn timed<F, L>(runtime: Runtime, lap: L) -> Timed
where
    F: Future<Output = Lap> + Send + 'static,
    L: Fn(u64) -> F + 'static,
{
    Box::new(move |count| {
        let driver = runtime.spawn(lap(count));
        runtime.block_on(driver).expect("it does not panic")
    })
}

/// Lets the only task of a runtime sleep for a short time, again and again.
pub(crate) fn sleeping(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let start = Instant::now();
        for _ in 0..count {
            sleep(SHORT).await;
        }
        Lap::new(start.elapsed(), count)
    })
}

/// Lets `tasks` tasks yield in turn.
pub(crate) fn yielding(runtime: Runtime, tasks: u64) -> Timed {
    timed(runtime, move |count| async move {
        let each = count.div_ceil(tasks);
        let gate = Arc::new(Gate::default());
        let begin = |_| {
            let gate = gate.clone();
            spawn(async move {
                gate.arrive();
                while !gate.is_open() {
                    yield_now().await;
                }
                for _ in 0..each {
                    yield_now().await;
                }
            })
        };
        let all: Vec<_> = (0..tasks).map(begin).collect();
        while gate.arrived() < tasks {
            yield_now().await;
        }
        let start = Instant::now();
        gate.open();
        for task in all {
            task.await.expect("it does not panic");
        }
        Lap::new(start.elapsed(), each * tasks)
    })
}

pub(crate) fn spawn_seq(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let start = Instant::now();
        for number in 0..count {
            let task = spawn(async move { black_box(number) });
            black_box(task.await.expect("it does not panic"));
        }
        Lap::new(start.elapsed(), count)
    })
}

pub(crate) fn spawn_batch(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let batches = count.div_ceil(BATCH);
        let mut all = Vec::with_capacity(BATCH as usize);
        let start = Instant::now();
        for _ in 0..batches {
            all.extend((0..BATCH).map(|number| spawn(async move { black_box(number) })));
            for task in all.drain(..) {
                black_box(task.await.expect("it does not panic"));
            }
        }
        Lap::new(start.elapsed(), batches * BATCH)
    })
}

/// A boxed future, because an async function cannot contain itself.
type Number = Pin<Box<dyn Future<Output = u64> + Send>>;

fn tree(depth: u32, index: u64) -> Number {
    Box::pin(async move {
        if depth == 0 {
            return mix(index, LEAF_STEPS);
        }
        let right = spawn(tree(depth - 1, 2 * index + 1));
        let left = tree(depth - 1, 2 * index).await;
        left.wrapping_add(right.await.expect("it does not panic"))
    })
}

pub(crate) fn fork_join() -> Timed {
    timed(workers(2), |count| async move {
        let start = Instant::now();
        for _ in 0..count {
            black_box(tree(black_box(TREE_DEPTH), 0).await);
        }
        Lap::new(start.elapsed(), count)
    })
}

fn skynet_node(first: u64, leaves: u64) -> Number {
    Box::pin(async move {
        if leaves == 1 {
            return first;
        }
        let share = leaves / SKYNET_CHILDREN;
        let child = |index| spawn(skynet_node(first + index * share, share));
        let children: [_; SKYNET_CHILDREN as usize] =
            std::array::from_fn(|index| child(index as u64));
        let mut sum = 0;
        for child in children {
            sum += child.await.expect("it does not panic");
        }
        sum
    })
}

pub(crate) fn skynet() -> Timed {
    timed(workers(2), |count| async move {
        let start = Instant::now();
        for _ in 0..count {
            assert_eq!(skynet_node(0, black_box(SKYNET_LEAVES)).await, SKYNET_SUM);
        }
        Lap::new(start.elapsed(), count)
    })
}

/// Starts `count` tasks that sleep, and returns when all of them sleep. The runtime is leaked.
fn sleepers(workers: usize, count: u64) {
    static ASLEEP: AtomicU64 = AtomicU64::new(0);
    let runtime = self::workers(workers);
    let driver = runtime.spawn(async move {
        for _ in 0..count {
            drop(spawn(async {
                ASLEEP.fetch_add(1, Ordering::Relaxed);
                sleep(LONG).await;
            }));
        }
        while ASLEEP.load(Ordering::Relaxed) < count {
            yield_now().await;
        }
    });
    runtime.block_on(driver).expect("it does not panic");
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
    let runtime = workers(2);
    Slept::measure(|| {
        let driver = runtime.spawn(async move {
            let sleeper = |number| {
                spawn(async move {
                    let mut naps = Naps::of(number);
                    let mut late = [0.0; SLEEPS];
                    for late in &mut late {
                        let nap = naps.next();
                        let start = Instant::now();
                        sleep(nap).await;
                        *late = load::late(start, nap);
                    }
                    late
                })
            };
            let all: Vec<_> = (0..count).map(sleeper).collect();
            let mut late = Vec::with_capacity(all.len());
            for task in all {
                late.push(task.await.expect("it does not panic"));
            }
            late
        });
        runtime.block_on(driver).expect("it does not panic")
    })
}

pub(crate) fn migrate() -> Timed {
    timed(workers(2), |count| async move {
        let start = Instant::now();
        for _ in 0..count {
            let begin = |number| {
                spawn(async move {
                    for _ in 0..WAITS {
                        yield_now().await;
                        black_box(mix(number, WORK_STEPS));
                    }
                })
            };
            let all: Vec<_> = (0..CROWD).map(begin).collect();
            for task in all {
                task.await.expect("it does not panic");
            }
        }
        Lap::new(start.elapsed(), count)
    })
}

/// Lets crowds run on two workers.
pub(crate) fn crowds() -> Play {
    let runtime = workers(2);
    Box::new(move |crowd| {
        let driver = runtime.spawn(async move {
            let start = Instant::now();
            let take_turns = |turns: Vec<Turn>| {
                spawn(async move {
                    for turn in turns {
                        match turn.sleep.is_zero() {
                            true => yield_now().await,
                            false => sleep(turn.sleep).await,
                        }
                        black_box(mix(1, turn.steps));
                    }
                })
            };
            let all: Vec<_> = crowd.into_iter().map(take_turns).collect();
            for task in all {
                task.await.expect("it does not panic");
            }
            start.elapsed()
        });
        runtime.block_on(driver).expect("it does not panic")
    })
}
