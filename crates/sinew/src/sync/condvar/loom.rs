//! Models of notifications that race with waiters.

use super::Condvar;
use crate::clock::NEVER;
use crate::model::{check, check_within, deadline_passes, spawn, spawn_cancellable};
use crate::primitive::yield_thread;
use crate::sync::Mutex;
use crate::sync::raw::RawLock;
use core::time::Duration;
use std::sync::Arc;

/// A number of things that the waiters take.
struct Things {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Things {
    fn new() -> Arc<Things> {
        Arc::new(Things { count: Mutex::new(0), changed: Condvar::new() })
    }

    fn add(&self) {
        *self.count.lock() += 1;
        self.changed.notify_one();
    }

    fn take(&self) {
        let mut count = self.count.lock();
        self.changed.wait_while(&mut count, |count| *count == 0);
        *count -= 1;
    }

    /// Takes a thing and returns true; returns false on a timeout, which uses up no notification.
    fn take_in_time(&self) -> bool {
        let mut count = self.count.lock();
        while *count == 0 {
            if !self.changed.wait_timeout(&mut count, Duration::ZERO) {
                return false;
            }
        }
        *count -= 1;
        true
    }
}

/// A waiter does not miss a notification that follows a change of the data.
#[test]
fn a_notification_is_not_missed() {
    check(|| {
        let things = Things::new();
        let theirs = things.clone();
        let taker = spawn(move || theirs.take());
        things.add();
        taker.join().unwrap();
        assert_eq!(*things.count.lock(), 0);
    });
}

/// `notify_all` wakes all waiters.
#[test]
fn all_are_notified() {
    check(|| {
        let things = Things::new();
        let takers = [(); 2].map(|()| {
            let things = things.clone();
            spawn(move || things.take())
        });
        *things.count.lock() = 2;
        things.changed.notify_all();
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(*things.count.lock(), 0);
    });
}

/// A cancelled waiter uses up no notification: the other waiter gets it. The cancelled waiter holds
/// the lock while it unwinds.
#[test]
fn a_cancelled_waiter_uses_up_no_notification() {
    check_within(2, || {
        let things = Things::new();
        let theirs = things.clone();
        let (fiber, cancelled) = spawn_cancellable(move || theirs.take());
        let theirs = things.clone();
        let other = spawn(move || theirs.take());
        fiber.cancel();
        things.add();
        if cancelled.join().unwrap().is_some() {
            things.add();
        }
        other.join().unwrap();
        assert_eq!(*things.count.lock(), 0);
    });
}

/// A waiter that times out uses up no notification: the other waiter gets it.
#[test]
fn a_timed_out_waiter_uses_up_no_notification() {
    check_within(2, || {
        let things = Things::new();
        let theirs = things.clone();
        let timed = spawn(move || theirs.take_in_time());
        let theirs = things.clone();
        let other = spawn(move || theirs.take());
        deadline_passes();
        things.add();
        if timed.join().unwrap() {
            things.add();
        }
        other.join().unwrap();
        assert_eq!(*things.count.lock(), 0);
    });
}

/// A lock whose waits can be left by unwinding.
struct Leaving(RawLock);

// SAFETY: `RawLock` has one owner at a time.
unsafe impl lock_api::RawMutex for Leaving {
    const INIT: Leaving = Leaving(RawLock::new());
    type GuardMarker = lock_api::GuardNoSend;

    fn lock(&self) {
        assert!(self.0.lock(NEVER));
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    // # Safety: as in the trait.
    unsafe fn unlock(&self) {
        assert!(self.0.is_exclusive(), "unlocked by a thread that does not hold the lock");
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() };
    }
}

/// A waiter that is cancelled after its notification holds the lock again, even if the lock's own
/// wait can be left by unwinding.
#[test]
fn the_lock_is_held_again_whatever_happens() {
    check(|| {
        let both = Arc::new((lock_api::Mutex::<Leaving, _>::new(0), Condvar::new()));
        let theirs = both.clone();
        let (fiber, waiter) = spawn_cancellable(move || {
            let mut count = theirs.0.lock();
            while *count == 0 {
                theirs.1.wait(&mut count);
            }
            *count += 1;
        });
        // Let the waiter begin to wait.
        yield_thread();
        let mut count = both.0.lock();
        *count += 1;
        both.1.notify_one();
        fiber.cancel();
        drop(count);
        let ended = usize::from(waiter.join().unwrap().is_some());
        assert_eq!(*both.0.lock(), 1 + ended);
    });
}
