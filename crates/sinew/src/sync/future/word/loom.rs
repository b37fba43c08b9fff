//! Models of a value that is set during a wait.

use super::{Attached, Wait, WaitKind, Word, encode};
use crate::clock;
use crate::model::{Kept, Tracked, check, check_within, deadline_passes, spawn, spawn_cancellable};
use crate::primitive::{AtomicUsize, Ordering};
use crate::sync::future::{FiberFuture, Subscription, wait_for_multiple};
use core::time::Duration;
use std::sync::Arc;

/// The waiter sees the value, and may drop the future at once: the setter does not touch it again.
#[test]
fn a_waiter_sees_the_value_and_the_future_may_go() {
    check(|| {
        let future = Kept::new(FiberFuture::new());
        let setter = spawn(move || future.set(Tracked::new(7)).unwrap());
        assert_eq!(future.wait().get(), 7);
        future.drop();
        setter.join().unwrap();
    });
}

/// Two setters: one of them succeeds, and the waiter gets its value.
#[test]
fn one_of_two_sets_it() {
    check(|| {
        let future = Arc::new(FiberFuture::new());
        let setters = [1, 2].map(|number| {
            let future = future.clone();
            spawn(move || future.set(Tracked::new(number)).is_ok())
        });
        let seen = future.wait().get();
        let won = setters.map(|setter| setter.join().unwrap());
        assert_eq!(won, [seen == 1, seen == 2]);
    });
}

/// A wait that times out while the future is being set returns the value or `None`. The next wait
/// finds the value.
#[test]
fn a_timeout_loses_no_value() {
    check(|| {
        let future = Kept::new(FiberFuture::new());
        let setter = spawn(move || future.set(Tracked::new(7)).unwrap());
        let timer = spawn(deadline_passes);
        if let Some(value) = future.wait_timeout(Duration::ZERO) {
            assert_eq!(value.get(), 7);
        } else {
            assert_eq!(future.wait().get(), 7);
        }
        future.drop();
        setter.join().unwrap();
        timer.join().unwrap();
    });
}

/// A cancelled wait leaves no registration behind: another fiber can wait, and is woken.
#[test]
fn a_cancelled_wait_leaves_nothing_behind() {
    check(|| {
        let future = Arc::new(FiberFuture::<Tracked>::new());
        let (fiber, waiter) = {
            let future = future.clone();
            spawn_cancellable(move || future.wait().get())
        };
        let setter = {
            let future = future.clone();
            spawn(move || future.set(Tracked::new(7)).unwrap())
        };
        fiber.cancel();
        assert!(matches!(waiter.join().unwrap(), None | Some(7)));
        assert_eq!(future.wait().get(), 7);
        setter.join().unwrap();
    });
}

/// The first of several futures ends the wait. The late wake of the second does not end a later
/// wait. Both futures may be dropped at once.
#[test]
fn the_first_of_several_ends_the_wait() {
    check(|| {
        let futures = [(); 2].map(|()| Kept::new(FiberFuture::new()));
        let setters = futures.map(|future| spawn(move || future.set(Tracked::new(7)).unwrap()));
        let both: [&FiberFuture<Tracked>; 2] = [&futures[0], &futures[1]];
        let first = wait_for_multiple(&both).unwrap();
        assert_eq!(futures[first].get().unwrap().get(), 7);
        futures[first].drop();
        assert_eq!(futures[1 - first].wait().get(), 7);
        futures[1 - first].drop();
        setters.into_iter().for_each(|setter| setter.join().unwrap());
    });
}

/// Of two waiters, at most one enters and is woken. The other waiter gets an error, or finds the
/// word set.
#[test]
fn a_second_waiter_is_told() {
    fn wait(word: &Word) -> Attached {
        let wait = Wait::begin(WaitKind::Value, 0);
        let entered = encode(wait.waiter(), false);
        let attached = word.attach(entered);
        if attached == Attached::Waiting {
            wait.suspend(clock::NEVER);
            word.detach(entered);
            assert!(word.is_set());
        } else {
            wait.abandon();
        }
        attached
    }
    // Two waiters and a setter are too much for loom without a bound.
    check_within(2, || {
        let word = Arc::new(Word::new());
        let other = {
            let word = word.clone();
            spawn(move || wait(&word))
        };
        let setter = {
            let word = word.clone();
            spawn(move || {
                assert!(word.begin_setting());
                // SAFETY: `begin_setting` returned true, and there is no value to write.
                unsafe { Word::set(&raw const *word) };
            })
        };
        let ends = [wait(&word), other.join().unwrap()];
        assert!(ends.iter().any(|end| !matches!(end, Attached::Taken(_))));
        assert_ne!(ends, [Attached::Waiting, Attached::Waiting]);
        setter.join().unwrap();
    });
}

/// A callback is called once: by the setter, or by `subscribe`.
#[test]
fn a_callback_is_called_once() {
    check(|| {
        let future = Arc::new(FiberFuture::new());
        let seen = Arc::new((AtomicUsize::new(0), Tracked::new(1)));
        let setter = {
            let future = future.clone();
            spawn(move || future.set(7).unwrap())
        };
        let theirs = seen.clone();
        seen.1.add(1);
        future.subscribe(move || {
            assert_eq!(theirs.1.get(), 2);
            theirs.0.fetch_add(1, Ordering::Relaxed);
        });
        setter.join().unwrap();
        assert_eq!(seen.0.load(Ordering::Relaxed), 1);
    });
}

/// The owner drops a subscription while the value is set: the callback is called at most once, and
/// the owner may free its memory at once.
#[test]
fn a_subscription_leaves_while_the_value_is_set() {
    check(|| {
        let future = Kept::new(FiberFuture::new());
        let seen = Arc::new((AtomicUsize::new(0), Tracked::new(1)));
        let setter = spawn(move || future.set(Tracked::new(7)).unwrap());
        let theirs = seen.clone();
        seen.1.add(1);
        let callback = move || {
            assert_eq!(theirs.1.get(), 2);
            theirs.0.fetch_add(1, Ordering::Relaxed);
        };
        {
            let subscription = core::pin::pin!(Subscription::new(callback));
            future.subscribe_pinned(subscription.into_ref());
        }
        setter.join().unwrap();
        let called = seen.0.load(Ordering::Relaxed);
        assert!(called <= 1);
        // The callback was called or dropped, so its clone is gone.
        assert_eq!(Arc::strong_count(&seen), 1);
        future.drop();
    });
}

/// A pinned callback that stays subscribed is called once: by the setter, or by `subscribe_pinned`.
#[test]
fn a_pinned_callback_is_called_once() {
    check(|| {
        let future = Kept::new(FiberFuture::new());
        let called = Arc::new(AtomicUsize::new(0));
        let setter = spawn(move || future.set(Tracked::new(7)).unwrap());
        let theirs = called.clone();
        let callback = move || _ = theirs.fetch_add(1, Ordering::Relaxed);
        let subscription = core::pin::pin!(Subscription::new(callback));
        future.subscribe_pinned(subscription.into_ref());
        setter.join().unwrap();
        assert_eq!(called.load(Ordering::Relaxed), 1);
    });
}
