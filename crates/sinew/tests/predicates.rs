//! `wait_until`: waiting for conditions that no event announces.

use sinew::Runtime;
use sinew_testkit::watch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_predicate_is_asked_before_waiting_and_at_the_deadline() {
    let _watch = watch::a_minute();
    let check = || {
        assert!(sinew::wait_until_timeout(|| true, Duration::ZERO));
        assert!(!sinew::wait_until_timeout(|| false, Duration::ZERO));
        let start = Instant::now();
        // True only from the deadline on: the last call finds it so.
        let deadline = start + Duration::from_millis(5);
        assert!(sinew::wait_until_timeout(|| Instant::now() >= deadline, Duration::from_millis(5)));
        assert!(!sinew::wait_until_timeout(|| false, Duration::from_millis(5)));
        assert!(start.elapsed() >= Duration::from_millis(10));
    };
    check();
    sinew::run(check);
}

#[test]
fn changes_by_other_threads_are_noticed() {
    let _watch = watch::a_minute();
    let count = Arc::new(AtomicUsize::new(0));
    let theirs = count.clone();
    let fiber = sinew::spawn(move || sinew::wait_until(|| theirs.load(Ordering::Relaxed) > 0));
    assert!(!fiber.fiber().wait_finished_timeout(Duration::from_millis(5)));
    count.store(1, Ordering::Relaxed);
    fiber.join().unwrap();
}

#[test]
fn a_panic_in_a_predicate_unwinds_the_waiter() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let mut asked = 0;
    let fiber = runtime.spawn(move || {
        sinew::wait_until(|| {
            asked += 1;
            assert!(asked < 3, "asked too often");
            false
        })
    });
    let payload = fiber.join().unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"asked too often"));
    assert_eq!(runtime.spawn(|| 7).join().unwrap(), 7);
}

#[test]
fn waiting_in_a_predicate_is_an_error() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let waits: [fn(); 4] = [
            || sinew::sleep(Duration::from_millis(1)),
            sinew::yield_now,
            sinew::park,
            || drop(sinew::spawn(|| ()).join()),
        ];
        for wait in waits {
            let waited = catch_unwind(AssertUnwindSafe(|| {
                sinew::wait_until(|| {
                    wait();
                    true
                })
            }));
            assert!(waited.is_err());
        }
        // The region has ended with the panic.
        assert!(sinew::can_yield());
        sinew::yield_now();
    });
}

#[test]
fn predicates_alone_do_not_burn_the_processor() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let fiber = runtime.spawn(|| {
        let mut asked = 0_u32;
        sinew::wait_until_timeout(
            || {
                asked += 1;
                false
            },
            Duration::from_millis(500),
        );
        asked
    });
    // The interval grows to 10 ms: about fifty calls in half a second, plus the first few.
    let asked = fiber.join().unwrap();
    assert!((20..200).contains(&asked), "asked {asked} times");
}

#[test]
fn a_wait_for_a_predicate_can_be_cancelled() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let asked = Arc::new(AtomicUsize::new(0));
        let theirs = asked.clone();
        let fiber = sinew::spawn(move || {
            sinew::wait_until(|| {
                theirs.fetch_add(1, Ordering::Relaxed);
                false
            });
        });
        sinew::wait_until(|| asked.load(Ordering::Relaxed) > 1);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        let timed = sinew::timeout(Duration::from_millis(2), || sinew::wait_until(|| false));
        assert_eq!(timed, Err(sinew::Elapsed));
    });
}
