//! The end of a runtime, with fibers in every state.

use sinew::sync::channel;
use sinew::{FiberBuilder, Runtime};
use sinew_testkit::child::child;
use sinew_testkit::{Log, watch};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn destructors_run_once_in_every_state() {
    let _watch = watch::watchdog(Duration::from_secs(120));
    for round in 0..20 {
        for carriers in [1, 2, 3] {
            let runtime = Runtime::builder().carriers(carriers).build().unwrap();
            let made = Arc::new(AtomicUsize::new(0));
            let dropped = Arc::new(AtomicUsize::new(0));
            struct Count(Arc<AtomicUsize>);
            impl Drop for Count {
                fn drop(&mut self) {
                    self.0.fetch_add(1, Ordering::Relaxed);
                }
            }
            let token = || {
                made.fetch_add(1, Ordering::Relaxed);
                Count(dropped.clone())
            };
            let handle = runtime.handle().clone();
            let builder = || FiberBuilder::new().runtime(&handle);
            let mut fibers = Vec::new();
            for n in 0..10_u64 {
                let t = token();
                fibers.push(runtime.spawn(move || {
                    let _t = t;
                    sinew::sleep(Duration::from_secs(3600));
                }));
                let t = token();
                fibers.push(runtime.spawn(move || {
                    let _t = t;
                    sinew::park();
                }));
                let t = token();
                fibers.push(runtime.spawn(move || {
                    let _t = t;
                    loop {
                        sinew::yield_now();
                    }
                }));
                let t = token();
                fibers.push(runtime.spawn(move || {
                    let _t = t;
                    sinew::scope(|s| {
                        s.spawn(sinew::park);
                        s.spawn(|| sinew::sleep(Duration::MAX));
                    });
                    // The children may be cancelled before their parent is.
                    sinew::park();
                }));
                let t = token();
                fibers.push(runtime.spawn(move || {
                    let _t = t;
                    sinew::masked(|| sinew::sleep(Duration::from_millis(n)));
                    sinew::park();
                }));
                let t = token();
                // SAFETY: the closure keeps only `Send` values.
                let migratable = unsafe { builder().migratable() };
                fibers.push(
                    migratable
                        .spawn(move || {
                            let _t = t;
                            loop {
                                sinew::sleep(Duration::from_micros(50));
                            }
                        })
                        .unwrap(),
                );
                let t = token();
                // This fiber still spawns during the shutdown.
                fibers.push(runtime.spawn(move || {
                    let _t = t;
                    loop {
                        let _ = catch_unwind(|| sinew::spawn(|| ()).join());
                        sinew::yield_now();
                    }
                }));
            }
            let t = token();
            let created = builder().build(move || drop(t)).unwrap();
            if round % 3 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            if round % 2 == 0 {
                drop(fibers);
                runtime.shutdown_timeout(LONG).unwrap();
            } else {
                runtime.shutdown_timeout(LONG).unwrap();
                for (index, fiber) in fibers.into_iter().enumerate() {
                    let ended = fiber.join();
                    let cancelled = ended.is_err_and(|payload| sinew::is_cancel(&*payload));
                    assert!(cancelled, "fiber {index} ended by itself");
                }
            }
            // A fiber that is submitted too late ends before it begins.
            assert!(sinew::is_cancel(&*created.submit().join().unwrap_err()));
            assert_eq!(dropped.load(Ordering::SeqCst), made.load(Ordering::SeqCst));
        }
    }
}

#[test]
fn a_fiber_that_refuses_to_end_is_named() {
    let outcome = child("a_fiber_that_refuses_to_end_is_named", || {
        let runtime = Runtime::builder().carriers(2).name("stubborn").build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let fiber = FiberBuilder::new()
            .name("refuses")
            .runtime(runtime.handle())
            .spawn(move || {
                while !theirs.load(Ordering::Relaxed) {
                    let _ = catch_unwind(sinew::park);
                }
            })
            .unwrap();
        let masked = FiberBuilder::new()
            .name("masked")
            .runtime(runtime.handle())
            .spawn(|| sinew::masked(sinew::park))
            .unwrap();
        let good = runtime.spawn(sinew::park);
        for fiber in [&fiber, &masked, &good] {
            sinew::wait_until(|| fiber.fiber().waits_for().is_some());
        }
        let start = Instant::now();
        let leftover = runtime.shutdown_timeout(Duration::from_millis(50)).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(leftover.fibers().len(), 2);
        let text = leftover.to_string();
        assert!(text.contains("\"refuses\"") && text.contains("\"masked\" "), "{text}");
        assert!(text.contains("(in park)"), "{text}");
        assert!(good.join().is_err());
        stop.store(true, Ordering::Relaxed);
    });
    outcome.assert_success();
}

#[test]
fn a_fiber_that_computes_for_ever_does_not_hang_the_shutdown() {
    let outcome = child("a_fiber_that_computes_for_ever_does_not_hang_the_shutdown", || {
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let begun = Arc::new(AtomicBool::new(false));
        let theirs = begun.clone();
        let _fiber = runtime.spawn(move || {
            theirs.store(true, Ordering::Relaxed);
            loop {
                std::hint::spin_loop();
            }
        });
        sinew::wait_until(|| begun.load(Ordering::Relaxed));
        let leftover = runtime.shutdown_timeout(Duration::from_millis(20)).unwrap_err();
        assert!(leftover.to_string().contains("(running)"), "{leftover}");
    });
    outcome.assert_success();
}

#[test]
fn dropping_a_runtime_ends_its_fibers() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let theirs = log.clone();
    let runtime = Runtime::new().unwrap();
    let fiber = runtime.spawn(move || {
        let _dropped = theirs.on_drop("dropped");
        sinew::park();
    });
    sinew::wait_until(|| fiber.fiber().waits_for().is_some());
    drop(runtime);
    assert_eq!(log.take(), ["dropped"]);
    assert!(fiber.join().is_err());
}

#[test]
fn a_runtime_dropped_inside_its_own_fiber_ends() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let theirs = log.clone();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let (send, receive) = std::sync::mpsc::channel::<Runtime>();
    let fiber = runtime.spawn(move || {
        let mut runtime = None;
        sinew::wait_until(|| {
            runtime = receive.try_recv().ok();
            runtime.is_some()
        });
        drop(runtime);
        theirs.line("went on");
        let _dropped = theirs.on_drop("dropped");
        sinew::yield_now();
        theirs.line("not reached");
    });
    send.send(runtime).unwrap();
    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    assert_eq!(log.take(), ["went on", "dropped"]);
}

#[test]
fn handles_outlive_their_runtime() {
    let _watch = watch::a_minute();
    let runtime = Runtime::new().unwrap();
    let handle = runtime.handle().clone();
    let fiber = runtime.spawn(sinew::current);
    let other = runtime.spawn(sinew::park);
    let inside = fiber.join().unwrap();
    drop(runtime);
    inside.unpark();
    inside.cancel();
    inside.wait_finished();
    other.cancel();
    other.fiber().unpark();
    assert!(other.join().is_err());
    // An ended runtime takes no work, and returns a cancellation.
    let late = handle.spawn(|| 7);
    assert!(sinew::is_cancel(&*late.join().unwrap_err()));
}

#[test]
fn wakers_outlive_their_runtime() {
    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::task::{Poll, Waker};
    let _watch = watch::a_minute();
    let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
    let theirs = kept.clone();
    let runtime = Runtime::new().unwrap();
    let fiber = runtime.spawn(move || {
        sinew::block_on(poll_fn(|context| {
            *theirs.lock().unwrap() = Some(context.waker().clone());
            Poll::<()>::Pending
        }));
    });
    sinew::wait_until(|| kept.lock().unwrap().is_some());
    drop(runtime);
    assert!(fiber.join().is_err());
    let waker = kept.lock().unwrap().take().unwrap();
    waker.wake_by_ref();
    waker.wake();
}

#[test]
fn runtimes_come_and_go() {
    let _watch = watch::watchdog(Duration::from_secs(120));
    for round in 0..200 {
        let runtime = Runtime::builder().carriers(1 + round % 3).build().unwrap();
        let fibers: Vec<_> = (0..5).map(|n| runtime.spawn(move || n)).collect();
        for (n, fiber) in fibers.into_iter().enumerate() {
            assert_eq!(fiber.join().unwrap(), n);
        }
    }
}

#[test]
fn fibers_of_several_runtimes_wait_for_each_other() {
    let _watch = watch::a_minute();
    let first = Runtime::builder().carriers(1).name("first").build().unwrap();
    let second = Runtime::builder().carriers(1).name("second").build().unwrap();
    let handles = [first.handle().clone(), second.handle().clone()];
    fn relay(handles: [sinew::RuntimeHandle; 2], left: usize) -> String {
        if left == 0 {
            return sinew::RuntimeHandle::current().name().to_owned();
        }
        let next = handles[left % 2].clone();
        next.spawn(move || relay(handles, left - 1)).join().unwrap()
    }
    assert_eq!(first.run(move || relay(handles, 9)), "second");
}

#[test]
fn a_submission_that_races_the_shutdown_is_not_lost() {
    let _watch = watch::watchdog(Duration::from_secs(120));
    for _ in 0..100 {
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let handle = runtime.handle().clone();
        let submitter = std::thread::spawn(move || {
            let mut ran = 0;
            for _ in 0..200 {
                // The fiber runs or is refused, but is never forgotten.
                ran += usize::from(handle.spawn(|| ()).join().is_ok());
            }
            ran
        });
        runtime.shutdown_timeout(LONG).unwrap();
        assert!(submitter.join().unwrap() <= 200);
    }
}

#[test]
fn leaving_main_and_exiting_with_fibers_suspended_is_fine() {
    let outcome = child("leaving_main_and_exiting_with_fibers_suspended_is_fine", || {
        for _ in 0..100 {
            drop(sinew::spawn(sinew::park));
            drop(sinew::spawn(|| sinew::sleep(Duration::from_millis(1))));
        }
        // Exit from a fiber, while others are suspended and running.
        let fiber = sinew::spawn(|| std::process::exit(0));
        drop(fiber.join());
    });
    outcome.assert_success();
}

/// A fiber drops a runtime whose fibers can end only if the dropping fiber's carrier runs: they
/// wait for another fiber of that carrier.
#[test]
fn a_runtime_dropped_in_a_fiber_of_another_does_not_block_the_carrier() {
    struct Asks(channel::Sender<()>, channel::Receiver<()>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }
    let _watch = watch::a_minute();
    let outer = Runtime::builder().carriers(1).build().unwrap();
    outer.run(|| {
        let (ask, asked) = channel::bounded(1);
        let (answer, answered) = channel::bounded(1);
        let neighbour = sinew::spawn_local(move || {
            asked.recv().unwrap();
            answer.send(()).unwrap();
        });
        let inner = Runtime::builder().carriers(1).build().unwrap();
        let fiber = inner.spawn(move || {
            let _asks = Asks(ask, answered);
            sinew::park();
        });
        while fiber.fiber().waits_for().is_none() {
            sinew::yield_now();
        }
        inner.shutdown_timeout(Duration::from_secs(3600)).unwrap();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        neighbour.join().unwrap();
    });
}

/// Unwinding can drop a runtime too. A cancellation does not cut the wait for its end short.
#[test]
fn a_cancelled_fiber_waits_for_the_end_of_the_runtime_that_it_drops() {
    let _watch = watch::a_minute();
    let outer = Runtime::builder().carriers(1).build().unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let theirs = ended.clone();
    let fiber = outer.spawn(move || {
        struct Ends(Arc<AtomicBool>);
        impl Drop for Ends {
            fn drop(&mut self) {
                sinew::sleep(Duration::from_millis(5));
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let inner = Runtime::builder().carriers(1).build().unwrap();
        let ends = Ends(theirs);
        let begun = inner.spawn(move || {
            let _ends = ends;
            sinew::park();
        });
        while begun.fiber().waits_for().is_none() {
            sinew::yield_now();
        }
        sinew::park();
        drop(inner);
    });
    while fiber.fiber().waits_for() != Some(sinew::WaitKind::Park) {
        std::thread::yield_now();
    }
    fiber.cancel();
    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    assert!(ended.load(Ordering::SeqCst));
}
