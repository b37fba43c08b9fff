//! Locks, conditions and groups.

use crate::team::everywhere;
use sinew::sync::channel::{self};
use sinew::sync::{Condvar, Mutex, WaitGroup};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn a_busy_mutex_is_acquired_in_time() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(()), AtomicUsize::new(0)));
        let (begin, begun) = channel::bounded(0);
        let busy = {
            let shared = shared.clone();
            team.start(move || {
                let (mutex, done) = &*shared;
                let mut begin = Some(begin);
                while done.load(Ordering::Relaxed) == 0 {
                    let _held = mutex.lock();
                    if let Some(begin) = begin.take() {
                        begin.send(()).unwrap();
                    }
                    // The holder keeps the lock nearly always, and unlocks only to lock again.
                    sinew::sleep(Duration::from_micros(100));
                }
            })
        };
        begun.recv().unwrap();
        for _ in 0..10 {
            sinew::sleep(Duration::from_micros(100));
            drop(shared.0.try_lock_for(Duration::from_secs(10)).expect("its turn has to come"));
        }
        shared.1.store(1, Ordering::Relaxed);
        busy.end();
    });
}

#[test]
fn a_notification_wakes_only_earlier_waiters() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(()), Condvar::new()));
        let (awake, woken) = channel::unbounded();
        for generation in 0..30 {
            let (begin, begun) = channel::bounded(1);
            let (theirs, awake) = (shared.clone(), awake.clone());
            team.start(move || {
                let mut guard = theirs.0.lock();
                begin.send(()).unwrap();
                theirs.1.wait(&mut guard);
                awake.send(generation).unwrap();
            });
            if generation > 0 {
                assert_eq!(woken.recv(), Ok(generation - 1), "notified before this one came");
            }
            begun.recv().unwrap();
            let _guard = shared.0.lock();
            assert!(shared.1.notify_one());
        }
        assert_eq!(woken.recv(), Ok(29));
    });
}

#[test]
fn a_latecomer_takes_no_notification() {
    everywhere(|team| {
        for _ in 0..30 {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let (tell, told) = channel::bounded(0);
            let first = {
                let shared = shared.clone();
                team.start(move || {
                    let mut guard = shared.0.lock();
                    tell.send(()).unwrap();
                    shared.1.wait(&mut guard);
                })
            };
            told.recv().unwrap();
            // The waiter has unlocked, so it waits.
            drop(shared.0.lock());
            let notifier = {
                let shared = shared.clone();
                team.start(move || assert!(shared.1.notify_all() >= 1))
            };
            let second = {
                let shared = shared.clone();
                team.start(move || shared.1.wait_while(&mut shared.0.lock(), |done| !*done))
            };
            first.end();
            notifier.end();
            *shared.0.lock() = true;
            shared.1.notify_all();
            second.end();
        }
    });
}

#[test]
fn a_wait_group_is_not_left_early() {
    everywhere(|team| {
        for _ in 0..50 {
            let (group, done) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
            for _ in 0..2 {
                let (part, done) = (group.clone(), done.clone());
                team.start(move || {
                    sinew::yield_now();
                    done.fetch_add(1, Ordering::Relaxed);
                    drop(part);
                });
            }
            group.wait();
            assert_eq!(done.load(Ordering::Relaxed), 2);
        }
    });
}
