//! `Condvar` with the guards of every lock.

use sinew::sync::{Condvar, FairMutex, MultiLock, MultiLockPlace, Mutex, RwLock, WritersFirst};
use sinew::{FiberState, Runtime, WaitKind};
use sinew_testkit::watch;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A lock, a condition, and two marks that the lock protects.
struct Shared<L> {
    lock: L,
    changed: Condvar,
    ready: AtomicBool,
    /// Whether a writer is inside.
    inside: AtomicBool,
}

impl<L> Shared<L> {
    fn new(lock: L) -> Arc<Shared<L>> {
        let mark = || AtomicBool::new(false);
        Arc::new(Shared { lock, changed: Condvar::new(), ready: mark(), inside: mark() })
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

fn waits_for(fiber: &sinew::Fiber, kind: WaitKind) {
    sinew::wait_until(|| fiber.state() == FiberState::Suspended && fiber.waits_for() == Some(kind));
}

/// The tests of one kind of guard. `$guard` takes it; `$alone` takes an exclusive guard. Both may
/// use a slot.
macro_rules! guards {
    ($kind:ident, $wait:expr, $new:expr, |$lock:ident, $slot:ident| $guard:expr, |$own:ident, $place:ident| $alone:expr) => {
        mod $kind {
            use super::*;

            #[test]
            fn the_lock_is_free_during_the_wait_and_held_after_it() {
                let _watch = watch::a_minute();
                for carriers in [1, 2] {
                    let shared = Shared::new($new);
                    let runtime = Runtime::builder().carriers(carriers).build().unwrap();
                    let theirs = shared.clone();
                    let waiter = runtime.spawn(move || {
                        let ($lock, $slot) = (&theirs.lock, pin!(MultiLockPlace::new()));
                        let mut guard = $guard;
                        while !theirs.is_ready() {
                            theirs.changed.wait(&mut guard);
                        }
                        assert!(!theirs.inside.load(Ordering::Relaxed), "a writer is inside");
                    });
                    waits_for(&waiter.fiber(), WaitKind::Condvar);
                    let theirs = shared.clone();
                    let fiber = waiter.fiber();
                    let notifier = runtime.spawn(move || {
                        let ($own, $place) = (&theirs.lock, pin!(MultiLockPlace::new()));
                        let alone = $alone;
                        theirs.inside.store(true, Ordering::Relaxed);
                        theirs.ready.store(true, Ordering::Relaxed);
                        assert!(theirs.changed.notify_one());
                        // The waiter is woken, and has to wait for the lock.
                        waits_for(&fiber, $wait);
                        theirs.inside.store(false, Ordering::Relaxed);
                        drop(alone);
                    });
                    notifier.join().unwrap();
                    waiter.join().unwrap();
                }
            }

            #[test]
            fn a_thread_waits_as_well() {
                let _watch = watch::a_minute();
                let shared = Shared::new($new);
                let theirs = shared.clone();
                let waiter = std::thread::spawn(move || {
                    let ($lock, $slot) = (&theirs.lock, pin!(MultiLockPlace::new()));
                    let mut guard = $guard;
                    theirs.changed.wait_while(&mut guard, |_| !theirs.is_ready());
                });
                while !waiter.is_finished() {
                    let ($own, $place) = (&shared.lock, pin!(MultiLockPlace::new()));
                    let alone = $alone;
                    shared.ready.store(true, Ordering::Relaxed);
                    shared.changed.notify_all();
                    drop(alone);
                    std::thread::yield_now();
                }
                waiter.join().unwrap();
            }

            #[test]
            fn a_time_that_is_over_leaves_the_guard_locked() {
                let _watch = watch::a_minute();
                let shared = Shared::new($new);
                let ($lock, $slot) = (&shared.lock, pin!(MultiLockPlace::new()));
                let mut guard = $guard;
                assert!(!shared.changed.wait_timeout(&mut guard, Duration::from_millis(1)));
                assert!(!shared.changed.wait_deadline(&mut guard, Instant::now()));
                let (changed, short) = (&shared.changed, Duration::from_millis(1));
                assert!(!changed.wait_while_timeout(&mut guard, |_| true, short));
                assert!(changed.wait_while_timeout(&mut guard, |_| false, short));
                let theirs = shared.clone();
                let other = sinew::spawn(move || {
                    let ($own, $place) = (&theirs.lock, pin!(MultiLockPlace::new()));
                    let alone = $alone;
                    assert!(theirs.is_ready(), "the guard did not lock");
                    drop(alone);
                });
                waits_for(&other.fiber(), $wait);
                shared.ready.store(true, Ordering::Relaxed);
                drop(guard);
                other.join().unwrap();
            }

            #[test]
            fn a_cancelled_wait_has_its_lock_back() {
                let _watch = watch::a_minute();
                struct Checks<'a, L>(&'a Shared<L>);
                impl<L> Drop for Checks<'_, L> {
                    fn drop(&mut self) {
                        assert!(!self.0.inside.load(Ordering::Relaxed), "a writer is inside");
                        self.0.ready.store(true, Ordering::Relaxed);
                    }
                }
                let runtime = Runtime::builder().carriers(1).build().unwrap();
                let shared = Shared::new($new);
                let theirs = shared.clone();
                let waiter = runtime.spawn(move || {
                    let ($lock, $slot) = (&theirs.lock, pin!(MultiLockPlace::new()));
                    let mut guard = $guard;
                    let _checks = Checks(&theirs); // dropped before the guard
                    theirs.changed.wait(&mut guard);
                });
                let fiber = waiter.fiber();
                waits_for(&fiber, WaitKind::Condvar);
                let theirs = shared.clone();
                let other = runtime.spawn(move || {
                    let ($own, $place) = (&theirs.lock, pin!(MultiLockPlace::new()));
                    let alone = $alone;
                    theirs.inside.store(true, Ordering::Relaxed);
                    fiber.cancel();
                    waits_for(&fiber, $wait);
                    theirs.inside.store(false, Ordering::Relaxed);
                    drop(alone);
                });
                other.join().unwrap();
                assert!(sinew::is_cancel(&*waiter.join().unwrap_err()));
                assert!(shared.is_ready());
                // The lock is free, and the notification of a wait that was left is not lost.
                let ($own, $place) = (&shared.lock, pin!(MultiLockPlace::new()));
                drop($alone);
                assert!(!shared.changed.notify_one());
            }
        }
    };
}

guards!(mutex, WaitKind::Lock, Mutex::new(()), |lock, _slot| lock.lock(), |lock, _slot| lock
    .lock());
guards!(
    fair_mutex,
    WaitKind::Lock,
    FairMutex::new(()),
    |lock, _slot| lock.lock(),
    |lock, _slot| lock.lock()
);
guards!(writer, WaitKind::Lock, RwLock::new(()), |lock, _slot| lock.write(), |lock, _slot| lock
    .write());
guards!(reader, WaitKind::Lock, RwLock::new(()), |lock, _slot| lock.read(), |lock, _slot| lock
    .write());
guards!(
    upgradable_reader,
    WaitKind::Lock,
    RwLock::new(()),
    |lock, _slot| lock.upgradable_read(),
    |lock, _slot| lock.write()
);
guards!(
    writer_with_priority,
    WaitKind::Lock,
    RwLock::with_priority((), WritersFirst),
    |lock, _slot| lock.write(),
    |lock, _slot| lock.write()
);
guards!(key, WaitKind::Key, MultiLock::new(), |lock, slot| lock.lock(7, slot), |lock, slot| lock
    .lock(7, slot));

/// Readers wait for a change by a writer, and go on together.
#[test]
fn several_readers_wait_for_a_writer() {
    let _watch = watch::a_minute();
    let (value, changed) = (RwLock::new(0), Condvar::new());
    let inside = sinew::sync::Barrier::new(3);
    sinew::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut value = value.read();
                changed.wait_while(&mut value, |value| **value == 0);
                inside.wait(); // all three share the lock again
                assert_eq!(*value, 7);
            });
        }
        *value.write() = 7;
        changed.notify_all();
        // Readers that came later see the value themselves.
    });
}

/// A pinned fiber waits for a condition, and locks its key again afterwards.
#[test]
fn a_key_is_locked_again_also_by_a_pinned_fiber() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).pinned_wait(sinew::runtime::PinnedWait::Silent);
    let runtime = runtime.build().unwrap();
    let shared = Shared::new(MultiLock::new());
    let theirs = shared.clone();
    let waiter = runtime.spawn(move || {
        let slot = pin!(MultiLockPlace::new());
        let mut guard = theirs.lock.lock(7, slot);
        sinew::pinned(|| theirs.changed.wait_while(&mut guard, |_| !theirs.is_ready()));
    });
    while !waiter.is_finished() {
        let slot = pin!(MultiLockPlace::new());
        let guard = shared.lock.lock(7, slot);
        shared.ready.store(true, Ordering::Relaxed);
        shared.changed.notify_all();
        drop(guard);
        std::thread::yield_now();
    }
    waiter.join().unwrap();
}
