//! Pinned fibers, which keep their carrier.

use sinew::manager::{FiberManager, Options, SimpleLoopController};
use sinew::net::ToSocketAddrs;
use sinew::runtime::PinnedWait;
use sinew::{FiberBuilder, Runtime};
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
    let fiber = FiberBuilder::new()
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
            let elsewhere = FiberBuilder::new().carrier(1 - carrier.unwrap());
            let neighbour = sinew::spawn_local(|| ());
            let handle = neighbour.fiber();
            sinew::pinned(|| {
                sinew::sleep(Duration::from_millis(2));
                sinew::park_timeout(Duration::from_millis(2));
                assert!(!sinew::wait_until_timeout(|| false, Duration::from_millis(2)));
                assert_eq!(sinew::block_on(async { 7 }), 7);
                let other = elsewhere.spawn(|| 7).unwrap();
                assert_eq!(other.join().unwrap(), 7);
                assert!(!handle.wait_finished_timeout(Duration::from_millis(1)));
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
    sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Running);
    fiber.fiber().unpark();
    fiber.join().unwrap();
    let fiber = runtime.spawn(|| sinew::pinned(|| sinew::sleep(Duration::MAX)));
    sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Running);
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
    // The policy refuses the wait in the region, not the fiber.
    runtime.run(|| sinew::sleep(Duration::from_millis(1)));
}

#[test]
fn a_manager_has_its_own_policy() {
    let _watch = watch::a_minute();
    for policy in [PinnedWait::Silent, PinnedWait::Error] {
        let controller = SimpleLoopController::new();
        let options = Options::new().pinned_wait(policy);
        let manager = FiberManager::new(controller.clone(), options).unwrap();
        let task =
            manager.add_task_future(|| sinew::pinned(|| sinew::sleep(Duration::from_micros(1))));
        controller.run();
        match task.get() {
            Ok(()) => assert_eq!(policy, PinnedWait::Silent),
            Err(payload) => {
                assert_eq!(policy, PinnedWait::Error);
                assert!(text(payload).contains("sleep called by fiber"));
            }
        }
    }
}

#[test]
fn the_policy_holds_in_the_default_runtime() {
    child("the_policy_holds_in_the_default_runtime", || {
        let _watch = watch::a_minute();
        Runtime::builder().pinned_wait(PinnedWait::Error).set_default().unwrap();
        let fiber = sinew::spawn(|| sinew::pinned(|| sinew::sleep(Duration::from_micros(1))));
        assert!(text(fiber.join().unwrap_err()).contains("sleep called by fiber"));
    })
    .assert_success();
}

#[test]
fn the_policy_warn_names_fiber_and_operation() {
    let outcome = child("the_policy_warn_names_fiber_and_operation", || {
        let said = said();
        let fiber = FiberBuilder::new()
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
fn a_pinned_wait_for_a_fiber_of_the_same_carrier_is_an_error() {
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

/// Work that blocks its thread. For a fiber that is not pinned, another thread does it.
const BLOCKING_WORK: [(&str, fn()); 5] = [
    ("blocking", || sinew::blocking(|| ())),
    ("a path", || assert!(sinew::fs::metadata("/").unwrap().is_dir())),
    ("a file", || sinew::fs::File::open("/").unwrap().sync_all().unwrap()),
    ("a listing", || assert!(sinew::fs::read_dir("/").unwrap().count() > 0)),
    ("a name", || assert!(("localhost", 80).to_socket_addrs().unwrap().count() > 0)),
];

/// Collects the lines of the report hook.
fn said() -> Arc<Mutex<Vec<String>>> {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let lines = said.clone();
    sinew::set_report_hook(move |line| lines.lock().unwrap().push(line.to_owned()));
    said
}

#[test]
fn blocking_work_of_a_pinned_fiber_is_refused_under_the_policy_error() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).pinned_wait(PinnedWait::Error).build().unwrap();
    for (name, work) in BLOCKING_WORK {
        let message = runtime.run(move || text(catch_unwind(|| sinew::pinned(work)).unwrap_err()));
        let expected = "blocking work called by fiber";
        assert!(message.contains(expected) && message.contains("pinned"), "{name}: {message}");
        // The fiber may do the work outside of the region.
        runtime.run(work);
    }
    let called = runtime.run(|| {
        let mut called = false;
        let refused = catch_unwind(AssertUnwindSafe(|| {
            sinew::pinned(|| sinew::blocking(|| called = true));
        }));
        refused.unwrap_err();
        called
    });
    assert!(!called, "a refused closure ran");
}

#[test]
fn blocking_work_of_a_pinned_fiber_is_reported_under_the_policy_warn() {
    child("blocking_work_of_a_pinned_fiber_is_reported_under_the_policy_warn", || {
        let _watch = watch::a_minute();
        let said = said();
        for (name, work) in BLOCKING_WORK {
            let fiber =
                FiberBuilder::new().name("stuck").spawn(move || sinew::pinned(work)).unwrap();
            fiber.join().unwrap();
            let lines = std::mem::take(&mut *said.lock().unwrap());
            let expected = ["fiber \"stuck\"", "is pinned and blocks carrier", "in blocking work"];
            let is_expected = |line: &String| expected.iter().all(|part| line.contains(part));
            assert!(!lines.is_empty() && lines.iter().all(is_expected), "{name}: {lines:?}");
        }
    })
    .assert_success();
}

#[test]
fn blocking_work_goes_unreported_where_it_is_allowed() {
    child("blocking_work_goes_unreported_where_it_is_allowed", || {
        let _watch = watch::a_minute();
        let said = said();
        let builder = Runtime::builder().carriers(1);
        let silent = builder.pinned_wait(PinnedWait::Silent).build().unwrap();
        for (_, work) in BLOCKING_WORK {
            silent.run(move || sinew::pinned(work));
            sinew::run(work);
            sinew::pinned(work); // on a plain thread
            // A predicate may use a file, however often it is called.
            sinew::run(move || sinew::wait_until(|| (work(), true).1));
        }
        assert_eq!(*said.lock().unwrap(), [""; 0]);
    })
    .assert_success();
}

#[test]
fn destructors_of_a_pinned_fiber_wait_under_the_policy_error() {
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            sinew::blocking(|| ());
            sinew::sleep(Duration::from_millis(1));
        }
    }
    child("destructors_of_a_pinned_fiber_wait_under_the_policy_error", || {
        let _watch = watch::a_minute();
        let said = said();
        let builder = Runtime::builder().carriers(1);
        let runtime = builder.pinned_wait(PinnedWait::Error).build().unwrap();
        let panics = || {
            sinew::pinned(|| {
                let _waits = Waits;
                panic!("inside");
            })
        };
        assert_eq!(text(runtime.spawn(panics).join().unwrap_err()), "inside");
        let said = said.lock().unwrap();
        for operation in ["in blocking work", "in sleep"] {
            assert!(said.iter().any(|line| line.contains(operation)), "{said:?}");
        }
    })
    .assert_success();
}
