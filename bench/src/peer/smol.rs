//! async-executor, the executor of `smol`.

use crate::load::{BATCH, Gate};
use crate::measure::{Lap, Timed};
use async_executor::{Executor, LocalExecutor, Task};
use futures_lite::future::{self, block_on, yield_now};
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

pub(crate) const ONE: &str = "async-executor 1.14.1, LocalExecutor";
pub(crate) const TWO: &str = "async-executor 1.14.1, Executor run by 2 threads";

/// Lets `tasks` tasks yield in turn.
pub(crate) fn yielding(tasks: u64) -> Timed {
    let executor = Rc::new(LocalExecutor::new());
    Box::new(move |count| {
        let each = count.div_ceil(tasks);
        let here = executor.clone();
        let driver = executor.spawn(async move {
            let gate = Arc::new(Gate::default());
            let begin = |_| {
                let gate = gate.clone();
                here.spawn(async move {
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
            let start = std::time::Instant::now();
            gate.open();
            for task in all {
                task.await;
            }
            Lap::new(start.elapsed(), each * tasks)
        });
        block_on(executor.run(driver))
    })
}

async fn one_by_one(count: u64, spawn: impl Fn(u64) -> Task<u64>) -> Lap {
    let start = std::time::Instant::now();
    for number in 0..count {
        black_box(spawn(number).await);
    }
    Lap::new(start.elapsed(), count)
}

async fn in_batches(count: u64, spawn: impl Fn(u64) -> Task<u64>) -> Lap {
    let batches = count.div_ceil(BATCH);
    let mut all = Vec::with_capacity(BATCH as usize);
    let start = std::time::Instant::now();
    for _ in 0..batches {
        all.extend((0..BATCH).map(&spawn));
        for task in all.drain(..) {
            black_box(task.await);
        }
    }
    Lap::new(start.elapsed(), batches * BATCH)
}

async fn number(number: u64) -> u64 {
    black_box(number)
}

pub(crate) fn spawn_seq() -> Timed {
    let executor = Rc::new(LocalExecutor::new());
    Box::new(move |count| {
        let here = executor.clone();
        let driver = executor
            .spawn(async move { one_by_one(count, |index| here.spawn(number(index))).await });
        block_on(executor.run(driver))
    })
}

pub(crate) fn spawn_batch() -> Timed {
    let executor = Rc::new(LocalExecutor::new());
    Box::new(move |count| {
        let here = executor.clone();
        let driver = executor
            .spawn(async move { in_batches(count, |index| here.spawn(number(index))).await });
        block_on(executor.run(driver))
    })
}

/// Returns an executor that two threads run, for ever.
fn two_threads() -> Arc<Executor<'static>> {
    let executor = Arc::new(Executor::new());
    for _ in 0..2 {
        let executor = executor.clone();
        thread::spawn(move || block_on(executor.run(future::pending::<()>())));
    }
    executor
}

pub(crate) fn spawn_seq_2() -> Timed {
    let executor = two_threads();
    Box::new(move |count| {
        let here = executor.clone();
        block_on(
            executor
                .spawn(async move { one_by_one(count, |index| here.spawn(number(index))).await }),
        )
    })
}

pub(crate) fn spawn_batch_2() -> Timed {
    let executor = two_threads();
    Box::new(move |count| {
        let here = executor.clone();
        block_on(
            executor
                .spawn(async move { in_batches(count, |index| here.spawn(number(index))).await }),
        )
    })
}
