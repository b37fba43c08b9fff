//! Fibers that keep their carriers are reported, once, with the function that they are in. In processes of
//! their own: there is one report hook.

use sinew::runtime::PinnedWait;
use sinew::{Builder, Runtime};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const THRESHOLD: Duration = Duration::from_millis(60);

/// What is said from now on, and when.
fn said() -> Arc<Mutex<Vec<(Instant, String)>>> {
    let said: Arc<Mutex<Vec<_>>> = Arc::default();
    let hook = said.clone();
    sinew::set_report_hook(move |line| {
        hook.lock().unwrap().push((Instant::now(), line.to_owned()))
    });
    said
}

#[inline(never)]
fn a_function_that_takes_long(done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Has a fiber compute for long, which has to be said once; how long it took until it was.
fn stall(runtime: &Runtime, said: &Mutex<Vec<(Instant, String)>>) -> Duration {
    said.lock().unwrap().clear();
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let busy = Builder::new().name("busy").runtime(runtime.handle());
    let begun = Instant::now();
    let busy = busy.spawn(move || a_function_that_takes_long(&seen)).unwrap();
    sinew::wait_until(|| !said.lock().unwrap().is_empty(), None);
    let late = said.lock().unwrap()[0].0 - begun;
    assert!(late >= THRESHOLD, "{late:?}");
    // It is said once, however long it takes.
    sinew::sleep(2 * THRESHOLD);
    done.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    let said = said.lock().unwrap();
    let line = &said[0].1;
    assert_eq!(said.len(), 1, "{said:?}");
    for part in ["fiber \"busy\"", "has kept carrier", "a_function_that_takes_long", "stalling.rs"]
    {
        assert!(line.contains(part), "{line}");
    }
    late
}

#[test]
fn a_fiber_that_computes_for_long_is_reported_once() {
    child("a_fiber_that_computes_for_long_is_reported_once", || {
        let _watch = watch::a_minute();
        let said = said();
        let runtime = Runtime::builder().carriers(2).report_stalls(THRESHOLD).build().unwrap();
        // On a busy machine the first ones may be late, and the first has tables to read.
        let late = (0..20).map(|_| stall(&runtime, &said)).find(|late| *late < 2 * THRESHOLD);
        assert!(late.is_some() || cfg!(any(sinew_tsan, sinew_asan)));
    })
    .assert_success();
}

/// Has fibers compute for a while and then wait or yield, in turn; whether nothing was said.
fn take_turns(runtime: &Runtime, said: &Mutex<Vec<(Instant, String)>>) -> bool {
    said.lock().unwrap().clear();
    let until = Instant::now() + 6 * THRESHOLD;
    let part = THRESHOLD / 6;
    let work = move |rest: fn()| {
        move || {
            while Instant::now() < until {
                let end = Instant::now() + part;
                while Instant::now() < end {}
                rest();
            }
        }
    };
    let fibers = [
        runtime.spawn(work(sinew::yield_now)),
        runtime.spawn(work(sinew::yield_now)),
        runtime.spawn(work(|| sinew::sleep(Duration::from_micros(1)))),
    ];
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    runtime.run(|| sinew::sleep(3 * THRESHOLD));
    said.lock().unwrap().is_empty()
}

#[test]
fn those_who_wait_and_yield_are_not_reported() {
    child("those_who_wait_and_yield_are_not_reported", || {
        let _watch = watch::a_minute();
        let said = said();
        let runtime = Runtime::builder().carriers(1).report_stalls(THRESHOLD).build().unwrap();
        // A carrier that got no processor for long is reported, and rightly so.
        assert!((0..5).any(|_| take_turns(&runtime, &said)), "{said:?}");
    })
    .assert_success();
}

#[test]
fn a_pinned_fiber_that_blocks_its_carrier_is_reported() {
    child("a_pinned_fiber_that_blocks_its_carrier_is_reported", || {
        let _watch = watch::a_minute();
        let said = said();
        let builder = Runtime::builder().carriers(1).report_stalls(THRESHOLD);
        let runtime = builder.pinned_wait(PinnedWait::Silent).build().unwrap();
        let fiber = runtime.spawn(|| sinew::pinned(sinew::park));
        sinew::wait_until(|| !said.lock().unwrap().is_empty(), None);
        fiber.fiber().unpark();
        fiber.join().unwrap();
        let line = &said.lock().unwrap()[0].1;
        assert!(line.contains("is pinned and has blocked carrier 0"), "{line}");
        assert!(line.contains("in park for"), "{line}");
    })
    .assert_success();
}

#[inline(never)]
fn a_function_that_blocks_its_thread(until: &std::sync::mpsc::Receiver<()>) {
    let _ = until.recv();
}

#[test]
fn a_fiber_that_blocks_in_the_system_is_reported() {
    child("a_fiber_that_blocks_in_the_system_is_reported", || {
        let _watch = watch::a_minute();
        let said = said();
        let runtime = Runtime::builder().carriers(1).report_stalls(THRESHOLD).build().unwrap();
        let (end, until) = std::sync::mpsc::channel();
        let fiber = runtime.spawn(move || a_function_that_blocks_its_thread(&until));
        sinew::wait_until(|| !said.lock().unwrap().is_empty(), None);
        drop(end);
        fiber.join().unwrap();
        let line = &said.lock().unwrap()[0].1;
        assert!(line.contains("has blocked carrier 0"), "{line}");
        assert!(line.contains("in a call of the system"), "{line}");
        if !cfg!(sinew_tsan) {
            // The sanitizer holds the signal back by which the carrier is stopped.
            assert!(line.contains("a_function_that_blocks_its_thread at "), "{line}");
        }
    })
    .assert_success();
}

#[test]
fn a_threshold_of_nothing_is_an_error() {
    let error = Runtime::builder().report_stalls(Duration::ZERO).build().unwrap_err();
    assert!(error.to_string().contains("report_stalls(0)"), "{error}");
    let error = Runtime::builder().report_deadlocks(Duration::ZERO).build().unwrap_err();
    assert!(error.to_string().contains("report_deadlocks(0)"), "{error}");
}
