//! Context slots: foreign thread-locals that follow a fiber.

use sinew::inspect::FiberInfo;
use sinew::sync::MutexGuard;
use sinew::{ContextSlot, FiberBuilder, Runtime, WaitKind};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

thread_local!(static STATE: Cell<u32> = const { Cell::new(0) });

static SLOT: ContextSlot<u32> = ContextSlot::new(|value| *value = STATE.replace(*value));

#[inline(never)]
fn state() -> u32 {
    STATE.get()
}

#[test]
fn a_state_follows_its_fiber_and_spares_the_others() {
    let _watch = watch::a_minute();
    Runtime::builder().carriers(1).build().unwrap().run(|| {
        let with: Vec<_> = (1..20)
            .map(|n| {
                sinew::spawn(move || {
                    let (_, last) = SLOT.enter(n, || {
                        for round in 0..10 {
                            assert_eq!(state(), n + 100 * round);
                            STATE.set(n + 100 * (round + 1));
                            match round % 3 {
                                0 => sinew::yield_now(),
                                1 => sinew::sleep(Duration::from_micros(10)),
                                _ => drop(sinew::spawn(|| ()).join()),
                            }
                        }
                    });
                    assert_eq!(last, n + 1000);
                    assert_eq!(state(), 0);
                })
            })
            .collect();
        let without: Vec<_> = (0..20)
            .map(|_| {
                sinew::spawn(|| {
                    for _ in 0..20 {
                        assert_eq!(state(), 0);
                        sinew::yield_now();
                    }
                })
            })
            .collect();
        for fiber in with.into_iter().chain(without) {
            fiber.join().unwrap();
        }
    });
}

#[test]
fn uses_nest() {
    let _watch = watch::a_minute();
    let check = || {
        let (inner, outer) = SLOT.enter(1, || {
            let (_, inner) = SLOT.enter(2, || {
                sinew::sleep(Duration::from_millis(1));
                assert_eq!(state(), 2);
                STATE.set(3);
            });
            sinew::sleep(Duration::from_millis(1));
            assert_eq!(state(), 1);
            inner
        });
        assert_eq!((inner, outer), (3, 1));
        assert_eq!(state(), 0);
    };
    check();
    sinew::run(check);
}

#[test]
fn a_panic_and_a_cancellation_put_the_state_back() {
    let _watch = watch::a_minute();
    Runtime::builder().carriers(1).build().unwrap().run(|| {
        assert!(catch_unwind(|| SLOT.enter(1, || panic!("inside"))).is_err());
        assert_eq!(state(), 0);
        let fiber = sinew::spawn(|| SLOT.enter(1, sinew::park));
        while fiber.fiber().waits_for().is_none() {
            sinew::yield_now();
        }
        fiber.cancel();
        assert!(fiber.join().is_err());
        assert_eq!(state(), 0);
    });
}

#[test]
fn a_state_follows_a_fiber_that_moves() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let fibers: Vec<_> = (1..20)
        .map(|n| {
            // SAFETY: the closure keeps only numbers, and `state` is not inlined.
            let builder = unsafe { FiberBuilder::new().migratable() };
            builder
                .runtime(runtime.handle())
                .spawn(move || {
                    SLOT.enter(n, || {
                        for _ in 0..100 {
                            assert_eq!(state(), n);
                            sinew::yield_now();
                        }
                    })
                    .1
                })
                .unwrap()
        })
        .collect();
    for (n, fiber) in (1..20).zip(fibers) {
        assert_eq!(fiber.join().unwrap(), n);
    }
}

#[test]
fn a_hook_that_panics_unwinds_the_fiber() {
    let _watch = watch::a_minute();
    static BAD: ContextSlot<u32> = ContextSlot::new(|value| {
        *value += 1;
        assert!(*value < 2, "a bad hook");
    });
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let caught = runtime.run(|| {
        catch_unwind(AssertUnwindSafe(|| BAD.enter(0, sinew::yield_now)))
            .map(drop)
            .unwrap_err()
            .downcast::<&str>()
            .is_ok()
    });
    assert!(caught);
    assert_eq!(runtime.spawn(|| 7).join().unwrap(), 7);
}

#[test]
fn a_hook_cannot_wait() {
    let _watch = watch::a_minute();
    static WAITS: ContextSlot<u32> = ContextSlot::new(|_| sinew::yield_now());
    sinew::run(|| {
        assert!(catch_unwind(AssertUnwindSafe(|| WAITS.enter(0, || ()))).is_err());
    });
}

/// A hook may block its thread where the wait cannot be refused: a guard takes its lock back. If
/// that happens in the middle of a wait of an unwinding fiber, the fiber still counts as unwinding
/// afterwards. Otherwise a cancellation would raise in its destructor and end the process.
#[test]
fn a_hook_that_blocks_leaves_the_outer_wait_unchanged() {
    static LOCK: sinew::sync::Mutex<()> = sinew::sync::Mutex::new(());
    static BLOCKS: AtomicBool = AtomicBool::new(false);
    static BLOCKING: ContextSlot<()> = ContextSlot::new(|()| {
        if BLOCKS.swap(false, Ordering::SeqCst) {
            let me = sinew::current();
            let mut guard = LOCK.lock();
            let mut thread = None;
            MutexGuard::unlocked(&mut guard, || {
                let (tell, told) = std::sync::mpsc::channel();
                thread = Some(std::thread::spawn(move || {
                    let guard = LOCK.lock();
                    tell.send(()).unwrap();
                    let blocks = |info: &FiberInfo| {
                        info.id() == me.id()
                            && info.wait.is_some_and(|wait| wait.kind == WaitKind::Lock)
                    };
                    while !sinew::fibers().iter().any(blocks) {
                        std::thread::yield_now();
                    }
                    drop(guard);
                }));
                told.recv().unwrap();
            });
            drop(guard);
            thread.unwrap().join().unwrap();
        }
    });
    struct Parks;
    impl Drop for Parks {
        fn drop(&mut self) {
            BLOCKS.store(true, Ordering::SeqCst);
            sinew::park();
        }
    }
    child("a_hook_that_blocks_leaves_the_outer_wait_unchanged", || {
        let _watch = watch::a_minute();
        Runtime::builder().carriers(1).build().unwrap().run(|| {
            let fiber = sinew::spawn_local(|| {
                BLOCKING.enter((), || {
                    let _parks = Parks;
                    panic!("on purpose");
                });
            });
            while fiber.fiber().waits_for() != Some(WaitKind::Park) {
                sinew::yield_now();
            }
            fiber.cancel();
            sinew::yield_now();
            fiber.fiber().unpark();
            let payload = fiber.join().unwrap_err();
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
        });
    })
    .assert_success();
}
