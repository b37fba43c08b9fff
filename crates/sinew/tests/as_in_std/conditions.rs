//! Condition variables and barriers.

use crate::MS;
use crate::team::{Member, Team, everywhere};
use sinew::WaitKind;
use sinew::sync::channel::{self, RecvTimeoutError};
use sinew::sync::{Barrier, Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_notification_without_waiters_is_not_kept() {
    let changed = Condvar::new();
    assert!(!changed.notify_one());
    assert_eq!(changed.notify_all(), 0);
    // The notification is not kept for later.
    let lock = Mutex::new(());
    assert!(!changed.wait_timeout(&mut lock.lock(), MS));
}

/// The number of members that have begun to wait, and the number that have been woken.
type Counts = Mutex<[usize; 2]>;

/// Starts members that wait for a notification. All of them wait when this returns.
fn waiting(team: Team, count: usize) -> (Arc<(Counts, Condvar)>, Vec<Member<()>>) {
    let shared = Arc::new((Mutex::new([0, 0]), Condvar::new()));
    let members = (0..count)
        .map(|_| {
            let shared = shared.clone();
            team.start(move || {
                let (counts, changed) = &*shared;
                let mut counts = counts.lock();
                counts[0] += 1;
                changed.wait(&mut counts);
                counts[1] += 1;
            })
        })
        .collect();
    // A member counts itself under the lock, and its wait releases the lock.
    reaches(&shared.0, [count, 0]);
    (shared, members)
}

/// Waits until both counts have reached `expected`.
fn reaches(counts: &Counts, expected: [usize; 2]) {
    let there = |counts: &[usize; 2]| counts[0] >= expected[0] && counts[1] >= expected[1];
    sinew::wait_until(|| counts.try_lock().is_some_and(|counts| there(&counts)));
}

#[test]
fn a_notification_wakes_one() {
    everywhere(|team| {
        let (shared, members) = waiting(team, 5);
        let (counts, changed) = &*shared;
        for woken in 1..=5 {
            assert!(changed.notify_one());
            reaches(counts, [5, woken]);
            (0..5).for_each(|_| sinew::yield_now());
            assert_eq!(*counts.lock(), [5, woken]);
        }
        assert!(!changed.notify_one(), "all have been notified");
        members.into_iter().for_each(Member::end);
    });
}

#[test]
fn all_are_notified() {
    everywhere(|team| {
        let (shared, members) = waiting(team, 20);
        let held = shared.0.lock();
        assert_eq!(shared.1.notify_all(), 20);
        assert_eq!(shared.1.notify_all(), 0);
        assert_eq!(*held, [20, 0], "they need the lock to go on");
        drop(held);
        members.into_iter().for_each(Member::end);
        assert_eq!(*shared.0.lock(), [20, 20]);
    });
}

#[test]
fn waiting_while() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let member = {
            let shared = shared.clone();
            team.start(move || {
                let mut count = shared.0.lock();
                let mut looked = 0;
                shared.1.wait_while(&mut count, |count| {
                    looked += 1;
                    *count < 3
                });
                (*count, looked)
            })
        };
        member.waits(WaitKind::Condvar);
        for _ in 0..3 {
            *shared.0.lock() += 1;
            shared.1.notify_one();
        }
        let (count, looked) = member.end();
        assert!(count == 3 && looked >= 1, "{count}, looked {looked} times");
        // If the condition is already false, the wait returns at once.
        shared.1.wait_while(&mut shared.0.lock(), |count| *count < 3);
    });
}

#[test]
fn waits_with_a_timeout() {
    everywhere(|team| {
        let (lock, changed) = (Mutex::new(()), Condvar::new());
        let start = Instant::now();
        assert!(!changed.wait_timeout(&mut lock.lock(), 2 * MS));
        assert!(start.elapsed() >= 2 * MS);
        assert!(!changed.wait_deadline(&mut lock.lock(), Instant::now()));
        // Longer than fits a clock that counts nanoseconds, and longer than fits any clock.
        let nanoseconds = Duration::from_secs(u64::MAX.div_ceil(1_000_000_000));
        for timeout in [nanoseconds, Duration::from_millis(u64::MAX), Duration::MAX] {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let member = {
                let shared = shared.clone();
                team.start(move || {
                    let mut open = shared.0.lock();
                    while !*open {
                        assert!(
                            shared.1.wait_timeout(&mut open, timeout),
                            "{timeout:?} are not over"
                        );
                    }
                })
            };
            member.waits(WaitKind::Condvar);
            *shared.0.lock() = true;
            shared.1.notify_all();
            member.end();
        }
    });
}

#[test]
fn waiting_while_with_a_timeout() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let (open, changed) = &*shared;
        assert!(!changed.wait_while_timeout(&mut open.lock(), |_| true, MS));
        assert!(changed.wait_while_timeout(&mut open.lock(), |_| false, Duration::ZERO));
        let mut guard = open.lock();
        let member = {
            let shared = shared.clone();
            team.start(move || {
                *shared.0.lock() = true;
                shared.1.notify_one();
            })
        };
        assert!(changed.wait_while_timeout(
            &mut guard,
            |open| !*open,
            Duration::from_millis(u64::MAX)
        ));
        assert!(*guard);
        drop(guard);
        member.end();
    });
}

#[test]
fn a_notifier_that_panics() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(1), Condvar::new()));
        let mut number = shared.0.lock();
        let member = {
            let shared = shared.clone();
            team.start(move || {
                let mut number = shared.0.lock();
                *number = 2;
                shared.1.notify_one();
                panic!("on purpose");
            })
        };
        shared.1.wait_while(&mut number, |number| *number == 1);
        assert_eq!(*number, 2);
        drop(number);
        assert!(member.result().is_err());
    });
}

#[test]
fn a_barrier_has_one_leader() {
    everywhere(|team| {
        const SIZE: usize = 10;
        let barrier = Arc::new(Barrier::new(SIZE));
        let (sender, receiver) = channel::unbounded();
        for _ in 1..SIZE {
            let (barrier, sender) = (barrier.clone(), sender.clone());
            team.start(move || sender.send(barrier.wait().is_leader()).unwrap());
        }
        drop(sender);
        assert_eq!(receiver.recv_timeout(MS), Err(RecvTimeoutError::Timeout), "one is missing");
        let mine = barrier.wait().is_leader();
        let leaders: Vec<_> = receiver.iter().chain([mine]).collect();
        assert_eq!(leaders.len(), SIZE);
        assert_eq!(leaders.into_iter().filter(|&leader| leader).count(), 1);
    });
}
