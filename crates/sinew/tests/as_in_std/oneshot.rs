//! Channels for one message.

use crate::team::everywhere;
use crate::{LONG, MS};
use sinew::WaitKind;
use sinew::sync::channel::{self, RecvError, RecvTimeoutError, SendTimeoutError, TryRecvError};
use sinew::sync::{Barrier, Condvar, OnceLock};
use std::panic::RefUnwindSafe;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

#[test]
fn one_message() {
    everywhere(|team| {
        let (sender, mut receiver) = channel::oneshot();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        sender.send(19_i128).unwrap();
        assert_eq!(receiver.try_recv(), Ok(19));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected), "it was the only one");
        let (sender, receiver) = channel::oneshot();
        sender.send(()).unwrap();
        assert_eq!(receiver.recv(), Ok(()));
        let (sender, receiver) = channel::oneshot();
        sender.send([0xAA_u8; 4096]).unwrap();
        assert_eq!(receiver.recv().unwrap(), [0xAA; 4096]);
        let (sender, mut receiver) = channel::oneshot();
        sender.send(22).unwrap();
        assert_eq!(receiver.recv_timeout(LONG), Ok(22));

        for timed in [false, true] {
            let (sender, mut receiver) = channel::oneshot();
            let member = team.start(move || {
                if timed { receiver.recv_timeout(LONG).ok() } else { receiver.recv().ok() }
            });
            member.waits(WaitKind::Receive);
            sender.send(9).unwrap();
            assert_eq!(member.end(), Some(9));
        }
        // The receiver looks and is dropped, before or after the send.
        let (sender, mut receiver) = channel::oneshot();
        let member = team.start(move || receiver.try_recv().is_ok());
        let sent = sender.send(42).is_ok();
        assert!(!member.end() || sent);
    });
}

#[test]
fn no_message() {
    everywhere(|team| {
        let (_sender, mut receiver) = channel::oneshot::<u128>();
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        let start = Instant::now();
        assert_eq!(receiver.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 2 * MS);

        let closed = || channel::oneshot::<u128>().1;
        assert_eq!(closed().recv(), Err(RecvError));
        assert_eq!(closed().try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(closed().recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        let (sender, receiver) = channel::oneshot::<u128>();
        let member = team.start(move || receiver.recv());
        member.waits(WaitKind::Receive);
        drop(sender);
        assert_eq!(member.end(), Err(RecvError));
    });
}

#[test]
fn an_unreceived_message_is_dropped_or_given_back() {
    // The token is not `Send`, which matters only between threads.
    let token = Rc::new(AtomicBool::new(false));
    let (sender, receiver) = channel::oneshot();
    sender.send(token.clone()).unwrap();
    assert_eq!(Rc::strong_count(&token), 2);
    drop(receiver);
    assert_eq!(Rc::strong_count(&token), 1);
    let (sender, receiver) = channel::oneshot();
    drop(receiver);
    assert!(sender.is_disconnected());
    let refused = sender.send(token.clone()).unwrap_err();
    assert!(Rc::ptr_eq(&refused, &token));
    assert_eq!(Rc::strong_count(&token), 2);
    drop(refused);
    assert_eq!(Rc::strong_count(&token), 1);
}

#[test]
fn deadlines_that_have_passed() {
    let (sender, receiver) = channel::bounded(1);
    let passed = Instant::now();
    assert_eq!(receiver.recv_deadline(passed), Err(RecvTimeoutError::Timeout));
    // An operation that can complete at once does so all the same.
    assert_eq!(sender.send_deadline(1, passed), Ok(()));
    assert_eq!(sender.send_deadline(2, passed), Err(SendTimeoutError::Timeout(2)));
    assert_eq!(receiver.recv_deadline(passed), Ok(1));
    drop(sender);
    assert_eq!(receiver.recv_deadline(passed), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn signals_are_unwind_safe() {
    fn check<T: RefUnwindSafe + std::panic::UnwindSafe>() {}
    check::<Barrier>();
    check::<Condvar>();
    check::<sinew::sync::Semaphore>();
    check::<sinew::sync::Futex>();
}

#[test]
fn once_locks_are_compared() {
    let (one, other) = (OnceLock::new(), OnceLock::new());
    assert_eq!(one, other);
    one.set(1).unwrap();
    assert_ne!(one, other);
    other.set(1).unwrap();
    assert_eq!(one, other);
    assert_ne!(one, OnceLock::from(2));
}
