//! Fibers that move between carriers.

use sinew::{FiberBuilder, Runtime};
use sinew_testkit::watch;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn migratable(runtime: &Runtime) -> FiberBuilder {
    // SAFETY: the closures of this file keep only `Send` values, and no thread-locals, across
    // waits.
    unsafe { FiberBuilder::new().migratable() }.runtime(runtime.handle())
}

#[test]
fn every_wait_works_while_moving() {
    let _watch = watch::watchdog(Duration::from_secs(120));
    let runtime = Runtime::builder().carriers(3).build().unwrap();
    let total = Arc::new(AtomicUsize::new(0));
    let fibers: Vec<_> = (0..50_usize)
        .map(|n| {
            let total = total.clone();
            migratable(&runtime)
                .spawn(move || {
                    let values: Vec<usize> = (0..20).collect();
                    for round in 0..60 {
                        match (round + n) % 6 {
                            0 => sinew::yield_now(),
                            1 => sinew::sleep(Duration::from_micros(20)),
                            2 => assert_eq!(sinew::spawn(move || n).join().unwrap(), n),
                            3 => sinew::park_timeout(Duration::from_micros(10)),
                            4 => {
                                let sum = sinew::scope(|s| {
                                    s.spawn(|| values.iter().sum::<usize>()).join().unwrap()
                                });
                                assert_eq!(sum, 190);
                            }
                            _ => {
                                let out = sinew::timeout(Duration::from_micros(30), sinew::park);
                                assert_eq!(out, Err(sinew::Elapsed));
                            }
                        }
                        total.fetch_add(1, Ordering::Relaxed);
                    }
                    n
                })
                .unwrap()
        })
        .collect();
    for (n, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().unwrap(), n);
    }
    assert_eq!(total.load(Ordering::Relaxed), 3000);
}

/// Some fibers end early, so that one carrier becomes idle and takes over fibers of the other.
#[test]
fn started_fibers_leave_a_busy_carrier() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let moved = Arc::new(AtomicUsize::new(0));
    let end = Instant::now() + Duration::from_secs(30);
    while moved.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < end, "nobody moved");
        let fibers: Vec<_> = (0..8)
            .map(|n| {
                let moved = moved.clone();
                migratable(&runtime)
                    .spawn(move || {
                        let mut before = sinew::current_carrier();
                        for _ in 0..if n < 4 { 2 } else { 40 } {
                            let end = Instant::now() + Duration::from_micros(50);
                            while Instant::now() < end {
                                std::hint::spin_loop();
                            }
                            sinew::yield_now();
                            let now = sinew::current_carrier();
                            moved.fetch_add(usize::from(now != before), Ordering::Relaxed);
                            before = now;
                        }
                    })
                    .unwrap()
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    }
}

#[test]
fn an_unwinding_fiber_stays_on_its_thread() {
    let _watch = watch::a_minute();
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            let here = std::thread::current().id();
            for _ in 0..20 {
                sinew::yield_now();
                sinew::sleep(Duration::from_micros(10));
                assert_eq!(std::thread::current().id(), here);
                assert!(std::thread::panicking());
            }
        }
    }
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let fibers: Vec<_> = (0..20)
        .map(|_| {
            migratable(&runtime)
                .spawn(|| {
                    let _waits = Waits;
                    panic!("on purpose");
                })
                .unwrap()
        })
        .collect();
    for fiber in fibers {
        let payload = fiber.join().unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    }
    runtime.run(|| assert!(!std::thread::panicking()));
}

#[test]
fn a_cancellation_finds_a_moving_fiber() {
    let _watch = watch::watchdog(Duration::from_secs(120));
    let runtime = Runtime::builder().carriers(3).build().unwrap();
    for round in 0..300_u32 {
        let fiber = migratable(&runtime)
            .spawn(move || {
                loop {
                    if round % 2 == 0 {
                        sinew::yield_now();
                    } else {
                        sinew::park_timeout(Duration::from_micros(5));
                    }
                    if round % 5 == 0 {
                        sinew::park();
                    }
                }
            })
            .unwrap();
        for _ in 0..round {
            std::hint::spin_loop();
        }
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    }
}
