//! Abuse of `sinew::sync` that must not break it.

use sinew::sync::channel;
use sinew::sync::{FairMutex, FairMutexGuard, FairMutexPlace, Mutex, MutexGuard, Patience, RwLock};
use sinew::sync::{RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard, select};
use sinew::{ContextSlot, Runtime, WaitKind};
use sinew_testkit::{child, watch};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A guard unlocks for a while, and meanwhile its own fiber locks and keeps the lock. The guard can
/// neither lock again nor go on without the lock.
#[test]
fn a_guard_that_cannot_have_its_lock_back_ends_the_process() {
    let ways: [(&str, fn()); 5] = [
        ("mutex", || {
            let lock = Mutex::new(());
            let mut stash = None;
            MutexGuard::unlocked(&mut lock.lock(), || stash = Some(lock.lock()));
        }),
        ("fair", || {
            let lock = FairMutex::new(());
            let mut stash = None;
            FairMutexGuard::unlocked(&mut lock.lock(), || stash = Some(lock.lock()));
        }),
        ("write", || {
            let lock = RwLock::new(());
            let mut stash = None;
            RwLockWriteGuard::unlocked(&mut lock.write(), || stash = Some(lock.write()));
        }),
        ("read", || {
            let lock = RwLock::new(());
            let mut stash = None;
            RwLockReadGuard::unlocked(&mut lock.read(), || stash = Some(lock.write()));
        }),
        ("upgradable", || {
            let lock = RwLock::new(());
            let mut stash = None;
            let mut guard = lock.upgradable_read();
            RwLockUpgradableReadGuard::unlocked(&mut guard, || stash = Some(lock.write()));
        }),
    ];
    for (number, (_, way)) in ways.into_iter().enumerate() {
        let chosen = std::env::var("SINEW_ABUSE").ok().and_then(|text| text.parse().ok());
        if chosen.is_some_and(|chosen: usize| chosen != number) {
            continue;
        }
        let outcome = child::child_with(
            "a_guard_that_cannot_have_its_lock_back_ends_the_process",
            |command| {
                command.env("SINEW_ABUSE", number.to_string());
            },
            || drop(catch_unwind(way)),
        );
        outcome.assert_died(libc::SIGABRT, &["deadlock", "locked again"]);
    }
}

/// In the middle of a wait, a hook resumes a first-class fiber from outside. The resume is refused.
#[test]
fn a_hook_that_switches_is_refused() {
    thread_local! {
        static MAIN: RefCell<Option<sinew_context::FiberContext>> = const { RefCell::new(None) };
        static ARMED: Cell<bool> = const { Cell::new(false) };
    }
    static REFUSED: AtomicBool = AtomicBool::new(false);
    static SLOT: ContextSlot<u32> = ContextSlot::new(|_| {
        if ARMED.replace(false) {
            let main = MAIN.take().unwrap();
            REFUSED.store(!main.is_at_home(), Ordering::Relaxed);
            MAIN.set(Some(main));
        }
    });
    let _watch = watch::a_minute();
    let mutex = Arc::new(Mutex::new(0));
    let theirs = mutex.clone();
    let guard = mutex.lock();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let fiber = runtime.spawn(move || {
        let inner = sinew_context::FiberContext::new(move |main| {
            MAIN.set(Some(main));
            SLOT.enter(0, || {
                ARMED.set(true);
                *theirs.lock() += 1;
            });
            MAIN.take().unwrap()
        });
        assert!(inner.unwrap().resume().is_none());
    });
    sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Lock));
    drop(guard);
    fiber.join().unwrap();
    assert!(REFUSED.load(Ordering::Relaxed));
    assert_eq!(*mutex.lock(), 1);
}

/// Arms that are complete can be selected again without `take` in between.
#[test]
fn a_completed_arm_stays_completed() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::bounded(1);
    sender.send(1).unwrap();
    let mut arm = receiver.arm();
    let soon = Patience::For(Duration::from_millis(1));
    for patience in [Patience::Forever, Patience::None, soon, Patience::Forever] {
        assert_eq!(select(&mut [&mut arm], patience), Some(0));
    }
    assert_eq!(arm.take(), Ok(1));
    assert_eq!(select(&mut [&mut arm], soon), None);
    // An arm that was sent does not wait for room, and sends nothing twice.
    let mut arm = sender.arm(2);
    for patience in [Patience::Forever, Patience::None, soon, Patience::Forever] {
        assert_eq!(select(&mut [&mut arm], patience), Some(0));
    }
    assert!(arm.take().is_ok());
    assert_eq!(select(&mut [&mut arm], soon), Some(0));
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [2]);
}

/// A message panics when it is dropped, in every place where a broadcast drops one.
#[test]
fn broadcast_messages_that_panic_when_dropped() {
    #[derive(Clone)]
    struct Bomb(Arc<AtomicUsize>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            let armed = |count: usize| count.checked_sub(1);
            if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, armed).is_ok() {
                panic!("a message was dropped");
            }
        }
    }
    let _watch = watch::a_minute();
    let armed = Arc::new(AtomicUsize::new(0));
    let (sender, mut fast) = channel::broadcast(1);
    let slow = fast.clone();
    assert!(sender.send(Bomb(armed.clone())).is_ok());
    drop(fast.recv().map_err(drop));
    let waiter = std::thread::spawn(move || fast.recv().map(std::mem::forget));
    // The message that falls out panics; the new message arrives all the same.
    armed.store(1, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| sender.send(Bomb(armed.clone())))).is_err());
    assert!(waiter.join().unwrap().is_ok());
    // A receiver that is dropped with messages that panic is gone all the same.
    armed.store(1, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(slow))).is_err());
    assert_eq!(sender.receivers(), 0);
    assert!(sender.send(Bomb(armed)).is_err());
}

/// The place of a fair lock is given to another fiber. The fiber that took the ticket does not hold
/// the lock.
#[test]
fn a_fiber_that_gave_its_place_away_may_lock() {
    static LOCK: FairMutex<u32> = FairMutex::new(0);
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let mut place = Box::pin(FairMutexPlace::new());
        assert!(LOCK.enter(place.as_mut()).has_come());
        let other = sinew::spawn(move || drop(place));
        *LOCK.lock() += 1;
        other.join().unwrap();
        // The control block of a fiber that has ended belongs to another fiber.
        let place = sinew::spawn(|| {
            let mut place = Box::pin(FairMutexPlace::new());
            LOCK.enter(place.as_mut());
            place
        });
        let place = place.join().unwrap();
        let innocent = sinew::spawn(|| *LOCK.lock() += 1);
        sinew::yield_now();
        drop(place);
        innocent.join().unwrap();
        assert_eq!(*LOCK.lock(), 2);
        // A fiber that has waited for its turn holds the lock, and locking again panics.
        let mut place = Box::pin(FairMutexPlace::new());
        let guard = LOCK.enter(place.as_mut()).wait();
        assert!(catch_unwind(|| drop(LOCK.lock())).is_err());
        drop(guard);
        assert!(LOCK.try_lock().is_some());
    });
}

/// A pinned fiber waits as its thread. It is the owner itself when the lock is handed to it.
#[test]
fn a_pinned_fiber_that_was_handed_a_lock_is_its_owner() {
    let _watch = watch::a_minute();
    let runtime =
        Runtime::builder().carriers(1).pinned_wait(sinew::runtime::PinnedWait::Silent).build();
    let (runtime, lock) = (runtime.unwrap(), Arc::new(Mutex::new(())));
    let (mut guard, theirs) = (lock.lock(), lock.clone());
    let fiber = runtime.spawn(move || {
        sinew::pinned(|| {
            let _guard = theirs.lock();
            catch_unwind(AssertUnwindSafe(|| drop(theirs.lock()))).is_err()
        })
    });
    while !fiber.is_finished() {
        MutexGuard::bump(&mut guard);
    }
    assert!(fiber.join().unwrap());
}

/// An inherited value is cloned by code that waits, so a migratable parent may move during a spawn.
#[test]
fn parents_that_move_while_they_spawn() {
    struct Slow;
    impl Clone for Slow {
        fn clone(&self) -> Slow {
            sinew::yield_now();
            sinew::yield_now();
            Slow
        }
    }
    sinew::fiber_local! { inherit static LOCAL: Slow = Slow; }
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let parents: Vec<_> = (0..4)
        .map(|_| {
            // SAFETY: the closure keeps nothing that belongs to its thread.
            let builder =
                unsafe { sinew::FiberBuilder::new().migratable() }.runtime(runtime.handle());
            let body =
                || LOCAL.set(Slow, || (0..300).map(|_| sinew::spawn(|| 1)).collect::<Vec<_>>());
            builder
                .spawn(move || body().into_iter().map(|fiber| fiber.join().unwrap()).sum::<u32>())
                .unwrap()
        })
        .collect();
    for parent in parents {
        assert_eq!(parent.join().unwrap(), 300_u32);
    }
}
