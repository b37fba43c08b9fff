//! `FiberFuture`.

use sinew::sync::{FiberFuture, Subscription, channel, wait_for_multiple};
use sinew::{Runtime, WaitKind, select};
use sinew_testkit::{Seed, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn waits(fiber: &sinew::Fiber) {
    sinew::wait_until(|| fiber.waits_for() == Some(WaitKind::Value));
}

#[test]
fn set_before_and_after_the_wait() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        for round in 0..500 {
            let future = Arc::new(FiberFuture::new());
            let theirs = future.clone();
            let fiber = runtime.spawn(move || *theirs.wait());
            if round % 3 == 0 {
                waits(&fiber.fiber());
            }
            future.set(round).unwrap();
            assert_eq!(fiber.join().unwrap(), round);
        }
    }
}

#[test]
fn threads_and_fibers_pass_values() {
    let _watch = watch::a_minute();
    for _ in 0..200 {
        let (there, back) = (Arc::new(FiberFuture::new()), Arc::new(FiberFuture::new()));
        let (a, b) = (there.clone(), back.clone());
        let fiber = sinew::spawn(move || b.set(*a.wait() + 1).unwrap());
        there.set(1).unwrap();
        assert_eq!(*back.wait(), 2);
        fiber.join().unwrap();
    }
}

#[test]
fn misuse_is_reported() {
    let _watch = watch::a_minute();
    let future = Arc::new(FiberFuture::new());
    let theirs = future.clone();
    let fiber = sinew::spawn(move || *theirs.wait());
    waits(&fiber.fiber());
    let misuses: [fn(&FiberFuture<u32>); 4] = [
        |future| assert_eq!(*future.wait(), 0),
        |future| assert!(wait_for_multiple(&[future]).is_none()),
        |future| future.subscribe(|| ()),
        |future| {
            select! {
                wait(future) -> _ => (),
            }
        },
    ];
    for misuse in misuses {
        let error = catch_unwind(AssertUnwindSafe(|| misuse(&future))).unwrap_err();
        let text = error.downcast_ref::<String>().map(String::as_str);
        let text = text.or(error.downcast_ref::<&str>().copied()).unwrap();
        assert!(text.contains("waits for"), "{text}");
    }
    assert_eq!(future.set(1), Ok(()));
    assert_eq!(future.set(2), Err(2));
    assert_eq!(fiber.join().unwrap(), 1);
    assert_eq!(*future.wait(), 1);
}

#[test]
fn a_timeout_leaves_no_trace() {
    let _watch = watch::a_minute();
    let check = || {
        let future = FiberFuture::new();
        let start = Instant::now();
        assert_eq!(future.wait_timeout(3 * MS), None);
        assert!(start.elapsed() >= 3 * MS);
        assert_eq!(future.wait_timeout(Duration::ZERO), None);
        future.set(7).unwrap();
        assert_eq!(future.wait_timeout(Duration::MAX), Some(&7));
    };
    check();
    sinew::run(check);
}

#[test]
fn timeouts_that_race_the_set() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let fibers: Vec<_> = (0..400)
            .map(|n| {
                let future = Arc::new(FiberFuture::new());
                let theirs = future.clone();
                let timeout = Duration::from_micros(seed.below(200) as u64);
                let delay = Duration::from_micros(seed.below(200) as u64);
                runtime.spawn(move || {
                    sinew::sleep(delay);
                    theirs.set(Arc::new(n)).unwrap();
                });
                let waiter = runtime.spawn(move || {
                    if future.wait_timeout(timeout).is_some() {
                        assert!(future.is_set());
                    }
                    **future.wait()
                });
                if n % 10 == 0 {
                    waiter.cancel();
                }
                waiter
            })
            .collect();
        for (n, fiber) in fibers.into_iter().enumerate() {
            match fiber.join() {
                Ok(value) => assert_eq!(value, n),
                Err(payload) => assert!(n % 10 == 0 && sinew::is_cancel(&*payload)),
            }
        }
    }
}

#[test]
fn the_first_of_several() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        for which in 0..5 {
            let futures: Arc<Vec<FiberFuture<usize>>> =
                Arc::new((0..5).map(|_| FiberFuture::new()).collect());
            let theirs = futures.clone();
            let fiber = runtime.spawn(move || {
                let mut all: Vec<_> = theirs.iter().collect();
                // One future is in the list twice.
                all.push(&theirs[0]);
                wait_for_multiple(&all)
            });
            waits(&fiber.fiber());
            futures[which].set(which).unwrap();
            assert_eq!(fiber.join().unwrap(), Some(which));
            // The other futures can be waited for again.
            for (index, future) in futures.iter().enumerate() {
                if index != which {
                    assert_eq!(future.wait_timeout(Duration::ZERO), None);
                    future.set(index).unwrap();
                }
            }
            let all: Vec<_> = futures.iter().collect();
            assert_eq!(wait_for_multiple(&all), Some(0));
        }
    }
}

#[test]
fn all_set_at_once() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(4).build().unwrap();
    for _ in 0..200 {
        let futures: Arc<Vec<FiberFuture<usize>>> =
            Arc::new((0..4).map(|_| FiberFuture::new()).collect());
        let setters: Vec<_> = (0..4)
            .map(|n| {
                let futures = futures.clone();
                runtime.spawn(move || futures[n].set(n).unwrap())
            })
            .collect();
        let theirs = futures.clone();
        let waiter = runtime.spawn(move || {
            let all: Vec<_> = theirs.iter().collect();
            let index = wait_for_multiple(&all).unwrap();
            assert_eq!(theirs[index].get(), Some(&index));
            // Late sets do not end the next wait.
            let later = FiberFuture::<()>::new();
            assert!(later.wait_timeout(Duration::from_micros(50)).is_none());
        });
        waiter.join().unwrap();
        setters.into_iter().for_each(|fiber| fiber.join().unwrap());
    }
}

#[test]
fn callbacks_are_called_once_or_dropped() {
    let called = Arc::new(AtomicUsize::new(0));
    let count = |called: &Arc<AtomicUsize>| {
        let called = called.clone();
        move || {
            called.fetch_add(1, Ordering::Relaxed);
        }
    };
    let future = FiberFuture::new();
    future.subscribe(count(&called));
    assert_eq!(called.load(Ordering::Relaxed), 0);
    future.set(1).unwrap();
    assert_eq!(called.load(Ordering::Relaxed), 1);
    future.subscribe(count(&called));
    assert_eq!(called.load(Ordering::Relaxed), 2);
    let unset = FiberFuture::<u32>::new();
    unset.subscribe(count(&called));
    drop(unset);
    let mut reset = FiberFuture::<u32>::new();
    reset.subscribe(count(&called));
    assert_eq!(reset.reset(), None);
    reset.set(3).unwrap();
    assert_eq!(called.load(Ordering::Relaxed), 2);
    assert_eq!(Arc::strong_count(&called), 1);
}

/// Counts its calls. The number of owners of the counter tells whether the callback was dropped.
fn counting(called: &Arc<AtomicUsize>) -> impl FnOnce() + Send + use<> {
    let called = called.clone();
    move || _ = called.fetch_add(1, Ordering::Relaxed)
}

#[test]
fn pinned_callbacks_are_called_once_or_dropped() {
    let called = Arc::new(AtomicUsize::new(0));
    let calls = || called.load(Ordering::Relaxed);
    let future = FiberFuture::new();
    {
        let left = pin!(Subscription::new(counting(&called)));
        future.subscribe_pinned(left.into_ref());
    }
    assert_eq!((calls(), Arc::strong_count(&called)), (0, 1));
    // The place of the subscription that left is free for another.
    let first = pin!(Subscription::new(counting(&called)));
    let first = first.into_ref();
    future.subscribe_pinned(first);
    future.set(1).unwrap();
    assert_eq!((calls(), Arc::strong_count(&called)), (1, 1));
    let again = catch_unwind(AssertUnwindSafe(|| future.subscribe_pinned(first)));
    let message = again.unwrap_err().downcast::<&str>().unwrap();
    assert!(message.contains("was used before"), "{message}");
    // The value is set, so the subscriber calls the callback at once.
    let late = pin!(Subscription::new(counting(&called)));
    future.subscribe_pinned(late.into_ref());
    assert_eq!(calls(), 2);
    drop(Subscription::new(counting(&called)));
    assert_eq!((calls(), Arc::strong_count(&called)), (2, 1));
}

#[test]
fn a_second_waiter_leaves_a_pinned_callback_alone() {
    let called = Arc::new(AtomicUsize::new(0));
    let future = FiberFuture::new();
    let first = Box::pin(Subscription::new(counting(&called)));
    future.subscribe_pinned(first.as_ref());
    let second = pin!(Subscription::new(counting(&called)));
    let second = second.into_ref();
    let refused = |f: &dyn Fn()| {
        let message = catch_unwind(AssertUnwindSafe(f)).unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("one waiter at a time, and a custom waiter"), "{message}");
    };
    refused(&|| future.subscribe_pinned(second));
    refused(&|| _ = future.wait());
    refused(&|| future.subscribe(|| ()));
    // A subscription that was refused may try again.
    drop(first);
    future.subscribe_pinned(second);
    future.set(7).unwrap();
    assert_eq!(called.load(Ordering::Relaxed), 1);
}

#[test]
fn a_leaked_subscription_is_called_and_its_future_may_go() {
    let called = Arc::new(AtomicUsize::new(0));
    for sets in [false, true] {
        let future = FiberFuture::new();
        let leaked = Box::pin(Subscription::new(counting(&called)));
        future.subscribe_pinned(leaked.as_ref());
        std::mem::forget(leaked);
        if sets {
            future.set(7).unwrap();
        }
    }
    assert_eq!(called.load(Ordering::Relaxed), 1);
}

#[test]
fn a_panic_of_a_pinned_callback_goes_on_in_the_setter() {
    let future = FiberFuture::new();
    let bad = pin!(Subscription::new(|| panic!("a bad subscriber")));
    future.subscribe_pinned(bad.into_ref());
    let payload = catch_unwind(AssertUnwindSafe(|| future.set(7))).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"a bad subscriber"));
    assert_eq!(future.get(), Some(&7));
}

#[test]
fn a_subscription_that_leaves_races_the_setter() {
    let _watch = watch::a_minute();
    for round in 0..2000 {
        let (called, future) = (Arc::new(AtomicUsize::new(0)), FiberFuture::new());
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|s| {
            let setter = s.spawn(|| {
                start.wait();
                future.set(round).unwrap();
            });
            {
                let subscription = pin!(Subscription::new(counting(&called)));
                future.subscribe_pinned(subscription.into_ref());
                start.wait();
            }
            setter.join().unwrap();
        });
        assert!(called.load(Ordering::Relaxed) <= 1);
        assert_eq!(Arc::strong_count(&called), 1);
    }
}

#[test]
fn values_are_dropped_once() {
    let token = Arc::new(());
    let future = FiberFuture::new();
    future.set(token.clone()).unwrap();
    assert!(future.set(token.clone()).is_err());
    assert_eq!(Arc::strong_count(&token), 2);
    drop(future);
    let mut future = FiberFuture::new();
    future.set(token.clone()).unwrap();
    assert!(future.reset().is_some());
    assert_eq!(Arc::strong_count(&token), 1);
}

/// With channels in one select: a message that was handed over is not lost to a value that came at
/// the same time.
#[test]
fn selected_with_channels() {
    let _watch = watch::a_minute();
    for carriers in [1, 3] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        for _ in 0..300 {
            let future = Arc::new(FiberFuture::new());
            let (sender, receiver) = channel::bounded::<u32>(0);
            let setter = {
                let future = future.clone();
                runtime.spawn(move || future.set(100).unwrap())
            };
            let sender = runtime.spawn(move || sender.send(1).is_ok());
            let waiter = runtime.spawn(move || {
                let mut received = 0;
                let mut seen = 0;
                select! {
                    wait(future) -> value => seen = *value,
                    recv(receiver) -> message => received = message.unwrap(),
                }
                if seen == 0 {
                    seen = *future.wait();
                }
                if received == 0 {
                    received = receiver.recv().unwrap();
                }
                (received, seen)
            });
            assert_eq!(waiter.join().unwrap(), (1, 100));
            assert!(sender.join().unwrap());
            setter.join().unwrap();
        }
    }
}
