//! Cancelling fibers, in every kind of wait.

use sinew::{FiberState, Runtime};
use sinew_testkit::{Log, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Runs `wait` in a fiber, cancels the fiber during the wait, and checks that it was unwound.
fn is_cancelled_in(runtime: &Runtime, wait: impl Fn() + Send + Clone + 'static) {
    for from_outside in [true, false] {
        let log = Log::new();
        let (theirs, wait) = (log.clone(), wait.clone());
        let body = move || {
            let _dropped = theirs.on_drop("dropped");
            wait();
            theirs.line("went on");
        };
        let fiber = runtime.spawn(body);
        let handle = fiber.fiber();
        let waits = move || handle.state() == FiberState::Suspended;
        if from_outside {
            sinew::wait_until(waits);
            fiber.cancel();
            assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        } else {
            runtime.run(move || {
                sinew::wait_until(waits);
                fiber.cancel();
                assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
            });
        }
        assert_eq!(log.take(), ["dropped"]);
    }
}

#[test]
fn every_wait_can_be_cancelled() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        is_cancelled_in(&runtime, sinew::park);
        is_cancelled_in(&runtime, || sinew::park_timeout(Duration::from_secs(3600)));
        is_cancelled_in(&runtime, || sinew::sleep(Duration::from_secs(3600)));
        is_cancelled_in(&runtime, || sinew::sleep(Duration::MAX));
        is_cancelled_in(&runtime, || sinew::block_on(std::future::pending::<()>()));
        let other = runtime.spawn(sinew::park);
        let handle = other.fiber();
        is_cancelled_in(&runtime, move || handle.wait_finished());
        is_cancelled_in(&runtime, || drop(sinew::spawn(sinew::park).join()));
        is_cancelled_in(&runtime, || {
            drop(sinew::spawn(sinew::park).join_timeout(Duration::from_secs(3600)));
        });
        is_cancelled_in(&runtime, || sinew::scope(|s| drop(s.spawn(sinew::park))));
        other.cancel();
        assert!(other.join().is_err());
    }
}

#[test]
fn a_fiber_cancelled_before_its_start_does_not_start() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let log = Log::new();
    let theirs = log.clone();
    runtime.run(move || {
        let captured = theirs.on_drop("closure");
        let fiber = sinew::spawn(move || {
            captured.ran();
        });
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    });
    assert_eq!(log.take(), ["closure"]);
}

trait Ran {
    fn ran(&self) {
        unreachable!("a cancelled fiber ran");
    }
}
impl Ran for sinew_testkit::Noisy {}

#[test]
fn a_fiber_that_ends_before_its_cancellation_has_its_result() {
    let _watch = watch::a_minute();
    let fiber = sinew::spawn(|| 7);
    fiber.fiber().wait_finished();
    fiber.cancel();
    assert_eq!(fiber.join().unwrap(), 7);
}

#[test]
fn a_caught_cancellation_is_raised_again() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let rounds = Arc::new(AtomicUsize::new(0));
        let theirs = rounds.clone();
        let fiber = sinew::spawn(move || {
            for _ in 0..5 {
                let caught = catch_unwind(sinew::park);
                assert!(sinew::is_cancel(&*caught.unwrap_err()));
                theirs.fetch_add(1, Ordering::Relaxed);
            }
            sinew::sleep(Duration::from_secs(3600));
        });
        sinew::wait_until(|| fiber.fiber().state() == FiberState::Suspended);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        assert_eq!(rounds.load(Ordering::Relaxed), 5);
    });
}

#[test]
fn a_fiber_that_always_catches_its_cancellation_does_not_stop_others() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = stop.clone();
    let stubborn = runtime.spawn(move || {
        while !theirs.load(Ordering::Relaxed) {
            let _ = catch_unwind(sinew::park);
        }
    });
    sinew::wait_until(|| stubborn.fiber().state() == FiberState::Suspended);
    stubborn.cancel();
    runtime.run(|| {
        for _ in 0..10 {
            sinew::sleep(Duration::from_millis(1));
        }
    });
    stop.store(true, Ordering::Relaxed);
    stubborn.join().unwrap();
}

#[test]
fn a_masked_region_postpones_a_cancellation() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let log = Log::new();
        let theirs = log.clone();
        let fiber = sinew::spawn(move || {
            sinew::masked(|| {
                sinew::masked(sinew::park);
                theirs.line("inner");
                sinew::yield_now();
                sinew::sleep(Duration::from_millis(1));
                assert_eq!(sinew::spawn(|| 7).join().unwrap(), 7);
                theirs.line("outer");
            });
            theirs.line("after");
            sinew::yield_now();
            theirs.line("not reached");
        });
        sinew::wait_until(|| fiber.fiber().state() == FiberState::Suspended);
        fiber.cancel();
        // The region is masked, so the park goes on.
        sinew::sleep(Duration::from_millis(2));
        assert!(!fiber.is_finished());
        fiber.fiber().unpark();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        assert_eq!(log.take(), ["inner", "outer", "after"]);
    });
}

#[test]
fn destructors_may_wait_while_cancelled() {
    let _watch = watch::a_minute();
    struct WaitsOnDrop(Log);
    impl Drop for WaitsOnDrop {
        fn drop(&mut self) {
            sinew::sleep(Duration::from_millis(1));
            sinew::yield_now();
            assert_eq!(sinew::spawn(|| 7).join().unwrap(), 7);
            self.0.line("waited");
        }
    }
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        runtime.run(|| {
            let log = Log::new();
            let theirs = log.clone();
            let fiber = sinew::spawn(move || {
                let _first = WaitsOnDrop(theirs.clone());
                let _second = WaitsOnDrop(theirs);
                sinew::park();
            });
            sinew::wait_until(|| fiber.fiber().state() == FiberState::Suspended);
            fiber.cancel();
            assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
            assert_eq!(log.take(), ["waited", "waited"]);
        });
    }
}

#[test]
fn timeouts_nest_and_the_earliest_counts() {
    let _watch = watch::a_minute();
    let check = || {
        let long = Duration::from_secs(3600);
        let short = Duration::from_millis(3);
        assert_eq!(sinew::timeout(short, || sinew::sleep(long)), Err(sinew::Elapsed));
        let inner = sinew::timeout(long, || sinew::timeout(short, || sinew::sleep(long)));
        assert_eq!(inner, Ok(Err(sinew::Elapsed)));
        let outer = sinew::timeout(short, || sinew::timeout(long, || sinew::sleep(long)));
        assert_eq!(outer, Err(sinew::Elapsed));
        // After both timeouts, waits are not cut short.
        let start = Instant::now();
        sinew::sleep(short);
        assert!(start.elapsed() >= short);
        assert_eq!(sinew::timeout(Duration::ZERO, || sinew::sleep(long)), Err(sinew::Elapsed));
        assert_eq!(sinew::timeout(Duration::MAX, || 7), Ok(7));
        assert_eq!(sinew::timeout(Duration::ZERO, || 7), Ok(7));
        let result: Result<(), _> = sinew::deadline(Instant::now(), sinew::park);
        let error: std::io::Error = result.unwrap_err().into();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    };
    check();
    sinew::run(check);
}

#[test]
fn a_cancellation_passes_a_timeout() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let fiber = sinew::spawn(|| {
            let _ = sinew::timeout(Duration::from_secs(3600), sinew::park);
            unreachable!("the cancellation was taken for the timeout");
        });
        sinew::wait_until(|| fiber.fiber().state() == FiberState::Suspended);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    });
}

#[test]
fn a_panic_passes_a_timeout() {
    let _watch = watch::a_minute();
    let caught = catch_unwind(|| sinew::timeout(Duration::from_secs(3600), || panic!("inside")));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
}

#[test]
fn wakes_that_race_a_cancellation_end_the_wait_once() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    for round in 0..2000_u32 {
        let fiber = runtime.spawn(move || {
            catch_unwind(AssertUnwindSafe(|| sinew::park_timeout(Duration::from_micros(20))))
                .is_err()
        });
        let handle = fiber.fiber();
        let canceller = std::thread::spawn({
            let handle = handle.clone();
            move || handle.cancel()
        });
        for _ in 0..round % 100 {
            std::hint::spin_loop();
        }
        handle.unpark();
        canceller.join().unwrap();
        // The fiber may be cancelled before it begins, in the wait, or not at all.
        drop(fiber.join());
    }
}

#[test]
fn a_cancelled_fiber_knows() {
    let _watch = watch::a_minute();
    assert!(!sinew::is_cancelled());
    let began = Arc::new(AtomicBool::new(false));
    let theirs = began.clone();
    let fiber = sinew::spawn(move || {
        assert!(!sinew::is_cancelled());
        theirs.store(true, Ordering::Release);
        while !sinew::is_cancelled() {
            std::hint::spin_loop();
        }
        7
    });
    // A fiber that does not wait learns of its cancellation too.
    sinew::wait_until(|| began.load(Ordering::Acquire));
    fiber.cancel();
    assert_eq!(fiber.join().unwrap(), 7);
}
