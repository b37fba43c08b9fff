//! A program that is stuck, to be examined with the commands `fibers` and `fiber apply all bt` of
//! `tools/gdb/sinew.py`.
//!
//! With an argument it aborts, and leaves a core file if the system is set up for them.

use std::io::Read;
use std::time::Duration;

#[inline(never)]
fn waits_for_a_signal_that_never_comes() {
    sinew::park();
    std::hint::black_box(());
}

#[inline(never)]
fn recurses(depth: usize) {
    if depth == 0 {
        waits_for_a_signal_that_never_comes();
    } else {
        recurses(depth - 1);
    }
    std::hint::black_box(depth);
}

pub(crate) fn main() -> std::io::Result<()> {
    let runtime = sinew::Runtime::builder().carriers(2).build()?;
    let mut fibers = Vec::new();
    for depth in 0..3 {
        let named = sinew::FiberBuilder::new().name(format!("depth {depth}"));
        fibers.push(named.runtime(runtime.handle()).spawn(move || recurses(depth))?);
    }
    let (mut reader, _writer) = sinew::io::pipe()?;
    fibers.push(runtime.spawn(move || drop(reader.read(&mut [0]))));
    let stuck = || fibers.iter().all(|fiber| fiber.fiber().state() == sinew::FiberState::Suspended);
    sinew::wait_until_timeout(stuck, Duration::from_secs(10));
    if std::env::args().len() > 1 {
        std::process::abort();
    }
    fibers.into_iter().for_each(|fiber| drop(fiber.join()));
    Ok(())
}
