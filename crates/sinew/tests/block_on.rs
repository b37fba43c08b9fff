//! `block_on`: each wait for a future has its own wake word.

use sinew::Runtime;
use sinew::runtime::PinnedWait;
use sinew_testkit::watch;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// Runs a test where `block_on` may be called: in a fiber, in a pinned fiber, on a plain thread.
fn everywhere(test: fn()) {
    let _watch = watch::a_minute();
    test();
    let runtime = Runtime::builder().carriers(1).pinned_wait(PinnedWait::Silent).build().unwrap();
    runtime.run(test);
    runtime.run(move || sinew::pinned(test));
}

/// A future that is ready after `polls` polls. Each earlier poll wakes the future, and then calls
/// `inside`.
fn after_polls(polls: u32, inside: impl Fn(&Waker)) -> impl Future<Output = u32> {
    let polled = Cell::new(0);
    poll_fn(move |context| {
        polled.set(polled.get() + 1);
        if polled.get() >= polls {
            return Poll::Ready(polled.get());
        }
        context.waker().wake_by_ref();
        inside(context.waker());
        Poll::Pending
    })
}

#[test]
fn a_call_inside_a_poll_takes_no_wake_of_the_outer_one() {
    everywhere(|| {
        let outer = after_polls(3, |_| {
            assert_eq!(sinew::block_on(after_polls(2, |_| ())), 2);
        });
        assert_eq!(sinew::block_on(outer), 3);
    });
}

#[test]
fn a_park_inside_a_poll_takes_no_wake_of_the_future() {
    everywhere(|| {
        let outer = after_polls(3, |_| {
            sinew::current().unpark();
            sinew::park();
        });
        assert_eq!(sinew::block_on(outer), 3);
    });
}

#[test]
fn an_unpark_neither_polls_the_future_nor_is_lost() {
    everywhere(|| {
        sinew::current().unpark();
        let polls = sinew::block_on(after_polls(2, |_| sinew::current().unpark()));
        assert_eq!(polls, 2);
        sinew::park(); // returns at once
    });
}

#[test]
fn a_waker_that_is_left_does_not_disturb_later_calls() {
    everywhere(|| {
        let left: Arc<Mutex<Vec<Waker>>> = Arc::default();
        for _ in 0..3 {
            let kept = left.clone();
            let keep = move |waker: &Waker| kept.lock().unwrap().push(waker.clone());
            assert_eq!(sinew::block_on(after_polls(2, keep)), 2);
        }
        let wake_all = || left.lock().unwrap().iter().for_each(Waker::wake_by_ref);
        wake_all();
        let polled = Cell::new(0);
        let counted = after_polls(3, |_| {
            polled.set(polled.get() + 1);
            wake_all();
        });
        assert_eq!(sinew::block_on(counted), 3);
        assert_eq!(polled.get(), 2);
        sinew::current().unpark();
        sinew::park();
    });
}

#[test]
fn wakes_from_other_threads_arrive() {
    everywhere(|| {
        for round in 0..200 {
            let started = Cell::new(false);
            let future = poll_fn(|context| {
                if started.replace(true) {
                    return Poll::Ready(round);
                }
                let waker = context.waker().clone();
                std::thread::spawn(move || waker.wake());
                Poll::Pending
            });
            assert_eq!(sinew::block_on(future), round);
        }
    });
}
