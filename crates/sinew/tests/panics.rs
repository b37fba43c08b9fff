//! Panics in fibers: contained, named, and survived by other fibers.

use sinew::manager::{FiberManager, Options, SimpleLoopController};
use sinew::{FiberBuilder, Runtime};
use sinew_testkit::child::child;
use sinew_testkit::{Log, watch};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn one_carrier() -> Runtime {
    Runtime::builder().carriers(1).build().unwrap()
}

#[test]
fn the_message_names_the_fiber() {
    let outcome = child("the_message_names_the_fiber", || {
        let fiber = FiberBuilder::new().name("unlucky").spawn(|| panic!("the reason")).unwrap();
        assert!(fiber.join().is_err());
    });
    outcome.assert_success();
    let stderr = &outcome.stderr;
    assert!(stderr.contains("fiber \"unlucky\" (id "), "{stderr}");
    assert!(stderr.contains("the reason"), "{stderr}");
}

#[test]
fn the_panic_hook_cannot_wait() {
    let outcome = child("the_panic_hook_cannot_wait", || {
        std::panic::set_hook(Box::new(|_| {
            let waited = catch_unwind(|| assert!(!sinew::can_yield()));
            assert!(waited.is_ok());
        }));
        // The runtime's hook wraps the hook above.
        let fiber = sinew::spawn(|| panic!("once"));
        assert!(fiber.join().is_err());
    });
    outcome.assert_success();
}

/// A fiber panics, and meanwhile waits in a destructor for another fiber that panics too.
#[test]
fn a_fiber_waits_in_a_destructor_while_a_neighbour_panics() {
    let _watch = watch::a_minute();
    struct Joins(Option<sinew::JoinHandle<()>>, Log);
    impl Drop for Joins {
        fn drop(&mut self) {
            let joined = self.0.take().unwrap().join();
            self.1.line(format!("neighbour panicked: {}", joined.is_err()));
        }
    }
    let log = Log::new();
    let theirs = log.clone();
    one_carrier().run(move || {
        let inner = theirs.clone();
        let fiber = sinew::spawn(move || {
            let neighbour = sinew::spawn_local(|| {
                sinew::yield_now();
                panic!("the neighbour");
            });
            let _joins = Joins(Some(neighbour), inner);
            panic!("the first");
        });
        let payload = fiber.join().unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the first"));
        // The thread does not stay in the panicking state.
        assert!(!std::thread::panicking());
    });
    assert_eq!(log.take(), ["neighbour panicked: true"]);
}

/// Dropping a suspended first-class fiber unwinds it, which no panic hook sees. While another fiber
/// is suspended in the middle of a panic, a cancelled fiber that waits in a destructor there must
/// not be unwound a second time.
#[test]
fn a_destructor_of_a_dropped_first_class_fiber_waits_beside_a_neighbour_that_panics() {
    let test = "a_destructor_of_a_dropped_first_class_fiber_waits_beside_a_neighbour_that_panics";
    struct Waits(fn());
    impl Drop for Waits {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    child(test, || {
        let _watch = watch::a_minute();
        one_carrier().run(|| {
            let panics = sinew::spawn_local(|| {
                let _waits = Waits(sinew::park);
                panic!("on purpose");
            });
            while panics.fiber().waits_for().is_none() {
                sinew::yield_now();
            }
            let drops = sinew::spawn_local(|| {
                let fiber = sinew_context::FiberContext::new(|caller| {
                    let _waits = Waits(|| sinew::sleep(Duration::from_millis(1)));
                    caller.resume().unwrap()
                });
                let suspended = fiber.unwrap().resume().unwrap();
                sinew::current().cancel();
                drop(suspended);
                // The unwinding is over, so the next wait raises the cancellation.
                sinew::park();
            });
            assert!(sinew::is_cancel(&*drops.join().unwrap_err()));
            panics.fiber().unpark();
            assert!(panics.join().is_err());
        });
    })
    .assert_success();
}

/// A fiber that unwinds cancels another fiber of its carrier and joins it. The other fiber must see
/// its cancellation, although the thread counts a panic.
#[test]
fn a_fiber_that_unwinds_cancels_and_joins_a_neighbour() {
    let _watch = watch::a_minute();
    struct Ends(Option<sinew::JoinHandle<()>>);
    impl Drop for Ends {
        fn drop(&mut self) {
            let fiber = self.0.take().unwrap();
            fiber.cancel();
            assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        }
    }
    one_carrier().run(|| {
        let fiber = sinew::spawn(|| {
            let neighbour = sinew::spawn_local(|| {
                loop {
                    sinew::park();
                }
            });
            sinew::yield_now();
            let _ends = Ends(Some(neighbour));
            panic!("on purpose");
        });
        assert!(fiber.join().is_err());
    });
}

#[test]
fn many_neighbours_unwind_at_once() {
    let _watch = watch::a_minute();
    struct Yields(Arc<AtomicUsize>);
    impl Drop for Yields {
        fn drop(&mut self) {
            for _ in 0..3 {
                sinew::yield_now();
                sinew::sleep(Duration::from_micros(100));
            }
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let theirs = dropped.clone();
    Runtime::builder().carriers(2).build().unwrap().run(move || {
        let fibers: Vec<_> = (0..40)
            .map(|n| {
                let theirs = theirs.clone();
                sinew::spawn(move || {
                    let _yields = Yields(theirs);
                    if n % 2 == 0 {
                        panic!("half of them");
                    }
                    sinew::sleep(Duration::from_millis(1));
                    if n % 4 == 1 {
                        sinew::park();
                    }
                })
            })
            .collect();
        for (n, fiber) in fibers.into_iter().enumerate() {
            if n % 4 == 1 {
                fiber.cancel();
            }
            // A fiber may be cancelled before it began: then it drops nothing.
            drop(fiber.join());
        }
        assert!(!std::thread::panicking());
    });
    assert!(dropped.load(Ordering::Relaxed) >= 30);
}

#[test]
fn a_panic_in_a_destructor_of_a_local_is_reported() {
    let _watch = watch::a_minute();
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("a bad destructor");
        }
    }
    sinew::fiber_local!(static BAD: Bad = Bad);
    let runtime = one_carrier();
    let fiber = runtime.spawn(|| {
        BAD.with(|_| ());
        7
    });
    assert_eq!(fiber.join().unwrap(), 7);
    assert_eq!(runtime.spawn(|| 8).join().unwrap(), 8);
}

#[test]
fn a_panic_in_an_untaken_result_is_contained() {
    let _watch = watch::a_minute();
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("a bad result");
        }
    }
    let runtime = one_carrier();
    let gate = Arc::new(AtomicBool::new(false));
    let opened = gate.clone();
    let fiber = runtime.spawn(move || {
        sinew::wait_until(|| opened.load(Ordering::Acquire));
        Bad
    });
    let handle = fiber.fiber();
    drop(fiber);
    gate.store(true, Ordering::Release);
    handle.wait_finished();
    assert_eq!(runtime.spawn(|| 8).join().unwrap(), 8);
}

#[test]
fn a_panic_in_a_waker_is_contained() {
    use std::future::Future;
    use std::task::{Context, Wake, Waker};
    let _watch = watch::a_minute();
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a bad waker");
        }
    }
    let runtime = one_carrier();
    let mut fiber = runtime.spawn(sinew::park);
    let waker = Waker::from(Arc::new(Bad));
    let polled = std::pin::Pin::new(&mut fiber).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    fiber.fiber().unpark();
    fiber.join().unwrap();
    assert_eq!(runtime.spawn(|| 8).join().unwrap(), 8);
}

#[test]
fn a_panic_in_an_idle_hook_is_survived() {
    let _watch = watch::a_minute();
    let runtime =
        Runtime::builder().carriers(1).idle_hook(|_| panic!("a bad hook")).build().unwrap();
    runtime.run(|| sinew::sleep(Duration::from_millis(2)));
}

#[test]
fn a_panic_in_the_report_hook_is_survived() {
    let outcome = child("a_panic_in_the_report_hook_is_survived", || {
        sinew::set_report_hook(|_| panic!("a bad hook"));
        sinew::run(|| sinew::pinned(|| sinew::sleep(Duration::from_millis(1))));
    });
    outcome.assert_success();
}

#[test]
fn a_payload_that_panics_when_dropped_panics_in_the_joiner() {
    let _watch = watch::a_minute();
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("a bad payload");
        }
    }
    let runtime = one_carrier();
    let fiber = runtime.spawn(|| std::panic::resume_unwind(Box::new(Bad)));
    let result: std::thread::Result<()> = fiber.join();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(result))).is_err());
    assert_eq!(runtime.spawn(|| 8).join().unwrap(), 8);
}

/// The runtime calls the report hook between two fibers, or in the middle of a wait.
#[test]
fn a_report_hook_may_not_wait() {
    use std::task::{Context, Wake, Waker};
    struct BadWaker;
    impl Wake for BadWaker {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }
    let outcome = child("a_report_hook_may_not_wait", || {
        let _watch = watch::a_minute();
        static REFUSED: AtomicUsize = AtomicUsize::new(0);
        sinew::set_report_hook(|_| {
            let refused = catch_unwind(sinew::yield_now).is_err();
            REFUSED.fetch_add(usize::from(refused), Ordering::Relaxed);
        });
        // Disable the panic hook: a panic in its report would end the process.
        let runtime = Runtime::builder().carriers(1).panic_hook(false).build().unwrap();
        let waker = Waker::from(Arc::new(BadWaker));
        for _ in 0..20 {
            let mut fibers: Vec<_> = (0..4).map(|_| runtime.spawn(sinew::park)).collect();
            for fiber in &mut fibers {
                let polled = std::pin::Pin::new(&mut *fiber);
                assert!(polled.poll(&mut Context::from_waker(&waker)).is_pending());
                fiber.fiber().unpark();
            }
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        }
        runtime.run(|| ());
        assert_eq!(REFUSED.load(Ordering::Relaxed), 80);
    });
    outcome.assert_success();
}

#[test]
fn a_handle_tells_whether_its_fiber_panicked() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    // A fiber that caught a panic has not panicked.
    let catches = runtime.spawn(|| {
        assert!(catch_unwind(|| panic!("caught")).is_err());
        sinew::park();
    });
    let handle = catches.fiber();
    sinew::wait_until(|| handle.waits_for().is_some());
    assert!(!handle.panicked());
    handle.unpark();
    catches.join().unwrap();
    assert!(!handle.panicked());

    let panics = runtime.spawn(|| panic!("the reason"));
    let handle = panics.fiber();
    panics.join().unwrap_err();
    assert!(handle.panicked());

    let raises = runtime.spawn(|| std::panic::resume_unwind(Box::new(1)));
    let handle = raises.fiber();
    drop(raises);
    handle.wait_finished();
    assert!(handle.panicked(), "of a fiber that was detached");
}

#[test]
fn a_cancellation_is_no_panic() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    let waits = runtime.spawn(sinew::park);
    let handle = waits.fiber();
    sinew::wait_until(|| handle.waits_for().is_some());
    waits.cancel();
    waits.join().unwrap_err();
    assert!(!handle.panicked());

    // A panic that replaces the cancellation counts.
    let panics = runtime.spawn(|| {
        catch_unwind(sinew::park).unwrap_err();
        panic!("instead");
    });
    let handle = panics.fiber();
    sinew::wait_until(|| handle.waits_for().is_some());
    panics.cancel();
    panics.join().unwrap_err();
    assert!(handle.panicked());
}

#[test]
fn an_unstarted_fiber_panics_only_by_its_destructors() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    let (quiet, loud) = runtime.run(|| {
        let quiet = sinew::spawn(|| ());
        let captured = Panics;
        let loud = sinew::spawn(move || drop(captured));
        let handles = (quiet.fiber(), loud.fiber());
        quiet.cancel();
        loud.cancel();
        quiet.join().unwrap_err();
        loud.join().unwrap_err();
        handles
    });
    assert!(!quiet.panicked());
    assert!(loud.panicked());
}

#[test]
fn handles_of_children_and_tasks_tell_whether_they_panicked() {
    let _watch = watch::a_minute();
    let child = Arc::new(std::sync::Mutex::new(None));
    let scope = catch_unwind(AssertUnwindSafe(|| {
        sinew::scope(|s| {
            s.spawn(|| {
                *child.lock().unwrap() = Some(sinew::current());
                panic!("in a child");
            });
        });
    }));
    scope.unwrap_err();
    assert!(child.lock().unwrap().take().unwrap().panicked());

    let controller = SimpleLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::new()).unwrap();
    manager.set_panic_callback(|_, _| ());
    let tasks = Rc::new(RefCell::new(Vec::new()));
    let note = |tasks: &Rc<RefCell<Vec<_>>>| tasks.borrow_mut().push(sinew::current());
    let each = tasks.clone();
    manager.add_task(move || {
        note(&each);
        panic!("in a task");
    });
    let each = tasks.clone();
    let future = manager.add_task_future(move || {
        note(&each);
        panic!("in a task with a future");
    });
    let each = tasks.clone();
    manager.add_task(move || note(&each));
    controller.run();
    drop(future);
    let panicked: Vec<_> = tasks.borrow().iter().map(sinew::Fiber::panicked).collect();
    assert_eq!(panicked, [true, true, false]);
}
