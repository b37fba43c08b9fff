//! Closures become tasks, and their results come back.

use crate::kit::{MS, kept, panic_of, run_until, simple, text_of};
use sinew::manager::{self, BrokenPromise, ManagerHandle, Promise, TaskFuture, TaskOptions};
use sinew::sync::Baton;
use sinew_testkit::{Log, watch};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

#[test]
fn a_task_runs_once_and_not_before_the_loop_does() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    assert!(!manager.has_tasks() && !manager.has_ready_tasks() && !controller.is_scheduled());
    let runs = kept(Cell::new(0));
    manager.add_task(|| runs.set(runs.get() + 1));
    assert_eq!(runs.get(), 0);
    assert!(manager.has_tasks() && manager.has_ready_tasks() && controller.is_scheduled());
    assert_eq!((manager.run_queue_size(), manager.active_tasks()), (1, 1));
    manager.loop_until_no_ready();
    assert_eq!(runs.get(), 1);
    assert!(!manager.has_tasks() && !manager.has_ready_tasks());
    assert_eq!((manager.run_queue_size(), manager.active_tasks()), (0, 0));
    manager.loop_until_no_ready();
    assert_eq!(runs.get(), 1);
}

#[test]
fn tasks_that_tasks_add_run_in_the_same_turn() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let depth = kept(Cell::new(0));
    fn deeper(depth: &'static Cell<u32>) {
        depth.set(depth.get() + 1);
        if depth.get() < 1000 {
            manager::add_task(move || deeper(depth));
        }
    }
    manager.add_task(|| deeper(depth));
    manager.loop_until_no_ready();
    assert_eq!(depth.get(), 1000);
}

#[test]
fn a_task_that_yields_goes_on_in_the_next_turn() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let steps = kept(Cell::new(0));
    manager.add_task(|| {
        for _ in 0..2 {
            steps.set(steps.get() + 1);
            ManagerHandle::current().unwrap().yield_now();
        }
        sinew::yield_now();
        steps.set(3);
    });
    for step in [1, 2, 2] {
        manager.loop_until_no_ready();
        assert_eq!(steps.get(), step);
        // The task is ready again, and the controller knows it.
        assert!(manager.has_ready_tasks() && controller.is_scheduled());
    }
    manager.loop_until_no_ready();
    assert_eq!(steps.get(), 3);
    assert!(!manager.has_tasks());
}

#[test]
fn a_future_has_the_result_when_the_task_has_ended() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let number = manager.add_task_future(|| 5);
    let ran = kept(Cell::new(false));
    let nothing: TaskFuture<()> = manager.add_task_future(|| ran.set(true));
    let slow = manager.add_task_future(|| {
        sinew::yield_now();
        Rc::new(7)
    });
    assert!(!number.is_ready() && !nothing.is_ready() && !slow.is_ready());
    controller.run();
    assert!(number.is_ready() && slow.is_ready());
    nothing.wait();
    assert!(ran.get());
    assert_eq!(number.get().unwrap(), 5);
    assert_eq!(*slow.get().unwrap(), 7);
    nothing.get().unwrap();
}

#[test]
fn a_future_that_is_not_ready_is_given_back() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let future = manager.add_task_future(|| 7);
    assert!(!future.wait_timeout(MS));
    let future = future.try_get().unwrap_err();
    controller.run();
    assert!(future.wait_timeout(Duration::ZERO));
    assert_eq!(future.try_get().unwrap().unwrap(), 7);
}

#[test]
fn a_panic_is_the_err_of_the_future() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let failed: TaskFuture<u32> = manager.add_task_future(|| panic!("on purpose"));
    let next = manager.add_task_future(|| 7);
    controller.run();
    assert_eq!(text_of(&*failed.get().unwrap_err()), "on purpose");
    assert_eq!(next.get().unwrap(), 7);
}

#[test]
fn fibers_of_the_manager_and_threads_wait_for_a_future() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let baton = kept(Baton::new());
    let first = manager.add_task_future(|| {
        baton.wait();
        7
    });
    let second = manager.add_task_future(move || first.get().unwrap() + 1);
    let third = manager.add_task_future(|| 20);
    let waiter = std::thread::spawn(move || third.get().unwrap() + second.get().unwrap());
    manager.add_task(|| baton.post());
    controller.run();
    assert_eq!(waiter.join().unwrap(), 28);
}

#[test]
fn fibers_and_threads_wait_for_futures_directly() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let baton = kept(Baton::new());
    let task = manager.add_task_future(|| {
        baton.wait();
        7
    });
    let sum = manager.add_task_future(move || sinew::block_on(async { task.await.unwrap() }) + 1);
    manager.loop_until_no_ready();
    assert!(!sum.is_ready(), "it is suspended, and the loop is not");
    baton.post();
    controller.run();
    assert_eq!(sum.get().unwrap(), 8);
    let (there, remote) = (kept(Baton::new()), manager.remote());
    let thread = std::thread::spawn(move || {
        sinew::block_on(remote.add_task_remote_future(|| there.is_posted())).unwrap()
    });
    there.post();
    run_until(&manager, &controller, || thread.is_finished());
    assert!(thread.join().unwrap());
}

#[test]
fn a_future_is_polled_and_tells_a_callback() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let baton = kept(Baton::new());
    let slow = || {
        baton.wait();
        7
    };
    let awaited = manager.add_task_future(slow);
    let sum = manager.add_task_future(|| {
        sinew::block_on(async { awaited.await.unwrap() }) + sinew::block_on(async { 1 })
    });
    let told = kept(Baton::new());
    let subscribed = manager.add_task_future(|| 9);
    subscribed.subscribe(|| told.post());
    manager.loop_until_no_ready();
    assert!(told.is_posted());
    assert_eq!(subscribed.get().unwrap(), 9);
    assert!(!sum.is_ready());
    baton.post();
    controller.run();
    assert_eq!(sum.get().unwrap(), 8);
    let ended = manager.add_task_future(|| 1);
    controller.run();
    let late = kept(Baton::new());
    ended.subscribe(|| late.post());
    assert!(late.is_posted(), "one that is ready calls at once");
}

#[test]
fn a_future_that_is_dropped_leaves_its_task_alone() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let log = Log::new();
    let theirs = log.clone();
    drop(manager.add_task_future(move || {
        sinew::yield_now();
        theirs.line("done");
        theirs.on_drop("result")
    }));
    controller.run();
    assert_eq!(log.take(), ["done", "result"]);
}

#[test]
fn a_cancelled_task_is_unwound_or_does_not_begin() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let log = Log::new();
    let theirs = log.clone();
    let waits: TaskFuture<()> = manager.add_task_future(move || {
        let _dropped = theirs.on_drop("unwound");
        sinew::park();
    });
    manager.loop_until_no_ready();
    let theirs = log.clone();
    let unstarted = manager.add_task_future(move || theirs.line("not reached"));
    waits.cancel();
    unstarted.cancel();
    controller.run();
    assert!(sinew::is_cancel(&*waits.get().unwrap_err()));
    assert!(sinew::is_cancel(&*unstarted.get().unwrap_err()));
    assert_eq!(log.take(), ["unwound"]);
}

#[test]
fn a_future_knows_the_fiber() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let future = manager.add_task_future(|| sinew::current().id());
    let fiber = future.fiber();
    assert!(fiber.is_alive());
    controller.run();
    assert_eq!(future.get().unwrap(), fiber.id());
    assert!(!fiber.is_alive());
}

#[test]
fn the_current_manager_is_the_one_whose_loop_runs() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    assert!(ManagerHandle::current().is_none() && !manager::on_fiber());
    assert!(manager.active_fiber().is_none() && manager.current_fiber().is_none());
    let handle = ManagerHandle::clone(&manager);
    let ran = kept(Cell::new(false));
    manager.add_task(move || {
        assert!(manager::on_fiber() && handle.has_active_fiber());
        let me = sinew::current();
        assert_eq!(handle.active_fiber(), Some(me.clone()));
        assert_eq!(handle.current_fiber(), Some(me));
        ManagerHandle::current().unwrap().add_task(|| ran.set(true));
    });
    manager.loop_until_no_ready();
    assert!(ran.get());
    assert!(ManagerHandle::current().is_none() && !manager.has_active_fiber());
}

#[test]
fn free_functions_need_a_manager_that_runs_here() {
    let _watch = watch::a_minute();
    let check = || {
        for refused in [
            panic_of(|| manager::add_task(|| ())),
            panic_of(|| drop(manager::add_task_future(|| ()))),
            panic_of(|| manager::add_task_eager(|| ())),
            panic_of(|| manager::add_task_finally(|| (), |_| ())),
        ] {
            assert!(refused.contains("manager"), "{refused}");
        }
        assert_eq!(manager::run_in_main_context(|| 7), 7);
        assert_eq!(manager::current_task_running_time(), None);
    };
    check();
    sinew::run(check);
    let (manager, controller) = simple();
    let sum = manager.add_task_future(|| {
        let count = kept(Cell::new(0));
        manager::add_task(|| count.set(count.get() + 1));
        manager::add_task_eager(|| count.set(count.get() + 10));
        manager::add_task_finally(|| 100, |result| count.set(count.get() + result.unwrap()));
        count.get() + manager::add_task_future(|| 1000).get().unwrap() + count.get()
    });
    controller.run();
    // The eager task runs at once; the others run before the awaited one.
    assert_eq!(sum.get().unwrap(), 10 + 1000 + 111);
}

#[test]
fn spawned_fibers_are_tasks_of_the_manager() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let handle = ManagerHandle::clone(&manager);
    let thread = std::thread::current().id();
    let seen = manager.add_task_future(move || {
        let local = sinew::spawn_local(|| Rc::new(std::thread::current().id()));
        let sent = sinew::spawn(|| std::thread::current().id());
        let tasks = handle.active_tasks();
        let mut sum = 0;
        sinew::scope(|s| {
            s.spawn(|| sum += 7);
        });
        let fiber = sinew::FiberBuilder::new().name("built").spawn(|| {
            let name = sinew::current().name().map(str::to_owned);
            (name, ManagerHandle::current().is_some())
        });
        let built = fiber.unwrap().join().unwrap();
        (tasks, *local.join().unwrap(), sent.join().unwrap(), sum, built)
    });
    controller.run();
    let (tasks, local, sent, sum, built) = seen.get().unwrap();
    assert_eq!(tasks, 3);
    assert_eq!((local, sent, sum), (thread, thread, 7));
    assert_eq!(built, (Some("built".into()), true));
}

#[test]
fn a_task_has_the_name_and_the_stack_that_were_asked_for() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let ran = kept(RefCell::new(Vec::new()));
    let options = TaskOptions::default().name("deep").stack_size(4 << 20);
    manager.add_task_with(options, || {
        if !cfg!(sinew_asan) {
            sinew_testkit::stack::burn(3 << 20);
        }
        ran.borrow_mut().push(sinew::current().name().map(str::to_owned));
    });
    manager.add_task(|| ran.borrow_mut().push(sinew::current().name().map(str::to_owned)));
    controller.run();
    assert_eq!(*ran.borrow(), [Some("deep".to_owned()), None]);
}

#[test]
fn closures_of_any_size_and_alignment_arrive_whole() {
    #[repr(align(128))]
    struct Aligned(u8);
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let large = [7_u8; 10_000];
    let large = manager.add_task_future(move || large);
    let aligned = Aligned(3);
    let aligned = manager.add_task_future(move || {
        assert!((&raw const aligned).addr().is_multiple_of(128));
        aligned.0
    });
    controller.run();
    assert_eq!(large.get().unwrap(), [7; 10_000]);
    assert_eq!(aligned.get().unwrap(), 3);
}

#[test]
fn values_owned_by_a_task_are_dropped_at_its_end() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let log = Log::new();
    let (captured, theirs) = (log.on_drop("captured"), log.clone());
    manager.add_task(move || {
        let _local = theirs.on_drop("local");
        drop(captured);
        theirs.line("end");
    });
    assert!(log.take().is_empty());
    manager.loop_until_no_ready();
    assert_eq!(log.take(), ["captured", "end", "local"]);
}

/// Uses this thread's processor for `duration`, by its own clock.
fn burn(duration: Duration) {
    let start = thread_time();
    while thread_time() - start < duration {
        std::hint::spin_loop();
    }
}

fn thread_time() -> Duration {
    // SAFETY: an all-zero structure is valid, and the call fills it in.
    let time = unsafe {
        let mut time: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn running_time_is_measured_if_requested() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let seen = kept(RefCell::new(Vec::new()));
    let note = || seen.borrow_mut().push(manager::current_task_running_time().is_some());
    manager.add_task_with(TaskOptions::default().log_running_time(true), note);
    manager.add_task_with(TaskOptions::default().log_running_time(false), note);
    manager.add_task(note);
    assert_eq!(manager::current_task_running_time(), None);
    controller.run();
    assert_eq!(*seen.borrow(), [true, false, false]);
}

#[test]
fn running_time_is_the_tasks_own() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let seen = kept(RefCell::new(Vec::new()));
    for (first, second) in [(20, 10), (30, 20)] {
        manager.add_task_with(TaskOptions::default().log_running_time(true), move || {
            burn(first * MS);
            // Neither sleeping nor the run of another fiber counts.
            std::thread::sleep(200 * MS);
            sinew::yield_now();
            burn(second * MS);
            let time = manager::current_task_running_time().unwrap();
            seen.borrow_mut().push((time, (first + second) * MS));
        });
    }
    controller.run();
    assert_eq!(seen.borrow().len(), 2);
    for (time, burnt) in seen.borrow().iter() {
        assert!(*time >= *burnt && *time < *burnt + 100 * MS, "{time:?} of {burnt:?}");
    }
}

#[test]
fn running_time_is_read_on_the_main_context_and_does_not_pass_there() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let time = kept(Cell::new(None));
    manager.add_task_with(TaskOptions::default().log_running_time(true), || {
        burn(20 * MS);
        sinew::yield_now();
        burn(10 * MS);
        manager::run_in_main_context(|| {
            burn(100 * MS);
            time.set(manager::current_task_running_time());
        });
    });
    controller.run();
    let time = time.get().unwrap();
    assert!((30 * MS..100 * MS).contains(&time), "{time:?}");
}

#[test]
fn a_fulfilled_promise_ends_the_wait() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let promises = kept(RefCell::new(Vec::<Promise<u32>>::new()));
    let sum = manager.add_task_future(|| {
        let at_once = manager::await_with(|promise: Promise<u32>| promise.set(1)).unwrap();
        let later = manager::await_with(|promise| promises.borrow_mut().push(promise)).unwrap();
        at_once + later
    });
    manager.loop_until_no_ready();
    assert!(!sum.is_ready());
    let promise = promises.borrow_mut().pop().unwrap();
    std::thread::spawn(move || promise.set(41)).join().unwrap();
    assert!(!sum.is_ready(), "only the loop runs fibers");
    controller.run();
    assert_eq!(sum.get().unwrap(), 42);
}

#[test]
fn a_dropped_promise_is_broken() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let broken = manager.add_task_future(|| {
        let at_once: Result<u32, BrokenPromise> = manager::await_with(drop);
        let later: Result<u32, BrokenPromise> = manager::await_with(|promise| {
            manager::add_task(move || drop::<Promise<u32>>(promise));
        });
        (at_once.is_err(), later.is_err())
    });
    controller.run();
    assert_eq!(broken.get().unwrap(), (true, true));
}

#[test]
fn a_panic_in_await_with_goes_to_the_awaiter() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let caught = manager.add_task_future(|| {
        let set = panic_of(|| {
            manager::await_with(|promise: Promise<u32>| {
                promise.set(42);
                panic!("after it was set")
            })
        });
        // The promise is fulfilled after the wait for it has ended.
        let given_away = panic_of(|| {
            manager::await_with(|promise: Promise<u32>| {
                manager::add_task(move || promise.set(42));
                panic!("after it was given away")
            })
        });
        sinew::yield_now();
        (set, given_away)
    });
    controller.run();
    let (set, given_away) = caught.get().unwrap();
    assert_eq!((&*set, &*given_away), ("after it was set", "after it was given away"));
}

/// Runs the loop when dropped.
struct Turns(Option<Box<dyn FnOnce()>>);

impl Drop for Turns {
    fn drop(&mut self) {
        (self.0.take().unwrap())();
    }
}

#[test]
fn a_loop_runs_while_its_thread_unwinds() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let baton = kept(Baton::new());
    let step = kept(Cell::new(0));
    manager.add_task(|| {
        step.set(1);
        baton.wait();
        // A panic inside of the fiber is contained, although the thread panics already.
        assert_eq!(panic_of(|| resume_unwind(Box::new("inner"))), "inner");
        step.set(2);
    });
    let handle = ManagerHandle::clone(&manager);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _turns = Turns(Some(Box::new(move || {
            assert_eq!(step.get(), 0);
            handle.loop_until_no_ready();
            assert_eq!(step.get(), 1);
            baton.post();
            handle.loop_until_no_ready();
            assert_eq!(step.get(), 2);
        })));
        panic!("expected");
    }));
    assert_eq!(text_of(&*panicked.unwrap_err()), "expected");
    assert_eq!(step.get(), 2);
    assert!(!std::thread::panicking());
}

#[test]
fn a_loop_runs_where_a_panic_was_caught() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let baton = kept(Baton::new());
    let done = manager.add_task_future(|| baton.wait());
    let payload = catch_unwind(|| panic!("expected")).unwrap_err();
    manager.loop_until_no_ready();
    assert!(!done.is_ready());
    baton.post();
    manager.loop_until_no_ready();
    assert!(done.is_ready());
    assert_eq!(text_of(&*payload), "expected");
}

#[test]
fn a_fiber_waits_and_leaves_its_stack_while_it_unwinds() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let log = Log::new();
    let theirs = log.clone();
    let failed: TaskFuture<()> = manager.add_task_future(move || {
        let _turns = Turns(Some(Box::new(move || {
            manager::run_in_main_context(|| theirs.line("main context"));
            assert!(!Baton::new().wait_timeout(MS));
            theirs.line("waited");
        })));
        panic!("expected");
    });
    let neighbour = manager.add_task_future(|| 7);
    controller.run();
    assert_eq!(text_of(&*failed.get().unwrap_err()), "expected");
    assert_eq!(neighbour.get().unwrap(), 7);
    assert_eq!(log.take(), ["main context", "waited"]);
}

/// A program that keeps a few requests in progress, each of two parts, and answers the oldest
/// first.
#[test]
fn a_few_requests_are_in_progress_at_a_time() {
    let _watch = watch::a_minute();
    const MOST: usize = 5;
    let (manager, _) = simple();
    let pending = kept(RefCell::new(VecDeque::<Promise<u64>>::new()));
    let answers = kept(RefCell::new(Vec::new()));
    let (mut to_send, mut value, mut most) = (20_u64, 0, 0);
    loop {
        manager.loop_until_no_ready();
        most = most.max(pending.borrow().len());
        if pending.borrow().len() == MOST || to_send == 0 {
            let Some(promise) = pending.borrow_mut().pop_front() else { break };
            value += 1;
            promise.set(value);
        } else {
            to_send -= 1;
            let id = to_send;
            manager.add_task(move || {
                let part = || manager::await_with(|p| pending.borrow_mut().push_back(p)).unwrap();
                let answer = (id, part(), part());
                answers.borrow_mut().push(answer);
            });
        }
    }
    assert!(!manager.has_tasks());
    assert_eq!(most, MOST);
    let answers = answers.borrow();
    assert_eq!(answers.len(), 20);
    assert!(answers.iter().all(|(_, first, second)| first < second));
    let mut values: Vec<_> = answers.iter().flat_map(|answer| [answer.1, answer.2]).collect();
    values.sort_unstable();
    assert!(values.into_iter().eq(1..=40));
}

#[test]
fn the_loop_refuses_to_run_inside_its_own_fiber() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let handle = ManagerHandle::clone(&manager);
    let refused = manager.add_task_future(move || panic_of(|| handle.loop_until_no_ready()));
    let inner = controller.clone();
    let run = manager.add_task_future(move || panic_of(|| inner.run()));
    controller.run();
    for refused in [refused.get().unwrap(), run.get().unwrap()] {
        assert!(refused.contains("fiber"), "{refused}");
    }
}

#[test]
fn many_tasks_wait_at_once() {
    let _watch = watch::a_minute();
    const COUNT: usize = 20_000;
    let (manager, controller) = simple();
    let gate = kept(sinew::sync::Event::new());
    let done = kept(Cell::new(0));
    for _ in 0..COUNT {
        manager.add_task(|| {
            gate.wait();
            done.set(done.get() + 1);
        });
    }
    manager.loop_until_no_ready();
    assert_eq!((done.get(), manager.active_tasks()), (0, COUNT));
    assert!(!manager.has_ready_tasks());
    gate.set();
    let start = Instant::now();
    controller.run();
    assert_eq!((done.get(), manager.active_tasks()), (COUNT, 0));
    assert!(start.elapsed() < Duration::from_secs(50));
}
