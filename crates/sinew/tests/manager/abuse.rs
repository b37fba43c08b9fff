//! Managers misused by safe code. Each case ends with a panic that gives the reason, or works.

use crate::kit::{MS, kept, panic_of, simple, with};
use sinew::FiberId;
use sinew::manager::{
    self, FiberManager, ManagerHandle, Observer, Options, SimpleLoopController, run_in_main_context,
};
use sinew::sync::Baton;
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) const INSIDE: &str = "run inside of itself";
pub(crate) const IN_A_HOOK: &str = "in a hook";

fn here() -> ManagerHandle {
    ManagerHandle::current().unwrap()
}

/// Checks that the manager still works.
#[track_caller]
pub(crate) fn assert_in_order(manager: &FiberManager) {
    let ended = kept(Cell::new(0));
    for _ in 0..20 {
        manager.add_task(|| {
            sinew::yield_now();
            ended.set(ended.get() + 1);
        });
        manager.add_task_eager(|| {
            run_in_main_context(|| ());
            ended.set(ended.get() + 1);
        });
    }
    manager.loop_until_no_ready();
    manager.loop_until_no_ready();
    assert_eq!((ended.get(), manager.active_tasks()), (40, 0));
}

thread_local! {
    /// A manager that is dropped through this variable, out of reach of other code.
    static OWNED: RefCell<Option<FiberManager>> = const { RefCell::new(None) };
}

fn own(manager: FiberManager) {
    OWNED.with(|owned| *owned.borrow_mut() = Some(manager));
}

fn drop_owned() -> bool {
    let manager = OWNED.with(|owned| owned.borrow_mut().take());
    manager.is_some()
}

#[test]
fn the_closure_of_a_wait_may_borrow_from_the_fiber() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let baton = kept(Baton::new());
    let refused = manager.add_task_future(|| {
        let text = String::from("a text of the fiber's own");
        let mut refused = String::new();
        baton.wait_with(|| {
            baton.post();
            // The fiber is ready from here on, but does not continue before this closure returns.
            refused = panic_of(|| here().loop_until_no_ready());
            here().add_task_eager(sinew::yield_now);
            assert_eq!(text, "a text of the fiber's own");
        });
        drop(text);
        refused
    });
    manager.loop_until_no_ready();
    let refused = refused.get().unwrap();
    assert!(refused.contains(INSIDE), "{refused}");
    assert_in_order(&manager);
}

#[test]
fn a_wait_that_times_out_waits_for_its_closure() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let baton = kept(Baton::new());
    let ended = manager.add_task_future(|| {
        let text = String::from("a text of the fiber's own");
        let begun = Instant::now();
        let posted = baton.wait_timeout_with(MS, || {
            while begun.elapsed() < 2 * MS {
                std::hint::spin_loop();
            }
            here().add_task_eager(sinew::yield_now);
            assert_eq!(text, "a text of the fiber's own");
        });
        drop(text);
        posted
    });
    controller.run();
    assert!(!ended.get().unwrap());
}

#[test]
fn the_waiting_fiber_is_current_in_the_closure_of_its_wait() {
    sinew::fiber_local!(static MINE: Cell<u32> = Cell::new(0));
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let (baton, other) = (kept(Baton::new()), kept(Baton::new()));
    let ran = kept(RefCell::new(Vec::new()));
    manager.add_task(move || {
        MINE.with(|mine| mine.set(1));
        let me = sinew::current().id();
        baton.wait_with(|| {
            baton.post();
            here().add_task_eager(|| {
                MINE.with(|mine| mine.set(2));
                other.wait();
            });
            assert_eq!(here().current_fiber().unwrap().id(), me);
            MINE.with(|mine| assert_eq!(mine.get(), 1));
            for name in ["first", "second"] {
                let owned = Rc::new(name);
                here().add_task(move || {
                    sinew::yield_now();
                    ran.borrow_mut().push((*owned, Rc::strong_count(&owned)));
                });
            }
        });
    });
    manager.loop_until_no_ready();
    other.post();
    manager.loop_until_no_ready();
    assert_eq!(*ran.borrow(), [("first", 1), ("second", 1)]);
    assert_in_order(&manager);
}

/// An observer that calls a function when a fiber starts, is woken, or stops.
struct Calls(&'static dyn Fn(&'static str));

impl Observer for Calls {
    fn starting(&self, _: FiberId) {
        (self.0)("starting");
    }

    fn runnable(&self, _: FiberId) {
        (self.0)("runnable");
    }

    fn stopped(&self, _: FiberId) {
        (self.0)("stopped");
    }
}

#[test]
fn an_observer_runs_nothing_of_its_manager() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let handle = ManagerHandle::clone(&manager);
    let (told, ran) = (kept(RefCell::new(Vec::new())), kept(Cell::new(0)));
    let observer: Rc<dyn Observer> = Rc::new(Calls(kept(move |moment| {
        for refused in [
            panic_of(|| handle.loop_until_no_ready()),
            panic_of(|| handle.add_task_eager(|| ran.set(1000))),
            panic_of(|| drop(handle.add_task_eager_future(|| ran.set(1000)))),
        ] {
            assert!(refused.contains(INSIDE) || refused.contains(IN_A_HOOK), "{refused}");
            told.borrow_mut().push(moment);
        }
    })));
    manager.add_observer(observer.clone());
    for _ in 0..3 {
        // A task that ends in a loop, a task that waits first, and an eager task.
        manager.add_task(|| ran.set(ran.get() + 1));
        manager.add_task(|| {
            sinew::yield_now();
            run_in_main_context(|| ran.set(ran.get() + 1));
        });
        manager.add_task_eager(|| ran.set(ran.get() + 1));
    }
    manager.loop_until_no_ready();
    manager.loop_until_no_ready();
    assert_eq!((ran.get(), manager.active_tasks()), (9, 0));
    for moment in ["starting", "runnable", "stopped"] {
        assert!(told.borrow().contains(&moment), "{moment}");
    }
    manager.remove_observer(&observer);
    assert_in_order(&manager);
}

#[test]
fn an_observer_does_not_leave_the_fiber_that_it_is_told_of() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let refused = kept(RefCell::new(Vec::new()));
    manager.add_observer(Rc::new(Calls(kept(move |moment| {
        // A fiber is current here that could be suspended, and must not be.
        if moment == "stopped" && manager::on_fiber() {
            refused.borrow_mut().push(panic_of(|| run_in_main_context(|| ())));
        }
    }))));
    manager.add_task(sinew::yield_now);
    manager.loop_until_no_ready();
    manager.loop_until_no_ready();
    for text in refused.borrow().iter() {
        assert!(text.contains("where a fiber cannot be left"), "{text}");
    }
    assert!(!manager.has_tasks());
}

#[test]
fn an_observer_that_drops_its_manager_sees_it_end_later() {
    let _watch = watch::a_minute();
    for when in ["starting", "runnable", "stopped"] {
        let (manager, controller) = simple();
        let remote = manager.remote();
        let baton = Rc::new(Baton::new());
        manager.add_observer(Rc::new(Calls(kept(move |moment| {
            if moment == when && drop_owned() {
                assert!(manager::on_fiber() || when != "stopped" || !here().has_ready_tasks());
            }
        }))));
        let (waits, posts) = (baton.clone(), baton);
        manager.add_task(move || waits.wait());
        manager.add_task(move || posts.post());
        let last = manager.add_task_future(sinew::park);
        own(manager);
        controller.run();
        assert!(!drop_owned() && !remote.is_alive());
        assert!(sinew::is_cancel(&*last.get().unwrap_err()));
    }
}

#[test]
fn a_copy_of_a_local_that_drops_the_manager_leaves_no_task() {
    struct Drops;
    impl Clone for Drops {
        fn clone(&self) -> Self {
            drop_owned();
            Drops
        }
    }
    sinew::fiber_local!(inherit static LOCAL: Option<Drops> = None);
    let _watch = watch::a_minute();
    let ways: [fn(&ManagerHandle); 5] = [
        |manager| manager.add_task(|| unreachable!()),
        |manager| drop(manager.add_task_future(|| unreachable!())),
        |manager| manager.add_task_eager(|| unreachable!()),
        |manager| drop(manager.add_task_eager_future(|| unreachable!())),
        |manager| manager.add_task_finally(|| unreachable!(), |_: std::thread::Result<()>| ()),
    ];
    for way in ways {
        let (manager, _) = simple();
        let handle = ManagerHandle::clone(&manager);
        own(manager);
        let refused = LOCAL.set(Some(Drops), || panic_of(|| way(&handle)));
        assert!(refused.contains("which was dropped"), "{refused}");
    }
    // The next users of these carriers find no task in them.
    let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| (0..10).for_each(|_| sinew::yield_now()));
    let (manager, _) = simple();
    assert_in_order(&manager);
}

#[test]
fn neighbours_do_not_run_where_a_fiber_is_pinned() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let ran = kept(Cell::new(false));
    let refused = manager.add_task_future(|| {
        sinew::pinned(|| {
            let refused = [
                panic_of(|| run_in_main_context(|| here().loop_until_no_ready())),
                panic_of(|| here().add_task_eager(|| ())),
                panic_of(|| run_in_main_context(|| here().add_task_eager(|| ()))),
            ];
            assert!(!ran.get());
            refused
        })
    });
    manager.add_task(|| ran.set(true));
    manager.loop_until_no_ready();
    let [a_loop, eager, on_main] = refused.get().unwrap();
    assert!(a_loop.contains(INSIDE), "{a_loop}");
    assert!(eager.contains("pinned") && on_main.contains("pinned"), "{eager} {on_main}");
    assert!(ran.get());
}

#[test]
fn a_manager_dropped_on_the_main_context_of_an_eager_task_ends_after_it() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let (handle, remote) = (ManagerHandle::clone(&manager), manager.remote());
    own(manager);
    let alive = kept(Cell::new(false));
    handle.add_task_eager(move || {
        run_in_main_context(drop_owned);
        alive.set(here().active_tasks() == 1);
    });
    assert!(alive.get() && !remote.is_alive());
    let refused = panic_of(|| handle.add_task(|| ()));
    assert!(refused.contains("was dropped"), "{refused}");
}

#[test]
fn a_manager_dropped_in_an_eager_task_is_not_run_there() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let (handle, remote) = (ManagerHandle::clone(&manager), manager.remote());
    own(manager);
    let inner = handle.clone();
    let refused = handle.add_task_eager_future(move || {
        drop_owned();
        panic_of(|| run_in_main_context(|| inner.loop_until_no_ready()))
    });
    let refused = refused.get().unwrap();
    assert!(refused.contains(INSIDE) && !remote.is_alive(), "{refused}");
}

/// No other manager gets the carrier while a frame of this manager is on the stack.
#[test]
fn a_manager_dropped_by_the_closure_of_a_wait_ends_after_it() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let (handle, remote) = (ManagerHandle::clone(&manager), manager.remote());
    own(manager);
    let baton = kept(Baton::new());
    handle.add_task_eager(move || {
        baton.wait_with(|| {
            let me = here().current_fiber().unwrap().id();
            drop_owned();
            let elsewhere = std::thread::spawn(|| {
                let (other, controller) = simple();
                let fiber = other.add_task_future(|| {
                    run_in_main_context(|| here().current_fiber().unwrap().id())
                        == sinew::current().id()
                });
                controller.run();
                fiber.get().unwrap()
            });
            assert!(elsewhere.join().unwrap());
            assert_eq!(here().current_fiber().unwrap().id(), me);
        });
    });
    assert!(!remote.is_alive() && !handle.has_tasks());
}

#[test]
fn a_manager_ends_in_a_thread_local_that_was_there_before_it() {
    let _watch = watch::a_minute();
    let ended = Arc::new(AtomicBool::new(false));
    struct Sets(Arc<AtomicBool>);
    impl Drop for Sets {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let sets = Sets(ended.clone());
    let thread = std::thread::spawn(move || {
        OWNED.with(|owned| {
            let (manager, controller) = simple();
            manager.add_task(move || {
                let _sets = sets;
                sinew::park();
            });
            controller.run_once();
            *owned.borrow_mut() = Some(manager);
        });
    });
    thread.join().unwrap();
    assert!(ended.load(Ordering::SeqCst));
}

#[test]
fn a_process_exits_from_a_thread_with_a_manager() {
    let outcome = child("abuse::a_process_exits_from_a_thread_with_a_manager", || {
        let _watch = watch::a_minute();
        let thread = std::thread::spawn(|| {
            let (manager, controller) = simple();
            manager.add_task(sinew::park);
            controller.run_once();
            std::process::exit(7);
        });
        let _ = thread.join();
    });
    assert_eq!(outcome.status.code(), Some(7), "{outcome:#?}");
}

#[test]
fn a_process_exits_inside_of_a_fiber() {
    let outcome = child("abuse::a_process_exits_inside_of_a_fiber", || {
        let _watch = watch::a_minute();
        let (manager, controller) = simple();
        own(manager);
        here_owned(|manager| {
            manager.add_task(sinew::park);
            manager.add_task(|| std::process::exit(7));
        });
        controller.run();
    });
    assert_eq!(outcome.status.code(), Some(7), "{outcome:#?}");
}

fn here_owned(f: impl FnOnce(&FiberManager)) {
    OWNED.with(|owned| f(owned.borrow().as_ref().unwrap()));
}

#[test]
fn an_eager_task_without_a_stack_does_not_lose_its_callers() {
    if cfg!(any(sinew_asan, sinew_tsan)) {
        return; // The sanitizers reserve far more addresses than the limit.
    }
    fn go(deepest: &'static Cell<u32>, ended: &'static Cell<u32>, depth: u32) {
        deepest.set(depth);
        if depth < 50 {
            here().add_task_eager(move || go(deepest, ended, depth + 1));
        }
        ended.set(ended.get() + 1);
    }
    child("abuse::an_eager_task_without_a_stack_does_not_lose_its_callers", || {
        let _watch = watch::a_minute();
        // SAFETY: a valid limit for this process.
        unsafe {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &mut limit), 0);
            limit.rlim_cur = limit.rlim_max.min(6 << 30);
            assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
        }
        let (manager, _) = with(Options::default().stack_size(1 << 30));
        let (deepest, ended) = (kept(Cell::new(0)), kept(Cell::new(0)));
        manager.add_task_eager(|| go(deepest, ended, 1));
        assert!((1..50).contains(&deepest.get()), "{} deep", deepest.get());
        assert_eq!((ended.get(), manager.active_tasks()), (deepest.get(), 0));
        manager.add_task(|| go(deepest, ended, 1));
        manager.loop_until_no_ready();
        assert_eq!((ended.get(), manager.active_tasks()), (2 * deepest.get(), 0));
    })
    .assert_success();
}

#[test]
fn absurd_options_are_refused_or_work() {
    let _watch = watch::a_minute();
    for options in [
        Options::new().guard_pages(usize::MAX),
        Options::new().guard_pages((1 << 62) / 4096),
        Options::new().stack_size(usize::MAX),
        Options::new().stack_size(0),
        Options::new().max_pooled(usize::MAX),
        Options::new().max_pooled(0),
        Options::new().pool_resize_period(Duration::MAX),
        Options::new().pool_resize_period(Duration::ZERO),
        Options::new().record_stack_every(usize::MAX),
        Options::new().stack_size(64 * 1024).record_stack_every(1),
    ] {
        let text = format!("{options:?}");
        let controller = SimpleLoopController::new();
        match FiberManager::new(controller.clone(), options) {
            Err(error) => assert!(!error.to_string().is_empty(), "{text}"),
            Ok(manager) => {
                (0..10).for_each(|_| manager.add_task(sinew::yield_now));
                controller.run();
                assert!(!manager.has_tasks(), "{text}");
            }
        }
    }
}

#[test]
fn tasks_wakes_and_cancellations_race_the_ends_of_managers() {
    let _watch = watch::a_minute();
    type Place = (manager::RemoteHandle, sinew::Fiber, Arc<Baton>);
    const MOST_UNDER_WAY: usize = 64;
    let stop = Arc::new(AtomicBool::new(false));
    // ThreadSanitizer sees all operations of this lock, but not all of the standard library's.
    let shared: Arc<sinew::sync::Mutex<Vec<Place>>> = Arc::default();
    let threads: Vec<_> = (0..3)
        .map(|seed| {
            let (stop, shared) = (stop.clone(), shared.clone());
            std::thread::spawn(move || {
                let mut turn = seed;
                // Each task holds a clone: the count keeps this thread from adding tasks faster
                // than the manager runs them.
                let under_way = Arc::new(());
                while !stop.load(Ordering::Relaxed) {
                    let all = shared.lock().clone();
                    for (remote, fiber, baton) in all {
                        if Arc::strong_count(&under_way) > MOST_UNDER_WAY {
                            break;
                        }
                        turn += 1;
                        let (one, other) = (under_way.clone(), under_way.clone());
                        remote.add_task_remote(move || {
                            let _one = one;
                            sinew::yield_now();
                        });
                        let future = remote.add_task_remote_future(move || {
                            let _other = other;
                            sinew::sleep(MS / 100);
                        });
                        match turn % 5 {
                            0 => fiber.cancel(),
                            1 => fiber.unpark(),
                            2 => baton.post(),
                            3 => future.cancel(),
                            _ => drop(future.wait_timeout(MS)),
                        }
                    }
                    std::thread::yield_now();
                }
            })
        })
        .collect();
    for turn in 0..40 {
        let (manager, controller) = simple();
        let baton = Arc::new(Baton::new());
        let waits = baton.clone();
        let future = manager.add_task_future(move || {
            while !waits.is_posted() {
                sinew::park_timeout(MS / 20);
            }
        });
        {
            let mut all = shared.lock();
            if all.len() > 3 {
                all.remove(0);
            }
            all.push((manager.remote(), future.fiber(), baton));
        }
        if turn % 2 == 0 {
            controller.run_until(|| future.is_ready());
        } else {
            (0..10).for_each(|_| _ = controller.run_once());
        }
        drop(manager);
        assert!(future.is_ready());
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
