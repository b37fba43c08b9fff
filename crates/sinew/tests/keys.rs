//! `MultiLock`.

use sinew::Runtime;
use sinew::sync::{MultiLock, MultiLockPlace, Mutex};
use sinew_testkit::{Seed, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn suspended(fiber: &sinew::Fiber) -> bool {
    fiber.state() == sinew::FiberState::Suspended && fiber.waits_for() == Some(sinew::WaitKind::Key)
}

#[test]
fn keys_exclude_each_other_in_the_order_of_coming() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let shared = Arc::new((MultiLock::new(), Mutex::new(Vec::new())));
    let slot = pin!(MultiLockPlace::new());
    let held = shared.0.lock(7, slot);
    let fibers: Vec<_> = (0..20)
        .map(|n| {
            let theirs = shared.clone();
            let fiber = runtime.spawn(move || {
                theirs.0.with(7, || {
                    theirs.1.lock().push(n);
                    sinew::yield_now();
                });
            });
            sinew::wait_until(|| suspended(&fiber.fiber()));
            fiber
        })
        .collect();
    // Other keys are free.
    for key in (0..1000).filter(|&key| key != 7) {
        assert!(shared.0.try_with(key, || ()).is_some());
    }
    fibers[3].cancel();
    fibers[4].cancel();
    sinew::wait_until(|| fibers[3].is_finished() && fibers[4].is_finished());
    drop(held);
    for (n, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().is_err(), n == 3 || n == 4);
    }
    let expected: Vec<_> = (0..20).filter(|n| ![3, 4].contains(n)).collect();
    assert_eq!(*shared.1.lock(), expected);
    assert!(shared.0.try_with(7, || ()).is_some());
}

#[test]
fn keys_under_load() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        const KEYS: usize = 5;
        let lock = Arc::new(MultiLock::new());
        let busy: Arc<[AtomicBool; KEYS]> = Arc::new([const { AtomicBool::new(false) }; KEYS]);
        let work = |mut seed: Seed, lock: Arc<MultiLock>, busy: Arc<[AtomicBool; KEYS]>| {
            move || {
                for _ in 0..100 {
                    let key = seed.below(KEYS);
                    let timeout = match seed.below(2) {
                        0 => Duration::from_micros(seed.below(60) as u64),
                        _ => Duration::MAX,
                    };
                    let slot = pin!(MultiLockPlace::new());
                    let Some(_guard) = lock.try_lock_for(key as u64, slot, timeout) else {
                        continue;
                    };
                    struct Free<'a>(&'a AtomicBool);
                    impl Drop for Free<'_> {
                        fn drop(&mut self) {
                            self.0.store(false, Ordering::Relaxed);
                        }
                    }
                    assert!(!busy[key].swap(true, Ordering::Relaxed));
                    let _free = Free(&busy[key]);
                    if seed.below(2) == 0 {
                        sinew::yield_now();
                    }
                }
            }
        };
        let fibers: Vec<_> =
            (0..20).map(|_| runtime.spawn(work(seed.fork(), lock.clone(), busy.clone()))).collect();
        let thread = std::thread::spawn(work(seed.fork(), lock.clone(), busy.clone()));
        for (n, fiber) in fibers.into_iter().enumerate() {
            if n % 5 == 0 {
                fiber.cancel();
                let _ = fiber.join();
            } else {
                fiber.join().unwrap();
            }
        }
        thread.join().unwrap();
        assert!((0..KEYS).all(|key| lock.try_with(key as u64, || ()).is_some()));
    }
}

#[test]
fn misused_keys_are_reported() {
    let _watch = watch::a_minute();
    let check = || {
        let lock = MultiLock::new();
        let again = catch_unwind(AssertUnwindSafe(|| lock.with(7, || lock.with(7, || ()))));
        let text = *again.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("key 7"), "{text}");
        // A forgotten guard keeps its key until its slot is dropped.
        {
            let mut slot = pin!(MultiLockPlace::new());
            std::mem::forget(lock.lock(1, slot.as_mut()));
            assert!(lock.try_with(1, || ()).is_none());
            let reused = catch_unwind(AssertUnwindSafe(|| drop(lock.lock(2, slot.as_mut()))));
            assert!(reused.is_err());
        }
        assert!(lock.try_with(1, || ()).is_some());
        // If the slot is leaked, the key stays locked for ever. This does not affect another lock
        // at the same address.
        let leaked = Box::leak(Box::new(MultiLockPlace::new()));
        // SAFETY: never moved.
        let leaked = unsafe { std::pin::Pin::new_unchecked(leaked) };
        {
            let short = MultiLock::new();
            // SAFETY: the lifetime is too long, but the reference is not used after this block.
            let short: &'static MultiLock = unsafe { &*std::ptr::from_ref(&short) };
            std::mem::forget(short.lock(1, leaked));
        }
        assert!(MultiLock::new().try_with(1, || ()).is_some());
    };
    check();
    sinew::run(check);
}
