//! Races by the million, with seeded random choices. `SINEW_STRESS_SECONDS` makes them longer.
//!
//! This file tests the runtime, `sync` the locks, signals and channels, and `io` connections.

mod inspecting;
mod io;
mod sync;

use sinew::{FiberBuilder, Runtime};
use sinew_testkit::watch;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn seconds() -> Duration {
    let seconds = std::env::var("SINEW_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.0))
}

fn patience() -> watch::Watchdog {
    watch::watchdog(seconds() * 5 + Duration::from_secs(60))
}

/// Runs `step` until the time is over. Fails if `progress` stands still.
fn for_a_while(progress: &AtomicU64, mut step: impl FnMut()) {
    let end = Instant::now() + seconds();
    let mut last = (0, Instant::now());
    while Instant::now() < end {
        step();
        let now = progress.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
        assert!(last.1.elapsed() < Duration::from_secs(20), "no progress since {now}");
    }
}

/// Carriers pass from one runtime to the next. No fiber gets into another runtime.
#[test]
fn runtimes_by_the_thousand() {
    let _patience = patience();
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = [1, 2, 4]
        .map(|carriers| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let runtime = Runtime::builder().carriers(carriers).build().unwrap();
                    runtime.run(|| {
                        let fibers: Vec<_> = (0..64_u64).map(|n| sinew::spawn(move || n)).collect();
                        for (n, fiber) in fibers.into_iter().enumerate() {
                            assert_eq!(fiber.join().unwrap(), n as u64);
                        }
                    });
                    runtime.shutdown_timeout(Duration::from_secs(30)).unwrap();
                }
            })
        })
        .into();
    std::thread::sleep(seconds());
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Threads wake migratable fibers before these have left their stacks.
#[test]
fn wakes_of_fibers_that_move() {
    let _patience = patience();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let fibers: Vec<_> = (0..4)
        .map(|_| {
            let (stop, count) = (stop.clone(), count.clone());
            // SAFETY: the closure keeps only `Send` values.
            let builder = unsafe { FiberBuilder::new().migratable() };
            builder
                .runtime(runtime.handle())
                .spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        sinew::park();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
                .unwrap()
        })
        .collect();
    let handles: Vec<_> = fibers.iter().map(sinew::JoinHandle::fiber).collect();
    let other = {
        let (handles, stop) = (handles.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                handles.iter().for_each(sinew::Fiber::unpark);
            }
        })
    };
    for_a_while(&count, || handles.iter().for_each(sinew::Fiber::unpark));
    stop.store(true, Ordering::Relaxed);
    other.join().unwrap();
    for fiber in fibers {
        fiber.fiber().unpark();
        fiber.join().unwrap();
    }
}

/// Deadlines, and wakes from the same carrier, from another and from a thread, all at once.
#[test]
fn parks_and_wakes_from_everywhere() {
    let _patience = patience();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let on = |carrier: usize| FiberBuilder::new().runtime(runtime.handle()).carrier(carrier);
    let fibers: Vec<_> = (0..6_u64)
        .map(|n| {
            let (stop, count) = (stop.clone(), count.clone());
            let body = move || {
                let mut round = n;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let timeout = if round % 3 == 0 { round % 50 } else { 100_000_000 };
                    sinew::park_timeout(Duration::from_micros(timeout));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            };
            on(n as usize % 2).spawn(body).unwrap()
        })
        .collect();
    let handles: Vec<_> = fibers.iter().map(sinew::JoinHandle::fiber).collect();
    let wakers: Vec<_> = (0..2)
        .map(|carrier| {
            let (handles, stop) = (handles.clone(), stop.clone());
            let body = move || {
                while !stop.load(Ordering::Relaxed) {
                    handles.iter().for_each(sinew::Fiber::unpark);
                    sinew::yield_now();
                }
            };
            on(carrier).spawn(body).unwrap()
        })
        .collect();
    for_a_while(&count, || handles.iter().for_each(sinew::Fiber::unpark));
    stop.store(true, Ordering::Relaxed);
    handles.iter().for_each(sinew::Fiber::unpark);
    for fiber in fibers.into_iter().chain(wakers) {
        fiber.fiber().unpark();
        fiber.join().unwrap();
    }
}

/// One thread drops handles while another scans every control block, to shut a runtime down.
#[test]
fn handles_go_while_all_fibers_are_scanned() {
    let _patience = patience();
    let rounds = AtomicU64::new(0);
    for_a_while(&rounds, || {
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (handle, stopped) = (runtime.handle().clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut number = 0_u64;
            while !stopped.load(Ordering::Relaxed) {
                let fibers: Vec<_> = (0..16)
                    .map(|_| {
                        number += 1;
                        let number = number;
                        (number, handle.spawn(move || number))
                    })
                    .collect();
                for (number, fiber) in fibers {
                    if let Ok(result) = fiber.join() {
                        assert_eq!(result, number, "the result of another fiber");
                    }
                }
            }
        });
        std::thread::sleep(Duration::from_micros(300));
        runtime.shutdown_timeout(Duration::from_secs(30)).unwrap();
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        rounds.fetch_add(1, Ordering::Relaxed);
    });
}

/// A migratable fiber is cancelled at every moment of a wait in its destructor.
#[test]
fn cancelled_while_unwinding_and_moving() {
    static READY: AtomicBool = AtomicBool::new(false);
    static SPIN: AtomicUsize = AtomicUsize::new(0);
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            READY.store(true, Ordering::SeqCst);
            (0..SPIN.load(Ordering::SeqCst)).for_each(|_| std::hint::spin_loop());
            sinew::sleep(Duration::from_micros(30));
        }
    }
    let _patience = patience();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let rounds = AtomicU64::new(0);
    for_a_while(&rounds, || {
        let round = rounds.fetch_add(1, Ordering::Relaxed) as usize;
        READY.store(false, Ordering::SeqCst);
        SPIN.store(round * 7 % 5, Ordering::SeqCst);
        // SAFETY: the closure keeps only `Send` values.
        let builder = unsafe { FiberBuilder::new().migratable() };
        let fiber = builder.runtime(runtime.handle()).spawn(|| {
            let _waits = Waits;
            resume_unwind(Box::new(1_u8));
        });
        let fiber = fiber.unwrap();
        while !READY.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
        (0..round % 6).for_each(|_| std::hint::spin_loop());
        fiber.cancel();
        assert!(fiber.join().is_err());
    });
}

/// A tree of fibers on several carriers: spawns, steals and joins.
#[test]
fn trees_of_fibers() {
    fn tree(depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let children: [_; 3] = std::array::from_fn(|_| sinew::spawn(move || tree(depth - 1)));
        if depth.is_multiple_of(2) {
            sinew::yield_now();
        }
        children.into_iter().map(|child| child.join().unwrap()).sum()
    }
    let _patience = patience();
    let runtime = Runtime::builder().carriers(3).build().unwrap();
    let rounds = AtomicU64::new(0);
    for_a_while(&rounds, || {
        assert_eq!(runtime.run(|| tree(6)), 729);
        rounds.fetch_add(1, Ordering::Relaxed);
    });
}
