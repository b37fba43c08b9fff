//! Models of a wait that several threads try to end.

use super::{Outcome, WakeWord};
use crate::primitive::check as model;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// A waker, a timer and a canceller hold the epoch: exactly one of them ends the wait.
#[test]
fn one_of_three_ends_a_wait() {
    model(|| {
        let word = Arc::new(WakeWord::new());
        let runs = Arc::new(AtomicUsize::new(0));
        let epoch = word.begin();
        let others: Vec<_> = [Outcome::Notified, Outcome::TimedOut]
            .map(|outcome| {
                let (word, runs) = (word.clone(), runs.clone());
                thread::spawn(move || {
                    if word.claim(epoch, outcome) {
                        runs.fetch_add(1, Ordering::Release);
                    }
                })
            })
            .into();
        if word.claim(epoch, Outcome::Interrupted) {
            runs.fetch_add(1, Ordering::Release);
        }
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(runs.load(Ordering::Acquire), 1);
        assert!(!word.is_waiting(epoch));
    });
}

/// A waker that kept the epoch of an earlier wait does not end a later one.
#[test]
fn a_late_waker_does_not_end_the_next_wait() {
    model(|| {
        let word = Arc::new(WakeWord::new());
        let first = word.begin();
        let late = {
            let word = word.clone();
            thread::spawn(move || word.claim(first, Outcome::Notified))
        };
        if word.claim(first, Outcome::TimedOut) {
            let second = word.begin();
            assert!(!late.join().unwrap());
            assert!(word.is_waiting(second));
        } else {
            assert!(late.join().unwrap());
        }
    });
}

/// The waiter sees a notification that came before its registration, or is woken. This is the order
/// of `park`, with a flag in the place of the token.
#[test]
fn registered_before_suspended_means_woken() {
    model(|| {
        let word = Arc::new(WakeWord::new());
        // 0: empty, 1: notified, else: the waiter's epoch.
        let token = Arc::new(loom::sync::atomic::AtomicU64::new(0));
        let waker = {
            let (word, token) = (word.clone(), token.clone());
            thread::spawn(move || match token.swap(1, Ordering::AcqRel) {
                0 | 1 => false,
                epoch => word.claim(super::Epoch::from_bits(epoch), Outcome::Notified),
            })
        };
        let epoch = word.begin();
        let registered =
            token.compare_exchange(0, epoch.bits(), Ordering::AcqRel, Ordering::Acquire).is_ok();
        let woken = waker.join().unwrap();
        // Not registered: the notification came first, and the waiter does not suspend.
        assert_eq!(registered, woken);
    });
}
