//! Fibers that keep their carrier.

use sinew::runtime::PinnedWait;
use sinew::{Builder, Runtime};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn text(payload: Box<dyn std::any::Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast::<&str>().map_or("?".into(), |text| (*text).into()),
    }
}

#[test]
fn regions_nest_and_end_with_a_panic() {
    let _watch = watch::a_minute();
    assert!(!sinew::can_yield());
    assert_eq!(sinew::pinned(|| 7), 7);
    sinew::run(|| {
        assert!(sinew::can_yield());
        sinew::pinned(|| {
            sinew::pinned(|| assert!(!sinew::can_yield()));
            assert!(!sinew::can_yield());
        });
        assert!(sinew::can_yield());
        assert!(catch_unwind(|| sinew::pinned(|| panic!("inside"))).is_err());
        assert!(sinew::can_yield());
    });
}

#[test]
fn yield_now_while_pinned_is_an_error() {
    let _watch = watch::a_minute();
    let fiber = Builder::new()
        .name("stuck")
        .spawn(|| text(catch_unwind(|| sinew::pinned(sinew::yield_now)).unwrap_err()))
        .unwrap();
    let message = fiber.join().unwrap();
    assert!(message.contains("fiber \"stuck\"") && message.contains("pinned"), "{message}");
}

#[test]
fn other_waits_block_the_carrier() {
    let _watch = watch::a_minute();
    for policy in [PinnedWait::Silent, PinnedWait::Warn] {
        let runtime = Runtime::builder().carriers(2).pinned_wait(policy).build().unwrap();
        runtime.run(|| {
            let carrier = sinew::current_carrier();
            let elsewhere = Builder::new().carrier(1 - carrier.unwrap());
            let neighbour = sinew::spawn_local(|| ());
            let handle = neighbour.fiber();
            sinew::pinned(|| {
                sinew::sleep(Duration::from_millis(2));
                sinew::park_timeout(Duration::from_millis(2));
                assert!(!sinew::wait_until(|| false, Some(Duration::from_millis(2))));
                assert_eq!(sinew::block_on(async { 7 }), 7);
                let other = elsewhere.spawn(|| 7).unwrap();
                assert_eq!(other.join().unwrap(), 7);
                assert!(!handle.wait_finished(Some(Duration::from_millis(1))));
            });
            assert!(!neighbour.is_finished(), "a neighbour ran meanwhile");
            neighbour.join().unwrap();
        });
    }
}

#[test]
fn a_pinned_fiber_is_unparked_and_cancelled() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).pinned_wait(PinnedWait::Silent).build().unwrap();
    let fiber = runtime.spawn(|| sinew::pinned(sinew::park));
    sinew::wait_until(|| fiber.fiber().state() == sinew::State::Running, None);
    fiber.fiber().unpark();
    fiber.join().unwrap();
    let fiber = runtime.spawn(|| sinew::pinned(|| sinew::sleep(Duration::MAX)));
    sinew::wait_until(|| fiber.fiber().state() == sinew::State::Running, None);
    fiber.cancel();
    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
}

#[test]
fn the_policy_error_refuses() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).pinned_wait(PinnedWait::Error).build().unwrap();
    let message = runtime.run(|| {
        text(catch_unwind(|| sinew::pinned(|| sinew::sleep(Duration::from_millis(1)))).unwrap_err())
    });
    assert!(message.contains("sleep called by fiber"), "{message}");
    // It is about the wait, not about the fiber.
    runtime.run(|| sinew::sleep(Duration::from_millis(1)));
}

#[test]
fn the_policy_warn_names_fiber_and_operation() {
    let outcome = child("the_policy_warn_names_fiber_and_operation", || {
        let said = Arc::new(Mutex::new(Vec::new()));
        let lines = said.clone();
        sinew::set_report_hook(move |line| lines.lock().unwrap().push(line.to_owned()));
        let fiber = Builder::new()
            .name("stuck")
            .spawn(|| sinew::pinned(|| sinew::sleep(Duration::from_millis(1))))
            .unwrap();
        fiber.join().unwrap();
        sinew::reset_report_hook();
        let said = said.lock().unwrap();
        assert!(said.iter().any(|line| line.contains("\"stuck\"") && line.contains("sleep")));
    });
    outcome.assert_success();
}

#[test]
fn waiting_for_one_of_the_same_carrier_is_a_deadlock_and_an_error() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        for started in [false, true] {
            let neighbour = sinew::spawn_local(|| sinew::sleep(Duration::from_millis(1)));
            if started {
                sinew::yield_now();
            }
            let caught =
                catch_unwind(AssertUnwindSafe(|| sinew::pinned(|| neighbour.join().unwrap())));
            let message = text(caught.unwrap_err());
            assert!(message.contains("deadlock"), "{message}");
        }
    });
}
