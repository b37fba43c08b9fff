//! Contexts that sleep, by hand: the least memory and time for a million suspended fibers.
//!
//! Each context has a guarded stack, runs once, and switches back for good. It has no closure, no
//! timer and no control block.

use super::memory;
use super::stacks::{BATCH, Stacks};
use super::switch::{Context, prepare, switch};
use std::hint::black_box;
use std::time::Instant;

pub(crate) const SETTINGS: &str = "by hand: a context runs once on 256 KiB above a guard page";

const MILLION: usize = 1_000_000;

/// Returns the bytes of a context: resident memory and page tables.
pub(crate) fn bytes() -> f64 {
    let before = memory();
    match sleepers(MILLION) {
        Some(()) => (memory() - before) as f64 / MILLION as f64,
        None => f64::NAN,
    }
}

/// Returns the nanoseconds to make a context and let it sleep.
pub(crate) fn time() -> f64 {
    let start = Instant::now();
    match sleepers(MILLION) {
        Some(()) => start.elapsed().as_nanos() as f64 / MILLION as f64,
        None => f64::NAN,
    }
}

/// Makes `count` contexts that sleep until the process ends.
fn sleepers(count: usize) -> Option<()> {
    let stacks = Stacks::map(count)?;
    for first in (0..count).step_by(BATCH) {
        let batch = first..count.min(first + BATCH);
        stacks.guard(batch.clone())?;
        for slot in batch {
            // SAFETY: each slot is a new stack, and its context is entered once.
            black_box(unsafe { switch(prepare(stacks.top(slot), sleep)) });
        }
    }
    Some(())
}

/// Switches back to the context that started this one, and never continues.
///
/// # Safety
/// `starter` is suspended, and nothing else switches to it.
unsafe extern "C" fn sleep(starter: Context) -> ! {
    // SAFETY: the caller promises that the starter is suspended.
    unsafe { switch(starter) };
    unreachable!("no context wakes it")
}
