//! Groups: fibers that are submitted from anywhere and waited for together.

use sinew::{FiberBuilder, Group, Runtime};
use sinew_testkit::watch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

fn values<T>(results: Vec<std::thread::Result<T>>) -> Vec<T> {
    results.into_iter().map(|result| result.unwrap()).collect()
}

#[test]
fn finish_waits_for_fibers_that_members_submit() {
    let _watch = watch::a_minute();
    let group = Group::new();
    let started = Arc::new(Barrier::new(2));
    let (theirs, gate) = (group.clone(), started.clone());
    group.submit(move || {
        gate.wait(); // the other thread is about to finish the group
        sinew::sleep(Duration::from_millis(1));
        let inner = theirs.clone();
        theirs.submit(move || {
            sinew::sleep(Duration::from_millis(1));
            inner.submit(|| 3);
            2
        });
        1
    });
    started.wait();
    assert_eq!(values(group.finish()), [1, 2, 3]);
    assert!(group.is_empty());
}

#[test]
fn a_caller_that_gets_no_results_waits_for_later_members() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let group = Group::new();
        let gate = Arc::new(sinew::sync::Event::new());
        let theirs = gate.clone();
        group.submit(move || theirs.wait());
        let (one, other) = (group.clone(), group.clone());
        // The first caller gets the results, and then submits a member that does not end.
        let first = sinew::spawn(move || {
            let results = one.finish().len();
            one.submit(sinew::park);
            results
        });
        let second = sinew::spawn(move || other.finish_timeout(Duration::from_millis(20)));
        for caller in [first.fiber(), second.fiber()] {
            sinew::wait_until(|| caller.waits_for().is_some());
        }
        gate.set();
        assert_eq!(first.join().unwrap(), 1);
        assert!(second.join().unwrap().is_none(), "the later member has not ended");
        group.cancel();
        assert_eq!(group.finish().len(), 1);
    });
}

#[test]
fn a_member_comes_before_the_fibers_that_it_submits() {
    let _watch = watch::a_minute();
    for _ in 0..200 {
        let group = Group::new();
        // The member may run, and submit, before `submit` has returned here.
        for n in 0..4 {
            let theirs = group.clone();
            group.submit(move || {
                theirs.submit(move || (n, 1));
                (n, 0)
            });
        }
        let order = values(group.finish());
        assert_eq!(order.len(), 8);
        for n in 0..4 {
            let place = |wanted| order.iter().position(|found| *found == wanted).unwrap();
            assert!(place((n, 0)) < place((n, 1)), "{order:?}");
        }
        let outer: Vec<_> = order.iter().filter(|(_, depth)| *depth == 0).collect();
        assert!(outer.is_sorted(), "{order:?}");
    }
}

#[test]
fn threads_submit_at_the_same_time() {
    let _watch = watch::a_minute();
    let group = Group::new();
    std::thread::scope(|s| {
        for thread in 0..4 {
            let group = group.clone();
            s.spawn(move || (0..250).for_each(|n| group.submit(move || (thread, n))));
        }
    });
    assert_eq!(group.len(), 1000);
    let results = values(group.finish());
    for thread in 0..4 {
        let theirs: Vec<_> =
            results.iter().filter(|(by, _)| *by == thread).map(|(_, n)| *n).collect();
        assert_eq!(theirs, (0..250).collect::<Vec<_>>());
    }
}

#[test]
fn an_unstarted_fiber_is_submitted_to_a_group() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).name("elsewhere").build().unwrap();
    let name = || {
        (
            sinew::RuntimeHandle::current().name().to_owned(),
            sinew::current().name().map(str::to_owned),
        )
    };
    let group = Group::new();
    let elsewhere = FiberBuilder::new().name("made before").runtime(runtime.handle());
    group.submit_unstarted(elsewhere.build(name).unwrap());
    group.submit_with(FiberBuilder::new().name("with settings"), name).unwrap();
    assert!(group.submit_with(FiberBuilder::new().stack_size(1), name).is_err());
    let expected = [("elsewhere", "made before"), ("sinew", "with settings")];
    let expected = expected.map(|(runtime, fiber)| (runtime.to_owned(), Some(fiber.to_owned())));
    assert_eq!(values(group.finish()), expected);
}

#[test]
fn a_timeout_leaves_the_results_in_the_group() {
    let _watch = watch::a_minute();
    let group = Group::new();
    let parked = FiberBuilder::new().build(|| {
        sinew::park();
        2
    });
    let parked = parked.unwrap();
    let handle = parked.fiber();
    group.submit(|| 1);
    group.submit_unstarted(parked);
    assert!(group.finish_timeout(Duration::from_millis(1)).is_none());
    assert!(group.finish_deadline(Instant::now()).is_none());
    // A caller that is unwound has taken nothing either.
    let late = sinew::run({
        let group = group.clone();
        move || sinew::timeout(Duration::from_millis(1), || group.finish()).is_err()
    });
    assert!(late);
    assert_eq!(group.len(), 2);
    handle.unpark();
    let results = group.finish_deadline(Instant::now() + Duration::from_secs(3600));
    assert_eq!(values(results.unwrap()), [1, 2]);
    assert!(values(group.finish_timeout(Duration::ZERO).unwrap()).is_empty());
}

#[test]
fn fibers_that_are_submitted_to_a_cancelled_group_are_cancelled() {
    let _watch = watch::a_minute();
    let group = Group::new();
    let theirs = group.clone();
    group.submit(move || {
        struct OnDrop(Group<()>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.submit(sinew::park);
            }
        }
        let _submits = OnDrop(theirs);
        sinew::park();
    });
    group.cancel();
    group.submit(sinew::park);
    let results = group.finish();
    assert!(results.len() >= 2);
    assert!(results.iter().all(|result| sinew::is_cancel(&**result.as_ref().unwrap_err())));
    // A new round begins.
    group.submit(|| ());
    assert_eq!(values(group.finish()), [()]);
}

#[test]
fn a_member_that_finishes_its_own_group_panics() {
    let _watch = watch::a_minute();
    let group = Group::new();
    let theirs = group.clone();
    group.submit(move || theirs.finish_timeout(Duration::from_secs(3600)).map(drop));
    let payload = group.finish().remove(0).unwrap_err();
    let message = payload.downcast_ref::<String>().unwrap();
    assert!(message.contains("cannot wait for the end of its own group"), "{message}");
}

#[test]
fn a_dropped_group_detaches_its_members() {
    let _watch = watch::a_minute();
    let ended = Arc::new(AtomicU32::new(0));
    let group = Group::new();
    for _ in 0..3 {
        let ended = ended.clone();
        group.submit(move || {
            sinew::yield_now();
            ended.fetch_add(1, Ordering::Relaxed)
        });
    }
    drop(group);
    sinew::wait_until(|| ended.load(Ordering::Relaxed) == 3);
}

#[test]
fn a_group_of_a_runtime_that_is_gone_gives_cancellations() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let group = Group::on(runtime.handle());
    group.submit(sinew::park);
    drop(runtime);
    group.submit(sinew::park);
    let results = group.finish();
    assert!(results.iter().all(|result| sinew::is_cancel(&**result.as_ref().unwrap_err())));
    assert_eq!(results.len(), 2);
}

#[test]
fn several_finishers_share_one_set_of_results() {
    let _watch = watch::a_minute();
    let group = Group::new();
    (0..100).for_each(|n| group.submit(move || n));
    let counts = std::thread::scope(|s| {
        let threads: Vec<_> = (0..3).map(|_| s.spawn(|| group.finish().len())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(counts.iter().sum::<usize>(), 100);
}

#[test]
fn a_runtime_is_empty_when_all_descendants_have_ended() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    runtime.handle().wait_empty(); // nothing began
    for _ in 0..50 {
        let count = Arc::new(AtomicU32::new(0));
        descend(runtime.handle(), 5, &count);
        runtime.handle().wait_empty();
        assert_eq!(count.load(Ordering::Relaxed), 63);
    }
}

fn descend(runtime: &sinew::RuntimeHandle, depth: u32, count: &Arc<AtomicU32>) {
    let count = count.clone();
    runtime.spawn(move || {
        sinew::yield_now();
        if depth > 0 {
            let here = sinew::RuntimeHandle::current();
            (0..2).for_each(|_| descend(&here, depth - 1, &count));
        }
        count.fetch_add(1, Ordering::Relaxed);
    });
}

#[test]
fn a_runtime_with_a_fiber_that_waits_is_not_empty() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let fiber = runtime.spawn(sinew::park);
    assert!(!runtime.handle().wait_empty_timeout(Duration::from_millis(1)));
    assert!(!runtime.handle().wait_empty_deadline(Instant::now()));
    // A fiber of another runtime waits as well, and can be cancelled.
    let handle = runtime.handle().clone();
    let late = sinew::run({
        let handle = handle.clone();
        move || sinew::timeout(Duration::from_millis(1), || handle.wait_empty())
    });
    assert!(late.is_err());
    let waiter = sinew::spawn(move || handle.wait_empty());
    fiber.fiber().unpark();
    waiter.join().unwrap();
    fiber.join().unwrap();
    assert!(runtime.handle().wait_empty_deadline(Instant::now()));
}

#[test]
fn a_fiber_that_was_not_submitted_does_not_keep_a_runtime() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let unstarted = FiberBuilder::new().runtime(runtime.handle()).build(|| 7).unwrap();
    let gate = Arc::new(sinew::sync::Event::new());
    let theirs = gate.clone();
    runtime.spawn(move || theirs.wait());
    // The runtime has a live fiber, and a fiber that was not submitted.
    assert!(!runtime.handle().wait_empty_timeout(Duration::from_millis(1)));
    gate.set();
    runtime.handle().wait_empty();
    assert_eq!(unstarted.submit().join().unwrap(), 7);
}

#[test]
fn a_runtime_that_is_gone_is_empty() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.spawn(sinew::park);
    let handle = runtime.handle().clone();
    let waiter = std::thread::spawn({
        let handle = handle.clone();
        move || handle.wait_empty()
    });
    drop(runtime);
    waiter.join().unwrap();
    // The carriers of the ended runtime serve another one.
    let other = Runtime::builder().carriers(1).build().unwrap();
    let fiber = other.spawn(sinew::park);
    handle.wait_empty();
    fiber.fiber().unpark();
}

#[test]
fn a_fiber_cannot_wait_for_its_own_runtime() {
    let _watch = watch::a_minute();
    let message = sinew::run(|| {
        let wait = || sinew::RuntimeHandle::current().wait_empty_timeout(Duration::from_secs(3600));
        let payload = catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
        payload.downcast_ref::<String>().unwrap().clone()
    });
    assert!(message.contains("all fibers of its own runtime"), "{message}");
}

#[test]
fn a_manager_is_empty_when_its_loop_has_run_it() {
    use sinew::manager::{FiberManager, Options, SimpleLoopController};
    let _watch = watch::a_minute();
    let controller = SimpleLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::new()).unwrap();
    let handle = manager.add_task_future(sinew::RuntimeHandle::current);
    controller.run();
    let handle = handle.get().unwrap();
    manager.add_task(sinew::yield_now);
    // On the manager's own thread nothing would run its loop.
    let hopeless = catch_unwind(AssertUnwindSafe(|| handle.wait_empty()));
    let message = hopeless.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("only its loop can run"), "{message}");
    let waiter = std::thread::spawn(move || handle.wait_empty());
    controller.run();
    waiter.join().unwrap();
}
