//! `Mutex`, `RwLock`, `FairMutex` and `Condvar`.

use sinew::Runtime;
use sinew::sync::{
    Condvar, FairMutex, Mutex, RawMutex, RawRwLock, RwLock, RwLockUpgradableReadGuard,
    RwLockWriteGuard,
};
use sinew_testkit::{Seed, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const _: () = assert!(size_of::<RawMutex>() == 8);
const _: () = assert!(size_of::<RawRwLock>() == 8);

fn suspended(fiber: &sinew::Fiber) -> bool {
    fiber.state() == sinew::FiberState::Suspended
        && fiber.waits_for() == Some(sinew::WaitKind::Lock)
}

#[test]
fn one_at_a_time() {
    let _watch = watch::a_minute();
    for carriers in [1, 2, 8] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let total = Arc::new(Mutex::new(0_u64));
        let inside = Arc::new(AtomicBool::new(false));
        let work = |total: Arc<Mutex<u64>>, inside: Arc<AtomicBool>, waits: bool| {
            move || {
                for round in 0..300 {
                    let mut total = total.lock();
                    assert!(!inside.swap(true, Ordering::Relaxed));
                    *total += 1;
                    if waits && round % 7 == 0 {
                        sinew::yield_now();
                    }
                    inside.store(false, Ordering::Relaxed);
                }
            }
        };
        let fibers: Vec<_> = (0..20)
            .map(|n| runtime.spawn(work(total.clone(), inside.clone(), n % 2 == 0)))
            .collect();
        let threads: Vec<_> = (0..3)
            .map(|_| std::thread::spawn(work(total.clone(), inside.clone(), false)))
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*total.lock(), 23 * 300);
    }
}

/// A fiber that waits with a lock held, and locks again at once, leaves the lock to the fibers of its
/// carrier that wait for it.
#[test]
fn a_holder_that_waits_hands_the_lock_over() {
    let _watch = watch::a_minute();
    const FIBERS: usize = 16;
    const ROUNDS: usize = 100;
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let holders = runtime.run(|| {
        let holders = Arc::new(Mutex::new(Vec::new()));
        let hold = |me| {
            let holders = holders.clone();
            move || {
                for _ in 0..ROUNDS {
                    let mut list = holders.lock();
                    list.push(me);
                    sinew::yield_now();
                }
            }
        };
        let all: Vec<_> = (0..FIBERS).map(|me| sinew::spawn(hold(me))).collect();
        all.into_iter().for_each(|one| one.join().unwrap());
        std::mem::take(&mut *holders.lock())
    });
    assert_eq!(holders.len(), FIBERS * ROUNDS);
    // The first fibers may lock before others wait, and the last one is alone in the end. Without the
    // hand-over, every second unlock leaves the lock to its holder.
    let kept = holders.windows(2).filter(|two| two[0] == two[1]).count();
    assert!(kept < holders.len() / 4, "{kept} of {} unlocks kept the holder", holders.len());
}

#[test]
fn locking_again_is_an_error() {
    let _watch = watch::a_minute();
    let check = || {
        let mutex = Mutex::new(());
        let guard = mutex.lock();
        let again = catch_unwind(AssertUnwindSafe(|| drop(mutex.lock())));
        let text = *again.unwrap_err().downcast::<String>().unwrap();
        assert!(text.starts_with("deadlock: the lock at 0x"), "{text}");
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some());
        let lock = RwLock::new(());
        let _write = lock.write();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.read()))).is_err());
    };
    check();
    sinew::run(check);
}

#[test]
fn a_timed_lock_gives_up() {
    let _watch = watch::a_minute();
    let mutex = Arc::new(Mutex::new(7));
    let held = mutex.lock();
    let theirs = mutex.clone();
    let fiber = sinew::spawn(move || {
        let start = Instant::now();
        assert!(theirs.try_lock_for(Duration::from_millis(5)).is_none());
        assert!(start.elapsed() >= Duration::from_millis(5));
        assert!(theirs.try_lock_for(Duration::ZERO).is_none());
        *theirs.try_lock_for(Duration::from_secs(60)).unwrap()
    });
    sinew::wait_until(|| suspended(&fiber.fiber()));
    std::thread::sleep(Duration::from_millis(20));
    drop(held);
    assert_eq!(fiber.join().unwrap(), 7);
}

/// Every way to lock can be cancelled while the lock is held, and leaves the lock alone.
#[test]
fn a_cancelled_waiter_leaves_the_lock_alone() {
    type Way = fn(&(Mutex<()>, RwLock<()>, FairMutex<()>));
    let ways: [Way; 6] = [
        |locks| drop(locks.0.lock()),
        |locks| drop(locks.1.read()),
        |locks| drop(locks.1.write()),
        |locks| drop(locks.1.upgradable_read()),
        |locks| drop(locks.1.read_recursive()),
        |locks| drop(locks.2.lock()),
    ];
    let _watch = watch::a_minute();
    let locks = Arc::new((Mutex::new(()), RwLock::new(()), FairMutex::new(())));
    for way in ways {
        let held = (locks.0.lock(), locks.1.write(), locks.2.lock());
        let waiters: Vec<_> = (0..10)
            .map(|_| {
                let locks = locks.clone();
                let fiber = sinew::spawn(move || way(&locks));
                sinew::wait_until(|| suspended(&fiber.fiber()));
                fiber
            })
            .collect();
        for fiber in waiters.iter().step_by(2) {
            fiber.cancel();
        }
        sinew::wait_until(|| waiters.iter().step_by(2).all(|fiber| fiber.is_finished()));
        drop(held);
        for (n, fiber) in waiters.into_iter().enumerate() {
            let result = fiber.join();
            assert_eq!(result.is_err(), n % 2 == 0);
            assert!(result.map_or_else(|payload| sinew::is_cancel(&*payload), |()| true));
        }
        assert!(locks.0.try_lock().is_some());
        assert!(locks.1.try_write().is_some());
        assert!(locks.2.try_lock().is_some());
    }
}

#[test]
fn a_fair_unlock_hands_over() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let mutex = Arc::new(Mutex::new(Vec::new()));
        let mut guard = mutex.lock();
        let other = {
            let mutex = mutex.clone();
            sinew::spawn(move || mutex.lock().push("other"))
        };
        sinew::wait_until(|| suspended(&other.fiber()));
        guard.push("me");
        lock_api::MutexGuard::unlock_fair(guard);
        // The lock belongs to the other fiber before that fiber has run.
        assert!(mutex.try_lock().is_none());
        mutex.lock().push("me again");
        assert_eq!(*mutex.lock(), ["me", "other", "me again"]);
        other.join().unwrap();
    });
}

#[test]
fn an_overtaken_waiter_is_next() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let mutex = Arc::new(Mutex::new(()));
        let done = Arc::new(AtomicBool::new(false));
        let guard = mutex.lock();
        let other = {
            let (mutex, done) = (mutex.clone(), done.clone());
            sinew::spawn(move || {
                let _guard = mutex.lock();
                done.store(true, Ordering::Relaxed);
            })
        };
        sinew::wait_until(|| suspended(&other.fiber()));
        drop(guard);
        for round in 0.. {
            // This fiber overtakes the woken one, but not for ever.
            let _guard = mutex.lock();
            if done.load(Ordering::Relaxed) {
                assert!(round <= 2, "{round}");
                break;
            }
            sinew::yield_now();
        }
        other.join().unwrap();
    });
}

#[test]
fn readers_share_and_stand_back_for_writers() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let lock = Arc::new(RwLock::new(0));
        let first = lock.read();
        let second = lock.read();
        let writer = {
            let lock = lock.clone();
            sinew::spawn(move || *lock.write() += 1)
        };
        sinew::wait_until(|| suspended(&writer.fiber()));
        assert!(lock.try_read().is_none(), "a writer waits");
        assert!(lock.try_read_recursive().is_some());
        let late = {
            let lock = lock.clone();
            sinew::spawn(move || *lock.read())
        };
        sinew::wait_until(|| suspended(&late.fiber()));
        drop((first, second));
        assert_eq!(late.join().unwrap(), 1);
        writer.join().unwrap();
        assert!(!lock.is_locked());
    });
}

#[test]
fn readers_go_on_when_a_writer_gives_up() {
    let _watch = watch::a_minute();
    let lock = Arc::new(RwLock::new(()));
    let reading = lock.read();
    for cancelled in [true, false] {
        let writer = {
            let lock = lock.clone();
            sinew::spawn(move || {
                let timeout = Duration::from_millis(if cancelled { 60_000 } else { 20 });
                lock.try_write_for(timeout).is_some()
            })
        };
        sinew::wait_until(|| suspended(&writer.fiber()) || writer.is_finished());
        let readers: Vec<_> = (0..40)
            .map(|_| {
                let lock = lock.clone();
                sinew::spawn(move || drop(lock.read()))
            })
            .collect();
        if cancelled {
            writer.cancel();
        }
        // One reader still reads.
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(!writer.join().unwrap_or(false));
    }
    drop(reading);
    assert!(lock.try_write().is_some());
}

#[test]
fn a_reader_becomes_the_writer() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        runtime.run(|| {
            let lock = Arc::new(RwLock::new(0));
            let fibers: Vec<_> = (0..50)
                .map(|n| {
                    let lock = lock.clone();
                    sinew::spawn(move || {
                        if n % 5 == 0 {
                            let guard = lock.upgradable_read();
                            let seen = *guard;
                            sinew::yield_now();
                            let mut guard = RwLockUpgradableReadGuard::upgrade(guard);
                            assert_eq!(*guard, seen, "nobody wrote in between");
                            *guard += 1;
                        } else {
                            let seen = lock.read();
                            let before = *seen;
                            sinew::yield_now();
                            assert_eq!(*seen, before);
                        }
                    })
                })
                .collect();
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
            assert_eq!(*lock.read(), 10);
        });
    }
}

#[test]
fn an_upgrade_gives_up_in_time() {
    let _watch = watch::a_minute();
    let lock = RwLock::new(0);
    let reading = lock.read();
    let guard = lock.upgradable_read();
    assert!(lock.try_upgradable_read().is_none());
    let guard = RwLockUpgradableReadGuard::try_upgrade_for(guard, Duration::from_millis(3));
    let guard = guard.unwrap_err();
    // Other fibers may read again.
    assert!(lock.try_read().is_some());
    drop(reading);
    let mut write = RwLockUpgradableReadGuard::upgrade(guard);
    *write = 1;
    let read = lock_api::RwLockWriteGuard::downgrade(write);
    assert!(lock.try_read().is_some());
    assert!(lock.try_write().is_none());
    assert_eq!(*read, 1);
}

#[test]
fn locks_under_load() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let lock = Arc::new(RwLock::new((0_u64, 0_u64)));
        let writes = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..40)
            .map(|_| {
                let mut seed = seed.fork();
                let (lock, writes) = (lock.clone(), writes.clone());
                runtime.spawn(move || {
                    for _ in 0..100 {
                        match seed.below(6) {
                            0 => {
                                let mut pair = Halves { pair: lock.write(), writes: &writes };
                                pair.pair.0 += 1;
                                // A fiber that is cancelled here still writes the other half.
                                if seed.below(3) == 0 {
                                    sinew::yield_now();
                                }
                            }
                            1 => {
                                let timeout = Duration::from_micros(seed.below(50) as u64);
                                if let Some(mut pair) = lock.try_write_for(timeout) {
                                    pair.0 += 1;
                                    pair.1 += 1;
                                    writes.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            2 => {
                                let timeout = Duration::from_micros(seed.below(50) as u64);
                                if let Some(pair) = lock.try_read_for(timeout) {
                                    assert_eq!(pair.0, pair.1);
                                }
                            }
                            3 => {
                                let pair = lock.upgradable_read();
                                if seed.below(2) == 0 {
                                    sinew::yield_now();
                                }
                                assert_eq!(pair.0, pair.1);
                                if seed.below(2) == 0 {
                                    let mut pair = RwLockUpgradableReadGuard::upgrade(pair);
                                    pair.0 += 1;
                                    pair.1 += 1;
                                    writes.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            _ => {
                                let pair = lock.read();
                                if seed.below(3) == 0 {
                                    sinew::yield_now();
                                }
                                assert_eq!(pair.0, pair.1);
                            }
                        }
                    }
                })
            })
            .collect();
        for (n, fiber) in fibers.into_iter().enumerate() {
            if n % 10 == 9 {
                fiber.cancel();
                let _ = fiber.join();
            } else {
                fiber.join().unwrap();
            }
        }
        let pair = lock.try_write().expect("all have left");
        assert_eq!(pair.0, pair.1);
        assert_eq!(pair.1 as usize, writes.load(Ordering::Relaxed));
    }
}

/// A write that completes its second half when it is dropped, before other fibers may read.
struct Halves<'a> {
    pair: RwLockWriteGuard<'a, (u64, u64)>,
    writes: &'a AtomicUsize,
}

impl Drop for Halves<'_> {
    fn drop(&mut self) {
        self.pair.1 += 1;
        self.writes.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn each_notification_wakes_one_waiter() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let shared = Arc::new((Mutex::new(0_usize), Condvar::new(), Condvar::new()));
        let consumers: Vec<_> = (0..20)
            .map(|_| {
                let shared = shared.clone();
                runtime.spawn(move || {
                    let (tokens, some, taken) = &*shared;
                    for _ in 0..20 {
                        let mut tokens = tokens.lock();
                        some.wait_while(&mut tokens, |tokens| *tokens == 0);
                        *tokens -= 1;
                        taken.notify_one();
                    }
                })
            })
            .collect();
        let (tokens, some, taken) = &*shared;
        for _ in 0..400 {
            let mut tokens = tokens.lock();
            taken.wait_while(&mut tokens, |tokens| *tokens >= 3);
            *tokens += 1;
            some.notify_one();
        }
        consumers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(*tokens.lock(), 0);
    }
}

#[test]
fn notify_all_wakes_all_waiters() {
    let _watch = watch::a_minute();
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let fibers: Vec<_> = (0..100)
        .map(|_| {
            let shared = shared.clone();
            sinew::spawn(move || {
                let (open, changed) = &*shared;
                changed.wait_while(&mut open.lock(), |open| !*open);
            })
        })
        .collect();
    for fiber in &fibers {
        let waits = || fiber.fiber().waits_for() == Some(sinew::WaitKind::Condvar);
        sinew::wait_until(waits);
    }
    *shared.0.lock() = true;
    assert_eq!(shared.1.notify_all(), 100);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(shared.1.notify_all(), 0);
}

#[test]
fn a_cancelled_wait_has_its_lock_back() {
    let _watch = watch::a_minute();
    let shared = Arc::new((Mutex::new(0), Condvar::new()));
    let fiber = {
        let shared = shared.clone();
        sinew::spawn(move || {
            let (value, changed) = &*shared;
            let mut value = value.lock();
            let waited = catch_unwind(AssertUnwindSafe(|| changed.wait(&mut value)));
            // The guard is still valid.
            *value += 1;
            std::panic::resume_unwind(waited.unwrap_err());
        })
    };
    let waits = || fiber.fiber().waits_for() == Some(sinew::WaitKind::Condvar);
    sinew::wait_until(waits);
    // The fiber cannot get the lock at once.
    let held = shared.0.lock();
    fiber.cancel();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(*held, 0);
    drop(held);
    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    assert_eq!(*shared.0.lock(), 1);
}

#[test]
fn a_condvar_works_with_any_lock() {
    let _watch = watch::a_minute();
    // Another kind of lock, with the same trait.
    struct Spin(AtomicBool);
    // SAFETY: one exchange decides.
    unsafe impl lock_api::RawMutex for Spin {
        const INIT: Spin = Spin(AtomicBool::new(false));
        type GuardMarker = lock_api::GuardSend;
        fn lock(&self) {
            while !self.try_lock() {
                sinew::yield_now();
            }
        }
        fn try_lock(&self) -> bool {
            !self.0.swap(true, Ordering::Acquire)
        }
        unsafe fn unlock(&self) {
            self.0.store(false, Ordering::Release);
        }
    }
    let shared = Arc::new((lock_api::Mutex::<Spin, _>::new(false), Condvar::new()));
    let theirs = shared.clone();
    let fiber = sinew::spawn(move || theirs.1.wait_while(&mut theirs.0.lock(), |open| !*open));
    *shared.0.lock() = true;
    shared.1.notify_all();
    fiber.join().unwrap();
}

#[test]
fn locks_in_destructors_of_thread_locals() {
    let _watch = watch::a_minute();
    static LOCK: Mutex<u32> = Mutex::new(0);
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            for _ in 0..100 {
                let mut count = LOCK.lock();
                std::thread::yield_now();
                *count += 1;
            }
        }
    }
    thread_local!(static LAST: Last = const { Last });
    let threads: Vec<_> =
        (0..4).map(|_| std::thread::spawn(|| LAST.with(|_| drop(LOCK.lock())))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*LOCK.lock(), 400);
}

#[test]
fn a_fair_lock_serves_in_the_order_of_coming() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let order = Arc::new(FairMutex::new(Vec::new()));
        let held = order.lock();
        let fibers: Vec<_> = (0..20)
            .map(|n| {
                let order = order.clone();
                let fiber = runtime.spawn(move || match n {
                    5 => assert!(order.try_lock_for(Duration::from_millis(1)).is_none()),
                    _ => order.lock().push(n),
                });
                let waits = || fiber.fiber().waits_for() == Some(sinew::WaitKind::Lock);
                sinew::wait_until(|| waits() || fiber.is_finished());
                fiber
            })
            .collect();
        fibers[7].cancel();
        sinew::wait_until(|| fibers[5].is_finished() && fibers[7].is_finished());
        drop(held);
        assert!(order.try_lock().is_none() || fibers[19].is_finished(), "others came first");
        for (n, fiber) in fibers.into_iter().enumerate() {
            assert_eq!(fiber.join().is_err(), n == 7);
        }
        assert!(order.lock().iter().copied().eq((0..20).filter(|n| ![5, 7].contains(n))));
    }
}

/// A guard that unlocks for a while has the lock again afterwards, also if its fiber is cancelled
/// meanwhile.
#[test]
fn a_guard_that_unlocks_for_a_while_is_not_left_without_its_lock() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let lock = Arc::new(Mutex::new(()));
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let fibers: Vec<_> = (0..12)
        .map(|n| {
            let (lock, inside, most) = (lock.clone(), inside.clone(), most.clone());
            runtime.spawn(move || {
                struct Leave<'a>(&'a AtomicUsize);
                impl Drop for Leave<'_> {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                for _ in 0..50 {
                    let mut guard = lock.lock();
                    let work = || {
                        most.fetch_max(
                            inside.fetch_add(1, Ordering::Relaxed) + 1,
                            Ordering::Relaxed,
                        );
                        let _leave = Leave(&inside);
                        sinew::yield_now();
                    };
                    let _ = catch_unwind(AssertUnwindSafe(work));
                    match n % 3 {
                        0 => lock_api::MutexGuard::bump(&mut guard),
                        1 => lock_api::MutexGuard::unlocked(&mut guard, || {
                            let _ = catch_unwind(sinew::yield_now);
                        }),
                        _ => {}
                    }
                    let _ = catch_unwind(AssertUnwindSafe(work));
                }
            })
        })
        .collect();
    sinew::wait_until(|| most.load(Ordering::Relaxed) > 0);
    fibers.iter().for_each(|fiber| fiber.cancel());
    for fiber in fibers {
        let _ = fiber.join();
    }
    assert_eq!(most.load(Ordering::Relaxed), 1);
    assert!(lock.try_lock().is_some());
}

#[test]
fn readers_do_not_keep_a_writer_out_for_ever() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let lock = Arc::new(RwLock::new(false));
        let reader = {
            let lock = lock.clone();
            sinew::spawn(move || {
                loop {
                    let written = lock.read();
                    if *written {
                        return;
                    }
                    sinew::yield_now();
                }
            })
        };
        sinew::yield_now();
        *lock.write() = true;
        reader.join().unwrap();
    });
}
