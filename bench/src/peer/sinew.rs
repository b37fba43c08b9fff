//! sinew's contenders in the suite `context`.

use super::round_robin;
use crate::measure::{Lap, Timed};
use sinew_context::FiberContext;
use sinew_context::stack::{StackAllocator, StackCache, StackPool};
use std::hint::black_box;

pub(crate) const SETTINGS: &str = "StackCache, 256 KiB guarded stacks";

/// Returns a fiber that switches back to its resumer, for ever.
fn bouncing(stacks: &impl StackAllocator) -> FiberContext {
    let fiber = FiberContext::with_allocator(stacks, |mut caller| {
        loop {
            caller = caller.resume().expect("the caller does not end");
        }
    });
    fiber.expect("there is memory for a stack").resume().expect("the fiber is suspended")
}

/// Resumes `count` fibers in turn, each of which switches back.
pub(crate) fn switch(count: usize) -> Timed {
    let pool = StackPool::new().expect("the default sizes are valid");
    let stacks = StackCache::new(&pool);
    if count == 1 {
        // Keep a single fiber in a variable, as a program would.
        let mut kept = Some(bouncing(&stacks));
        return Box::new(move |switches| {
            let rounds = (switches / 2).max(1);
            Lap::run(2 * rounds, || {
                let mut fiber = kept.take().expect("the fiber was put back");
                for _ in 0..rounds {
                    fiber = fiber.resume().expect("the fiber does not end");
                }
                kept = Some(fiber);
            })
        });
    }
    let fibers: Vec<Option<FiberContext>> = (0..count).map(|_| Some(bouncing(&stacks))).collect();
    round_robin(fibers, |fiber| *fiber = fiber.take().and_then(FiberContext::resume))
}

/// Makes a fiber, runs it to its end, and gives its stack back.
pub(crate) fn create() -> Timed {
    let pool = StackPool::new().expect("the default sizes are valid");
    let stacks = StackCache::new(&pool);
    Box::new(move |count| {
        Lap::run(count, || {
            for number in 0..count {
                let fiber = FiberContext::with_allocator(&stacks, move |caller| {
                    black_box(number);
                    caller
                });
                let _ = black_box(fiber.expect("a stack is there").resume());
            }
        })
    })
}

/// Returns the bytes of a suspended fiber, resident and in page tables, when a million are alive.
pub(crate) fn million() -> f64 {
    let count = crate::suite::context::MILLION;
    let mut fibers: Vec<FiberContext> = Vec::with_capacity(count);
    // Touch the vector, so that its memory does not count.
    let spare = fibers.spare_capacity_mut();
    spare.iter_mut().step_by(512).for_each(|place| *place = std::mem::MaybeUninit::zeroed());
    let before = crate::floor::memory();
    let pool = StackPool::new().expect("the default sizes are valid");
    let stacks = StackCache::new(&pool);
    for _ in 0..count {
        fibers.push(bouncing(&stacks));
    }
    let after = crate::floor::memory();
    std::mem::forget(fibers);
    (after - before) as f64 / count as f64
}
