//! Models of a baton that is posted while a waiter begins to wait, or leaves.

use super::Baton;
use crate::clock::NEVER;
use crate::fiber::WaitKind;
use crate::model::{
    DEADLINE, Kept, Tracked, check, check_within, deadline_passes, spawn, spawn_cancellable,
};
use crate::park::Wait;
use crate::primitive::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};

/// A baton, and data that its posters write before the post.
#[derive(Debug)]
struct Signal {
    baton: Baton,
    data: Tracked,
}

impl Signal {
    fn new() -> Kept<Signal> {
        Kept::new(Signal { baton: Baton::new(), data: Tracked::new(0) })
    }

    fn post(&self) {
        self.data.add(1);
        self.baton.post();
    }

    fn wait(&self, deadline: u64) -> bool {
        let posted = self.baton.wait_slow(deadline);
        assert!(!posted || self.data.get() == 1);
        posted
    }
}

/// Returns a waker that counts how often it is woken, and checks that it sees the writes before the
/// post.
fn waker(woken: &'static (Kept<Signal>, AtomicUsize)) -> Waker {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(
        |_| unreachable!("the baton does not clone its waker"),
        |woken| {
            // SAFETY: `waker` made this pointer from a reference that lives for ever.
            let (signal, count) = unsafe { &*woken.cast::<(Kept<Signal>, AtomicUsize)>() };
            assert_eq!(signal.data.get(), 1);
            count.fetch_add(1, Ordering::Relaxed);
        },
        |_| unreachable!("the baton wakes its waker by value"),
        |_| (),
    );
    // SAFETY: the functions keep the contract of `RawWakerVTable`, and the reference lives for
    // ever.
    unsafe { Waker::from_raw(RawWaker::new(core::ptr::from_ref(woken).cast(), &VTABLE)) }
}

/// A post is not missed, shows the writes before it, and is the poster's last access to the baton.
#[test]
fn a_post_is_not_missed_and_the_baton_may_go() {
    check(|| {
        let signal = Signal::new();
        let poster = spawn(move || signal.post());
        assert!(signal.wait(NEVER));
        signal.drop();
        poster.join().unwrap();
    });
}

/// A waiter times out during a post: it counts as posted, or it has left and its next wait returns.
#[test]
fn a_timeout_and_a_post() {
    check(|| {
        let signal = Signal::new();
        let poster = spawn(move || signal.post());
        let timer = spawn(deadline_passes);
        if !signal.wait(DEADLINE) {
            assert!(signal.wait(NEVER));
        }
        signal.drop();
        poster.join().unwrap();
        timer.join().unwrap();
    });
}

/// A cancelled waiter leaves no registration behind: another waiter can wait, and is woken.
#[test]
fn a_cancellation_and_a_post() {
    check(|| {
        let signal = Signal::new();
        let (fiber, waiter) = spawn_cancellable(move || signal.wait(NEVER));
        let poster = spawn(move || signal.post());
        fiber.cancel();
        assert_ne!(waiter.join().unwrap(), Some(false));
        assert!(signal.wait(NEVER));
        poster.join().unwrap();
    });
}

/// Two posters: the waiter is woken once, and the baton is posted.
#[test]
fn two_post() {
    check(|| {
        let baton = Arc::new((Baton::new(), [Tracked::new(0), Tracked::new(0)]));
        let posters = [0, 1].map(|number: usize| {
            let theirs = baton.clone();
            spawn(move || {
                theirs.1[number].add(1);
                theirs.0.post();
            })
        });
        baton.0.wait();
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        assert!(baton.0.is_posted());
        assert_eq!(baton.1.each_ref().map(Tracked::get), [1, 1]);
    });
}

/// A custom waiter is woken once: by the poster, or by the call that sets it.
#[test]
fn a_custom_waiter_is_woken_once() {
    check(|| {
        let signal = Signal::new();
        let woken = Kept::new((signal, AtomicUsize::new(0)));
        let poster = spawn(move || signal.post());
        // SAFETY: a `Kept` value lives as long as the execution.
        signal.baton.set_waiter(waker(unsafe { &*core::ptr::from_ref(&*woken) }));
        poster.join().unwrap();
        assert_eq!(woken.1.load(Ordering::Relaxed), 1);
    });
}

/// Of two waiters, at most one gets the error that the other already waits. The other is woken.
#[test]
fn a_second_waiter_is_told() {
    /// Returns whether the caller was allowed to wait.
    fn wait(signal: Kept<Signal>) -> bool {
        let wait = Wait::begin(WaitKind::Event, 0);
        match signal.baton.0.wait_once(wait, NEVER, true, || ()) {
            Ok(over) => assert!(over && signal.data.get() == 1),
            Err(_) => return false,
        }
        true
    }
    check_within(2, || {
        let signal = Signal::new();
        let other = spawn(move || wait(signal));
        let poster = spawn(move || signal.post());
        assert!([wait(signal), other.join().unwrap()].contains(&true));
        poster.join().unwrap();
    });
}
