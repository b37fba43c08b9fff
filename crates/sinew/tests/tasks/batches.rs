//! `BatchDispatcher`.

use crate::{Doors, let_others_run, message_of, one_carrier};
use sinew::tasks::{BatchDispatcher, BatchFuture, DispatchError, collect_all};
use sinew::{FiberBuilder, FiberState, WaitKind};
use sinew_testkit::{Log, watch};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The sizes of the batches so far.
type Sizes = Rc<RefCell<Vec<usize>>>;

/// Makes a dispatcher that doubles, and records the sizes of its batches.
fn doubler() -> (Rc<BatchDispatcher<u64, u64>>, Sizes) {
    let sizes = Rc::new(RefCell::new(Vec::new()));
    let theirs = sizes.clone();
    let dispatcher = BatchDispatcher::new(move |batch: Vec<u64>| {
        theirs.borrow_mut().push(batch.len());
        batch.into_iter().map(|n| 2 * n).collect()
    });
    (Rc::new(dispatcher), sizes)
}

/// Adds each value in a separate fiber, which waits for its result.
fn ask(
    dispatcher: &Rc<BatchDispatcher<u64, u64>>,
    values: std::ops::Range<u64>,
) -> Vec<Result<u64, DispatchError>> {
    collect_all(values.map(|n| {
        let dispatcher = dispatcher.clone();
        move || dispatcher.add(n).get()
    }))
}

#[test]
fn values_of_all_ready_fibers_are_one_batch() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let (dispatcher, sizes) = doubler();
        for _ in 0..3 {
            let results = ask(&dispatcher, 0..10);
            assert_eq!(results, (0..10).map(|n| Ok(2 * n)).collect::<Vec<_>>());
        }
        assert_eq!(sizes.take(), [10, 10, 10]);
        // One fiber adds several values.
        let futures: Vec<_> = (0..3).map(|n| dispatcher.add(n)).collect();
        assert_eq!(format!("{dispatcher:?}"), "BatchDispatcher { gathered: 3 }");
        let results: Vec<_> = futures.into_iter().map(|future| future.get().unwrap()).collect();
        assert_eq!(results, [0, 2, 4]);
        assert_eq!(format!("{dispatcher:?}"), "BatchDispatcher { gathered: 0 }");
        assert_eq!(sizes.take(), [3]);
    });
}

#[test]
fn ten_thousand_values_are_one_batch() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let (dispatcher, sizes) = doubler();
        let results = ask(&dispatcher, 0..10_000);
        assert_eq!(results, (0..10_000).map(|n| Ok(2 * n)).collect::<Vec<_>>());
        assert_eq!(sizes.take(), [10_000]);
    });
}

#[test]
fn values_added_during_a_dispatch_are_the_next_batch() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(2);
        let (theirs, begun) = (doors.clone(), Rc::new(Cell::new(0)));
        let counts = begun.clone();
        let dispatcher = BatchDispatcher::new(move |batch: Vec<u32>| {
            let index = counts.get();
            counts.set(index + 1);
            theirs.pass(index);
            batch.into_iter().map(|n| (index, n)).collect()
        });
        let first = dispatcher.add(1);
        sinew::wait_until(|| begun.get() == 1);
        let second = (dispatcher.add(2), dispatcher.add(3));
        sinew::wait_until(|| begun.get() == 2);
        // Both batches are in progress, and the second ends first.
        doors.open_in_turn(&[1]);
        assert_eq!((second.0.get(), second.1.get()), (Ok((1, 2)), Ok((1, 3))));
        assert!(!first.is_ready());
        doors.open_in_turn(&[0]);
        assert_eq!(first.get(), Ok((0, 1)));
    });
}

#[test]
fn dispatch_functions_use_dispatchers() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let calls = Rc::new(Cell::new((0, 0)));
        let counts = calls.clone();
        let inner = Rc::new(BatchDispatcher::new(move |batch: Vec<Vec<u32>>| {
            counts.set((counts.get().0, counts.get().1 + 1));
            batch.into_iter().map(|group| group.into_iter().sum::<u32>()).collect()
        }));
        let counts = calls.clone();
        let outer = Rc::new(BatchDispatcher::new(move |batch: Vec<u32>| {
            counts.set((counts.get().0 + 1, counts.get().1));
            let groups: Vec<BatchFuture<u32>> =
                batch.chunks(5).map(|group| inner.add(group.to_vec())).collect();
            let sums: Vec<u32> = groups.into_iter().map(|sum| sum.get().unwrap()).collect();
            (0..batch.len()).map(|index| sums[index / 5]).collect()
        }));
        let results = collect_all((0..20).map(|n| {
            let outer = outer.clone();
            move || outer.add(n).get().unwrap()
        }));
        assert_eq!(results[..10], [10, 10, 10, 10, 10, 35, 35, 35, 35, 35]);
        assert_eq!(calls.get(), (1, 1));
    });
}

#[test]
fn a_dispatch_function_may_use_its_own_dispatcher() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        type Shared = Rc<RefCell<Option<Rc<BatchDispatcher<u64, u64>>>>>;
        let shared = Shared::default();
        let theirs = shared.clone();
        let factorial = Rc::new(BatchDispatcher::new(move |batch: Vec<u64>| {
            let me = theirs.borrow().clone().unwrap();
            batch
                .into_iter()
                .map(|n| if n == 0 { 1 } else { n * me.add(n - 1).get().unwrap() })
                .collect()
        }));
        *shared.borrow_mut() = Some(factorial.clone());
        assert_eq!(factorial.add(10).get(), Ok(3_628_800));
        shared.take();
    });
}

#[test]
fn a_wrong_number_of_results_is_an_error_for_all() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        for results in [0, 2, 4, 100] {
            let dispatcher = BatchDispatcher::new(move |_: Vec<u32>| vec![7; results]);
            let futures = [1, 2, 3].map(|n| dispatcher.add(n));
            for future in futures {
                let error = future.get().unwrap_err();
                assert_eq!(error, DispatchError::WrongCount { values: 3, results });
                let text = format!("the dispatch function returned {results} results for 3 values");
                assert_eq!(error.to_string(), text);
            }
        }
    });
}

#[test]
fn a_panic_is_an_error_for_all_and_the_next_batch_is_not_harmed() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let kind = Rc::new(Cell::new(0));
        let theirs = kind.clone();
        let dispatcher = BatchDispatcher::new(move |batch: Vec<u32>| match theirs.get() {
            0 => panic!("plain"),
            1 => panic!("with {}", "an argument"),
            2 => std::panic::panic_any(7),
            3 => {
                let failing = collect_all([|| panic!("of a task")]);
                unreachable!("{failing:?}")
            }
            _ => batch,
        });
        let expected = [Some("plain"), Some("with an argument"), None, Some("of a task")];
        for (index, text) in expected.into_iter().enumerate() {
            kind.set(index);
            for future in [1, 2, 3].map(|n| dispatcher.add(n)) {
                let error = future.get().unwrap_err();
                assert_eq!(error, DispatchError::Panicked(text.map(Into::into)));
                assert!(error.to_string().starts_with("the dispatch function panicked"), "{error}");
                assert!(error.to_string().ends_with(text.unwrap_or("panicked")), "{error}");
            }
        }
        kind.set(4);
        assert_eq!(dispatcher.add(5).get(), Ok(5));
    });
}

#[test]
fn a_dispatch_that_is_cancelled_is_an_error_for_all() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let dispatcher = BatchDispatcher::new(|batch: Vec<u32>| {
            sinew::current().cancel();
            sinew::park();
            batch
        });
        for future in [1, 2].map(|n| dispatcher.add(n)) {
            let error = future.get().unwrap_err();
            assert_eq!(error, DispatchError::Cancelled);
            assert_eq!(error.to_string(), "the fiber of the dispatch function was cancelled");
        }
    });
}

#[test]
fn an_executor_decides_when_to_dispatch() {
    let _watch = watch::a_minute();
    let jobs = Rc::new(RefCell::new(Vec::new()));
    let queue = jobs.clone();
    // On a plain thread.
    let dispatcher = BatchDispatcher::with_executor(
        move |job| queue.borrow_mut().push(job),
        |batch: Vec<u32>| batch.into_iter().map(|n| n + 1).collect::<Vec<_>>(),
    );
    let futures = [1, 2, 3].map(|n| dispatcher.add(n));
    assert_eq!(jobs.borrow().len(), 1);
    assert!(futures.iter().all(|future| !future.is_ready()));
    jobs.take().into_iter().for_each(|job| job());
    assert_eq!(futures.map(|future| future.get().unwrap()), [2, 3, 4]);
    // The executor drops a batch; the next one is not harmed.
    let futures = [1, 2].map(|n| dispatcher.add(n));
    drop(jobs.take());
    for future in futures {
        let error = future.get().unwrap_err();
        assert_eq!(error, DispatchError::Dropped);
        assert_eq!(error.to_string(), "the batch was dropped before it was dispatched");
    }
    let future = dispatcher.add(4);
    // A batch that has begun does not need its dispatcher.
    drop(dispatcher);
    jobs.take().into_iter().for_each(|job| job());
    assert_eq!(future.get(), Ok(5));
}

#[test]
fn an_executor_may_dispatch_at_once_or_panic() {
    let _watch = watch::a_minute();
    let inline = BatchDispatcher::with_executor(|job| job(), |batch: Vec<u32>| batch);
    for n in 0..3 {
        let future = inline.add(n);
        assert!(future.is_ready());
        assert_eq!(future.get(), Ok(n));
    }
    let fails = Rc::new(Cell::new(true));
    let theirs = fails.clone();
    let log = Log::new();
    let dispatcher = BatchDispatcher::with_executor(
        move |job| {
            assert!(!theirs.get(), "the executor fails");
            job();
        },
        |batch: Vec<_>| batch,
    );
    assert_eq!(message_of(|| dispatcher.add(log.on_drop("value"))), "the executor fails");
    assert_eq!(log.take(), ["value"]);
    fails.set(false);
    assert!(dispatcher.add(log.on_drop("value")).get().is_ok());
}

#[test]
fn an_unstarted_dispatch_fiber_drops_its_batch() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let dispatcher = BatchDispatcher::with_executor(
            |job| sinew::spawn_local(job).cancel(),
            |batch: Vec<u32>| batch,
        );
        let futures = [1, 2].map(|n| dispatcher.add(n));
        assert!(futures.into_iter().all(|future| future.get() == Err(DispatchError::Dropped)));
    });
}

#[test]
fn a_deadline_in_an_immediate_dispatch_unwinds_the_caller() {
    let _watch = watch::a_minute();
    let other = Rc::new(RefCell::new(None));
    let theirs = other.clone();
    let inline = BatchDispatcher::with_executor(
        |job| job(),
        move |batch: Vec<Option<BatchFuture<u32>>>| -> Vec<u32> {
            theirs.borrow_mut().replace(batch);
            sinew::park();
            unreachable!()
        },
    );
    let late = sinew::timeout(Duration::from_millis(1), || inline.add(None));
    assert_eq!(late.unwrap_err(), sinew::Elapsed);
    assert_eq!(other.take().map(|batch| batch.len()), Some(1));
}

#[test]
fn plain_threads_and_migratable_fibers_are_refused_with_advice() {
    let _watch = watch::a_minute();
    let (dispatcher, _) = doubler();
    for _ in 0..2 {
        let message = message_of(|| dispatcher.add(1));
        let expected = "BatchDispatcher::add called on a plain thread; call it in a fiber";
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(format!("{dispatcher:?}"), "BatchDispatcher { gathered: 0 }");
    }
    // SAFETY: nothing in the closure depends on its thread.
    let builder = unsafe { FiberBuilder::new().migratable() };
    let fiber = builder.spawn(|| {
        let (dispatcher, _) = doubler();
        message_of(|| dispatcher.add(1))
    });
    let message = fiber.unwrap().join().unwrap();
    assert!(message.contains("migratable"), "{message}");
}

#[test]
fn a_batch_outlives_its_dispatcher_and_its_waiters() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let log = Log::new();
        let theirs = log.clone();
        let dispatcher = BatchDispatcher::new(move |batch: Vec<u32>| {
            theirs.line(format!("dispatch {batch:?}"));
            batch.into_iter().map(|n| theirs.on_drop(format!("result {n}"))).collect()
        });
        let (first, second) = (dispatcher.add(1), dispatcher.add(2));
        drop(dispatcher);
        drop(first);
        let second = second.get().unwrap();
        assert_eq!(log.take(), ["dispatch [1, 2]", "result 1"]);
        drop(second);
        assert_eq!(log.take(), ["result 2"]);
    });
}

#[test]
fn a_cancelled_waiter_leaves_the_others_their_results() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let doors = Doors::new(1);
        let theirs = doors.clone();
        let dispatcher = Rc::new(BatchDispatcher::new(move |batch: Vec<u32>| {
            theirs.pass(0);
            batch
        }));
        let waiters = [1, 2, 3].map(|n| {
            let dispatcher = dispatcher.clone();
            sinew::spawn_local(move || dispatcher.add(n).get())
        });
        let waits = |index: usize| waiters[index].fiber().waits_for() == Some(WaitKind::Value);
        sinew::wait_until(|| (0..3).all(waits));
        waiters[1].cancel();
        doors.open_in_turn(&[0]);
        let results = waiters.map(|waiter| waiter.join());
        assert!(sinew::is_cancel(&**results[1].as_ref().unwrap_err()));
        assert_eq!((results[0].as_ref().unwrap(), results[2].as_ref().unwrap()), (&Ok(1), &Ok(3)));
    });
}

#[test]
fn futures_are_awaited_with_a_timeout_and_on_other_threads() {
    let _watch = watch::a_minute();
    let (sender, receiver) = std::sync::mpsc::channel();
    let runtime = one_carrier();
    let fiber = runtime.spawn(move || {
        let doors = Doors::new(1);
        let (theirs, first) = (doors.clone(), Cell::new(true));
        let dispatcher = BatchDispatcher::new(move |batch: Vec<u32>| {
            if first.replace(false) {
                theirs.pass(0);
            }
            batch
        });
        let future = dispatcher.add(1);
        assert!(!future.wait_timeout(Duration::from_millis(1)));
        assert!(sinew::timeout(Duration::from_millis(1), || future.wait()).is_err());
        assert_eq!(format!("{future:?}"), "BatchFuture { ready: false }");
        // A thread gets a future and blocks for it.
        sender.send(dispatcher.add(2)).unwrap();
        doors.open_in_turn(&[0]);
        assert!(future.wait_timeout(Duration::from_secs(3600)));
        assert_eq!(format!("{future:?}"), "BatchFuture { ready: true }");
        assert_eq!(future.get(), Ok(1));
        sinew::park();
    });
    let elsewhere: BatchFuture<u32> = receiver.recv().unwrap();
    assert_eq!(elsewhere.get(), Ok(2));
    sinew::wait_until(|| fiber.fiber().state() == FiberState::Suspended);
    fiber.fiber().unpark();
    fiber.join().unwrap();
}

#[test]
fn values_and_results_of_any_size() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let dispatcher = BatchDispatcher::new(|batch: Vec<[u64; 40]>| {
            batch.into_iter().map(|value| [value, value]).collect()
        });
        let futures: Vec<_> = (0..100).map(|n| dispatcher.add([n; 40])).collect();
        for (n, future) in (0_u64..).zip(futures) {
            assert_eq!(future.get(), Ok([[n; 40]; 2]));
        }
        let nothing = BatchDispatcher::new(|batch: Vec<()>| batch);
        assert_eq!(nothing.add(()).get(), Ok(()));
        let_others_run();
    });
}
