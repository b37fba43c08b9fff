//! Tasks and batches in fibers of a manager, and beside its loop.

use crate::{Doors, message_of, text};
use sinew::manager::{FiberManager, ManagerHandle, Options, SimpleLoopController, TaskFuture};
use sinew::tasks::{
    AtomicBatchDispatcher, BatchDispatcher, DispatchError, add_tasks, collect_all, collect_any,
    collect_n, for_each,
};
use sinew_testkit::{Log, watch};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

fn manager() -> (FiberManager, SimpleLoopController) {
    let controller = SimpleLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::new()).unwrap();
    (manager, controller)
}

/// Runs a task in a manager, until the manager has nothing to do.
fn in_manager<T: 'static>(f: impl FnOnce() -> T + 'static) -> std::thread::Result<T> {
    let _watch = watch::a_minute();
    let (manager, controller) = manager();
    let result: TaskFuture<T> = manager.add_task_future(f);
    controller.run();
    assert!(!manager.has_tasks());
    result.get()
}

fn dispatcher(sizes: &Rc<RefCell<Vec<usize>>>) -> Rc<BatchDispatcher<u64, u64>> {
    let sizes = sizes.clone();
    Rc::new(BatchDispatcher::new(move |batch: Vec<u64>| {
        sizes.borrow_mut().push(batch.len());
        batch.into_iter().map(|n| 2 * n).collect()
    }))
}

#[test]
fn results_are_collected_in_a_managers_fiber() {
    let all = in_manager(|| {
        let here = std::thread::current().id();
        let shared = Rc::new(Cell::new(0));
        let tasks = |count: u32| {
            let shared = shared.clone();
            (0..count).map(move |n| {
                let shared = shared.clone();
                move || {
                    sinew::sleep(Duration::from_micros(u64::from(count - n)));
                    assert_eq!(std::thread::current().id(), here);
                    shared.set(shared.get() + 1);
                    n
                }
            })
        };
        assert_eq!(collect_all(tasks(20)), (0..20).collect::<Vec<_>>());
        assert_eq!(collect_n(tasks(5), 5).len(), 5);
        assert!(collect_any(tasks(1)).1.is_ok());
        for_each(tasks(5), |index, n| assert_eq!(index, n as usize));
        let sum: u32 = add_tasks(tasks(5)).map(|(_, result)| result.unwrap()).sum();
        assert_eq!((sum, shared.get()), (10, 36));
        collect_all([|| 1, || 2])
    });
    assert_eq!(all.unwrap(), [1, 2]);
    let panicked = in_manager(|| collect_all([|| panic!("in a task")]));
    assert_eq!(text(&*panicked.unwrap_err()), "in a task");
}

#[test]
fn batches_are_gathered_in_a_managers_fibers() {
    in_manager(|| {
        let sizes = Rc::default();
        let dispatcher = dispatcher(&sizes);
        let results = collect_all((0..30).map(|n| {
            let dispatcher = dispatcher.clone();
            move || dispatcher.add(n).get().unwrap()
        }));
        assert_eq!(results, (0..30).map(|n| 2 * n).collect::<Vec<_>>());
        assert_eq!(sizes.take(), [30]);
        // A slow dispatch does not keep other fibers from running.
        let naps = BatchDispatcher::new(|batch: Vec<u32>| {
            sinew::sleep(Duration::from_millis(1));
            batch
        });
        let future = naps.add(7);
        assert_eq!(dispatcher.add(1).get(), Ok(2));
        assert_eq!(future.get(), Ok(7));
    })
    .unwrap();
}

#[test]
fn a_manager_is_the_executor_of_batches() {
    let _watch = watch::a_minute();
    let (manager, controller) = manager();
    let handle = ManagerHandle::clone(&manager);
    let on_fiber = Rc::new(Cell::new(false));
    let seen = on_fiber.clone();
    // The dispatcher is used outside of any fiber.
    let dispatcher = BatchDispatcher::with_executor(
        move |job| handle.add_task(job),
        move |batch: Vec<u32>| {
            seen.set(sinew::manager::on_fiber());
            sinew::yield_now();
            batch
        },
    );
    let futures = [1, 2, 3].map(|n| dispatcher.add(n));
    controller.run();
    assert!(on_fiber.get());
    assert_eq!(futures.map(|future| future.try_get().unwrap().unwrap()), [1, 2, 3]);
    // The manager is dropped with a batch that was not dispatched.
    let future = dispatcher.add(4);
    drop(manager);
    assert_eq!(future.get(), Err(DispatchError::Dropped));
    let message = message_of(|| dispatcher.add(5));
    assert!(message.contains("gone") || message.contains("dropped"), "{message}");
}

#[test]
fn the_main_context_is_a_plain_thread() {
    in_manager(|| {
        let messages = sinew::manager::run_in_main_context(|| {
            let dispatcher = BatchDispatcher::new(|batch: Vec<u32>| batch);
            [
                message_of(|| collect_all([|| 1])),
                message_of(|| add_tasks([|| 1])),
                message_of(|| dispatcher.add(1)),
            ]
        });
        for message in messages {
            assert!(message.contains("called on a plain thread"), "{message}");
        }
        // Results of ended tasks can be taken there; a wait for others would never end.
        let mut tasks = add_tasks([|| 1]);
        tasks.reserve(1);
        tasks.add_task(|| 2);
        let first = sinew::manager::run_in_main_context(|| tasks.await_next());
        assert_eq!(first.unwrap(), 1);
        let message = message_of(|| sinew::manager::run_in_main_context(|| tasks.await_next()));
        assert!(message.starts_with("deadlock"), "{message}");
        assert_eq!(tasks.await_next().unwrap(), 2);
    })
    .unwrap();
}

#[test]
fn tokens_are_used_by_managers_runtimes_and_threads() {
    let _watch = watch::a_minute();
    let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| {
        batch.into_iter().map(|n| (n, std::thread::current().id())).collect()
    });
    let mut tokens = dispatcher.reserve(3).into_iter();
    let mut next = || tokens.next().unwrap();
    let (in_manager, in_fiber, on_thread) = (next(), next(), next());
    let fiber = sinew::spawn(move || in_fiber.dispatch(2).get().unwrap());
    let thread = std::thread::spawn(move || on_thread.dispatch(3).get().unwrap());
    let (manager, controller) = manager();
    let task = manager.add_task_future(move || in_manager.dispatch(1).get().unwrap());
    manager.add_task(move || dispatcher.commit());
    controller.run();
    let results = [task.get().unwrap(), fiber.join().unwrap(), thread.join().unwrap()];
    assert_eq!(results.map(|(n, _)| n), [1, 2, 3]);
    assert!(results.iter().all(|(_, place)| *place == results[0].1), "one has called it");
}

#[test]
fn functions_that_stay_on_their_thread() {
    in_manager(|| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let theirs = seen.clone();
        let dispatcher = AtomicBatchDispatcher::new_local(move |batch: Vec<Rc<u32>>| {
            theirs.borrow_mut().extend(batch.iter().cloned());
            batch
        });
        let tokens = dispatcher.reserve(3);
        let tasks = (1..).zip(tokens).map(|(n, token)| move || token.dispatch(Rc::new(n)).get());
        let tasks: Vec<_> = tasks.collect();
        sinew::spawn_local(move || dispatcher.commit());
        let results = collect_all(tasks);
        assert!(results.into_iter().map(Result::unwrap).eq(seen.take()));
        // A batch of such a dispatcher can fail too.
        let dispatcher = AtomicBatchDispatcher::new_local(|batch: Vec<Rc<u32>>| batch);
        let (future, token) = (dispatcher.token().dispatch(Rc::new(1)), dispatcher.token());
        dispatcher.commit();
        drop(token);
        assert_eq!(future.get(), Err(DispatchError::TokensDropped([1].into())));
    })
    .unwrap();
}

/// Callers, tasks and batches wait, or have not begun, when their manager is dropped.
#[test]
fn nothing_is_left_when_the_manager_is_dropped() {
    let _watch = watch::a_minute();
    let alive = Rc::new(());
    let log = Log::new();
    {
        let (manager, controller) = manager();
        let calls: [fn(Rc<()>); 4] = [
            |alive| drop(collect_all((0..5).map(|_| parks(alive.clone())))),
            |alive| drop(collect_n((0..5).map(|_| parks(alive.clone())), 2)),
            |alive| for_each((0..5).map(|_| parks(alive.clone())), |_, ()| ()),
            |alive| {
                let dispatcher = BatchDispatcher::new(move |batch: Vec<u32>| {
                    parks(alive.clone())();
                    batch
                });
                // The fiber is cancelled, or the dispatch was cancelled before.
                assert_eq!(dispatcher.add(1).get(), Err(DispatchError::Cancelled));
            },
        ];
        for call in calls {
            let (alive, unwound) = (alive.clone(), log.on_drop("unwound"));
            manager.add_task(move || {
                let _unwound = unwound;
                call(alive);
            });
        }
        controller.run_once();
        assert!(Rc::strong_count(&alive) > 15);
        // A task that has not begun.
        let theirs = alive.clone();
        manager.add_task(move || drop(collect_all([parks(theirs)])));
    }
    assert_eq!(Rc::strong_count(&alive), 1);
    assert_eq!(log.take(), ["unwound"; 4]);
}

fn parks(alive: Rc<()>) -> impl FnOnce() + 'static {
    move || {
        sinew::park();
        drop(alive);
    }
}

#[test]
fn a_cancelled_task_leaves_its_children_running() {
    let _watch = watch::a_minute();
    let (manager, controller) = manager();
    let doors = Rc::new(RefCell::new(None));
    let (theirs, ended) = (doors.clone(), Rc::new(Cell::new(0)));
    let counts = ended.clone();
    let caller = manager.add_task_future(move || {
        let doors = Doors::new(2);
        *theirs.borrow_mut() = Some(doors.clone());
        collect_all((0..2).map(move |n| {
            let (doors, counts) = (doors.clone(), counts.clone());
            move || {
                doors.pass(n);
                counts.set(counts.get() + 1);
            }
        }))
    });
    controller.run_once();
    caller.cancel();
    controller.run_once();
    assert!(sinew::is_cancel(&*caller.get().unwrap_err()));
    // The tasks go on without the caller.
    let doors = doors.take().unwrap();
    (0..2).for_each(|n| doors.open(n));
    controller.run();
    assert_eq!(ended.get(), 2);
}
