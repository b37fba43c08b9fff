//! Many fibers, at once and one after the other.

use sinew::Runtime;
use sinew_testkit::child::child;
use sinew_testkit::{memory, watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A debug build needs more memory for each fiber, and more time.
const MILLION: usize = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

#[test]
fn a_million_fibers_sleep_at_once() {
    let needed = MILLION * (20 << 10);
    if memory::available() < needed {
        // Print this, so that the skipped test is not taken for a pass.
        let free = memory::available() >> 20;
        std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("LEFT OUT: {MILLION} sleepers need {} MiB, {free} are free\n", needed >> 20)
                .as_bytes(),
        )
        .unwrap();
        return;
    }
    let outcome = child("a_million_fibers_sleep_at_once", || {
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let asleep = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..MILLION)
            .map(|_| {
                let asleep = asleep.clone();
                runtime.spawn(move || {
                    asleep.fetch_add(1, Ordering::Relaxed);
                    sinew::sleep(Duration::from_secs(3600));
                })
            })
            .collect();
        sinew::wait_until(|| asleep.load(Ordering::Relaxed) == MILLION);
        let each = (memory::resident() + memory::page_tables()) / MILLION;
        assert!(each < if cfg!(debug_assertions) { 20 << 10 } else { 5300 }, "{each} bytes each");
        for fiber in &fibers {
            fiber.cancel();
        }
        for fiber in fibers {
            assert!(fiber.join().is_err());
        }
        // The memory comes back when the stacks have cooled down.
        let back = sinew::wait_until_timeout(
            || memory::resident() < MILLION << 10,
            Duration::from_secs(60),
        );
        assert!(back, "{} MiB stay", memory::resident() >> 20);
    });
    outcome.assert_success();
}

#[test]
fn spawning_and_joining_for_long_does_not_grow() {
    let outcome = child("spawning_and_joining_for_long_does_not_grow", || {
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        runtime.run(|| {
            let spawn_some = |count: u64| {
                for n in 0..count {
                    assert_eq!(sinew::spawn(move || n).join().unwrap(), n);
                }
            };
            spawn_some(10_000);
            let before = memory::resident();
            // Ten million, in a build that is fast enough.
            spawn_some(if cfg!(debug_assertions) { 300_000 } else { 10_000_000 });
            let after = memory::resident();
            assert!(after < before + (2 << 20), "from {before} to {after} bytes");
        });
    });
    outcome.assert_success();
}

#[test]
fn a_snapshot_of_a_hundred_thousand_fibers_is_quick() {
    child("a_snapshot_of_a_hundred_thousand_fibers_is_quick", || {
        const COUNT: usize = 100_000;
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let fibers: Vec<_> = (0..COUNT).map(|_| runtime.spawn(sinew::park)).collect();
        let parked = |all: &[sinew::inspect::FiberInfo]| {
            all.iter().filter(|info| info.state == sinew::FiberState::Suspended).count()
        };
        sinew::wait_until(|| parked(&sinew::fibers()) == COUNT);
        let start = std::time::Instant::now();
        let all = sinew::fibers();
        let taken = start.elapsed();
        assert_eq!(parked(&all), COUNT);

        // Leave room for a busy machine: at some hundred nanoseconds each it would take 10 ms.
        assert!(taken < Duration::from_millis(500), "{taken:?}");
        fibers.iter().for_each(|fiber| fiber.fiber().unpark());
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    })
    .assert_success();
}

/// The control blocks of a burst of fibers are given back: when their carrier has been idle for a
/// while, and when the runtime has ended.
#[test]
fn the_memory_of_control_blocks_is_given_back_after_a_burst() {
    const BURST: usize = 400_000;
    if cfg!(any(sinew_asan, sinew_tsan)) {
        return; // the sanitizers keep freed memory, and have much of their own
    }
    let outcome = child("the_memory_of_control_blocks_is_given_back_after_a_burst", || {
        let _watch = watch::a_minute();
        let burst = || {
            // Unstarted fibers have no stack, so nearly all of their memory is control blocks.
            let fibers: Vec<_> = (0..BURST).map(|_| sinew::spawn(|| ())).collect();
            let resident = memory::resident();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            resident
        };
        let blocks = BURST * 192;
        let ended = |runtime: Runtime| {
            let full = runtime.run(burst);
            drop(runtime);
            (full, memory::resident())
        };
        let runtime = || Runtime::builder().carriers(1).build().unwrap();
        let (full, after) = ended(runtime());
        assert!(after + blocks / 2 < full, "{after} of {full} bytes are left");
        // The blocks are used again, and an idle carrier gives them back as well.
        let runtime = runtime();
        let full = runtime.run(burst);
        while memory::resident() + blocks / 2 >= full {
            std::thread::yield_now();
        }
        assert_eq!(runtime.run(|| sinew::spawn(|| 7).join().unwrap()), 7);
    });
    outcome.assert_success();
}
