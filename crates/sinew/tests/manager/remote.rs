//! Tasks and wakes from other threads.

use crate::kit::{LONG, counted, kept, run_until, simple};
use sinew::Runtime;
use sinew::manager::{self, Promise, RemoteHandle, TaskFuture};
use sinew::sync::Baton;
use sinew_testkit::{Log, Seed, watch};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};

#[test]
fn remote_wakes_continue_fibers_in_the_loop_which_is_scheduled_once() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    let promises = kept(RefCell::new(Vec::<Promise<u32>>::new()));
    let results = kept(Cell::new([0, 0]));
    for index in 0..2 {
        manager.add_task(move || {
            let value = manager::await_with(|p| promises.borrow_mut().push(p)).unwrap();
            let mut all = results.get();
            all[index] = value;
            results.set(all);
        });
    }
    controller.turn();
    assert_eq!((promises.borrow().len(), results.get()), (2, [0, 0]));
    let before = controller.scheduled_remotely();
    let threads: Vec<_> = [42, 43]
        .into_iter()
        .zip(promises.take())
        .map(|(value, promise)| std::thread::spawn(move || promise.set(value)))
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(results.get(), [0, 0]);
    assert_eq!(controller.scheduled_remotely() - before, 1);
    assert!(manager.has_ready_tasks());
    controller.turn();
    assert_eq!(results.get(), [42, 43]);
}

#[test]
fn remote_tasks_run_in_the_loop() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let (baton, results) = (kept(Baton::new()), kept([AtomicUsize::new(0), AtomicUsize::new(0)]));
    let here = std::thread::current().id();
    let threads: Vec<_> = (0..2)
        .map(|index| {
            let remote = manager.remote();
            std::thread::spawn(move || {
                remote.add_task_remote(move || {
                    assert_eq!(std::thread::current().id(), here);
                    assert!(manager::on_fiber());
                    while !baton.is_posted() {
                        sinew::yield_now();
                    }
                    results[index].store(index + 42, Ordering::Relaxed);
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let seen = || results.each_ref().map(|result| result.load(Ordering::Relaxed));
    manager.loop_until_no_ready();
    assert_eq!(seen(), [0, 0]);
    baton.post();
    assert_eq!(seen(), [0, 0]);
    manager.loop_until_no_ready();
    assert_eq!(seen(), [42, 43]);
}

#[test]
fn a_remote_task_counts_before_it_runs() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let count = Arc::new(AtomicUsize::new(0));
    let (remote, counter) = (manager.remote(), count.clone());
    std::thread::spawn(move || {
        remote.add_task_remote(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
    })
    .join()
    .unwrap();
    assert!(manager.has_tasks());
    assert!(manager.has_ready_tasks());
    assert!(controller.is_scheduled());
    manager.loop_until_no_ready();
    assert!(!manager.has_tasks() && !manager.has_ready_tasks());
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_remotely_woken_fiber_counts_before_it_runs() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let baton = kept(Baton::new());
    let (remote, ended) = (manager.remote(), kept(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        remote.add_task_remote(|| {
            baton.wait();
            ended.store(47, Ordering::Relaxed);
        });
    })
    .join()
    .unwrap();
    assert!(manager.has_tasks());
    manager.loop_until_no_ready();
    assert!(manager.has_tasks() && !manager.has_ready_tasks());
    std::thread::spawn(|| baton.post()).join().unwrap();
    assert!(manager.has_tasks() && manager.has_ready_tasks());
    manager.loop_until_no_ready();
    assert!(!manager.has_tasks());
    assert_eq!(ended.load(Ordering::Relaxed), 47);
}

#[test]
fn results_go_back_to_the_asking_thread() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let remote = manager.remote();
    let asker = std::thread::spawn(move || {
        let number = remote.add_task_remote_future(|| 7).get().unwrap();
        let nothing: TaskFuture<()> = remote.add_task_remote_future(|| ());
        nothing.get().unwrap();
        // A result may itself be a result.
        let nested: Result<u32, String> = remote.add_task_remote_future(|| Ok(42)).get().unwrap();
        let failed: TaskFuture<u32> = remote.add_task_remote_future(|| panic!("on purpose"));
        (number, nested, failed.get().is_err())
    });
    run_until(&manager, &controller, || asker.is_finished());
    assert_eq!(asker.join().unwrap(), (7, Ok(42), true));
}

#[test]
fn a_remote_handle_works_on_the_managers_own_thread() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let remote = manager.remote();
    let first = remote.add_task_remote_future(|| 1);
    assert!(!first.is_ready() && manager.has_ready_tasks());
    let copy = remote.clone();
    let second = manager.add_task_future(move || {
        let third = copy.add_task_remote_future(|| 3);
        assert!(!third.is_ready(), "it waits for its turn");
        manager::run_in_main_context(|| copy.add_task_remote(|| ()));
        third.get().unwrap()
    });
    controller.run();
    assert_eq!((first.get().unwrap(), second.get().unwrap()), (1, 3));
    assert!(remote.is_alive());
}

#[test]
fn tasks_of_one_thread_keep_their_order() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (remote, log) = (manager.remote(), Log::new());
    let theirs = log.clone();
    std::thread::spawn(move || {
        for n in 0..100 {
            let log = theirs.clone();
            remote.add_task_remote(move || log.line(n));
        }
    })
    .join()
    .unwrap();
    controller.run();
    assert!(log.take().into_iter().eq((0..100).map(|n| n.to_string())));
}

#[test]
fn every_task_of_many_threads_runs_once() {
    let _watch = watch::a_minute();
    const THREADS: usize = 4;
    const EACH: usize = 2000;
    let mut seed = Seed::from_env();
    let (manager, controller) = simple();
    let counts: Arc<[AtomicUsize]> = (0..THREADS * EACH).map(|_| AtomicUsize::new(0)).collect();
    let start = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (remote, counts, start) = (manager.remote(), counts.clone(), start.clone());
            let mut seed = seed.fork();
            std::thread::spawn(move || {
                start.wait();
                for n in 0..EACH {
                    let (counts, yields) = (counts.clone(), seed.below(4) == 0);
                    remote.add_task_remote(move || {
                        if yields {
                            sinew::yield_now();
                        }
                        counts[thread * EACH + n].fetch_add(1, Ordering::Relaxed);
                    });
                    if seed.below(50) == 0 {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    run_until(&manager, &controller, || threads.iter().all(|thread| thread.is_finished()));
    controller.run();
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
}

#[test]
fn a_sleeping_loop_is_woken() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let stop = kept(Baton::new());
    // The task keeps the loop, which has nothing to do but sleep.
    manager.add_task(|| assert!(stop.wait_timeout(LONG)));
    let remote = manager.remote();
    let thread = std::thread::spawn(move || {
        for n in 0..200 {
            assert_eq!(remote.add_task_remote_future(move || n).get().unwrap(), n);
        }
        stop.post();
    });
    controller.run();
    thread.join().unwrap();
}

/// Two managers on two threads ask each other, each from its own fibers.
#[test]
fn managers_on_two_threads_ask_each_other() {
    let _watch = watch::a_minute();
    let asked_all = Arc::new(AtomicUsize::new(0));
    let side = |send: mpsc::Sender<RemoteHandle>, receive: mpsc::Receiver<RemoteHandle>| {
        let asked_all = asked_all.clone();
        std::thread::spawn(move || {
            let (manager, controller) = simple();
            send.send(manager.remote()).unwrap();
            let other = receive.recv().unwrap();
            let count = asked_all.clone();
            let asks = manager.add_task_future(move || {
                let here = std::thread::current().id();
                for n in 0..300 {
                    let question = move || (n + 1, std::thread::current().id());
                    let (answer, there) = other.add_task_remote_future(question).get().unwrap();
                    assert_eq!(answer, n + 1);
                    assert_ne!(there, here);
                }
                count.fetch_add(1, Ordering::SeqCst);
                // Wake the other loop, which may sleep with nothing left to do.
                other.add_task_remote(|| ());
            });
            // The other side may have questions left when this one has none.
            run_until(&manager, &controller, || asked_all.load(Ordering::SeqCst) == 2);
            controller.run();
            asks.get().unwrap();
        })
    };
    let (to_second, from_first) = mpsc::channel();
    let (to_first, from_second) = mpsc::channel();
    let sides = [side(to_second, from_second), side(to_first, from_first)];
    sides.into_iter().for_each(|side| side.join().unwrap());
}

#[test]
fn fibers_of_a_runtime_ask_a_manager() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let remote = manager.remote();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let fibers: Vec<_> = (0..20_u32)
        .map(|n| {
            let remote = remote.clone();
            runtime.spawn(move || {
                let ask = |m| remote.add_task_remote_future(move || n * m).get().unwrap();
                (0..20).map(ask).sum::<u32>()
            })
        })
        .collect();
    run_until(&manager, &controller, || fibers.iter().all(|fiber| fiber.is_finished()));
    let sums = fibers.into_iter().map(|fiber| fiber.join().unwrap());
    assert!(sums.eq((0..20).map(|n: u32| n * 190)));
}

#[test]
fn the_loop_is_scheduled_once_per_turn() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    let remote = manager.remote();
    for turn in 1..=3 {
        let copy = remote.clone();
        std::thread::spawn(move || (0..10).for_each(|_| copy.add_task_remote(|| ())))
            .join()
            .unwrap();
        assert_eq!(controller.scheduled_remotely(), turn);
        controller.turn();
    }
    assert!(!manager.has_tasks());
    let before = controller.scheduled();
    (0..10).for_each(|_| manager.add_task(|| ()));
    assert_eq!(controller.scheduled() - before, 1);
    controller.turn();
    manager.add_task(|| ());
    assert_eq!(controller.scheduled() - before, 2);
    controller.turn();
}

#[test]
fn remote_handles_are_for_all_threads() {
    fn check<T: Send + Sync + Clone>() {}
    check::<RemoteHandle>();
    fn send<T: Send>() {}
    send::<TaskFuture<u32>>();
}
