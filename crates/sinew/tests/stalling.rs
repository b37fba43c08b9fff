//! Fibers that keep their carriers are reported once, with the function that they are in. Each test
//! has its own process, because a process has one report hook.

use sinew::runtime::PinnedWait;
use sinew::{FiberBuilder, Runtime};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

const THRESHOLD: Duration = Duration::from_millis(60);

/// Collects the reports from now on, with their times.
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

/// Waits for `count` lines.
fn lines(said: &Mutex<Vec<(Instant, String)>>, count: usize) -> Vec<(Instant, String)> {
    sinew::wait_until(|| said.lock().unwrap().len() >= count);
    said.lock().unwrap().clone()
}

/// Lets a fiber compute for long, and checks that it is reported once. Returns the time until the
/// first line.
fn stall(runtime: &Runtime, said: &Mutex<Vec<(Instant, String)>>) -> Duration {
    said.lock().unwrap().clear();
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let busy = FiberBuilder::new().name("busy").runtime(runtime.handle());
    let begun = Instant::now();
    let busy = busy.spawn(move || a_function_that_takes_long(&seen)).unwrap();
    let late = lines(said, 2)[0].0 - begun;
    assert!(late >= THRESHOLD, "{late:?}");
    // The stall is reported once, however long it takes.
    sinew::sleep(2 * THRESHOLD);
    done.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    let said = said.lock().unwrap();
    let [(_, first), (_, second)] = &said[..] else { panic!("{said:?}") };
    assert!(first.contains("fiber \"busy\"") && first.contains("has kept carrier"), "{first}");
    for part in ["fiber \"busy\"", "keeps carrier", "a_function_that_takes_long", "stalling.rs"] {
        assert!(second.contains(part), "{second}");
    }
    late
}

#[test]
fn a_fiber_that_computes_for_long_is_reported_once() {
    child("a_fiber_that_computes_for_long_is_reported_once", || {
        let _watch = watch::a_minute();
        let said = said();
        let runtime = Runtime::builder().carriers(2).report_stalls(THRESHOLD).build().unwrap();
        // On a busy machine the first reports may be late.
        let late = (0..20).map(|_| stall(&runtime, &said)).find(|late| *late < 2 * THRESHOLD);
        assert!(late.is_some() || cfg!(any(sinew_tsan, sinew_asan)));
    })
    .assert_success();
}

/// Lets fibers compute for a while and then wait or yield, in turn. Returns whether nothing was
/// reported.
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
fn fibers_that_wait_or_yield_are_not_reported() {
    child("fibers_that_wait_or_yield_are_not_reported", || {
        let _watch = watch::a_minute();
        let said = said();
        let runtime = Runtime::builder().carriers(1).report_stalls(THRESHOLD).build().unwrap();
        // A carrier that got no processor time for long is reported, and rightly so.
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
        sinew::wait_until(|| !said.lock().unwrap().is_empty());
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
        let said = lines(&said, 2);
        drop(end);
        fiber.join().unwrap();
        let ((_, first), (_, second)) = (&said[0], &said[1]);
        assert!(first.contains("has blocked carrier 0"), "{first}");
        assert!(first.contains("in a system call"), "{first}");
        if !cfg!(sinew_tsan) {
            // The sanitizer delays the signal that stops the carrier.
            assert!(
                second.contains("is in stalling::a_function_that_blocks_its_thread at "),
                "{second}"
            );
        }
    })
    .assert_success();
}

/// Keeps this thread from being stopped. The search for its place takes a second to fail.
fn cannot_be_stopped() {
    // SAFETY: the set of signals is emptied first, and the mask belongs to this thread.
    unsafe {
        let mut signals = core::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGURG);
        assert_eq!(
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, core::ptr::null_mut()),
            0
        );
    }
}

#[test]
fn the_first_line_does_not_wait_for_the_place() {
    child("the_first_line_does_not_wait_for_the_place", || {
        let _watch = watch::a_minute();
        let said = said();
        let runtime = Runtime::builder().carriers(2).report_stalls(THRESHOLD).build().unwrap();
        // On a busy machine the first reports may be late. The report of the second carrier must
        // not wait for the first one's place.
        let in_time = (0..10).any(|_| {
            said.lock().unwrap().clear();
            let done = Arc::new(AtomicBool::new(false));
            let begun = Instant::now();
            let fibers = [0, 1].map(|carrier| {
                let builder = FiberBuilder::new().runtime(runtime.handle()).carrier(carrier);
                let seen = done.clone();
                let body = move || {
                    cannot_be_stopped();
                    a_function_that_takes_long(&seen);
                };
                builder.spawn(body).unwrap()
            });
            let all = lines(&said, 2);
            done.store(true, Ordering::Relaxed);
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            // The threads that look for the places report that they found none.
            let places = lines(&said, 4);
            assert!(all.iter().all(|(_, line)| line.contains("has kept carrier")), "{all:?}");
            assert!(places[2..].iter().all(|(_, line)| !line.contains("is in")), "{places:?}");
            all.iter().all(|(at, _)| *at - begun < 2 * THRESHOLD)
        });
        assert!(in_time || cfg!(any(sinew_tsan, sinew_asan)));
    })
    .assert_success();
}

#[test]
fn a_fiber_that_went_on_is_reported_without_a_place() {
    child("a_fiber_that_went_on_is_reported_without_a_place", || {
        let _watch = watch::a_minute();
        let said: Arc<Mutex<Vec<_>>> = Arc::default();
        let done = Arc::new(AtomicBool::new(false));
        let busy: Arc<OnceLock<sinew::Fiber>> = Arc::default();
        // The first line calls the hook, which lets the fiber go on and returns when the fiber
        // waits.
        let (lines, end, told) = (said.clone(), done.clone(), busy.clone());
        sinew::set_report_hook(move |line| {
            lines.lock().unwrap().push((Instant::now(), line.to_owned()));
            end.store(true, Ordering::Relaxed);
            while told.get().and_then(sinew::Fiber::waits_for).is_none() {
                std::thread::yield_now();
            }
        });
        let runtime = Runtime::builder().carriers(1).report_stalls(THRESHOLD).build().unwrap();
        let fiber = runtime.spawn(move || {
            a_function_that_takes_long(&done);
            sinew::park();
        });
        busy.set(fiber.fiber()).unwrap();
        let said = self::lines(&said, 2);
        assert!(said[1].1.contains("let carrier 0 of \"sinew\" go before"), "{said:?}");
        fiber.fiber().unpark();
        fiber.join().unwrap();
    })
    .assert_success();
}

#[test]
fn a_threshold_of_zero_is_an_error() {
    let error = Runtime::builder().report_stalls(Duration::ZERO).build().unwrap_err();
    assert!(error.to_string().contains("report_stalls(0)"), "{error}");
    let error = Runtime::builder().report_deadlocks(Duration::ZERO).build().unwrap_err();
    assert!(error.to_string().contains("report_deadlocks(0)"), "{error}");
}
