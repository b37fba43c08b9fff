//! The same for locks at which some come first: that they do, and that the others get it all the same.

use super::{EXCLUSIVE_WAITERS, Guarded, SHARED_WAITERS};
use crate::clock::NEVER;
use crate::model::{DEADLINE, check, check_within, deadline_passes, spawn, spawn_cancellable};
use crate::primitive::{AtomicBool, Ordering};
use crate::sync::priority::{Priority, ReadersFirst, WritersFirst};
use std::sync::Arc;

/// One wants it alone and one shares it, while a third has it.
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
fn both_kinds_wait_whoever_comes_first() {
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
fn two_share_and_one_does_not_whoever_comes_first() {
    two_share_and_one_does_not::<ReadersFirst>();
    two_share_and_one_does_not::<WritersFirst>();
}

/// Whoever finds the lock free after somebody waited to share it finds that this one has been in.
#[test]
fn nobody_is_faster_than_who_shares() {
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

/// The same if it was waited for alone, whether the lock was held alone or shared.
#[test]
fn nobody_who_shares_is_faster_than_who_wants_it_alone() {
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
                    // Added by the one who waited.
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

/// Who shares gets in although somebody waits to have it alone: also if it shares it already.
#[test]
fn who_shares_may_share_again() {
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

/// The one who comes first gives up, or is cancelled, as it is handed the lock or let in.
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
            // Of the other kind.
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
fn who_comes_first_leaves_while_it_is_let_in() {
    for cancelled in [false, true] {
        times_out::<ReadersFirst>(true, cancelled);
        times_out::<WritersFirst>(false, cancelled);
    }
}

/// One who would share stands back for one who wants it alone, and is let in when that one gives up.
#[test]
fn who_gives_up_lets_in_who_stood_back() {
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
        // SAFETY: it has the right.
        assert!(unsafe { guarded.lock.upgrade(NEVER) });
        guarded.add();
        assert_eq!(leaving.join().unwrap(), 0);
        assert!(coming.join().unwrap() <= 1);
        guarded.ends_with(1);
    });
}

#[test]
fn an_upgrade_waits_for_those_who_share() {
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
        // SAFETY: it has the right.
        let upgraded = unsafe { guarded.lock.upgrade(DEADLINE) };
        if upgraded {
            guarded.add();
        } else {
            // SAFETY: it still has the right.
            unsafe { guarded.lock.unlock_upgradable() };
        }
        assert_eq!(other.join().unwrap(), 0);
        writer.join().unwrap();
        guarded.ends_with(1 + usize::from(upgraded));
    });
}

/// An upgrade that times out as it is handed the lock has it and says so, or keeps the right.
#[test]
fn an_upgrade_that_times_out_keeps_the_right() {
    upgrade_in_time::<ReadersFirst>();
    upgrade_in_time::<WritersFirst>();
}

/// The right to become the owner is given up, and somebody waits for it behind one who wants the lock.
fn right_is_passed_on<P: Priority>() {
    check_within(2, || {
        let guarded = Guarded::with(P::default());
        assert!(guarded.lock.try_lock_upgradable());
        let theirs = guarded.clone();
        let writer = spawn(move || theirs.add_locked());
        let theirs = guarded.clone();
        let wants = spawn(move || {
            assert!(theirs.lock.lock_upgradable(NEVER));
            // SAFETY: it has the right.
            unsafe { theirs.lock.downgrade_upgradable() };
            theirs.read()
        });
        // SAFETY: it has the right.
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
