//! Settings of runtimes: by the program, for the default runtime, and by the environment.

use sinew::manager::{FiberManager, Options, SimpleLoopController};
use sinew::runtime::{Builder, PinnedWait};
use sinew::{Runtime, RuntimeHandle};
use sinew_testkit::child::{Outcome, child, child_with};
use sinew_testkit::{memory, watch};
use std::io::ErrorKind;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn text(payload: Box<dyn std::any::Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast::<&str>().map_or("?".into(), |text| (*text).into()),
    }
}

/// Runs `body` in a child process with one variable set.
fn with_variable(test: &str, name: &str, value: &str, body: impl FnOnce()) -> Outcome {
    let outcome = child_with(test, |command| _ = command.env(name, value), body);
    outcome.assert_success();
    outcome
}

fn carriers_of(f: impl FnOnce(fn() -> usize) -> usize) -> usize {
    f(|| RuntimeHandle::current().carriers())
}

#[test]
fn set_default_gives_the_default_runtime_its_settings() {
    child("set_default_gives_the_default_runtime_its_settings", || {
        let _watch = watch::a_minute();
        Runtime::builder().carriers(3).name("ours").set_default().unwrap();
        let fiber =
            sinew::spawn(|| (RuntimeHandle::current().name().to_owned(), sinew::can_yield()));
        assert_eq!(fiber.join().unwrap(), ("ours".to_owned(), true));
        assert_eq!(RuntimeHandle::default_runtime().carriers(), 3);
    })
    .assert_success();
}

#[test]
fn set_default_after_the_first_use_is_an_error() {
    child("set_default_after_the_first_use_is_an_error", || {
        let _watch = watch::a_minute();
        sinew::spawn(|| ()).join().unwrap();
        let error = Runtime::builder().carriers(1).name("late").set_default().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("has started already"), "{error}");
        assert_eq!(RuntimeHandle::default_runtime().name(), "sinew");
    })
    .assert_success();
}

#[test]
fn invalid_settings_leave_the_default_runtime_unset() {
    child("invalid_settings_leave_the_default_runtime_unset", || {
        let _watch = watch::a_minute();
        let error = Runtime::builder().carriers(0).set_default().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        Runtime::builder().carriers(2).name("second").set_default().unwrap();
        assert_eq!(RuntimeHandle::default_runtime().name(), "second");
    })
    .assert_success();
}

#[test]
fn of_several_threads_one_sets_the_default() {
    child("of_several_threads_one_sets_the_default", || {
        let _watch = watch::a_minute();
        let start = std::sync::Barrier::new(8);
        let set = std::thread::scope(|s| {
            let set = |index: usize| {
                start.wait();
                let name = format!("runtime {index}");
                let set = Runtime::builder().carriers(1).name(name.as_str()).set_default();
                set.map(|()| name)
            };
            let threads: Vec<_> = (0..8).map(|index| s.spawn(move || set(index))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect::<Vec<_>>()
        });
        assert_eq!(set, [RuntimeHandle::default_runtime().name()]);
    })
    .assert_success();
}

#[test]
fn run_of_a_builder_has_its_settings_and_gives_its_errors() {
    let _watch = watch::a_minute();
    let carriers = Runtime::builder().carriers(3).run(|| RuntimeHandle::current().carriers());
    assert_eq!(carriers.unwrap(), 3);
    assert!(Runtime::builder().carriers(0).run(|| ()).is_err());
    let caught = catch_unwind(|| Runtime::builder().carriers(1).run(|| panic!("inside")));
    assert_eq!(text(caught.unwrap_err()), "inside");
}

#[test]
fn the_environment_sets_the_number_of_carriers() {
    let name = "the_environment_sets_the_number_of_carriers";
    with_variable(name, "SINEW_CARRIERS", "3", || {
        let _watch = watch::a_minute();
        assert_eq!(carriers_of(sinew::run), 3);
        assert_eq!(carriers_of(|count| sinew::spawn(count).join().unwrap()), 3);
        assert_eq!(Runtime::new().unwrap().handle().carriers(), 3);
        // The program's setting wins.
        assert_eq!(carriers_of(|count| Builder::new().carriers(2).run(count).unwrap()), 2);
    });
}

#[test]
fn a_setting_of_the_program_hides_a_bad_variable() {
    let name = "a_setting_of_the_program_hides_a_bad_variable";
    with_variable(name, "SINEW_CARRIERS", "many", || {
        let _watch = watch::a_minute();
        Runtime::builder().carriers(1).set_default().unwrap();
        assert_eq!(RuntimeHandle::default_runtime().carriers(), 1);
    });
}

#[test]
fn the_environment_has_stalls_reported() {
    let name = "the_environment_has_stalls_reported";
    with_variable(name, "SINEW_STALLS", "1ms", || {
        let _watch = watch::a_minute();
        let said = Arc::new(Mutex::new(String::new()));
        let lines = said.clone();
        sinew::set_report_hook(move |line| lines.lock().unwrap().push_str(line));
        let fiber = sinew::FiberBuilder::new().name("greedy").spawn(move || {
            while !said.lock().unwrap().contains("greedy") {
                std::hint::spin_loop();
            }
        });
        fiber.unwrap().join().unwrap();
    });
}

/// Whether a pinned wait succeeds in the default runtime, in `run`, and in a manager.
fn pinned_waits() -> [bool; 3] {
    let wait = || sinew::pinned(|| sinew::sleep(Duration::from_micros(1)));
    let controller = SimpleLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::new()).unwrap();
    let task = manager.add_task_future(wait);
    controller.run();
    [
        sinew::spawn(wait).join().is_ok(),
        catch_unwind(|| sinew::run(wait)).is_ok(),
        task.get().is_ok(),
    ]
}

#[test]
fn the_environment_sets_the_policy_of_pinned_waits_everywhere() {
    let name = "the_environment_sets_the_policy_of_pinned_waits_everywhere";
    for (value, allowed, said) in
        [("warn", true, 3), ("silent", true, 0), ("error", false, 0), ("", true, 3)]
    {
        let outcome = with_variable(name, "SINEW_PINNED", value, || {
            let _watch = watch::a_minute();
            let allowed = std::env::var("SINEW_PINNED").unwrap() != "error";
            assert_eq!(pinned_waits(), [allowed; 3]);
            // The program's setting wins.
            let lenient = Runtime::builder().pinned_wait(PinnedWait::Silent);
            lenient.run(|| sinew::pinned(|| sinew::sleep(Duration::from_micros(1)))).unwrap();
        });
        let reports = outcome.stderr.matches("is pinned and blocks carrier").count();
        assert_eq!(reports, said, "{value:?}: {outcome:#?}");
        assert_eq!(outcome.stderr.contains("while it is pinned"), !allowed, "{outcome:#?}");
    }
}

#[test]
fn bad_values_are_errors_that_name_variable_value_and_allowed_values() {
    let name = "bad_values_are_errors_that_name_variable_value_and_allowed_values";
    let carriers = "use a number from 1 to 4096";
    let stalls = "use a whole number above 0 with a unit (us, ms or s), such as 100ms";
    let pinned = "use one of warn, error, silent";
    let backends = "which is no way to wait for descriptors; use one of ";
    for (variable, value, advice) in [
        ("SINEW_CARRIERS", "0", carriers),
        ("SINEW_CARRIERS", "4097", carriers),
        ("SINEW_CARRIERS", "-1", carriers),
        ("SINEW_CARRIERS", "two", carriers),
        ("SINEW_STALLS", "100", stalls),
        ("SINEW_STALLS", "0ms", stalls),
        ("SINEW_STALLS", "soon", stalls),
        ("SINEW_PINNED", "Error", pinned),
        ("SINEW_PINNED", "1", pinned),
        ("SINEW_IO", "select", backends),
    ] {
        let outcome = with_variable(name, variable, value, || {
            let _watch = watch::a_minute();
            let error = Runtime::new().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            println!("error: {error}");
            let panic = text(catch_unwind(|| sinew::run(|| ())).unwrap_err());
            assert_eq!(panic, format!("cannot make a runtime: {error}"));
            // One failure does not stop the next attempt.
            for _ in 0..2 {
                let panic = text(catch_unwind(|| sinew::spawn(|| ())).unwrap_err());
                assert_eq!(panic, format!("cannot start the default runtime: {error}"));
            }
            let manager = FiberManager::new(SimpleLoopController::new(), Options::new());
            let concerned =
                ["SINEW_PINNED", "SINEW_IO"].iter().any(|name| error.to_string().contains(name));
            assert_eq!(
                manager.err().map(|error| error.to_string()),
                concerned.then(|| error.to_string())
            );
        });
        let expected = format!("error: {variable} is {value:?}");
        assert!(outcome.stdout.contains(&expected), "{expected}: {outcome:#?}");
        assert!(outcome.stdout.contains(advice), "{advice}: {outcome:#?}");
    }
}

#[test]
fn a_value_that_is_no_text_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let name = "a_value_that_is_no_text_is_an_error";
    let value = std::ffi::OsStr::from_bytes(b"\xff");
    child_with(
        name,
        |command| _ = command.env("SINEW_CARRIERS", value),
        || {
            let error = Runtime::new().unwrap_err().to_string();
            assert!(error.starts_with(r#"SINEW_CARRIERS is "\xFF"; use"#), "{error}");
        },
    )
    .assert_success();
}

/// Starts `count` fibers that all have stacks at once, and ends them.
fn burst(runtime: &Runtime, count: usize) {
    runtime.run(move || {
        let fibers: Vec<_> = (0..count).map(|_| sinew::spawn_local(sinew::park)).collect();
        let parked =
            |fiber: &sinew::JoinHandle<()>| fiber.fiber().state() == sinew::FiberState::Suspended;
        sinew::wait_until(|| fibers.iter().all(parked));
        fibers.iter().for_each(|fiber| fiber.fiber().unpark());
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

#[test]
fn no_more_stacks_stay_warm_than_the_limit() {
    let _watch = watch::a_minute();
    for limit in [0, 1, 8, 1000] {
        let runtime = Runtime::builder().carriers(1).max_warm_stacks(limit);
        let runtime = runtime.stack_decay(Duration::from_secs(3600)).build().unwrap();
        burst(&runtime, 100);
        let metrics = runtime.handle().metrics();
        // In addition, the carrier has a spare stack, and the fiber of `run` may not have given its
        // own back.
        let kept = metrics.stacks_in_use + metrics.stacks_warm;
        let (least, most) = (limit.min(100), limit + 2);
        assert!((least..=most).contains(&kept), "{limit}: {metrics:?}");
    }
}

#[test]
fn decay_follows_its_setting() {
    let _watch = watch::a_minute();
    let warm = |runtime: &Runtime| runtime.handle().metrics().stacks_warm;
    let with = |interval| Runtime::builder().carriers(1).stack_decay(interval).build().unwrap();
    let (slow, fast) = (with(Duration::from_secs(3600)), with(Duration::from_millis(1)));
    let usual = Runtime::builder().carriers(1).build().unwrap();
    // Carriers keep some hundreds for themselves; the rest goes to the pool.
    let count = 2000;
    [&slow, &usual, &fast].into_iter().for_each(|runtime| burst(runtime, count));
    let before = warm(&slow);
    assert!(before > count / 2, "{before}");
    sinew::wait_until(|| warm(&fast) == 0);
    sinew::wait_until(|| warm(&usual) == 0);
    assert!(warm(&slow) >= before, "the slow one gave stacks back: {} of {before}", warm(&slow));
}

#[test]
fn guards_have_the_size_of_the_setting() {
    child("guards_have_the_size_of_the_setting", || {
        let _watch = watch::a_minute();
        // Only Linux provides this number.
        let Some(before) = memory::status("VmSize") else {
            return;
        };
        let guard = 256 << 20;
        let runtime = Runtime::builder().carriers(1).guard_size(guard).build().unwrap();
        runtime.run(|| ());
        let after = memory::status("VmSize").unwrap();
        assert!(after - before >= guard, "{before} bytes of addresses became {after}");
    })
    .assert_success();
}

#[test]
fn invalid_stack_settings_are_errors() {
    let refused = |builder: Builder| builder.build().unwrap_err().to_string();
    for size in [0, 100, 4096, 64 * 1024 + 1] {
        let error = refused(Runtime::builder().guard_size(size));
        assert!(error.contains("guard") && error.contains(&size.to_string()), "{error}");
    }
    let error = refused(Runtime::builder().stack_decay(Duration::ZERO));
    assert!(error.contains("stack_decay(0)"), "{error}");
}
