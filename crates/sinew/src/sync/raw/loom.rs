//! Models of the lock: it excludes, and every waiter gets it.

mod priority;

use super::{EXCLUSIVE_WAITERS, RawLock, SHARED_WAITERS, WAITERS};
use crate::clock::NEVER;
use crate::model::{
    DEADLINE, Tracked, all_are_near, check, check_within, deadline_passes, spawn, spawn_cancellable,
};
use crate::primitive::{Ordering, yield_thread};
use crate::sync::priority::{InTurn, Priority};
use std::sync::Arc;

/// A lock and its data.
struct Guarded<P = InTurn> {
    lock: RawLock<P>,
    data: Tracked,
}

impl Guarded {
    fn new() -> Arc<Guarded> {
        Guarded::with(InTurn)
    }
}

impl<P: Priority> Guarded<P> {
    fn with(_: P) -> Arc<Guarded<P>> {
        Arc::new(Guarded { lock: RawLock::new(), data: Tracked::new(0) })
    }

    /// Adds one under the lock, and unlocks.
    fn add(&self) {
        self.data.add(1);
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.unlock() };
    }

    fn add_locked(&self) {
        assert!(self.lock.lock(NEVER));
        self.add();
    }

    fn read_shared(&self) -> usize {
        assert!(self.lock.lock_shared(NEVER, false));
        self.read()
    }

    /// Reads as a reader, and unlocks.
    fn read(&self) -> usize {
        let value = self.data.get();
        // SAFETY: the caller is a reader.
        unsafe { self.lock.unlock_shared() };
        value
    }

    /// Checks that the lock is free, that it has no marks, and that the data is `count`.
    fn ends_with(&self, count: usize) {
        assert_eq!(self.lock.0.load(Ordering::Relaxed), 0, "stale marks");
        assert_eq!(self.data.get(), count);
    }
}

#[test]
fn one_at_a_time() {
    check(|| {
        let guarded = Guarded::new();
        let theirs = guarded.clone();
        let other = spawn(move || theirs.add_locked());
        guarded.add_locked();
        guarded.add_locked();
        other.join().unwrap();
        guarded.ends_with(3);
    });
}

#[test]
fn three_want_it_alone() {
    for near in [false, true] {
        check(move || {
            if near {
                all_are_near();
            }
            let guarded = Guarded::new();
            let others = [(); 2].map(|()| {
                let guarded = guarded.clone();
                spawn(move || guarded.add_locked())
            });
            guarded.add_locked();
            others.into_iter().for_each(|other| other.join().unwrap());
            guarded.ends_with(3);
        });
    }
}

/// A writer and a reader wait while the lock is held: both marks are set and cleared, and both
/// waiters get the lock.
#[test]
fn both_kinds_wait() {
    for near in [false, true] {
        check_within(2, move || {
            if near {
                all_are_near();
            }
            let guarded = Guarded::new();
            assert!(guarded.lock.try_lock());
            let theirs = guarded.clone();
            let writer = spawn(move || theirs.add_locked());
            let theirs = guarded.clone();
            let reader = spawn(move || theirs.read_shared());
            guarded.add();
            writer.join().unwrap();
            assert!(reader.join().unwrap() > 0);
            guarded.ends_with(2);
        });
    }
}

/// Readers share the lock, and a writer comes before or after them.
#[test]
fn two_share_and_one_does_not() {
    check_within(2, || {
        let guarded = Guarded::new();
        let readers = [(); 2].map(|()| {
            let guarded = guarded.clone();
            spawn(move || guarded.read_shared())
        });
        guarded.add_locked();
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() <= 1));
        guarded.ends_with(1);
    });
}

/// An overtaken waiter is handed the lock: data and marks are right.
#[test]
fn an_overtaken_waiter_is_handed_the_lock() {
    for near in [false, true] {
        check(move || {
            if near {
                all_are_near();
            }
            let guarded = Guarded::new();
            assert!(guarded.lock.try_lock());
            let theirs = guarded.clone();
            let other = spawn(move || theirs.add_locked());
            guarded.add();
            guarded.add_locked();
            guarded.add_locked();
            other.join().unwrap();
            guarded.ends_with(4);
        });
    }
}

/// A waiter is handed the lock while another waits behind it: all get the lock, and the marks are
/// right.
#[test]
fn a_handed_over_lock_reaches_the_other_waiters() {
    for near in [false, true] {
        check_within(2, move || {
            if near {
                all_are_near();
            }
            let guarded = Guarded::new();
            assert!(guarded.lock.try_lock());
            let others = [(); 2].map(|()| {
                let guarded = guarded.clone();
                spawn(move || guarded.add_locked())
            });
            guarded.data.add(1);
            // SAFETY: locked above.
            unsafe { guarded.lock.unlock_fair() };
            guarded.add_locked();
            others.into_iter().for_each(|other| other.join().unwrap());
            guarded.ends_with(4);
        });
    }
}

/// A waiter times out while it is woken or handed the lock: it holds the lock and returns true, or
/// does not hold it.
#[test]
fn a_waiter_times_out_while_it_is_woken() {
    for fair in [false, true] {
        check(move || {
            let guarded = Guarded::new();
            assert!(guarded.lock.try_lock());
            let theirs = guarded.clone();
            let waiter = spawn(move || {
                let locked = theirs.lock.lock(DEADLINE);
                if locked {
                    theirs.add();
                }
                usize::from(locked)
            });
            let timer = spawn(deadline_passes);
            guarded.data.add(1);
            // SAFETY: locked above.
            unsafe { if fair { guarded.lock.unlock_fair() } else { guarded.lock.unlock() } };
            let locked = waiter.join().unwrap();
            timer.join().unwrap();
            guarded.ends_with(1 + locked);
        });
    }
}

/// A reader times out while it is let in: it holds the lock and returns true, or is not counted.
#[test]
fn a_reader_times_out_while_it_is_let_in() {
    check(|| {
        let guarded = Guarded::new();
        assert!(guarded.lock.try_lock());
        let theirs = guarded.clone();
        let reader = spawn(move || {
            if theirs.lock.lock_shared(DEADLINE, false) {
                assert_eq!(theirs.read(), 1);
            }
        });
        let timer = spawn(deadline_passes);
        guarded.add();
        reader.join().unwrap();
        timer.join().unwrap();
        guarded.ends_with(1);
    });
}

/// Two readers overtake a woken writer: the writer gets the lock when both have left.
#[test]
fn a_writer_overtaken_by_two_readers_comes_after_both() {
    check_within(2, || {
        let guarded = Guarded::new();
        assert!(guarded.lock.try_lock());
        let theirs = guarded.clone();
        let writer = spawn(move || theirs.add_locked());
        // The writer waits.
        yield_thread();
        guarded.add();
        assert!(guarded.lock.lock_shared(NEVER, false));
        let theirs = guarded.clone();
        let reader = spawn(move || theirs.read_shared());
        guarded.read();
        writer.join().unwrap();
        assert!(reader.join().unwrap() > 0);
        guarded.ends_with(2);
    });
}

/// A waiter behind an overtaken writer gives up: the writer is not handed the lock while readers
/// hold it.
#[test]
fn an_overtaken_writer_waits_for_readers() {
    check_within(2, || {
        let guarded = Guarded::new();
        assert!(guarded.lock.try_lock());
        let theirs = guarded.clone();
        let writer = spawn(move || theirs.add_locked());
        yield_thread();
        guarded.add();
        assert!(guarded.lock.lock_shared(NEVER, false));
        // The writer was overtaken, and waits again.
        yield_thread();
        let theirs = guarded.clone();
        let timed = spawn(move || {
            if theirs.lock.lock_shared(DEADLINE, false) {
                theirs.read();
            }
        });
        yield_thread();
        deadline_passes();
        yield_thread();
        guarded.read();
        writer.join().unwrap();
        timed.join().unwrap();
        guarded.ends_with(2);
    });
}

/// The first of two waiters times out while it is woken: the other still gets the lock.
#[test]
fn a_timeout_passes_the_lock_on() {
    check(|| {
        let guarded = Guarded::new();
        assert!(guarded.lock.try_lock());
        let theirs = guarded.clone();
        let timed = spawn(move || {
            let locked = theirs.lock.lock(DEADLINE);
            if locked {
                theirs.add();
            }
            usize::from(locked)
        });
        let theirs = guarded.clone();
        let other = spawn(move || theirs.add_locked());
        deadline_passes();
        guarded.add();
        let locked = timed.join().unwrap();
        other.join().unwrap();
        guarded.ends_with(2 + locked);
    });
}

/// The first of two waiters is cancelled while it is woken: the other still gets the lock.
#[test]
fn a_cancelled_waiter_passes_the_lock_on() {
    check(|| {
        let guarded = Guarded::new();
        assert!(guarded.lock.try_lock());
        let theirs = guarded.clone();
        let (fiber, cancelled) = spawn_cancellable(move || theirs.add_locked());
        let theirs = guarded.clone();
        let other = spawn(move || theirs.add_locked());
        fiber.cancel();
        guarded.add();
        let locked = usize::from(cancelled.join().unwrap().is_some());
        other.join().unwrap();
        guarded.ends_with(2 + locked);
    });
}

/// A waiting writer keeps a reader out. When the writer gives up, the reader is let in, although
/// the lock is not unlocked.
#[test]
fn a_writer_that_gives_up_lets_readers_in() {
    check(|| {
        let guarded = Guarded::new();
        assert!(guarded.lock.try_lock_shared());
        let theirs = guarded.clone();
        let timed = spawn(move || theirs.lock.lock(DEADLINE));
        let theirs = guarded.clone();
        let reader = spawn(move || theirs.read_shared());
        deadline_passes();
        assert!(!timed.join().unwrap());
        assert_eq!(reader.join().unwrap(), 0);
        assert_eq!(guarded.lock.0.load(Ordering::Relaxed) & WAITERS, 0, "stale marks");
        guarded.read();
        guarded.ends_with(0);
    });
}

/// A reader that is let in sees earlier writes, even if a waiter that never held the lock lets it
/// in.
#[test]
fn a_reader_that_is_let_in_sees_earlier_writes() {
    check_within(2, || {
        let guarded = Guarded::new();
        let theirs = guarded.clone();
        let timed = spawn(move || {
            if theirs.lock.lock(DEADLINE) {
                theirs.add();
            }
        });
        let theirs = guarded.clone();
        let reader = spawn(move || {
            deadline_passes();
            theirs.read_shared()
        });
        guarded.add_locked();
        assert!(guarded.lock.lock_shared(NEVER, false));
        reader.join().unwrap();
        guarded.read();
        timed.join().unwrap();
        assert_eq!(guarded.lock.0.load(Ordering::Relaxed), 0, "stale marks");
    });
}

/// An upgrade waits until the other readers have left, and then excludes all.
#[test]
fn an_upgrade_waits_for_readers() {
    check_within(2, || {
        let guarded = Guarded::new();
        assert!(guarded.lock.try_lock_upgradable());
        assert!(guarded.lock.try_lock_shared());
        let theirs = guarded.clone();
        let leaving = spawn(move || theirs.read());
        let theirs = guarded.clone();
        let coming = spawn(move || theirs.read_shared());
        // SAFETY: the caller is the upgradable reader.
        assert!(unsafe { guarded.lock.upgrade(NEVER) });
        guarded.add();
        assert_eq!(leaving.join().unwrap(), 0);
        assert!(coming.join().unwrap() <= 1);
        guarded.ends_with(1);
    });
}

/// An upgrade that times out keeps its right, and lets in the readers that it has kept out.
#[test]
fn an_upgrade_that_times_out_keeps_the_right() {
    check_within(2, || {
        let guarded = Guarded::new();
        assert!(guarded.lock.try_lock_upgradable());
        assert!(guarded.lock.try_lock_shared());
        let theirs = guarded.clone();
        let other = spawn(move || {
            deadline_passes();
            assert_eq!(theirs.read_shared(), 0);
            theirs.read()
        });
        // SAFETY: the caller is the upgradable reader.
        let upgraded = unsafe { guarded.lock.upgrade(DEADLINE) };
        if upgraded {
            guarded.add();
        } else {
            // SAFETY: after the timeout the caller is still the upgradable reader.
            unsafe { guarded.lock.unlock_upgradable() };
        }
        assert_eq!(other.join().unwrap(), 0);
        guarded.ends_with(usize::from(upgraded));
    });
}

/// An owner that downgrades lets readers in.
#[test]
fn a_downgrade_lets_others_share() {
    check(|| {
        let guarded = Guarded::new();
        assert!(guarded.lock.try_lock());
        let theirs = guarded.clone();
        let reader = spawn(move || theirs.read_shared());
        guarded.data.add(1);
        // SAFETY: locked above.
        unsafe { guarded.lock.downgrade(false) };
        assert_eq!(reader.join().unwrap(), 1);
        guarded.read();
        guarded.ends_with(1);
    });
}
