//! The end of a manager, with tasks in every state.

use crate::kit::{LONG, MS, kept, panic_of, simple};
use sinew::manager::{FiberManager, ManagerHandle, RemoteHandle, TaskFuture, run_in_main_context};
use sinew::sync::{Baton, Mutex, channel};
use sinew_testkit::{Log, Noisy, Seed, watch};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

fn is_cancelled<T>(future: TaskFuture<T>) -> bool {
    match future.get() {
        Ok(_) => false,
        Err(payload) => sinew::is_cancel(&*payload),
    }
}

#[test]
fn destructors_run_once_in_every_state() {
    let _watch = watch::a_minute();
    let (made, dropped) = (Cell::new(0), Rc::new(Cell::new(0)));
    struct Count(Rc<Cell<usize>>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let token = || {
        made.set(made.get() + 1);
        Count(dropped.clone())
    };
    for _ in 0..10 {
        let (manager, _) = simple();
        let mut futures = Vec::new();
        for _ in 0..5 {
            let t = token();
            futures.push(manager.add_task_future(move || {
                let _t = t;
                sinew::sleep(LONG);
            }));
            let t = token();
            futures.push(manager.add_task_future(move || {
                let _t = t;
                sinew::park();
            }));
            let t = token();
            futures.push(manager.add_task_future(move || {
                let _t = t;
                Baton::new().wait();
            }));
            let t = token();
            futures.push(manager.add_task_future(move || {
                let _t = t;
                loop {
                    sinew::yield_now();
                }
            }));
            let t = token();
            futures.push(manager.add_task_eager_future(move || {
                let _t = t;
                sinew::scope(|s| {
                    s.spawn(sinew::park);
                    s.spawn(|| sinew::sleep(LONG));
                });
                // The children may be cancelled before their parent is.
                sinew::park();
            }));
            let t = token();
            futures.push(manager.add_task_future(move || {
                let _t = t;
                sinew::masked(|| sinew::sleep(MS));
                sinew::park();
            }));
        }
        manager.loop_until_no_ready();
        // One task is ready and not run; one is not started.
        let baton = Rc::new(Baton::new());
        let (t, theirs) = (token(), baton.clone());
        futures.push(manager.add_task_eager_future(move || {
            let _t = t;
            theirs.wait();
            sinew::park();
        }));
        baton.post();
        let t = token();
        futures.push(manager.add_task_future(move || drop(t)));
        drop(manager);
        assert_eq!(dropped.get(), made.get());
        assert!(futures.into_iter().all(is_cancelled));
    }
}

#[test]
fn tasks_from_afar_that_were_not_taken_in_are_dropped() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    let remote = manager.remote();
    let (first, second) = (log.on_drop("dropped"), log.on_drop("dropped"));
    let future = std::thread::spawn(move || {
        remote.add_task_remote(move || drop(first));
        remote.add_task_remote_future(move || drop(second))
    });
    let future = future.join().unwrap();
    assert!(log.take().is_empty());
    drop(manager);
    assert_eq!(log.take(), ["dropped", "dropped"]);
    assert!(is_cancelled(future));
}

#[test]
fn a_remote_handle_outlives_its_manager() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let remote = manager.remote();
    assert!(remote.is_alive());
    drop((manager, controller));
    assert!(!remote.is_alive());
    let log = Log::new();
    let (here, there) = (log.on_drop("here"), log.on_drop("there"));
    remote.add_task_remote(move || drop(here));
    assert_eq!(log.take(), ["here"]);
    let copy = remote.clone();
    let future = std::thread::spawn(move || copy.add_task_remote_future(move || drop(there)));
    assert!(is_cancelled(future.join().unwrap()));
    assert_eq!(log.take(), ["there"]);
    assert!(is_cancelled(sinew::run(move || remote.add_task_remote_future(|| ()))));
}

#[test]
fn a_handle_to_a_manager_that_is_gone_says_so() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let handle = ManagerHandle::clone(&manager);
    drop(manager);
    for refused in [
        panic_of(|| handle.add_task(|| ())),
        panic_of(|| drop(handle.add_task_future(|| ()))),
        panic_of(|| handle.add_task_eager(|| ())),
        panic_of(|| handle.add_task_finally(|| (), |_| ())),
    ] {
        assert!(refused.contains("manager"), "{refused}");
    }
    assert!(!handle.has_tasks() && !handle.has_ready_tasks());
    assert_eq!((handle.active_tasks(), handle.fibers_allocated()), (0, 0));
    assert!(!handle.remote().is_alive());
}

#[test]
fn tasks_from_afar_that_race_the_end_are_not_forgotten() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for _ in 0..30 {
        let (manager, controller) = simple();
        let (made, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        struct Count(Arc<AtomicUsize>);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (remote, made, dropped) = (manager.remote(), made.clone(), dropped.clone());
                std::thread::spawn(move || {
                    let mut ran = 0;
                    for _ in 0..100 {
                        made.fetch_add(1, Ordering::SeqCst);
                        let count = Count(dropped.clone());
                        let future = remote.add_task_remote_future(move || drop(count));
                        // The task ran or was refused; a wait for it always ends.
                        ran += usize::from(future.get().is_ok());
                    }
                    ran
                })
            })
            .collect();
        let turns = seed.below(200);
        for _ in 0..turns {
            controller.run_once();
        }
        drop(manager);
        let ran: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(ran <= 300);
        assert_eq!(dropped.load(Ordering::SeqCst), made.load(Ordering::SeqCst));
    }
}

#[test]
fn wakes_that_race_the_end_are_harmless() {
    let _watch = watch::a_minute();
    for _ in 0..50 {
        let (manager, _) = simple();
        let batons: Vec<_> = (0..20).map(|_| Arc::new(Baton::new())).collect();
        for baton in &batons {
            let baton = baton.clone();
            manager.add_task(move || baton.wait());
        }
        manager.loop_until_no_ready();
        let thread = std::thread::spawn(move || batons.iter().for_each(|baton| baton.post()));
        drop(manager);
        thread.join().unwrap();
    }
}

/// Holds a manager until one of its own fibers drops it.
type Place = Cell<Option<FiberManager>>;

#[test]
fn a_manager_dropped_inside_its_own_fiber_ends() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let place: &'static Place = kept(Cell::new(None));
    let (manager, controller) = simple();
    let (theirs, others) = (log.clone(), log.clone());
    let waits = manager.add_task_future(move || {
        let _dropped = others.on_drop("neighbour");
        sinew::park();
    });
    manager.loop_until_no_ready();
    let fiber = manager.add_task_future(move || {
        let _dropped = theirs.on_drop("dropped");
        drop(place.take());
        theirs.line("went on");
        sinew::yield_now();
        theirs.line("not reached");
    });
    let remote = manager.remote();
    place.set(Some(manager));
    controller.run();
    assert!(is_cancelled(fiber) && is_cancelled(waits) && !remote.is_alive());
    let lines = log.take();
    assert!(lines.contains(&"neighbour".into()) && lines.contains(&"dropped".into()), "{lines:?}");
    assert!(!lines.contains(&"not reached".into()), "{lines:?}");
}

#[test]
fn a_manager_dropped_on_the_main_context_of_its_own_fiber_ends() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let place: &'static Place = kept(Cell::new(None));
    let (manager, controller) = simple();
    let (theirs, others) = (log.clone(), log.clone());
    manager.add_task(move || {
        let _dropped = others.on_drop("neighbour");
        sinew::park();
    });
    manager.loop_until_no_ready();
    let fiber = manager.add_task_future(move || {
        let _dropped = theirs.on_drop("dropped");
        run_in_main_context(|| drop(place.take()));
        sinew::park();
        theirs.line("not reached");
    });
    let remote = manager.remote();
    place.set(Some(manager));
    controller.run();
    assert!(is_cancelled(fiber) && !remote.is_alive());
    let lines = log.take();
    assert!(lines.contains(&"neighbour".into()) && lines.contains(&"dropped".into()), "{lines:?}");
    assert!(!lines.contains(&"not reached".into()), "{lines:?}");
}

#[test]
fn a_manager_dropped_in_a_finally_closure_ends() {
    let _watch = watch::a_minute();
    let place: &'static Place = kept(Cell::new(None));
    let (manager, controller) = simple();
    let waits: TaskFuture<()> = manager.add_task_future(sinew::park);
    manager.add_task_finally(|| (), move |_| drop(place.take()));
    let remote = manager.remote();
    place.set(Some(manager));
    controller.run();
    assert!(is_cancelled(waits) && !remote.is_alive());
}

#[test]
fn a_manager_dropped_by_a_fiber_of_another_ends() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let (inner, _) = simple();
    let theirs = log.clone();
    inner.add_task(move || {
        let _dropped = theirs.on_drop("inner");
        sinew::park();
    });
    inner.loop_until_no_ready();
    let (outer, controller) = simple();
    let theirs = log.clone();
    outer.add_task(move || {
        drop(inner);
        theirs.line("outer");
    });
    controller.run();
    assert_eq!(log.take(), ["inner", "outer"]);
}

#[test]
fn a_manager_dropped_while_its_thread_unwinds_ends() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let theirs = log.clone();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let (manager, _) = simple();
        manager.add_task(move || {
            let _dropped = theirs.on_drop("unwound");
            sinew::park();
        });
        manager.loop_until_no_ready();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(log.take(), ["unwound"]);
}

#[test]
fn a_manager_in_a_thread_local_ends_with_the_thread() {
    let _watch = watch::a_minute();
    thread_local!(static MANAGER: RefCell<Option<FiberManager>> = const { RefCell::new(None) });
    let log = Log::new();
    let theirs = log.clone();
    let remote = std::thread::spawn(move || {
        let (manager, _) = simple();
        manager.add_task(move || {
            let _dropped = theirs.on_drop("unwound");
            sinew::park();
        });
        manager.loop_until_no_ready();
        let remote = manager.remote();
        MANAGER.with(|place| *place.borrow_mut() = Some(manager));
        remote
    });
    let remote = remote.join().unwrap();
    assert_eq!(log.take(), ["unwound"]);
    assert!(!remote.is_alive());
}

static LOG: OnceLock<Log> = OnceLock::new();

fn noisy() -> Noisy {
    LOG.get_or_init(Log::new).on_drop("local")
}

#[test]
fn locals_are_dropped_with_the_manager() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static NOISY: Noisy = noisy());
    sinew::fiber_local!(inherit static NAME: String = String::new());
    let log = LOG.get_or_init(Log::new);
    let (manager, _) = simple();
    manager.add_task(|| NOISY.with(|_| sinew::park()));
    manager.loop_until_no_ready();
    NAME.set("inherited".into(), || {
        manager.add_task(|| ());
        manager.remote().add_task_remote(|| ());
    });
    assert!(log.take().is_empty());
    drop(manager);
    assert_eq!(log.take(), ["local"]);
}

#[test]
fn a_finally_closure_gets_the_cancellation_at_the_end() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    let (theirs, captured) = (log.clone(), log.on_drop("captured"));
    manager.add_task_finally(sinew::park, move |result| {
        drop(captured);
        theirs.line(sinew::is_cancel(&*result.unwrap_err()));
    });
    manager.loop_until_no_ready();
    drop(manager);
    assert_eq!(log.take(), ["captured", "true"]);
}

#[test]
fn fibers_may_wait_while_the_manager_ends() {
    let _watch = watch::a_minute();
    struct Waits(Log);
    impl Drop for Waits {
        fn drop(&mut self) {
            sinew::sleep(2 * MS);
            sinew::yield_now();
            let spawned = catch_unwind(AssertUnwindSafe(|| sinew::spawn(|| 7).join()));
            drop(spawned);
            run_in_main_context(|| self.0.line("main context"));
            self.0.line("done");
        }
    }
    let (manager, _) = simple();
    let log = Log::new();
    let theirs = log.clone();
    manager.add_task(move || {
        let _waits = Waits(theirs);
        sinew::park();
    });
    manager.loop_until_no_ready();
    drop(manager);
    assert_eq!(log.take(), ["main context", "done"]);
}

#[test]
fn a_fiber_that_waits_for_a_thread_delays_the_end() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let baton = Arc::new(Baton::new());
    let (theirs, ended) = (baton.clone(), kept(AtomicUsize::new(0)));
    manager.add_task(move || {
        sinew::masked(|| theirs.wait());
        ended.store(1, Ordering::SeqCst);
    });
    manager.loop_until_no_ready();
    let (go, gone) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        gone.recv().unwrap();
        assert_eq!(ended.load(Ordering::SeqCst), 0);
        baton.post();
    });
    go.send(()).unwrap();
    drop(manager);
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    thread.join().unwrap();
}

#[test]
fn a_task_that_refuses_to_end_is_left_behind() {
    on_a_thread_that_stays(|| {
        let (manager, _) = simple();
        let log = Log::new();
        let theirs = log.clone();
        manager.add_task(|| sinew::masked(sinew::park));
        manager.add_task(|| sinew::masked(|| Baton::new().wait()));
        let good = manager.add_task_future(move || {
            let _dropped = theirs.on_drop("good");
            sinew::park();
        });
        manager.loop_until_no_ready();
        let start = Instant::now();
        assert_eq!(manager.shutdown_timeout(30 * MS), Err(2));
        assert!(start.elapsed() < Duration::from_secs(20));
        assert_eq!(log.take(), ["good"]);
        assert!(is_cancelled(good));
        // The thread and other managers still work.
        let (manager, controller) = simple();
        let next = manager.add_task_future(|| 7);
        controller.run();
        assert_eq!(next.get().unwrap(), 7);
        assert_eq!(manager.shutdown_timeout(LONG), Ok(()));
    });
}

#[test]
fn a_shutdown_in_time_leaves_no_task() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    for _ in 0..20 {
        manager.add_task(sinew::park);
    }
    manager.loop_until_no_ready();
    assert_eq!(manager.shutdown_timeout(LONG), Ok(()));
}

#[test]
fn a_destructor_that_adds_tasks_does_not_keep_the_manager() {
    let _watch = watch::a_minute();
    struct Adds(ManagerHandle, Log);
    impl Drop for Adds {
        fn drop(&mut self) {
            let captured = self.1.on_drop("captured");
            let handle = self.0.clone();
            // The task is refused with a panic, dropped, or run, but not leaked.
            drop(catch_unwind(AssertUnwindSafe(|| handle.add_task(move || drop(captured)))));
        }
    }
    let (manager, _) = simple();
    let log = Log::new();
    let adds = Adds(ManagerHandle::clone(&manager), log.clone());
    manager.add_task(move || {
        let _adds = adds;
        sinew::park();
    });
    manager.loop_until_no_ready();
    drop(manager);
    assert_eq!(log.take(), ["captured"]);
}

#[test]
fn locks_and_channels_are_left_in_order() {
    let _watch = watch::a_minute();
    let mutex = Arc::new(Mutex::new(0));
    let (sender, receiver) = channel::bounded::<u32>(1);
    let (manager, _) = simple();
    let held = mutex.clone();
    manager.add_task(move || {
        let _guard = held.lock();
        sinew::park();
    });
    let waits = mutex.clone();
    manager.add_task(move || *waits.lock() += 1);
    manager.add_task(move || {
        let _ = receiver.recv();
    });
    manager.loop_until_no_ready();
    drop(manager);
    assert_eq!(*mutex.try_lock().expect("unlocked"), 0);
    assert!(sender.is_disconnected());
}

#[test]
fn a_future_of_a_dropped_task_ends_waits_elsewhere() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let future: TaskFuture<()> = manager.add_task_future(sinew::park);
    let other: TaskFuture<()> = manager.add_task_future(sinew::park);
    manager.loop_until_no_ready();
    let thread = std::thread::spawn(move || is_cancelled(future));
    let told = Arc::new(Baton::new());
    let theirs = told.clone();
    other.subscribe(move || theirs.post());
    drop(manager);
    assert!(thread.join().unwrap() && told.is_posted());
}

#[test]
fn managers_come_and_go() {
    let _watch = watch::a_minute();
    for round in 0..300 {
        let (manager, controller) = simple();
        let future = manager.add_task_future(move || {
            sinew::yield_now();
            round
        });
        if round % 3 == 0 {
            manager.add_task(sinew::park);
        }
        if round % 2 == 0 {
            controller.run_until(|| future.is_ready());
            assert_eq!(future.get().unwrap(), round);
        }
    }
}

#[test]
fn a_forgotten_manager_is_harmless() {
    let _watch = watch::a_minute();
    on_a_thread_that_stays(|| {
        let (manager, _) = simple();
        manager.add_task(sinew::park);
        manager.loop_until_no_ready();
        let remote: RemoteHandle = manager.remote();
        std::mem::forget(manager);
        remote.add_task_remote(|| ());
        std::thread::spawn(move || remote.add_task_remote(|| ())).join().unwrap();
    });
}

/// Calls `f`, which leaves fibers behind, on a thread that does not end: values that these fibers
/// have borrowed from the thread stay alive.
fn on_a_thread_that_stays(f: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        f();
        done.send(()).unwrap();
    });
    is_done.recv().unwrap();
}
