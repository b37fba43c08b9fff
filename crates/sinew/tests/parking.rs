//! `park` and `unpark`, between fibers and threads.

use sinew::{FiberState, Runtime};
use sinew_testkit::watch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn unpark_before_park_returns_at_once() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        sinew::current().unpark();
        sinew::current().unpark();
        sinew::park();
        // Two unparks before a park let one park pass.
        let start = Instant::now();
        sinew::park_timeout(Duration::from_millis(5));
        assert!(start.elapsed() >= Duration::from_millis(5));
    });
    sinew::current().unpark();
    sinew::park();
    sinew::park_timeout(Duration::from_millis(1));
}

#[test]
fn park_timeout_accepts_zero_and_the_maximum() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        sinew::park_timeout(Duration::ZERO);
        let me = sinew::current();
        let other = sinew::spawn(move || me.unpark());
        sinew::park_timeout(Duration::MAX);
        other.join().unwrap();
    });
}

#[test]
fn unpark_of_an_ended_fiber_does_nothing() {
    let _watch = watch::a_minute();
    let fiber = sinew::spawn(|| ());
    let handle = fiber.fiber();
    fiber.join().unwrap();
    handle.unpark();
    handle.cancel();
    assert_eq!(handle.state(), FiberState::Dead);
}

/// A token goes round a ring of fibers: each waits for it and passes it on.
fn ring(runtime: &Runtime, size: usize, rounds: usize) {
    runtime.run(move || {
        let count = Arc::new(AtomicUsize::new(0));
        let handles = Arc::new(sinew::sync::OnceLock::<Vec<sinew::Fiber>>::new());
        let fibers: Vec<_> = (0..size)
            .map(|index| {
                let (count, handles) = (count.clone(), handles.clone());
                sinew::spawn(move || {
                    let total = size * rounds;
                    loop {
                        while count.load(Ordering::Acquire) % size != index
                            && count.load(Ordering::Acquire) < total
                        {
                            sinew::park();
                        }
                        // The first fiber may run before all fibers are made.
                        sinew::wait_until(|| handles.get().is_some());
                        let handles = handles.get().unwrap();
                        if count.load(Ordering::Acquire) >= total {
                            // Wake the next fiber, so that every fiber sees the end.
                            handles[(index + 1) % size].unpark();
                            return;
                        }
                        count.fetch_add(1, Ordering::AcqRel);
                        handles[(index + 1) % size].unpark();
                    }
                })
            })
            .collect();
        handles.set(fibers.iter().map(sinew::JoinHandle::fiber).collect()).unwrap();
        fibers[0].fiber().unpark();
        for fiber in fibers {
            fiber.join().unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), size * rounds);
    });
}

#[test]
fn no_token_is_lost_on_one_carrier() {
    let _watch = watch::a_minute();
    ring(&Runtime::builder().carriers(1).build().unwrap(), 10, 1000);
}

#[test]
fn no_token_is_lost_between_carriers() {
    let _watch = watch::a_minute();
    ring(&Runtime::builder().carriers(3).build().unwrap(), 10, 500);
}

#[test]
fn threads_and_fibers_wake_each_other() {
    let _watch = watch::a_minute();
    let turn = Arc::new(AtomicUsize::new(0));
    let rounds = 2000;
    let thread = sinew::current();
    let theirs = turn.clone();
    let fiber = sinew::spawn(move || {
        for round in 0..rounds {
            while theirs.load(Ordering::Acquire) != 2 * round + 1 {
                sinew::park();
            }
            theirs.fetch_add(1, Ordering::AcqRel);
            thread.unpark();
        }
    });
    let handle = fiber.fiber();
    for round in 0..rounds {
        turn.fetch_add(1, Ordering::AcqRel);
        handle.unpark();
        while turn.load(Ordering::Acquire) != 2 * round + 2 {
            sinew::park();
        }
    }
    fiber.join().unwrap();
}

#[test]
fn a_timeout_that_races_an_unpark_loses_nothing() {
    let _watch = watch::a_minute();
    // A notification is kept until it is seen, whatever the result of the timeout.
    sinew::run(|| {
        for round in 0..2000_u64 {
            let done = Arc::new(AtomicBool::new(false));
            let theirs = done.clone();
            let fiber = sinew::spawn(move || {
                while !theirs.load(Ordering::Acquire) {
                    sinew::park_timeout(Duration::from_micros(round % 40));
                }
            });
            for _ in 0..round % 7 {
                sinew::yield_now();
            }
            done.store(true, Ordering::Release);
            fiber.fiber().unpark();
            fiber.join().unwrap();
        }
    });
}

#[test]
fn short_threads_leave_nothing_behind() {
    let _watch = watch::watchdog(Duration::from_secs(120));
    let spawn_some = |count: usize| {
        for _ in 0..count / 50 {
            let threads: Vec<_> = (0..50)
                .map(|_| {
                    std::thread::spawn(|| {
                        sinew::current().unpark();
                        sinew::park();
                        assert_eq!(sinew::spawn(|| 7).join().unwrap(), 7);
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
        }
    };
    spawn_some(1000);
    let before = sinew_testkit::memory::resident();
    // A hundred thousand, in a build that is fast enough.
    spawn_some(if cfg!(debug_assertions) { 5_000 } else { 100_000 });
    let after = sinew_testkit::memory::resident();
    // The sanitizer keeps freed memory, and its data about each thread.
    let kept = cfg!(any(sinew_asan, sinew_tsan));
    assert!(kept || after < before + (8 << 20), "from {before} to {after} bytes");
}
