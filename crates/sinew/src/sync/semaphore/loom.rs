//! Models of permits that are given back during waits for them.

use super::Semaphore;
use crate::clock::NEVER;
use crate::model::{DEADLINE, Tracked, check, check_within, deadline_passes, spawn};
use std::sync::Arc;

/// A semaphore with one permit works as a lock.
#[test]
fn one_permit_is_a_lock() {
    check_within(2, || {
        let guarded = Arc::new((Semaphore::new(1), Tracked::new(0)));
        let add = |guarded: &(Semaphore, Tracked)| {
            let _permit = guarded.0.acquire();
            guarded.1.add(1);
        };
        let others = [(); 2].map(|()| {
            let guarded = guarded.clone();
            spawn(move || add(&guarded))
        });
        add(&guarded);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(guarded.1.get(), 3);
        assert_eq!(guarded.0.available(), 1);
        assert!(guarded.0.try_acquire().is_some(), "the mark is set, but there is no waiter");
    });
}

/// A waiter for two permits gives up: a waiter for one permit behind it is served, although no
/// permit is given back.
#[test]
fn a_waiter_that_gives_up_lets_others_be_served() {
    check(|| {
        let permits = Arc::new(Semaphore::new(1));
        let theirs = permits.clone();
        let timed = spawn(move || theirs.take(2, DEADLINE));
        let theirs = permits.clone();
        let other = spawn(move || theirs.take(1, NEVER));
        deadline_passes();
        assert!(!timed.join().unwrap());
        assert!(other.join().unwrap());
        assert_eq!(permits.available(), 0);
    });
}

/// A permit is added while the first waiter gives up. If the first waiter serves the second one
/// while it leaves, the second waiter sees the writes before the permit was added.
#[test]
fn a_waiter_served_by_a_leaver_sees_earlier_writes() {
    check_within(2, || {
        let guarded = Arc::new((Semaphore::new(0), Tracked::new(0)));
        let theirs = guarded.clone();
        let timed = spawn(move || assert!(!theirs.0.take(2, DEADLINE)));
        let theirs = guarded.clone();
        let other = spawn(move || {
            assert!(theirs.0.take(1, NEVER));
            assert_eq!(theirs.1.get(), 1);
        });
        let timer = spawn(deadline_passes);
        guarded.1.add(1);
        guarded.0.add(1);
        timed.join().unwrap();
        other.join().unwrap();
        timer.join().unwrap();
    });
}

/// A permit is added while the first of two waiters gives up: one of the two gets the permit.
#[test]
fn no_permit_is_lost() {
    check_within(2, || {
        let permits = Arc::new(Semaphore::new(0));
        let theirs = permits.clone();
        let timed = spawn(move || theirs.take(1, DEADLINE));
        let theirs = permits.clone();
        let other = spawn(move || theirs.take(1, NEVER));
        let timer = spawn(deadline_passes);
        permits.add(1);
        if timed.join().unwrap() {
            permits.add(1);
        }
        assert!(other.join().unwrap());
        timer.join().unwrap();
        assert_eq!(permits.available(), 0);
    });
}

/// A plain waiter and a `select` wait for permits: each permit goes to one of the two, and a waiter
/// that leaves lets the other be served.
#[test]
fn a_permit_is_selected_once() {
    use crate::sync::{FiberFuture, Patience, select};
    check_within(2, || {
        let shared = Arc::new((Semaphore::new(0), FiberFuture::new()));
        let theirs = shared.clone();
        let other = spawn(move || {
            let (mut permit, mut set) = (theirs.0.arm(), theirs.1.arm());
            let index = select(&mut [&mut permit, &mut set], Patience::Forever);
            if index == Some(0) {
                permit.take().forget();
            }
            index == Some(0)
        });
        let theirs = shared.clone();
        let plain = spawn(move || theirs.0.take(1, NEVER));
        shared.0.add(1);
        shared.1.set(()).unwrap();
        if other.join().unwrap() {
            shared.0.add(1);
        }
        assert!(plain.join().unwrap());
        assert_eq!(shared.0.available(), 0);
        assert!(shared.0.try_acquire().is_none());
    });
}
