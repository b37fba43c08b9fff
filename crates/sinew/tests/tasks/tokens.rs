//! `AtomicBatchDispatcher`.

use crate::{message_of, one_carrier, text};
use sinew::tasks::{AtomicBatchDispatcher, BatchFuture, BatchToken, DispatchError, collect_all};
use sinew::{Runtime, WaitKind};
use sinew_context::FiberContext;
use sinew_testkit::{Log, Seed, watch};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Makes a dispatcher that returns its input, and counts its calls.
fn echo() -> (AtomicBatchDispatcher<usize, usize>, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let theirs = calls.clone();
    let dispatcher = AtomicBatchDispatcher::new(move |batch| {
        theirs.fetch_add(1, Ordering::Relaxed);
        batch
    });
    (dispatcher, calls)
}

fn calls(calls: &AtomicUsize) -> usize {
    calls.load(Ordering::Relaxed)
}

const fn goes_to_other_threads<T: Send>() {}
const _: () = {
    goes_to_other_threads::<AtomicBatchDispatcher<u32, String>>();
    goes_to_other_threads::<BatchToken<u32, String>>();
    goes_to_other_threads::<BatchFuture<String>>();
};

#[test]
fn the_last_token_or_the_commit_dispatches() {
    let _watch = watch::a_minute();
    // The commit comes first.
    let (dispatcher, count) = echo();
    let tokens = dispatcher.reserve(3);
    assert_eq!(
        format!("{dispatcher:?} {:?}", tokens[1]),
        "AtomicBatchDispatcher { tokens: 3, out: 3 } BatchToken { sequence_number: 1 }"
    );
    dispatcher.commit();
    let mut futures = Vec::new();
    for token in tokens {
        assert_eq!(calls(&count), 0);
        assert!(futures.iter().all(|future: &BatchFuture<usize>| !future.is_ready()));
        futures.push(token.dispatch(7));
    }
    assert_eq!(calls(&count), 1);
    assert!(futures.into_iter().all(|future| future.is_ready() && future.get() == Ok(7)));
    // The tokens come first.
    let (dispatcher, count) = echo();
    let futures = [8, 9].map(|value| dispatcher.token().dispatch(value));
    assert_eq!((calls(&count), futures[0].is_ready()), (0, false));
    dispatcher.commit();
    assert_eq!(calls(&count), 1);
    assert_eq!(futures.map(|future| future.get().unwrap()), [8, 9]);
}

#[test]
fn values_are_in_the_order_of_the_tokens() {
    let _watch = watch::a_minute();
    let (sender, receiver) = std::sync::mpsc::channel();
    let dispatcher = AtomicBatchDispatcher::new(move |batch: Vec<usize>| {
        sender.send(batch.clone()).unwrap();
        batch
    });
    let mut tokens = dispatcher.reserve(2);
    tokens.push(dispatcher.token());
    tokens.extend(dispatcher.reserve(2));
    let numbers: Vec<_> = tokens.iter().map(BatchToken::sequence_number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    dispatcher.commit();
    let last = tokens.pop().unwrap();
    let mut futures = vec![last.dispatch(40)];
    futures.extend(tokens.into_iter().rev().map(|token| {
        let value = 10 * token.sequence_number();
        token.dispatch(value)
    }));
    assert_eq!(receiver.recv().unwrap(), [0, 10, 20, 30, 40]);
    let results: Vec<_> = futures.into_iter().map(|future| future.get().unwrap()).collect();
    assert_eq!(results, [40, 30, 20, 10, 0]);
}

#[test]
fn tokens_are_used_by_tasks_that_wait() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let (dispatcher, count) = echo();
        let tokens = dispatcher.reserve(50);
        let commits = sinew::spawn_local(move || {
            (0..3).for_each(|_| sinew::yield_now());
            dispatcher.commit();
        });
        let results = collect_all(tokens.into_iter().enumerate().map(|(n, token)| {
            move || {
                (0..n % 7).for_each(|_| sinew::yield_now());
                token.dispatch(n).get().unwrap()
            }
        }));
        commits.join().unwrap();
        assert_eq!(results, (0..50).collect::<Vec<_>>());
        assert_eq!(calls(&count), 1);
    });
}

#[test]
fn tokens_that_were_dropped_fail_the_batch_when_all_are_gone() {
    let _watch = watch::a_minute();
    let (dispatcher, count) = echo();
    let mut tokens = dispatcher.reserve(5);
    let used = (tokens.remove(0).dispatch(0), tokens.remove(1).dispatch(2));
    let last = tokens.remove(1);
    assert_eq!(last.sequence_number(), 3);
    drop(tokens);
    dispatcher.commit();
    assert!(!used.0.is_ready() && !used.1.is_ready());
    let last = last.dispatch(3);
    for future in [used.0, used.1, last] {
        let error = future.get().unwrap_err();
        assert_eq!(error, DispatchError::TokensDropped([1, 4].into()));
        assert_eq!(error.to_string(), "2 tokens of the batch were dropped unused: 1, 4");
    }
    assert_eq!(Arc::strong_count(&count), 1);
    assert_eq!(calls(&count), 0);
    // Many tokens, and such a drop comes last.
    let (dispatcher, count) = echo();
    let future = dispatcher.token().dispatch(0);
    let tokens = dispatcher.reserve(20);
    dispatcher.commit();
    drop(tokens);
    let text = future.get().unwrap_err().to_string();
    let expected = "20 tokens of the batch were dropped unused: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …";
    assert_eq!(text, expected);
    assert_eq!(calls(&count), 0);
}

#[test]
fn a_dispatcher_that_was_not_committed_fails_the_batch_when_all_are_gone() {
    let _watch = watch::a_minute();
    for drops_tokens in [false, true] {
        let (dispatcher, count) = echo();
        let first = dispatcher.token().dispatch(1);
        let token = dispatcher.token();
        drop(dispatcher);
        assert!(!first.is_ready());
        let second = if drops_tokens {
            drop(token);
            None
        } else {
            Some(token.dispatch(2))
        };
        for future in [Some(first), second].into_iter().flatten() {
            let error = future.get().unwrap_err();
            assert_eq!(error, DispatchError::NotCommitted);
            let text = "the dispatcher was dropped before its batch was committed";
            assert_eq!(error.to_string(), text);
        }
        assert_eq!((calls(&count), Arc::strong_count(&count)), (0, 1));
    }
    // A panic between the tokens and the commit.
    let mut future = None;
    let message = message_of(|| {
        let (dispatcher, _) = echo();
        future = Some(dispatcher.token().dispatch(1));
        panic!("before the commit");
    });
    assert_eq!(message, "before the commit");
    assert_eq!(future.unwrap().get(), Err(DispatchError::NotCommitted));
}

#[test]
fn a_fiber_that_panics_before_it_has_a_value_fails_the_batch() {
    let _watch = watch::a_minute();
    let (dispatcher, count) = echo();
    let fibers: Vec<_> = dispatcher
        .reserve(11)
        .into_iter()
        .enumerate()
        .map(|(n, token)| {
            sinew::spawn(move || {
                (0..n).for_each(|_| sinew::yield_now());
                assert!(n != 8, "no value");
                token.dispatch(n).get()
            })
        })
        .collect();
    dispatcher.commit();
    for (n, fiber) in fibers.into_iter().enumerate() {
        match fiber.join() {
            Ok(result) => assert_eq!(result, Err(DispatchError::TokensDropped([8].into()))),
            Err(payload) => assert_eq!((n, text(&*payload)), (8, "no value")),
        }
    }
    assert_eq!(calls(&count), 0);
}

#[test]
fn a_wrong_number_of_results_is_an_error_for_all() {
    let _watch = watch::a_minute();
    for results in [0, 1, 3] {
        let dispatcher = AtomicBatchDispatcher::new(move |_: Vec<u32>| vec!["result"; results]);
        let futures = [1, 2].map(|value| dispatcher.token().dispatch(value));
        dispatcher.commit();
        let expected = DispatchError::WrongCount { values: 2, results };
        assert!(futures.into_iter().all(|future| future.get() == Err(expected.clone())));
    }
}

#[test]
fn a_panic_is_an_error_for_all_and_does_not_unwind_the_last_caller() {
    let _watch = watch::a_minute();
    let unlucky =
        || AtomicBatchDispatcher::new(|_: Vec<u32>| -> Vec<u32> { panic!("at the work") });
    let expected = Err(DispatchError::Panicked(Some("at the work".into())));
    // The last call is a token's dispatch, then a commit.
    let dispatcher = unlucky();
    let tokens = dispatcher.reserve(2);
    dispatcher.commit();
    let futures: Vec<_> = tokens.into_iter().map(|token| token.dispatch(1)).collect();
    assert!(futures.into_iter().all(|future| future.get() == expected));
    let dispatcher = unlucky();
    let future = dispatcher.token().dispatch(1);
    dispatcher.commit();
    assert_eq!(future.get(), expected);
    // In a fiber.
    let dispatcher = unlucky();
    let token = dispatcher.token();
    dispatcher.commit();
    assert_eq!(sinew::spawn(move || token.dispatch(1).get()).join().unwrap(), expected);
}

#[test]
fn a_batch_without_tokens_is_dispatched_empty() {
    let _watch = watch::a_minute();
    let (dispatcher, count) = echo();
    dispatcher.commit();
    assert_eq!(calls(&count), 1);
    // Without tokens, only the caller can get the panic.
    let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| -> Vec<u32> {
        assert!(batch.is_empty());
        panic!("nobody hears this")
    });
    assert_eq!(message_of(|| dispatcher.commit()), "nobody hears this");
    // A dispatcher that was neither used nor committed calls nothing.
    let (dispatcher, count) = echo();
    drop(dispatcher);
    assert_eq!((calls(&count), Arc::strong_count(&count)), (0, 1));
}

#[test]
fn a_caller_cancelled_in_the_dispatch_is_unwound_and_the_others_get_errors() {
    let _watch = watch::a_minute();
    let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| {
        sinew::park();
        batch
    });
    let (first, last) = (dispatcher.token().dispatch(1), dispatcher.token());
    dispatcher.commit();
    let fiber = sinew::spawn(move || last.dispatch(2));
    sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Park));
    fiber.cancel();
    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    assert_eq!(first.get(), Err(DispatchError::Cancelled));
    // A timeout comes from the caller as well.
    let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| {
        sinew::park();
        batch
    });
    let first = dispatcher.token().dispatch(1);
    let late = sinew::timeout(Duration::from_millis(1), || dispatcher.commit());
    assert_eq!(late, Err(sinew::Elapsed));
    assert_eq!(first.get(), Err(DispatchError::Cancelled));
}

#[test]
fn a_dispatch_function_may_wait_and_use_others() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let outer = AtomicBatchDispatcher::new(|batch: Vec<u64>| {
            let inner = AtomicBatchDispatcher::new(|batch: Vec<u64>| {
                sinew::sleep(Duration::from_millis(1));
                batch.into_iter().map(|n| n + 1).collect()
            });
            let tokens = inner.reserve(batch.len());
            inner.commit();
            collect_all(
                tokens
                    .into_iter()
                    .zip(batch)
                    .map(|(token, value)| move || token.dispatch(value).get().unwrap()),
            )
        });
        let futures = [1, 2, 3].map(|value| outer.token().dispatch(value));
        outer.commit();
        assert_eq!(futures.map(|future| future.get().unwrap()), [2, 3, 4]);
    });
}

#[test]
fn everything_is_dropped_once() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let function = log.on_drop("function");
    let theirs = log.clone();
    let dispatcher = AtomicBatchDispatcher::new(move |batch: Vec<_>| {
        let _function = function;
        (0..batch.len()).map(|n| theirs.on_drop(format!("result {n}"))).collect()
    });
    let first = dispatcher.token().dispatch(log.on_drop("value 0"));
    drop(dispatcher.token().dispatch(log.on_drop("value 1")));
    dispatcher.commit();
    assert_eq!(log.take(), ["function", "value 0", "value 1", "result 1"]);
    drop(first);
    assert_eq!(log.take(), ["result 0"]);
    // In a batch that fails.
    let function = log.on_drop("function");
    let dispatcher = AtomicBatchDispatcher::new(move |_: Vec<_>| vec![function]);
    let future = dispatcher.token().dispatch(log.on_drop("value"));
    assert!(log.take().is_empty());
    drop(dispatcher);
    let mut lines = log.take();
    lines.sort();
    assert_eq!(lines, ["function", "value"]);
    assert!(future.get().is_err());
}

/// Threads and fibers of several carriers use and drop tokens, while the dispatcher is committed or
/// dropped.
#[test]
fn threads_and_fibers_complete_batches_together() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    for _ in 0..300 {
        let (dispatcher, count) = echo();
        let tokens = dispatcher.reserve(8);
        // Most batches succeed.
        let drops: Vec<bool> = tokens.iter().map(|_| seed.below(24) == 0).collect();
        let commits = seed.below(8) != 0;
        let mut tokens: Vec<_> = tokens.into_iter().zip(drops.clone()).collect();
        let of_thread = tokens.split_off(6);
        let use_one = |(token, drops): (BatchToken<usize, usize>, bool)| {
            let number = token.sequence_number();
            (!drops).then(|| (number, token.dispatch(number).get()))
        };
        let fibers: Vec<_> =
            tokens.into_iter().map(|one| runtime.spawn(move || use_one(one))).collect();
        let threads: Vec<_> =
            of_thread.into_iter().map(|one| std::thread::spawn(move || use_one(one))).collect();
        if commits {
            dispatcher.commit();
        } else {
            drop(dispatcher);
        }
        let results: Vec<_> = fibers
            .into_iter()
            .map(|fiber| fiber.join().unwrap())
            .chain(threads.into_iter().map(|thread| thread.join().unwrap()))
            .collect();
        let dropped: Arc<[usize]> = (0..8).filter(|n| drops[*n]).collect();
        for (number, result) in results.into_iter().flatten() {
            let expected = match (commits, dropped.is_empty()) {
                (false, _) => Err(DispatchError::NotCommitted),
                (true, true) => Ok(number),
                (true, false) => Err(DispatchError::TokensDropped(dropped.clone())),
            };
            assert_eq!(result, expected);
        }
        assert_eq!(calls(&count), usize::from(commits && dropped.is_empty()));
        assert_eq!(Arc::strong_count(&count), 1);
    }
}

/// The function of a dispatcher runs in a first-class fiber, which is dropped while the function
/// has switched away. The futures of the batch fail, and the unwinding continues to the end of the
/// fiber.
#[test]
fn a_first_class_fiber_that_is_dropped_in_the_function_is_unwound() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let (in_function, in_fiber) = (log.on_drop("the function"), log.on_drop("the fiber"));
    let future = Rc::new(Cell::new(None));
    let tell = future.clone();
    let fiber = FiberContext::new(move |caller| {
        let _in_fiber = in_fiber;
        let back = Rc::new(Cell::new(Some(caller)));
        let inner = back.clone();
        let dispatcher = AtomicBatchDispatcher::new_local(move |batch: Vec<u32>| {
            let _in_function = &in_function;
            inner.set(inner.take().unwrap().resume());
            batch
        });
        tell.set(Some(dispatcher.token().dispatch(1)));
        dispatcher.commit();
        back.take().unwrap()
    });
    drop(fiber.unwrap().resume().unwrap());
    assert_eq!(log.take(), ["the function", "the fiber"]);
    assert_eq!(future.take().unwrap().get(), Err(DispatchError::Cancelled));
}
