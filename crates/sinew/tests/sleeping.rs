//! Deadlines: past, zero, never, and many.

use sinew::Runtime;
use sinew_testkit::{Seed, watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_deadline_that_has_passed_does_not_wait() {
    let _watch = watch::a_minute();
    let check = || {
        let start = Instant::now();
        sinew::sleep(Duration::ZERO);
        sinew::sleep_deadline(start);
        if let Some(past) = start.checked_sub(Duration::from_secs(1)) {
            sinew::sleep_deadline(past);
        }
        sinew::sleep(Duration::from_nanos(1));
        assert!(start.elapsed() < Duration::from_secs(5));
    };
    check();
    sinew::run(check);
}

#[test]
fn an_endless_sleep_can_be_cancelled() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let fiber = sinew::spawn(|| sinew::sleep(Duration::MAX));
        let other = sinew::spawn(|| {
            let far = Instant::now().checked_add(Duration::from_secs(1 << 32));
            sinew::sleep_deadline(far.unwrap());
        });
        sinew::sleep(Duration::from_millis(3));
        assert!(!fiber.is_finished() && !other.is_finished());
        fiber.cancel();
        other.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        assert!(sinew::is_cancel(&*other.join().unwrap_err()));
    });
}

#[test]
fn no_sleep_ends_early() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    runtime.run(|| {
        let start = Instant::now();
        let mut seed = Seed::from_env();
        let fibers: Vec<_> = (0..500)
            .map(|_| {
                let deadline = start + Duration::from_micros(seed.number() % 40_000);
                sinew::spawn(move || {
                    sinew::sleep_deadline(deadline);
                    assert!(Instant::now() >= deadline);
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    });
}

#[test]
fn timers_are_cancelled_in_random_order() {
    let _watch = watch::watchdog(Duration::from_secs(120));
    let count = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    sinew::run(move || {
        let ended = Arc::new(AtomicUsize::new(0));
        let mut fibers: Vec<_> = (0..count)
            .map(|n| {
                let ended = ended.clone();
                sinew::spawn(move || {
                    struct Count(Arc<AtomicUsize>);
                    impl Drop for Count {
                        fn drop(&mut self) {
                            self.0.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    let _count = Count(ended);
                    sinew::sleep(Duration::from_secs(3600 + n as u64 % 1000));
                })
            })
            .collect();
        let mut seed = Seed::from_env();
        while !fibers.is_empty() {
            let fiber = fibers.swap_remove(seed.below(fibers.len()));
            fiber.cancel();
            if seed.below(100) == 0 {
                assert!(fiber.join().is_err());
            }
        }
        // Fibers that began to run end their sleep; the rest never began.
        sinew::sleep(Duration::from_millis(1));
    });
}

/// How often a carrier looks at its clock depends on what its fibers do, but not on what they did
/// before it slept.
#[test]
fn a_carrier_that_was_idle_is_punctual_when_fibers_compute() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let late = runtime.run(|| {
        (0..60).for_each(|_| sinew::sleep(Duration::from_millis(1)));
        let done = Arc::new(AtomicUsize::new(0));
        let compute = |done: Arc<AtomicUsize>| {
            while done.load(Ordering::Relaxed) == 0 {
                let until = Instant::now() + Duration::from_micros(500);
                while Instant::now() < until {}
                sinew::yield_now();
            }
        };
        let fibers: Vec<_> = (0..4)
            .map(|_| {
                let done = done.clone();
                sinew::spawn(move || compute(done))
            })
            .collect();
        let start = Instant::now();
        sinew::sleep(Duration::from_millis(5));
        let late = start.elapsed();
        done.store(1, Ordering::Relaxed);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        late
    });
    assert!(late < Duration::from_millis(100), "{late:?}");
}

/// A short sleep on an idle carrier takes about as long as on a plain thread, also as one of many
/// in a row.
#[test]
fn short_sleeps_in_a_row_stay_short() {
    const SLEEP: Duration = Duration::from_micros(20);
    if cfg!(any(sinew_asan, sinew_tsan)) {
        return; // the sanitizers make it much slower, and irregular
    }
    fn median(sleep: impl Fn()) -> Duration {
        let mut times: Vec<_> = (0..101)
            .map(|_| {
                let start = Instant::now();
                sleep();
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2]
    }
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    // Other processes may take the processor, so one quiet round is enough. Sleeps rounded up to
    // 400 us would fail in all rounds.
    let good = (0..50).any(|_| {
        let thread = median(|| std::thread::sleep(SLEEP));
        let fiber = runtime.run(|| median(|| sinew::sleep(SLEEP)));
        fiber < thread * 2
    });
    assert!(good, "sleeps of {SLEEP:?} take more than twice as long in a fiber as in a thread");
}
