//! Models of the lock with a priority: the preferred kind comes first, and the other kind still
//! gets the lock.

use super::{EXCLUSIVE_WAITERS, Guarded, SHARED_WAITERS};
use crate::clock::NEVER;
use crate::model::{DEADLINE, check, check_within, deadline_passes, spawn, spawn_cancellable};
use crate::primitive::{AtomicBool, Ordering};
use crate::sync::priority::{Priority, ReadersFirst, WritersFirst};
use std::sync::Arc;

/// A writer and a reader wait while a third thread holds the lock.
fn both_kinds_wait<P: Priority>() {
    check_within(2, || {
        let guarded = Guarded::with(P::default());
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

#[test]
fn both_kinds_wait_with_either_priority() {
    both_kinds_wait::<ReadersFirst>();
    both_kinds_wait::<WritersFirst>();
}

fn two_share_and_one_does_not<P: Priority>() {
    check_within(2, || {
        let guarded = Guarded::with(P::default());
        let readers = [(); 2].map(|()| {
            let guarded = guarded.clone();
            spawn(move || guarded.read_shared())
        });
        guarded.add_locked();
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() <= 1));
        guarded.ends_with(1);
    });
}

#[test]
fn two_share_and_one_does_not_with_either_priority() {
    two_share_and_one_does_not::<ReadersFirst>();
    two_share_and_one_does_not::<WritersFirst>();
}

/// Readers first: a newcomer that sees a waiting reader, and then locks, finds that the reader has
/// been in.
#[test]
fn a_newcomer_does_not_overtake_a_reader() {
    check_within(2, || {
        let guarded = Guarded::with(ReadersFirst);
        assert!(guarded.lock.try_lock());
        let was_in = Arc::new(AtomicBool::new(false));
        let (theirs, is_in) = (guarded.clone(), was_in.clone());
        let reader = spawn(move || {
            assert!(theirs.lock.lock_shared(NEVER, false));
            is_in.store(true, Ordering::Relaxed);
            theirs.read()
        });
        let theirs = guarded.clone();
        let comes = spawn(move || {
            let waits = theirs.lock.0.load(Ordering::Relaxed) & SHARED_WAITERS != 0;
            let locked = theirs.lock.try_lock();
            if locked {
                assert!(!waits || was_in.load(Ordering::Relaxed));
                theirs.add();
            }
            usize::from(locked)
        });
        guarded.add();
        assert!(reader.join().unwrap() > 0);
        let locked = comes.join().unwrap();
        guarded.ends_with(1 + locked);
    });
}

/// Writers first: a reader that sees a waiting writer, and then gets in, finds that the writer has
/// been in. The lock was held exclusively or shared.
#[test]
fn a_reader_does_not_overtake_a_writer() {
    for shared in [false, true] {
        check_within(2, move || {
            let guarded = Guarded::with(WritersFirst);
            assert!(if shared { guarded.lock.try_lock_shared() } else { guarded.lock.try_lock() });
            let theirs = guarded.clone();
            let writer = spawn(move || theirs.add_locked());
            let theirs = guarded.clone();
            let comes = spawn(move || {
                let waits = theirs.lock.0.load(Ordering::Relaxed) & EXCLUSIVE_WAITERS != 0;
                if theirs.lock.try_lock_shared() {
                    let seen = theirs.read();
                    // The waiting writer has added to it.
                    assert!(!waits || seen == if shared { 1 } else { 2 });
                }
            });
            if shared {
                guarded.read();
            } else {
                guarded.add();
            }
            writer.join().unwrap();
            comes.join().unwrap();
            guarded.ends_with(if shared { 1 } else { 2 });
        });
    }
}

/// Readers first: a reader gets in although a writer waits, even if it already reads.
#[test]
fn a_reader_may_read_again() {
    check(|| {
        let guarded = Guarded::with(ReadersFirst);
        assert!(guarded.lock.try_lock_shared());
        let theirs = guarded.clone();
        let writer = spawn(move || theirs.add_locked());
        assert_eq!(guarded.read_shared(), 0);
        guarded.read();
        writer.join().unwrap();
        guarded.ends_with(1);
    });
}

/// The preferred waiter times out or is cancelled while it is handed the lock or let in.
fn times_out<P: Priority>(shares: bool, cancelled: bool) {
    check_within(2, move || {
        let guarded = Guarded::with(P::default());
        assert!(guarded.lock.try_lock());
        let theirs = guarded.clone();
        let (fiber, leaves) = spawn_cancellable(move || {
            let deadline = if cancelled { NEVER } else { DEADLINE };
            if shares {
                if theirs.lock.lock_shared(deadline, false) {
                    theirs.read();
                }
                return 0;
            }
            let locked = theirs.lock.lock(deadline);
            if locked {
                theirs.add();
            }
            usize::from(locked)
        });
        let theirs = guarded.clone();
        let stays = spawn(move || {
            // A waiter of the other kind.
            if shares {
                theirs.add_locked();
                return 1;
            }
            theirs.read_shared();
            0
        });
        if cancelled {
            fiber.cancel();
        } else {
            deadline_passes();
        }
        guarded.add();
        let added = leaves.join().unwrap().unwrap_or(0) + stays.join().unwrap();
        guarded.ends_with(1 + added);
    });
}

#[test]
fn a_preferred_waiter_leaves_while_it_is_let_in() {
    for cancelled in [false, true] {
        times_out::<ReadersFirst>(true, cancelled);
        times_out::<WritersFirst>(false, cancelled);
    }
}

/// A waiting writer keeps a reader out, and the reader is let in when the writer gives up.
#[test]
fn a_writer_that_gives_up_lets_readers_in() {
    check_within(2, || {
        let guarded = Guarded::with(WritersFirst);
        assert!(guarded.lock.try_lock_shared());
        let theirs = guarded.clone();
        let timed = spawn(move || theirs.lock.lock(DEADLINE));
        let theirs = guarded.clone();
        let reader = spawn(move || theirs.read_shared());
        deadline_passes();
        assert!(!timed.join().unwrap());
        assert_eq!(reader.join().unwrap(), 0);
        guarded.read();
        guarded.ends_with(0);
    });
}

fn upgrade<P: Priority>() {
    check_within(2, || {
        let guarded = Guarded::with(P::default());
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

#[test]
fn an_upgrade_waits_for_readers() {
    upgrade::<ReadersFirst>();
    upgrade::<WritersFirst>();
}

fn upgrade_in_time<P: Priority>() {
    check_within(2, || {
        let guarded = Guarded::with(P::default());
        assert!(guarded.lock.try_lock_upgradable());
        assert!(guarded.lock.try_lock_shared());
        let theirs = guarded.clone();
        let other = spawn(move || {
            deadline_passes();
            theirs.read()
        });
        let theirs = guarded.clone();
        let writer = spawn(move || theirs.add_locked());
        // SAFETY: the caller is the upgradable reader.
        let upgraded = unsafe { guarded.lock.upgrade(DEADLINE) };
        if upgraded {
            guarded.add();
        } else {
            // SAFETY: after the timeout the caller is still the upgradable reader.
            unsafe { guarded.lock.unlock_upgradable() };
        }
        assert_eq!(other.join().unwrap(), 0);
        writer.join().unwrap();
        guarded.ends_with(1 + usize::from(upgraded));
    });
}

/// An upgrade that times out while it is handed the lock owns the lock and returns true, or keeps
/// its right.
#[test]
fn an_upgrade_that_times_out_keeps_the_right() {
    upgrade_in_time::<ReadersFirst>();
    upgrade_in_time::<WritersFirst>();
}

/// The upgradable reader leaves while a writer waits for the lock and another waiter for the right
/// to upgrade.
fn right_is_passed_on<P: Priority>() {
    check_within(2, || {
        let guarded = Guarded::with(P::default());
        assert!(guarded.lock.try_lock_upgradable());
        let theirs = guarded.clone();
        let writer = spawn(move || theirs.add_locked());
        let theirs = guarded.clone();
        let wants = spawn(move || {
            assert!(theirs.lock.lock_upgradable(NEVER));
            // SAFETY: it is the upgradable reader.
            unsafe { theirs.lock.downgrade_upgradable() };
            theirs.read()
        });
        // SAFETY: the caller is the upgradable reader.
        unsafe { guarded.lock.unlock_upgradable() };
        writer.join().unwrap();
        wants.join().unwrap();
        guarded.ends_with(1);
    });
}

#[test]
fn the_right_is_passed_on() {
    right_is_passed_on::<ReadersFirst>();
    right_is_passed_on::<WritersFirst>();
}

fn downgrade<P: Priority>() {
    check_within(2, || {
        let guarded = Guarded::with(P::default());
        assert!(guarded.lock.try_lock());
        let theirs = guarded.clone();
        let reader = spawn(move || theirs.read_shared());
        let theirs = guarded.clone();
        let writer = spawn(move || theirs.add_locked());
        guarded.data.add(1);
        // SAFETY: locked above.
        unsafe { guarded.lock.downgrade(false) };
        assert_eq!(guarded.read(), 1);
        assert!(reader.join().unwrap() > 0);
        writer.join().unwrap();
        guarded.ends_with(2);
    });
}

#[test]
fn a_downgrade_lets_others_in() {
    downgrade::<ReadersFirst>();
    downgrade::<WritersFirst>();
}
