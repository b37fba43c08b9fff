//! Batons, with and without timeouts, between fibers of a manager and threads.

use crate::kit::{LONG, MS, kept, panic_of, run_until, simple};
use sinew::manager::{self, EventLoop, FiberManager, Options, ReactorLoopController, manager_for};
use sinew::sync::Baton;
use sinew_testkit::{Log, Seed, watch};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

#[test]
fn a_timed_wait_gives_up_and_not_too_early() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let timeout = 23 * MS;
    let waited = manager.add_task_future(move || {
        let start = Instant::now();
        (Baton::new().wait_timeout(timeout), start.elapsed())
    });
    controller.run();
    let (posted, elapsed) = waited.get().unwrap();
    assert!(!posted && elapsed >= timeout, "{elapsed:?}");
}

#[test]
fn a_timed_wait_ends_with_the_post() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let baton = kept(Baton::new());
    let turns = kept(Cell::new(0));
    let posted = manager.add_task_future(|| (baton.wait_timeout(LONG), turns.get()));
    for turn in 0..4 {
        manager.loop_until_no_ready();
        turns.set(turn);
        if turn == 2 {
            baton.post();
        }
    }
    assert_eq!(posted.try_get().unwrap().unwrap(), (true, 2));
    assert_eq!(manager.next_deadline(), None, "the timer went with the wait");
}

#[test]
fn timed_waits_on_an_event_loop_end_each_in_its_time() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let controller = ReactorLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::default()).unwrap();
    controller.attach_loop(&events);
    let ends = kept(RefCell::new(Vec::new()));
    for timeout in [50, 25] {
        manager.add_task(move || {
            let start = Instant::now();
            assert!(!Baton::new().wait_timeout(timeout * MS));
            assert!(start.elapsed() >= timeout * MS);
            ends.borrow_mut().push(timeout);
        });
    }
    events.run();
    assert_eq!(*ends.borrow(), [25, 50]);
}

#[test]
fn a_post_of_an_event_loops_timer_ends_a_timed_wait() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let baton = kept(Baton::new());
    let start = Instant::now();
    events.run_after(10 * MS, || baton.post());
    let posted = manager.add_task_future(|| baton.wait_timeout(LONG));
    events.run();
    assert!(posted.get().unwrap());
    assert!(start.elapsed() >= 10 * MS && start.elapsed() < LONG);
}

#[test]
fn polling_a_baton_does_not_wait() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    // A thread posts while the fiber looks repeatedly, without letting other fibers run.
    let baton = kept(Baton::new());
    let seen = manager.add_task_future(|| {
        while !baton.is_posted() {
            std::hint::spin_loop();
        }
        baton.wait();
    });
    let thread = std::thread::spawn(|| baton.post());
    manager.loop_until_no_ready();
    assert!(seen.is_ready());
    thread.join().unwrap();
    let never = manager.add_task_future(|| {
        let baton = Baton::new();
        (0..100).any(|_| baton.is_posted())
    });
    manager.loop_until_no_ready();
    assert!(!never.get().unwrap());
}

#[test]
fn a_baton_that_timed_out_is_posted_as_ever() {
    let _watch = watch::a_minute();
    let check = || {
        let mut baton = Baton::new();
        assert!(!baton.wait_timeout(MS));
        assert!(!baton.is_posted());
        baton.post();
        assert!(baton.is_posted());
        assert!(baton.wait_timeout(Duration::ZERO));
        baton.wait();
        baton.reset();
        assert!(!baton.is_posted());
        assert!(!baton.wait_timeout(MS));
    };
    check();
    let (manager, controller) = simple();
    let done = manager.add_task_future(check);
    controller.run();
    done.get().unwrap();
}

#[test]
fn a_thread_wakes_a_fiber() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (baton, running) = (kept(Baton::new()), kept(Cell::new(false)));
    manager.add_task(|| {
        running.set(true);
        baton.wait();
        running.set(false);
    });
    assert!(!running.get());
    manager.loop_until_no_ready();
    assert!(running.get());
    let thread = std::thread::spawn(|| baton.post());
    controller.run();
    assert!(!running.get());
    thread.join().unwrap();
}

#[test]
fn a_fiber_wakes_a_thread() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let (go, done) = (Arc::new(Baton::new()), Arc::new(Baton::new()));
    let (theirs, ours) = (go.clone(), done.clone());
    let thread = std::thread::spawn(move || {
        theirs.wait();
        ours.post();
    });
    let ended = manager.add_task_future(move || {
        go.post();
        // The thread continues without the loop.
        while !done.is_posted() {
            std::thread::yield_now();
        }
    });
    manager.loop_until_no_ready();
    assert!(ended.is_ready());
    thread.join().unwrap();
}

#[test]
fn posts_and_timeouts_that_race_end_the_wait_once() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    let (manager, controller) = simple();
    let ended = kept(Cell::new(0));
    let batons: Vec<_> = (0..500).map(|_| Arc::new(Baton::new())).collect();
    for baton in &batons {
        let (baton, timeout) = (baton.clone(), Duration::from_micros(seed.below(3000) as u64));
        manager.add_task(move || {
            if !baton.wait_timeout(timeout) {
                baton.wait();
            }
            ended.set(ended.get() + 1);
        });
    }
    let thread = std::thread::spawn(move || {
        for baton in batons {
            baton.post();
            std::thread::yield_now();
        }
    });
    controller.run();
    assert_eq!(ended.get(), 500);
    thread.join().unwrap();
}

#[test]
fn a_baton_has_one_waiter() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let baton = kept(Baton::new());
    let first = manager.add_task_future(|| baton.wait());
    manager.loop_until_no_ready();
    let refusals = manager
        .add_task_future(|| [panic_of(|| baton.wait()), panic_of(|| baton.wait_timeout(LONG))]);
    manager.loop_until_no_ready();
    let mut refusals = refusals.try_get().unwrap().unwrap().to_vec();
    refusals.push(std::thread::spawn(|| panic_of(|| baton.wait())).join().unwrap());
    for refused in refusals {
        assert!(refused.contains("already waits on this Baton"), "{refused}");
    }
    assert!(!first.is_ready(), "the first one waits on");
    baton.post();
    controller.run();
    assert!(first.is_ready());
    // Once the baton is posted, waits return at once.
    for _ in 0..3 {
        manager.add_task(|| baton.wait());
    }
    controller.run();
}

#[test]
fn a_call_on_the_main_context_comes_once_the_fiber_is_parked() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    let (theirs, baton) = (log.clone(), kept(Baton::new()));
    let fiber = kept(RefCell::new(None));
    let future = manager.add_task_future(move || {
        *fiber.borrow_mut() = Some(sinew::current());
        let inner = theirs.clone();
        baton.wait_with(|| {
            assert!(!manager::on_fiber());
            let fiber = fiber.borrow();
            inner.line(format!("{:?}", manager::TaskState::of(fiber.as_ref().unwrap())));
            // The closure may post at once: the wait has begun.
            baton.post();
            inner.line("posted");
        });
        theirs.line("went on");
    });
    manager.loop_until_no_ready();
    assert!(future.is_ready());
    assert_eq!(log.take(), ["Awaiting", "posted", "went on"]);
}

#[test]
fn a_call_on_the_main_context_comes_before_the_wait_of_a_thread() {
    let _watch = watch::a_minute();
    let baton = Baton::new();
    baton.wait_with(|| baton.post());
    sinew::run(|| {
        let baton = Baton::new();
        baton.wait_with(|| baton.post());
    });
}

#[test]
fn a_panic_on_the_main_context_goes_on_in_the_waiting_fiber() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let baton = kept(Baton::new());
    let text = manager.add_task_future(|| panic_of(|| baton.wait_with(|| panic!("over there"))));
    manager.loop_until_no_ready();
    assert_eq!(text.try_get().unwrap().unwrap(), "over there");
    // The failed wait left no waiter behind.
    let next = manager.add_task_future(|| baton.wait());
    manager.loop_until_no_ready();
    baton.post();
    manager.loop_until_no_ready();
    assert!(next.is_ready());
}

struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_custom_waiter_is_woken_once() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let counts = Arc::new(Counts(AtomicUsize::new(0)));
    let baton = Arc::new(Baton::new());
    baton.set_waiter(Waker::from(counts.clone()));
    let theirs = baton.clone();
    let refused = manager.add_task_future(move || panic_of(|| theirs.wait()));
    manager.loop_until_no_ready();
    assert!(refused.get().unwrap().contains("already waits on this Baton"));
    assert_eq!(counts.0.load(Ordering::SeqCst), 0);
    let theirs = baton.clone();
    manager.add_task(move || theirs.post());
    manager.loop_until_no_ready();
    assert_eq!(counts.0.load(Ordering::SeqCst), 1);
    baton.post();
    assert_eq!(counts.0.load(Ordering::SeqCst), 1);
    // A custom waiter that is set after the post is woken at once.
    baton.set_waiter(Waker::from(counts.clone()));
    assert_eq!(counts.0.load(Ordering::SeqCst), 2);
}

#[test]
fn the_manager_knows_its_next_deadline() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    assert_eq!(manager.next_deadline(), None);
    let start = Instant::now();
    let baton = kept(Baton::new());
    manager.add_task(|| assert!(baton.wait_timeout(LONG)));
    manager.add_task(|| sinew::sleep(20 * MS));
    manager.loop_until_no_ready();
    let deadline = manager.next_deadline().unwrap();
    assert!(deadline >= start + 19 * MS && deadline < start + LONG / 2);
    run_until(&manager, &controller, || Instant::now() > start + 30 * MS);
    let deadline = manager.next_deadline().unwrap();
    assert!(deadline > start + LONG / 2);
    baton.post();
    controller.run();
    assert_eq!(manager.next_deadline(), None);
}

#[test]
fn thousands_of_timed_waits_end() {
    let _watch = watch::a_minute();
    const COUNT: usize = 10_000;
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let left = kept(Cell::new(COUNT));
    let mut seed = Seed::from_env();
    for n in 0..COUNT {
        let timeout = Duration::from_micros(20_000 + seed.below(80_000) as u64);
        manager.add_task(move || {
            let baton = Arc::new(Baton::new());
            if n % 2 == 0 {
                // Half of the timers are cancelled before they are due.
                let posts = baton.clone();
                manager::add_task(move || posts.post());
            }
            assert_eq!(baton.wait_timeout(timeout), n % 2 == 0);
            left.set(left.get() - 1);
        });
    }
    events.run();
    assert_eq!(left.get(), 0);
    assert!(!manager.has_tasks());
    assert_eq!(manager.next_deadline(), None);
}
