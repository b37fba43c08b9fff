//! Models of turns that come, turns that are given up, and turns that time out.

use super::{Lock, Turn};
use crate::clock::NEVER;
use crate::model::{DEADLINE, Tracked, check, check_within, deadline_passes, spawn};
use std::pin::pin;
use std::sync::Arc;

/// Locks, changes the guarded data, and unlocks. Returns false if the deadline passes first.
fn add(guarded: &(Lock, Tracked), deadline: u64) -> bool {
    let locked = guarded.0.lock(deadline);
    if locked {
        guarded.1.add(1);
        // SAFETY: this thread has just locked.
        unsafe { guarded.0.unlock() };
    }
    locked
}

#[test]
fn one_at_a_time() {
    check_within(2, || {
        let guarded = Arc::new((Lock::new(), Tracked::new(0)));
        let others = [(); 2].map(|()| {
            let guarded = guarded.clone();
            spawn(move || add(&guarded, NEVER))
        });
        assert!(add(&guarded, NEVER));
        others.into_iter().for_each(|other| assert!(other.join().unwrap()));
        assert_eq!(guarded.1.get(), 3);
        assert!(!guarded.0.is_locked());
    });
}

/// A turn is given up while it comes: the next turn still gets the lock.
#[test]
fn an_abandoned_turn_is_passed_on() {
    check(|| {
        let guarded = Arc::new((Lock::new(), Tracked::new(0)));
        assert!(guarded.0.try_lock());
        let theirs = guarded.clone();
        let abandons = spawn(move || {
            let mut turn = pin!(Turn::new());
            turn.as_mut().enter(&theirs.0);
        });
        let theirs = guarded.clone();
        let other = spawn(move || add(&theirs, NEVER));
        guarded.1.add(1);
        // SAFETY: this thread has locked above.
        unsafe { guarded.0.unlock() };
        abandons.join().unwrap();
        assert!(other.join().unwrap());
        assert_eq!(guarded.1.get(), 2);
        assert!(!guarded.0.is_locked());
    });
}

/// A turn times out while it comes: it has the lock, or a later turn gets the lock.
#[test]
fn a_turn_times_out_while_it_comes() {
    check_within(2, || {
        let guarded = Arc::new((Lock::new(), Tracked::new(0)));
        assert!(guarded.0.try_lock());
        let theirs = guarded.clone();
        let timed = spawn(move || add(&theirs, DEADLINE));
        let timer = spawn(deadline_passes);
        // SAFETY: this thread has locked above.
        unsafe { guarded.0.unlock() };
        let count = usize::from(timed.join().unwrap());
        timer.join().unwrap();
        assert!(add(&guarded, NEVER));
        assert_eq!(guarded.1.get(), count + 1);
        assert!(!guarded.0.is_locked());
    });
}
