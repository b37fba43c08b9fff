//! Inspecting the fibers of a program from outside.
#![allow(clippy::print_stdout, reason = "dumps are there to be read")]

use sinew::inspect::BacktraceError;
use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskOptions};
use sinew::sync::Mutex;
use sinew::{FiberBuilder, FiberState, Runtime, WaitKind};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[inline(never)]
fn waits_at_the_bottom() {
    sinew::park();
    std::hint::black_box(());
}

#[inline(never)]
fn calls_what_waits() {
    waits_at_the_bottom();
    std::hint::black_box(());
}

#[test]
fn a_suspended_fiber_says_where_it_is() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let fiber = runtime.spawn(calls_what_waits);
    sinew::wait_until(|| fiber.fiber().state() == FiberState::Suspended);
    let backtrace = fiber.fiber().backtrace().unwrap();
    let all = format!("{backtrace:#}");
    let place = |name: &str| all.find(name).unwrap_or_else(|| panic!("no {name} in\n{all}"));
    assert!(place("waits_at_the_bottom") < place("calls_what_waits"), "{all}");
    let shown = backtrace.to_string();
    assert!(shown.contains("park"), "{shown}");
    assert!(shown.lines().count() <= 8, "{shown}");
    assert!(shown.contains("inspecting.rs"), "{shown}");
    fiber.fiber().unpark();
    fiber.join().unwrap();
}

#[test]
fn only_suspended_fibers_have_backtraces() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let unstarted = FiberBuilder::new().runtime(runtime.handle()).build(|| ()).unwrap();
    assert!(unstarted.fiber().backtrace().unwrap().is_empty());
    let ended = runtime.spawn(sinew::current).join().unwrap();
    assert!(matches!(ended.backtrace(), Err(BacktraceError::Ended)));
    assert!(matches!(sinew::current().backtrace(), Err(BacktraceError::Thread)));
    let own = runtime.run(|| sinew::current().backtrace().unwrap_err());
    assert!(matches!(own, BacktraceError::Running), "{own}");
    drop(unstarted);
}

#[test]
fn a_snapshot_names_the_kind_of_wait() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).name("seen").build().unwrap();
    let named = FiberBuilder::new().name("a name").runtime(runtime.handle());
    let sleeper = named.spawn(|| sinew::sleep(Duration::from_secs(3600))).unwrap();
    sinew::wait_until(|| sleeper.fiber().waits_for() == Some(WaitKind::Sleep));
    let handle = sleeper.fiber();
    let joiner = runtime.spawn(move || sleeper.join().is_err());
    sinew::wait_until(|| joiner.fiber().waits_for() == Some(WaitKind::Join));
    let all = sinew::fibers();
    let find = |id| all.iter().find(|info| info.id() == id).unwrap();
    let info = find(handle.id());
    assert_eq!(info.name(), Some("a name"));
    assert_eq!(info.state, FiberState::Suspended);
    assert_eq!(info.runtime.as_deref(), Some("seen"));
    assert!(info.carrier.is_some_and(|carrier| carrier < 2));
    assert_eq!(info.waits, 1);
    assert!(info.age < Duration::from_secs(60));
    let wait = info.wait.unwrap();
    assert_eq!((wait.kind, wait.joins), (WaitKind::Sleep, None));
    assert!(wait.since < Duration::from_secs(60));
    let stack = info.stack().unwrap();
    assert_eq!(stack.size, 256 * 1024);
    assert!(stack.used > 64 && stack.used <= stack.high_water_mark.unwrap());
    let wait = find(joiner.fiber().id()).wait.unwrap();
    assert_eq!((wait.kind, wait.joins), (WaitKind::Join, Some(handle.id())));
    handle.cancel();
    assert!(joiner.join().unwrap());
    assert!(sinew::fibers().iter().all(|info| info.id() != handle.id()));
}

#[test]
fn a_dump_groups_fibers_by_place() {
    // In a separate process, without fibers of other tests.
    child("a_dump_groups_fibers_by_place", dump_a_hundred).assert_success();
}

fn dump_a_hundred() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let mut fibers: Vec<_> = (0..100).map(|_| runtime.spawn(calls_what_waits)).collect();
    let named = FiberBuilder::new().name("with \"quotes\"").runtime(runtime.handle());
    fibers.push(named.spawn(|| sinew::sleep(Duration::from_secs(3600))).unwrap());
    let settled = || fibers.iter().all(|fiber| fiber.fiber().state() == FiberState::Suspended);
    sinew::wait_until(settled);
    let mut text = Vec::new();
    sinew::dump(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("100 fibers waiting in park"), "{text}");
    assert!(text.contains("and 92 more"), "{text}");
    assert_eq!(text.matches("waits_at_the_bottom").count(), 1, "{text}");
    assert!(text.contains("1 fiber waiting in sleep"), "{text}");
    assert!(text.contains(r#"fiber "with \"quotes\"" (id "#), "{text}");
    let mut json = Vec::new();
    sinew::inspect::dump_json(&mut json).unwrap();
    let json = String::from_utf8(json).unwrap();
    assert!(json.contains(r#""name":"with \"quotes\"""#), "{json}");
    assert_eq!(json.matches("\"id\":").count(), sinew::fibers().len());
    println!("{text}");
    fibers.iter().for_each(|fiber| fiber.cancel());
}

/// Starts two fibers. Each takes its own lock, and then waits for the lock of the other.
fn embrace(runtime: &Runtime, locks: [Arc<Mutex<()>>; 2]) -> Vec<sinew::JoinHandle<()>> {
    let both = Arc::new(sinew::sync::Barrier::new(2));
    let names = ["left", "right"];
    (0..2)
        .map(|index| {
            let (mine, other) = (locks[index].clone(), locks[1 - index].clone());
            let both = both.clone();
            let builder = FiberBuilder::new().name(names[index]).runtime(runtime.handle());
            let body = move || {
                let _mine = mine.lock();
                both.wait();
                let _other = other.lock();
            };
            builder.spawn(body).unwrap()
        })
        .collect()
}

#[test]
fn a_deadlock_of_two_fibers_is_found() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let locks = [(); 2].map(|()| Arc::new(Mutex::new(())));
    let fibers = embrace(&runtime, locks.clone());
    let ids: Vec<_> = fibers.iter().map(|fiber| fiber.fiber().id()).collect();
    let find = || {
        let all = sinew::inspect::deadlocks();
        all.into_iter().find(|one| one.members().any(|(fiber, _)| fiber.id() == ids[0]))
    };
    sinew::wait_until(|| find().is_some());
    let deadlock = find().unwrap();
    let mut members: Vec<_> = deadlock.members().map(|(fiber, _)| fiber.id()).collect();
    members.sort();
    assert_eq!(members, ids);
    for (fiber, wait) in deadlock.members() {
        assert_eq!(wait.unwrap().kind, WaitKind::Lock);
        let other = ids.iter().find(|id| **id != fiber.id()).unwrap();
        assert_eq!(wait.unwrap().owner, Some(*other));
    }
    let text = deadlock.to_string();
    assert!(text.contains("fiber \"left\"") && text.contains("fiber \"right\""), "{text}");
    assert!(text.contains("embrace"), "{text}");
    println!("{text}");
    fibers[0].cancel();
    let ends = fibers.into_iter().map(|fiber| fiber.join().is_ok());
    assert_eq!(ends.collect::<Vec<_>>(), [false, true]);
    assert!(find().is_none());
}

#[test]
fn a_fiber_with_a_timeout_is_not_in_a_deadlock() {
    let _watch = watch::a_minute();
    let locks = [(); 2].map(|()| Arc::new(Mutex::new(())));
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let guard = locks[0].lock();
    let theirs = locks.clone();
    let fiber = runtime.spawn(move || {
        let _guard = theirs[1].lock();
        drop(theirs[0].lock());
    });
    sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Lock));
    let looking = Arc::new(AtomicBool::new(true));
    let look = looking.clone();
    let looker = std::thread::spawn(move || {
        let mut found = 0;
        while look.load(Ordering::Relaxed) {
            found += sinew::inspect::deadlocks().len();
        }
        found
    });
    for _ in 0..20 {
        assert!(locks[1].try_lock_for(Duration::from_millis(2)).is_none());
    }
    looking.store(false, Ordering::Relaxed);
    assert_eq!(looker.join().unwrap(), 0);
    drop(guard);
    fiber.join().unwrap();
}

#[test]
fn a_fiber_that_spawns_and_joins_is_not_asleep() {
    child("a_fiber_that_spawns_and_joins_is_not_asleep", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let maker = runtime.spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                sinew::spawn(|| ()).join().unwrap();
            }
        });
        let until = std::time::Instant::now() + Duration::from_millis(300);
        while std::time::Instant::now() < until {
            assert!(sinew::inspect::all_asleep().is_none());
        }
        done.store(true, Ordering::Relaxed);
        maker.join().unwrap();
    })
    .assert_success();
}

#[inline(never)]
fn alpha(done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        sinew::yield_now();
    }
    std::hint::black_box(());
}

#[inline(never)]
fn beta(done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        sinew::yield_now();
    }
    std::hint::black_box(1);
}

/// The result is right also in the middle of a switch.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn a_backtrace_belongs_to_the_requested_fiber() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (first, second) = (done.clone(), done.clone());
    let fibers = [runtime.spawn(move || alpha(&first)), runtime.spawn(move || beta(&second))];
    let until = std::time::Instant::now() + Duration::from_millis(500);
    let mut seen = 0;
    while std::time::Instant::now() < until || seen < 10 {
        for (fiber, other) in fibers.iter().zip(["::beta", "::alpha"]) {
            let Ok(backtrace) = fiber.fiber().backtrace_now() else { continue };
            seen += 1;
            let names = backtrace.frames();
            let names = names.iter().flat_map(|frame| frame.symbols());
            for name in names.filter_map(|symbol| symbol.name.as_deref()) {
                assert!(!name.ends_with(other), "{backtrace:#}");
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

#[test]
fn metrics_of_an_ended_runtime_exclude_later_runtimes() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| (0..5).for_each(|_| sinew::spawn(|| ()).join().unwrap()));
    let handle = runtime.handle().clone();
    drop(runtime);
    // The new runtimes take over the carrier, and count for themselves.
    let others: Vec<_> = (0..4).map(|_| Runtime::builder().carriers(3).build().unwrap()).collect();
    for other in &others {
        other.run(|| sinew::spawn(|| ()).join().unwrap());
    }
    let metrics = handle.metrics();
    assert_eq!((metrics.carriers.len(), metrics.total().spawned), (1, 5));
    assert_eq!(metrics.total().finished, 6);
}

#[test]
fn a_snapshot_has_the_remaining_time_of_a_sleep() {
    let _watch = watch::a_minute();
    let fiber = sinew::spawn(|| sinew::sleep(Duration::from_secs(1000)));
    sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Sleep));
    let wait = sinew::fibers().into_iter().find(|info| info.id() == fiber.fiber().id());
    let wait = wait.unwrap().wait.unwrap();
    let left = wait.left.unwrap();
    assert!(left > Duration::from_secs(900) && left <= Duration::from_secs(1000), "{left:?}");
    assert_eq!(wait.address, 0);
    fiber.fiber().cancel();
    assert!(fiber.join().is_err());
}

#[test]
fn a_snapshot_has_the_wait_of_a_pinned_fiber() {
    let _watch = watch::a_minute();
    let runtime =
        Runtime::builder().pinned_wait(sinew::runtime::PinnedWait::Silent).build().unwrap();
    let lock = Arc::new(Mutex::new(()));
    let guard = lock.lock();
    let theirs = lock.clone();
    let fiber = runtime.spawn(move || sinew::pinned(|| drop(theirs.lock())));
    let wait = || {
        let all = sinew::fibers();
        let info = all.iter().find(|info| info.id() == fiber.fiber().id())?;
        info.wait.inspect(|_| assert_eq!(info.state, FiberState::Running))
    };
    sinew::wait_until(|| wait().is_some());
    assert_eq!(wait().unwrap().kind, WaitKind::Lock);
    drop(guard);
    fiber.join().unwrap();
    drop(runtime);
}

#[test]
fn metrics_count_fibers_switches_and_events() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let fibers: Vec<_> = (0..10).map(|_| sinew::spawn(sinew::yield_now)).collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        sinew::sleep(Duration::from_millis(1));
        let (reader, mut writer) = sinew::io::pipe().unwrap();
        let reader = sinew::spawn(move || (&reader).read(&mut [0]).unwrap());
        sinew::sleep(Duration::from_millis(1));
        writer.write_all(b"x").unwrap();
        reader.join().unwrap();
    });
    let metrics = runtime.handle().metrics();
    let total = metrics.total();
    assert_eq!(total, metrics.carriers[0]);
    assert_eq!((total.spawned, metrics.submitted), (11, 1));
    assert!(total.finished >= 11 && total.switches >= 20, "{total:?}");
    assert!(total.timers >= 2 && total.sleeps >= 1 && total.io_events >= 1, "{total:?}");
    assert_eq!((total.stolen, total.shared), (0, 0));
    assert!(metrics.stacks_in_use > 0);
}

#[inline(never)]
fn computes_until(done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Repeats this while the fiber computes and the other fibers of its carrier wait.
#[test]
fn a_fiber_that_runs_says_where_it_is_when_its_carrier_is_stopped() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let busy = runtime.spawn(move || computes_until(&seen));
    sinew::wait_until(|| busy.fiber().state() == FiberState::Running);
    assert!(matches!(busy.fiber().backtrace(), Err(BacktraceError::Running)));
    for _ in 0..100 {
        let text = busy.fiber().backtrace_now().unwrap().to_string();
        // The code of the sanitizer does not have unwind tables everywhere.
        assert!(text.contains("computes_until") || cfg!(sinew_tsan), "{text}");
    }
    done.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    let own = runtime.run(|| sinew::current().backtrace_now().unwrap_err());
    assert!(matches!(own, BacktraceError::Running), "{own}");
}

sinew::fiber_local! {
    inherit static HANDED_DOWN: u64 = 1;
}

/// A fiber that can be found already has its name, which is read without a lock.
#[test]
fn names_are_there_before_the_fibers() {
    let outcome = child("names_are_there_before_the_fibers", || {
        let _watch = watch::a_minute();
        let done = Arc::new(AtomicBool::new(false));
        let stop = done.clone();
        let reader = std::thread::spawn(move || {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) || seen == 0 {
                for info in sinew::fibers() {
                    assert!(info.name().is_some(), "{info:?} has no name");
                    seen += 1;
                }
            }
        });
        HANDED_DOWN.with(|_| ());
        let controller = SimpleLoopController::new();
        let manager = FiberManager::new(controller.clone(), Options::new()).unwrap();
        let named = || TaskOptions::new().name("a name of some length");
        for _ in 0..1000 {
            (0..64).for_each(|_| manager.add_task_with(named(), || ()));
            controller.run();
        }
        let (ours, theirs) = sinew::os::unix::net::UnixStream::pair().unwrap();
        (&theirs).write_all(b"x").unwrap();
        let ours = Arc::new(ours);
        let fibers = FiberBuilder::new().name("maker").spawn(move || {
            HANDED_DOWN.with(|_| ());
            for _ in 0..10_000 {
                let builder = FiberBuilder::new().name("another name of some length");
                builder.spawn_when_readable(ours.clone(), drop).unwrap().join().unwrap();
            }
        });
        fibers.unwrap().join().unwrap();
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    outcome.assert_success();
}
