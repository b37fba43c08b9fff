//! Executors, to which a manager posts its turns.

use crate::kit::{MS, kept, panic_of, simple};
use sinew::manager::{self, Executor, ExecutorLoopController, FiberManager, Options, RemoteHandle};
use sinew::sync::Baton;
use sinew_testkit::{Log, watch};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

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
        (Baton::new().wait_timeout(20 * MS), start.elapsed())
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
