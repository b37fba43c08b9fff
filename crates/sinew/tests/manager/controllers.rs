//! Loops that run managers: the simple loop, executors, event loops, and a user's own.

use crate::kit::{Counting, LONG, MS, counted, kept, panic_of, simple};
use sinew::manager::{
    self, EventLoop, Executor, ExecutorLoopController, FiberManager, LoopController, ManagerHandle,
    Options, ReactorLoopController, RemoteHandle, Rest, Runner, SimpleLoopController, TaskFuture,
    manager_for,
};
use sinew::sync::{Baton, Semaphore};
use sinew_testkit::child::child;
use sinew_testkit::{Log, processor_time, watch};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

// --- a user's own ---

#[test]
fn a_controller_is_scheduled_once_per_turn() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    assert_eq!(controller.scheduled(), 0);
    assert!(!controller.runner().is_gone());
    manager.add_task(|| ());
    manager.add_task(|| ());
    assert_eq!(controller.scheduled(), 1, "once until it has run");
    assert_eq!(controller.take_busy(), [true]);
    controller.turn();
    assert_eq!(controller.take_busy(), [false]);
    // Work that becomes ready during a turn is requested for the next turn.
    manager.add_task(sinew::yield_now);
    assert_eq!(controller.scheduled(), 2);
    controller.turn();
    assert_eq!(controller.scheduled(), 3);
    controller.turn();
    assert_eq!(controller.scheduled(), 3);
    assert_eq!(controller.take_busy(), [true, false]);
    drop(manager);
    assert!(controller.runner().is_gone());
}

#[test]
fn a_controller_is_told_of_deadlines() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    let start = Instant::now();
    let baton = kept(Baton::new());
    manager.add_task(|| assert!(baton.wait_for(LONG)));
    controller.turn();
    let told = || controller.take_rests().last().expect("it is told").deadline;
    let far = told().expect("a deadline");
    assert!(far >= start + LONG && far < start + 2 * LONG);
    assert_eq!(manager.next_deadline(), Some(far));
    manager.add_task(|| sinew::sleep(5 * MS));
    controller.turn();
    let near = told().unwrap();
    assert!(near >= start + 5 * MS && near < far);
    std::thread::sleep(near.saturating_duration_since(Instant::now()) + MS);
    controller.turn();
    assert_eq!(told(), Some(far), "it replaces the other");
    baton.post();
    controller.turn();
    assert_eq!(told(), None);
}

#[test]
fn a_foreign_loop_knows_by_a_descriptor_when_to_run() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    let Some(descriptor) = manager.fd() else { return };
    let readable = |timeout: i32| {
        let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is ours.
        unsafe { libc::poll(&raw mut poll, 1, timeout) == 1 }
    };
    let (mut sender, receiver) = std::os::unix::net::UnixStream::pair().unwrap();
    let receiver = sinew::os::unix::net::UnixStream::from(receiver);
    let read = manager.add_task_future(move || {
        let mut byte = [0];
        std::io::Read::read_exact(&mut &receiver, &mut byte).unwrap();
        byte[0]
    });
    // The socket becoming writable is an event that no fiber waits for.
    while read.fiber().waits_for().is_none() || readable(0) {
        controller.turn();
    }
    assert_eq!(controller.take_rests().last().unwrap().fd, Some(descriptor));
    std::io::Write::write_all(&mut sender, &[7]).unwrap();
    assert!(readable(10_000), "data for a fiber");
    while !read.is_ready() {
        controller.turn();
    }
    assert_eq!(read.get().unwrap(), 7);
    // The fiber was served; ending the watch may cause one more event.
    while readable(0) {
        controller.turn();
    }
}

#[test]
fn a_runner_that_outlives_its_manager_does_nothing() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    let runner = controller.runner();
    let ran = kept(Cell::new(false));
    manager.add_task(|| ran.set(true));
    drop(manager);
    assert!(runner.is_gone());
    assert!(!runner.run());
    assert!(!ran.get());
    assert!(runner.manager().is_none());
}

// --- simple ---

#[test]
fn a_simple_loop_runs_until_nothing_is_left() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    controller.run(); // nothing to do
    let steps = kept(Cell::new(0));
    manager.add_task(|| {
        sinew::sleep(5 * MS);
        steps.set(1);
        manager::add_task(|| {
            sinew::yield_now();
            sinew::sleep(MS);
            steps.set(2);
        });
    });
    controller.run();
    assert_eq!(steps.get(), 2);
    assert!(!controller.is_scheduled());
}

#[test]
fn a_simple_loop_runs_once_without_sleeping() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let start = Instant::now();
    manager.add_task(|| sinew::sleep(LONG));
    controller.run_once();
    controller.run_once();
    assert!(manager.has_tasks() && !controller.is_scheduled());
    assert!(start.elapsed() < LONG / 2);
}

#[test]
fn a_simple_loop_runs_until_it_is_told() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let turns = kept(Cell::new(0));
    manager.add_task(|| {
        loop {
            turns.set(turns.get() + 1);
            sinew::yield_now();
        }
    });
    controller.run_until(|| turns.get() >= 10);
    let seen = turns.get();
    assert!((10..1000).contains(&seen));
    // A fiber of the loop stops it, or the main context does.
    let stop = controller.clone();
    manager.add_task(move || stop.stop());
    controller.run();
    assert!(turns.get() > seen && manager.has_tasks());
    let stop = controller.clone();
    manager.add_task(move || manager::run_in_main_context(|| stop.stop()));
    controller.run();
    assert!(manager.has_tasks());
    // The loop can run again after a stop.
    let done = manager.add_task_future(|| 7);
    controller.run_until(|| done.is_ready());
}

#[test]
fn a_simple_loop_that_waits_uses_no_processor() {
    let outcome = child("controllers::a_simple_loop_that_waits_uses_no_processor", || {
        let (manager, controller) = simple();
        manager.add_task(|| sinew::sleep(300 * MS));
        let before = processor_time();
        controller.run();
        let used = processor_time() - before;
        assert!(used < 100 * MS, "{used:?}");
    });
    outcome.assert_success();
}

#[test]
fn a_simple_loop_whose_manager_is_gone_does_nothing() {
    let _watch = watch::a_minute();
    let refused = panic_of(|| SimpleLoopController::new().run());
    assert!(refused.contains("manager"), "{refused}");
    let (manager, attached) = simple();
    drop(manager);
    attached.run();
    attached.run_once();
}

// --- executors ---

type Job = Box<dyn FnOnce() + Send>;

/// A queue of closures that the test runs explicitly.
#[derive(Clone, Default)]
struct Queue(Arc<Mutex<Vec<Job>>>, Arc<AtomicUsize>);

impl Queue {
    fn run(&self) -> usize {
        let jobs = std::mem::take(&mut *self.0.lock().unwrap());
        let count = jobs.len();
        jobs.into_iter().for_each(|job| job());
        count
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Executor for Queue {
    fn execute(&self, job: Job) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.lock().unwrap().push(job);
    }
}

fn on_a_queue() -> (FiberManager, Queue) {
    let queue = Queue::default();
    let controller = ExecutorLoopController::new(queue.clone());
    (FiberManager::new(controller, Options::default()).unwrap(), queue)
}

#[test]
fn an_executor_runs_the_loop() {
    let _watch = watch::a_minute();
    let (manager, queue) = on_a_queue();
    assert_eq!(queue.len(), 0);
    let futures: Vec<_> = (0..10).map(|n| manager.add_task_future(move || n)).collect();
    assert_eq!(queue.len(), 1, "asked for once");
    queue.run();
    assert!(futures.into_iter().map(|future| future.get().unwrap()).eq(0..10));
    assert_eq!(queue.len(), 0, "and not again");
    let yields = manager.add_task_future(sinew::yield_now);
    queue.run();
    assert!(!yields.is_ready());
    assert_eq!(queue.run(), 1);
    assert!(yields.is_ready());
}

#[test]
fn an_executor_hears_of_tasks_from_afar() {
    let _watch = watch::a_minute();
    let (manager, queue) = on_a_queue();
    let remote = manager.remote();
    let future = std::thread::spawn(move || {
        (0..10).for_each(|_| remote.add_task_remote(|| ()));
        remote.add_task_remote_future(|| 7)
    });
    let future = future.join().unwrap();
    assert_eq!(queue.len(), 1);
    queue.run();
    assert_eq!(future.get().unwrap(), 7);
}

#[test]
fn an_executor_is_woken_for_timers() {
    let _watch = watch::a_minute();
    let (send, jobs) = mpsc::channel::<Job>();
    let executor = move |job: Job| send.send(job).unwrap();
    let manager =
        FiberManager::new(ExecutorLoopController::new(executor), Options::default()).unwrap();
    let waited = manager.add_task_future(|| {
        let start = Instant::now();
        (Baton::new().wait_for(20 * MS), start.elapsed())
    });
    while !waited.is_ready() {
        jobs.recv().unwrap()();
    }
    let (posted, elapsed) = waited.get().unwrap();
    assert!(!posted && elapsed >= 20 * MS);
}

#[test]
fn an_executor_with_a_thread_of_its_own_serves_a_manager_that_lives_there() {
    let _watch = watch::a_minute();
    let (send, jobs) = mpsc::channel::<Job>();
    let (send_remote, receive_remote) = mpsc::channel::<RemoteHandle>();
    let stop = kept(AtomicUsize::new(0));
    let thread = std::thread::spawn(move || {
        let execute = move |job: Job| send.send(job).unwrap();
        let manager =
            FiberManager::new(ExecutorLoopController::new(execute), Options::default()).unwrap();
        send_remote.send(manager.remote()).unwrap();
        while stop.load(Ordering::SeqCst) == 0 {
            jobs.recv().unwrap()();
        }
    });
    let remote = receive_remote.recv().unwrap();
    let slept = remote.add_task_remote_future(|| {
        sinew::sleep(5 * MS);
        std::thread::current().id()
    });
    assert_eq!(slept.get().unwrap(), thread.thread().id());
    remote.add_task_remote(|| stop.store(1, Ordering::SeqCst));
    thread.join().unwrap();
    assert!(!remote.is_alive());
}

#[test]
fn a_posted_callback_whose_manager_is_gone_does_nothing() {
    let _watch = watch::a_minute();
    let (manager, queue) = on_a_queue();
    let log = Log::new();
    let (captured, theirs) = (log.on_drop("dropped"), log.clone());
    manager.add_task(move || {
        let _captured = captured;
        theirs.line("ran");
    });
    assert_eq!(queue.len(), 1);
    drop(manager);
    assert_eq!(log.take(), ["dropped"]);
    queue.run();
    assert!(log.take().is_empty());
    // The callback does nothing on another thread either, where it could not have run the manager.
    let (manager, queue) = on_a_queue();
    manager.add_task(|| ());
    drop(manager);
    std::thread::spawn(move || queue.run()).join().unwrap();
}

#[test]
fn an_executor_on_the_wrong_thread_is_an_error() {
    let _watch = watch::a_minute();
    let (manager, queue) = on_a_queue();
    let future = manager.add_task_future(|| 7);
    let elsewhere = queue.clone();
    let refused = std::thread::spawn(move || panic_of(|| elsewhere.run())).join().unwrap();
    assert!(refused.contains("thread"), "{refused}");
    // No work was lost: the loop can be run again.
    assert!(!future.is_ready());
    manager.loop_until_no_ready();
    assert_eq!(future.get().unwrap(), 7);
}

#[test]
fn managers_are_executors() {
    let _watch = watch::a_minute();
    let (outer, controller) = simple();
    let log = Log::new();
    let line = |text: &'static str| -> Job {
        let log = log.clone();
        Box::new(move || {
            assert!(manager::on_fiber());
            log.line(text);
        })
    };
    Executor::execute(&outer, line("manager"));
    Executor::execute(&*outer, line("handle"));
    Executor::execute(&outer.remote(), line("remote"));
    controller.run();
    assert_eq!(log.take(), ["manager", "handle", "remote"]);
    // The loop of one manager runs as tasks of another.
    let inner_controller = ExecutorLoopController::new(outer.remote());
    let inner = FiberManager::new(inner_controller, Options::default()).unwrap();
    let future = inner.add_task_future(|| {
        sinew::yield_now();
        7
    });
    controller.run_until(|| future.is_ready());
    assert_eq!(future.get().unwrap(), 7);
}

// --- event loops ---

#[test]
fn a_controller_is_attached_after_its_manager_has_tasks() {
    let _watch = watch::a_minute();
    let controller = ReactorLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::default()).unwrap();
    let future = manager.add_task_future(|| {
        sinew::sleep(MS);
        7
    });
    let remote = manager.remote();
    let afar = std::thread::spawn(move || remote.add_task_remote_future(|| 8)).join().unwrap();
    assert!(!future.is_ready());
    let events = EventLoop::new().unwrap();
    controller.attach_loop(&events);
    events.run();
    assert_eq!((future.get().unwrap(), afar.get().unwrap()), (7, 8));
}

#[test]
fn a_controller_is_attached_when_its_manager_sleeps_already() {
    let _watch = watch::a_minute();
    let controller = ReactorLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::default()).unwrap();
    let future = manager.add_task_future(|| sinew::sleep(10 * MS));
    manager.loop_until_no_ready();
    let events = EventLoop::new().unwrap();
    controller.attach_loop(&events);
    events.run();
    assert!(future.is_ready());
}

#[test]
fn a_manager_is_attached_to_one_loop() {
    let _watch = watch::a_minute();
    let (first, second) = (EventLoop::new().unwrap(), EventLoop::new().unwrap());
    let controller = ReactorLoopController::on(&first);
    let refused = panic_of(|| controller.attach_loop(&second));
    assert!(refused.contains("attached"), "{refused}");
}

#[test]
fn an_event_loop_runs_callbacks_in_order() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let log = Log::new();
    let line = |text: &'static str| {
        let log = log.clone();
        move || log.line(text)
    };
    events.run_after(6 * MS, line("third"));
    events.run_after(3 * MS, line("second"));
    events.run_in_loop(line("first"));
    events.run();
    assert_eq!(log.take(), ["first", "second", "third"]);
    // Run without sleeping, or for one round.
    assert!(!events.run_once(), "nothing to do");
    events.run_in_loop(line("once"));
    assert!(!events.run_once(), "nothing keeps it any more");
    assert_eq!(log.take(), ["once"]);
}

#[test]
fn an_event_loop_runs_as_long_as_something_keeps_it() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    events.run(); // nothing keeps it
    let (keep, remote) = (events.keep_alive(), events.remote());
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let slot = Arc::new(Mutex::new(None));
    events.run_in_loop({
        let slot = slot.clone();
        move || {
            // Another thread posts later; the guard itself stays on this thread.
            let thread = std::thread::spawn(move || {
                remote.run_in_loop(move || {
                    counter.fetch_add(1, Ordering::SeqCst);
                });
                remote
            });
            *slot.lock().unwrap() = Some(thread);
        }
    });
    let seen = count.clone();
    let keep = kept(Cell::new(Some(keep)));
    fn release(
        seen: Arc<AtomicUsize>,
        keep: &'static Cell<Option<manager::KeepAlive>>,
        events: &'static EventLoop,
    ) {
        if seen.load(Ordering::SeqCst) == 1 {
            drop(keep.take());
        } else {
            events.run_after(MS, move || release(seen, keep, events));
        }
    }
    let events = kept(events);
    events.run_after(MS, move || release(seen, keep, events));
    events.run();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    drop(slot.lock().unwrap().take().unwrap().join().unwrap());
}

#[test]
fn an_event_loop_is_terminated() {
    let _watch = watch::a_minute();
    let events = kept(EventLoop::new().unwrap());
    let rounds = kept(Cell::new(0));
    fn again(events: &'static EventLoop, rounds: &'static Cell<u32>) {
        rounds.set(rounds.get() + 1);
        events.run_in_loop(move || again(events, rounds));
    }
    events.run_in_loop(|| again(events, rounds));
    events.run_after(3 * MS, || events.terminate());
    events.run_forever();
    assert!(rounds.get() > 0);
    // Another thread terminates a loop that sleeps for ever.
    let idle = EventLoop::new().unwrap();
    let remote = idle.remote();
    let thread = std::thread::spawn(move || remote.terminate());
    idle.run_forever();
    thread.join().unwrap();
    // A fiber terminates the loop.
    let manager = manager_for(events);
    manager.add_task(|| {
        sinew::sleep(MS);
        events.terminate();
    });
    events.run_forever();
}

#[test]
fn tasks_keep_an_event_loop() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager =
        FiberManager::new(ReactorLoopController::on(&events), Options::default()).unwrap();
    let baton = Arc::new(Baton::new());
    let (theirs, remote) = (baton.clone(), events.remote());
    let ended = manager.add_task_future(move || theirs.wait());
    // Neither the loop's queue nor a timer keeps the loop, only the task.
    let thread = std::thread::spawn(move || {
        let (in_loop, waits) = mpsc::channel();
        remote.run_in_loop(move || in_loop.send(()).unwrap());
        waits.recv().unwrap();
        baton.post();
    });
    events.run();
    assert!(ended.is_ready());
    thread.join().unwrap();
    events.run(); // returns at once: nothing keeps it
}

#[test]
fn callbacks_and_managers_share_an_event_loop() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let managers: Vec<_> = (0..3)
        .map(|_| FiberManager::new(ReactorLoopController::on(&events), Options::default()).unwrap())
        .collect();
    let count = kept(Cell::new(0));
    for manager in &managers {
        for _ in 0..10 {
            manager.add_task(|| {
                sinew::sleep(Duration::from_micros(200));
                count.set(count.get() + 1);
            });
        }
    }
    events.run_after(MS, || count.set(count.get() + 1000));
    events.run();
    assert_eq!(count.get(), 1030);
}

#[test]
fn an_event_loop_runs_its_destruction_callbacks() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let log = Log::new();
    let (first, second) = (log.clone(), log.clone());
    events.on_destruction(move || first.line("first"));
    events.on_destruction(move || second.line("second"));
    events.run();
    assert!(log.take().is_empty());
    drop(events);
    assert_eq!(log.take(), ["second", "first"]);
}

#[test]
fn a_callback_posted_to_an_ended_event_loop_is_dropped() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let log = Log::new();
    let remote = events.remote();
    let (captured, timed) = (log.on_drop("callback"), log.on_drop("timer"));
    events.run_in_loop(move || drop(captured));
    events.run_after(LONG, move || drop(timed));
    drop(events);
    let mut lines = log.take();
    lines.sort();
    assert_eq!(lines, ["callback", "timer"]);
    let late = log.on_drop("late");
    std::thread::spawn(move || {
        remote.run_in_loop(move || drop(late));
        remote.terminate();
    })
    .join()
    .unwrap();
    assert_eq!(log.take(), ["late"]);
}

#[test]
fn an_event_loop_goes_before_its_manager() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager =
        FiberManager::new(ReactorLoopController::on(&events), Options::default()).unwrap();
    let future = manager.add_task_future(|| sinew::sleep(MS));
    drop(events);
    // The event loop is gone, but the manager can still be run by hand.
    while !future.is_ready() {
        manager.loop_until_no_ready();
    }
    let left: TaskFuture<()> = manager.add_task_future(sinew::park);
    manager.loop_until_no_ready();
    drop(manager);
    assert!(sinew::is_cancel(&*left.get().unwrap_err()));
}

#[test]
fn a_manager_goes_before_its_event_loop() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager =
        FiberManager::new(ReactorLoopController::on(&events), Options::default()).unwrap();
    let handle = ManagerHandle::clone(&manager);
    manager.add_task(|| sinew::sleep(LONG));
    manager.loop_until_no_ready();
    manager.add_task(|| ()); // requested, but not run
    drop(manager);
    events.run();
    assert!(panic_of(|| handle.add_task(|| ())).contains("manager"));
}

/// The refused call inside of the task must not use up the request to run the manager.
#[test]
fn an_event_loop_inside_of_its_manager_forgets_nothing() {
    let _watch = watch::a_minute();
    let event_loop = Rc::new(EventLoop::new().unwrap());
    let manager = manager_for(&*event_loop);
    let ran = Rc::new(Cell::new(false));
    let (inner, handle, sets) = (event_loop.clone(), manager.clone(), ran.clone());
    let refused = manager.add_task_eager_future(move || {
        handle.add_task(move || sets.set(true));
        panic_of(|| inner.run_once())
    });
    let refused = refused.get().unwrap();
    assert!(refused.contains("run inside of itself"), "{refused}");
    event_loop.run();
    assert!(ran.get());
}

/// A controller that forwards its calls, unless it is set to panic.
struct Panics(Counting, Rc<Cell<&'static str>>);

impl Panics {
    fn check(&self, call: &str) {
        assert!(self.1.get() != call, "in {call}, on purpose");
    }
}

impl LoopController for Panics {
    fn attach(&self, runner: Runner) {
        self.0.attach(runner);
        self.check("attach");
    }

    fn schedule(&self) {
        self.check("schedule");
    }

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.check("remote");
        self.0.remote()
    }

    fn rest(&self, _: Rest) {
        self.check("rest");
    }

    fn keep_alive(&self, _: bool) {
        self.check("keep_alive");
    }
}

#[test]
fn a_panic_of_a_controller_goes_to_the_caller_and_no_further() {
    let _watch = watch::a_minute();
    for call in ["attach", "remote", "schedule", "rest", "keep_alive"] {
        let (counting, when) = (Counting::default(), Rc::new(Cell::new(call)));
        let controller = Panics(counting.clone(), when.clone());
        let make = || FiberManager::new(controller, Options::default()).unwrap();
        if matches!(call, "attach" | "remote") {
            assert!(panic_of(make).contains(call));
            assert!(!counting.turn());
            continue;
        }
        let manager = make();
        let told = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_ok();
        let tells =
            [told(&|| manager.add_task(|| sinew::sleep(LONG))), told(&|| _ = counting.turn())];
        assert!(tells.contains(&false), "{call}");
        // The task was added, and the manager still ends.
        assert_eq!(manager.active_tasks(), 1);
        let remote = manager.remote();
        drop(manager);
        assert!(!remote.is_alive() && !counting.turn());
        when.set("");
    }
}

#[test]
fn a_controller_may_add_tasks_when_it_is_attached() {
    struct Adds(SimpleLoopController, Rc<Cell<u32>>);
    impl LoopController for Adds {
        fn attach(&self, runner: Runner) {
            self.0.attach(runner.clone());
            let manager = runner.manager().unwrap();
            let (first, second) = (self.1.clone(), Arc::new(()));
            manager.add_task(move || first.set(first.get() + 1));
            runner.run();
            let again = self.1.clone();
            manager.add_task(move || again.set(again.get() + 10));
            let remote = manager.remote();
            std::thread::spawn(move || remote.add_task_remote(move || drop(second)))
                .join()
                .unwrap();
        }

        fn schedule(&self) {
            self.0.schedule();
        }

        fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
            self.0.remote()
        }

        fn rest(&self, rest: Rest) {
            self.0.rest(rest);
        }
    }
    let _watch = watch::a_minute();
    let (controller, ran) = (SimpleLoopController::new(), Rc::new(Cell::new(0)));
    let manager =
        FiberManager::new(Adds(controller.clone(), ran.clone()), Options::default()).unwrap();
    assert!(controller.is_scheduled());
    controller.run();
    assert!(!manager.has_tasks());
    assert_eq!(ran.get(), 11);
}

#[test]
fn a_task_that_a_callback_adds_runs_in_the_same_turn() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let log = Rc::new(RefCell::new(Vec::new()));
    let note = |what: &'static str| {
        let log = log.clone();
        move || log.borrow_mut().push(what)
    };
    for (callback, task) in [("callback 1", "task 1"), ("callback 2", "task 2")] {
        let (handle, called, ran) = (manager.clone(), note(callback), note(task));
        events.run_in_loop(move || {
            called();
            handle.add_task(ran);
        });
    }
    events.run_once();
    // As in folly's loop, the tasks run behind the remaining callbacks of the turn.
    assert_eq!(*log.borrow(), ["callback 1", "callback 2", "task 1", "task 2"]);
}

#[test]
fn a_turn_ends_although_fibers_yield_and_managers_wake_each_other() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let [first, second] = [(); 2]
        .map(|()| FiberManager::new(ReactorLoopController::on(&events), Options::new()).unwrap());
    let turns = Rc::new([Semaphore::new(0), Semaphore::new(0)]);
    let rounds = Rc::new(Cell::new(0));
    for (me, manager) in [&first, &second].into_iter().enumerate() {
        let (turns, rounds) = (turns.clone(), rounds.clone());
        manager.add_task(move || {
            while rounds.get() < 1000 {
                rounds.set(rounds.get() + 1);
                turns[1 - me].add(1);
                turns[me].acquire().forget();
            }
            turns[1 - me].add(1);
        });
        let yields = Rc::new(Cell::new(0));
        manager.add_task(move || {
            while yields.get() < 1000 {
                yields.set(yields.get() + 1);
                sinew::yield_now();
            }
        });
    }
    let mut count = 0;
    events.run_in_loop(|| ());
    while events.run_once() {
        count += 1;
    }
    assert!(count >= 100, "{count} turns of the loop for 1000 yields");
}

#[test]
fn a_manager_of_a_turn_that_a_panic_left_runs_in_the_next() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let ran = Rc::new(Cell::new(false));
    let (handle, theirs) = (manager.clone(), ran.clone());
    events.run_in_loop(move || {
        handle.add_task(move || theirs.set(true));
        panic!("after it has added a task");
    });
    assert!(catch_unwind(AssertUnwindSafe(|| events.run_once())).is_err());
    events.run();
    assert!(ran.get());
}
