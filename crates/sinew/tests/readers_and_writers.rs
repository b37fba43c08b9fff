//! The order of readers and writers at a `RwLock`: `InTurn`, `ReadersFirst`, `WritersFirst`.

use sinew::manager::{FiberManager, Options, SimpleLoopController};
use sinew::sync::{
    InTurn, Priority, RawRwLock, ReadersFirst, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard,
    WritersFirst,
};
use sinew::{FiberState, JoinHandle, Runtime, WaitKind};
use sinew_testkit::{Seed, watch};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const _: () = assert!(size_of::<RawRwLock<InTurn>>() == 8);
const _: () = assert!(size_of::<RawRwLock<ReadersFirst>>() == 8);
const _: () = assert!(size_of::<RwLock<u64, WritersFirst>>() == 16);

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

type Lock<P> = Arc<RwLock<u32, P>>;

fn lock<P: Priority>() -> Lock<P> {
    Arc::new(RwLock::with_priority(0, P::default()))
}

/// Runs `f` on one carrier, where other fibers run only while `f` waits.
fn stepped(f: impl FnOnce() + Send + 'static) {
    Runtime::builder().carriers(1).build().unwrap().run(f);
}

/// Starts a fiber, and returns when it waits for a lock.
fn waiting<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    let handle = sinew::spawn(f);
    let fiber = handle.fiber();
    let waits =
        || fiber.state() == FiberState::Suspended && fiber.waits_for() == Some(WaitKind::Lock);
    sinew::wait_until(waits);
    handle
}

fn writer<P: Priority>(lock: &Lock<P>) -> JoinHandle<()> {
    let lock = lock.clone();
    waiting(move || *lock.write() += 1)
}

fn reader<P: Priority>(lock: &Lock<P>) -> JoinHandle<u32> {
    let lock = lock.clone();
    waiting(move || *lock.read())
}

/// Checks that the lock is free and has no waiters.
fn is_left<T, P: Priority>(lock: &RwLock<T, P>) {
    assert!(!lock.is_locked());
    // SAFETY: the raw lock is only formatted.
    assert_eq!(format!("{:?}", unsafe { lock.raw() }), "RawRwLock(RawLock(0))");
}

/// Returns the order in which waiters are served that have come in the order `came`: `r`eaders,
/// `w`riters, `u`pgradable readers. Also returns whether the lock has an owner, and an exclusive
/// one, as soon as it is unlocked.
fn served<P: Priority>(carriers: usize, came: &'static str) -> (bool, bool, String) {
    let runtime = Runtime::builder().carriers(carriers).build().unwrap();
    runtime.run(move || {
        let lock = lock::<P>();
        let held = lock.write();
        let order = Arc::new(Mutex::new(String::new()));
        let fibers: Vec<_> = came
            .chars()
            .map(|kind| {
                let (lock, order) = (lock.clone(), order.clone());
                waiting(move || {
                    let note = || order.lock().unwrap().push(kind);
                    match kind {
                        'r' => drop((lock.read(), note())),
                        'w' => drop((lock.write(), note())),
                        _ => drop((lock.upgradable_read(), note())),
                    }
                })
            })
            .collect();
        drop(held);
        let (locked, alone) = (lock.is_locked(), lock.is_locked_exclusive());
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        is_left(&lock);
        (locked, alone, Arc::into_inner(order).unwrap().into_inner().unwrap())
    })
}

#[test]
fn waiters_are_served_by_their_priority() {
    let _watch = watch::a_minute();
    for came in ["rwrw", "wwrr", "rrwwrrww", "wrwrwrwr"] {
        let count = came.len() / 2;
        let (readers, writers) = ("r".repeat(count), "w".repeat(count));
        for carriers in [1, 2] {
            assert_eq!(served::<InTurn>(carriers, came).2, came);
            let order = served::<ReadersFirst>(carriers, came).2;
            assert_eq!(order, format!("{readers}{writers}"));
            let order = served::<WritersFirst>(carriers, came).2;
            assert_eq!(order, format!("{writers}{readers}"));
        }
        // The next owners have the lock before they run.
        let (locked, alone, _) = served::<ReadersFirst>(1, came);
        assert!(locked && !alone);
        let (locked, alone, _) = served::<WritersFirst>(1, came);
        assert!(locked && alone);
    }
    // An upgradable reader counts as a reader.
    assert_eq!(served::<InTurn>(1, "wuw").2, "wuw");
    assert_eq!(served::<ReadersFirst>(1, "wuw").2, "uww");
    assert_eq!(served::<WritersFirst>(1, "wuw").2, "wwu");
}

#[test]
fn readers_first_get_in_while_writers_wait() {
    let _watch = watch::a_minute();
    stepped(|| {
        let lock = lock::<ReadersFirst>();
        let first = lock.read();
        let writers = [writer(&lock), writer(&lock)];
        let second = lock.read();
        assert!(lock.try_read().is_some());
        assert!(lock.try_read_recursive().is_some());
        assert!(lock.try_read_for(LONG).is_some());
        assert!(lock.try_read_until(Instant::now()).is_some());
        assert!(lock.try_write_for(SHORT).is_none());
        {
            let right = lock.upgradable_read();
            assert!(lock.try_upgradable_read_for(SHORT).is_none());
            assert!(RwLockUpgradableReadGuard::try_upgrade_for(right, SHORT).is_err());
        }
        drop((first, second));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(*lock.read(), 2);
        is_left(&lock);
    });
}

#[test]
fn a_reader_may_read_again_if_readers_come_first() {
    let _watch = watch::a_minute();
    fn depth(lock: &RwLock<u32, ReadersFirst>, left: u32) -> u32 {
        let guard = lock.read();
        sinew::yield_now();
        *guard + if left > 0 { depth(lock, left - 1) } else { 0 }
    }
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let lock = lock::<ReadersFirst>();
        let outer = lock.read();
        // On threads as well as in fibers, while a writer waits all the time.
        let theirs = lock.clone();
        let writer = runtime.spawn(move || *theirs.write() += 1);
        sinew::wait_until(|| writer.fiber().waits_for() == Some(WaitKind::Lock));
        let fibers: Vec<_> = (0..10)
            .map(|_| {
                let lock = lock.clone();
                runtime.spawn(move || depth(&lock, 20))
            })
            .collect();
        let theirs = lock.clone();
        let thread = std::thread::spawn(move || depth(&theirs, 20));
        assert_eq!(depth(&lock, 20), 0);
        assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap() == 0));
        assert_eq!(thread.join().unwrap(), 0);
        assert!(!writer.is_finished());
        drop(outer);
        writer.join().unwrap();
        is_left(&lock);
    }
}

/// More readers than are woken at a time, and all hold the lock at once.
#[test]
fn all_readers_are_let_in_together_if_they_come_first() {
    let _watch = watch::a_minute();
    const READERS: usize = 50;
    for carriers in [1, 2] {
        Runtime::builder().carriers(carriers).build().unwrap().run(|| {
            let lock = lock::<ReadersFirst>();
            let held = lock.write();
            let before = writer(&lock);
            let met = Arc::new(sinew::sync::Barrier::new(READERS));
            let readers: Vec<_> = (0..READERS)
                .map(|_| {
                    let (lock, met) = (lock.clone(), met.clone());
                    waiting(move || {
                        let value = lock.read();
                        met.wait();
                        *value
                    })
                })
                .collect();
            drop(held);
            assert!(readers.into_iter().all(|reader| reader.join().unwrap() == 0));
            before.join().unwrap();
            is_left(&lock);
        });
    }
}

#[test]
fn writers_first_keep_new_readers_out() {
    let _watch = watch::a_minute();
    stepped(|| {
        let lock = lock::<WritersFirst>();
        let reading = lock.read();
        let writer = writer(&lock);
        assert!(lock.try_read().is_none());
        assert!(lock.try_read_for(SHORT).is_none());
        assert!(lock.try_read_until(Instant::now() + SHORT).is_none());
        assert!(lock.try_upgradable_read_for(SHORT).is_none());
        assert!(lock.try_write_for(SHORT).is_none());
        assert!(lock.try_read_recursive().is_some());
        let late = reader(&lock);
        drop(reading);
        // The writer has the lock before it runs.
        assert!(lock.is_locked_exclusive());
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
        assert_eq!(late.join().unwrap(), 1);
        writer.join().unwrap();
        is_left(&lock);
    });
}

/// A fiber that unlocks and locks again at once does not overtake waiters with priority.
#[test]
fn no_fiber_overtakes_waiters_with_priority() {
    let _watch = watch::a_minute();
    stepped(|| {
        let lock = lock::<WritersFirst>();
        let held = lock.write();
        let writers = [writer(&lock), writer(&lock)];
        drop(held);
        assert_eq!(*lock.read(), 2);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_left(&lock);
    });
    stepped(|| {
        let lock = lock::<ReadersFirst>();
        let held = lock.write();
        let readers = [reader(&lock), reader(&lock)];
        drop(held);
        *lock.write() += 1;
        assert_eq!(readers.map(|reader| reader.join().unwrap()), [0, 0]);
        is_left(&lock);
    });
}

/// A waiter that gives up, by its deadline or by cancellation, lets in the fibers that it kept
/// waiting.
fn gives_up<P: Priority>() {
    for cancelled in [false, true] {
        stepped(move || {
            let lock = lock::<P>();
            let reading = lock.read();
            let theirs = lock.clone();
            let timeout = if cancelled { LONG } else { SHORT };
            let timed = sinew::spawn(move || theirs.try_write_for(timeout).is_some());
            let waits = || timed.fiber().waits_for() == Some(WaitKind::Lock);
            sinew::wait_until(|| waits() || timed.is_finished());
            let readers: Vec<_> = (0..40)
                .map(|_| {
                    let lock = lock.clone();
                    sinew::spawn(move || *lock.read())
                })
                .collect();
            if cancelled {
                timed.cancel();
            }
            assert!(readers.into_iter().all(|reader| reader.join().unwrap() == 0));
            match timed.join() {
                Ok(locked) => assert!(!locked && !cancelled),
                Err(payload) => assert!(cancelled && sinew::is_cancel(&*payload)),
            }
            drop(reading);
            is_left(&lock);
        });
        // Readers give up while a writer holds the lock.
        stepped(move || {
            let lock = lock::<P>();
            let held = lock.write();
            let readers: Vec<_> = (0..40).map(|_| reader(&lock)).collect();
            let theirs = lock.clone();
            let timed = sinew::spawn(move || theirs.try_read_for(SHORT).is_some());
            let theirs = lock.clone();
            let right = waiting(move || theirs.try_upgradable_read_for(LONG).is_some());
            assert!(!timed.join().unwrap());
            let after = writer(&lock);
            if cancelled {
                readers.iter().for_each(|reader| reader.cancel());
                right.cancel();
                sinew::wait_until(|| readers.iter().all(|reader| reader.is_finished()));
            }
            drop(held);
            for reader in readers {
                assert_eq!(reader.join().is_err(), cancelled);
            }
            assert_eq!(right.join().is_err(), cancelled);
            after.join().unwrap();
            is_left(&lock);
        });
    }
}

#[test]
fn a_waiter_that_gives_up_lets_in_those_behind_it() {
    let _watch = watch::a_minute();
    gives_up::<InTurn>();
    gives_up::<ReadersFirst>();
    gives_up::<WritersFirst>();
}

/// These rules hold for every priority: a timed upgrade that gives up keeps the upgradable lock,
/// and a downgrade keeps writers out.
fn upgrades_and_downgrades<P: Priority>() {
    stepped(|| {
        let lock = lock::<P>();
        let reading = lock.read();
        let right = lock.upgradable_read();
        assert!(lock.try_upgradable_read().is_none());
        let right = RwLockUpgradableReadGuard::try_upgrade(right).unwrap_err();
        let right = RwLockUpgradableReadGuard::try_upgrade_for(right, SHORT).unwrap_err();
        let at = Instant::now() + SHORT;
        let right = RwLockUpgradableReadGuard::try_upgrade_until(right, at).unwrap_err();
        assert!(lock.try_read().is_some(), "nobody waits any more");
        drop(right);
        let theirs = lock.clone();
        let upgrade = waiting(move || {
            let right = theirs.upgradable_read();
            let mut guard = RwLockUpgradableReadGuard::try_upgrade_for(right, LONG).unwrap();
            *guard += 1;
            let guard = RwLockWriteGuard::downgrade(guard);
            assert!(theirs.try_read().is_some() && theirs.try_write().is_none());
            *guard
        });
        drop(reading);
        assert_eq!(upgrade.join().unwrap(), 1);
        let guard = RwLockWriteGuard::downgrade_to_upgradable(lock.write());
        assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_none());
        let guard = RwLockUpgradableReadGuard::downgrade(guard);
        assert!(lock.try_upgradable_read().is_some());
        drop(guard);
        is_left(&lock);
    });
}

#[test]
fn upgrades_and_downgrades_work_with_every_priority() {
    let _watch = watch::a_minute();
    upgrades_and_downgrades::<InTurn>();
    upgrades_and_downgrades::<ReadersFirst>();
    upgrades_and_downgrades::<WritersFirst>();
}

/// Starts a fiber that has the upgradable lock and waits to upgrade it.
fn upgrading<P: Priority>(lock: &Lock<P>) -> JoinHandle<()> {
    let lock = lock.clone();
    waiting(move || *RwLockUpgradableReadGuard::upgrade(lock.upgradable_read()) += 1)
}

#[test]
fn an_upgrade_waits_for_new_readers_if_they_come_first() {
    let _watch = watch::a_minute();
    stepped(|| {
        let lock = lock::<ReadersFirst>();
        let first = lock.read();
        let upgrade = upgrading(&lock);
        let second = lock.read();
        drop(first);
        let third = lock.read();
        drop(second);
        assert!(!upgrade.is_finished());
        drop(third);
        upgrade.join().unwrap();
        is_left(&lock);
    });
}

#[test]
fn an_upgrade_keeps_new_readers_out_if_writers_come_first() {
    let _watch = watch::a_minute();
    stepped(|| {
        let lock = lock::<WritersFirst>();
        let reading = lock.read();
        let upgrade = upgrading(&lock);
        let before = writer(&lock);
        assert!(lock.try_read().is_none());
        let late = reader(&lock);
        drop(reading);
        // The upgrading fiber is the owner before it runs, and the writer comes before the reader.
        assert!(lock.is_locked_exclusive());
        assert_eq!(late.join().unwrap(), 2);
        upgrade.join().unwrap();
        before.join().unwrap();
        is_left(&lock);
    });
}

#[test]
fn a_waiting_upgradable_reader_keeps_no_reader_out_if_readers_come_first() {
    let _watch = watch::a_minute();
    stepped(|| {
        let lock = lock::<ReadersFirst>();
        let right = lock.upgradable_read();
        let writes = writer(&lock);
        let theirs = lock.clone();
        let wants = waiting(move || *theirs.upgradable_read());
        let reading = lock.read();
        // While a reader reads, the waiting fiber gets the upgradable lock as soon as it is free,
        // before the writer.
        drop(right);
        assert_eq!(wants.join().unwrap(), 0);
        assert!(!writes.is_finished());
        drop(reading);
        writes.join().unwrap();
        is_left(&lock);
    });
}

#[test]
fn a_downgrade_lets_in_the_next_by_priority() {
    let _watch = watch::a_minute();
    stepped(|| {
        let lock = lock::<ReadersFirst>();
        let held = lock.write();
        let (writes, reads) = (writer(&lock), reader(&lock));
        let held = RwLockWriteGuard::downgrade(held);
        assert_eq!(reads.join().unwrap(), *held);
        assert!(!writes.is_finished());
        drop(held);
        writes.join().unwrap();
        is_left(&lock);
    });
    stepped(|| {
        let lock = lock::<WritersFirst>();
        let held = lock.write();
        let (reads, writes) = (reader(&lock), writer(&lock));
        let held = RwLockWriteGuard::downgrade(held);
        assert!(lock.try_read().is_none());
        sinew::yield_now();
        assert!(!reads.is_finished());
        drop(held);
        assert_eq!(reads.join().unwrap(), 1);
        writes.join().unwrap();
        is_left(&lock);
    });
}

#[test]
fn locks_of_every_priority_have_the_usual_methods() {
    let _watch = watch::a_minute();
    let lock = RwLock::with_priority([1, 2, 3], WritersFirst);
    let sizeless: &RwLock<[i32], WritersFirst> = &lock;
    assert_eq!(sizeless.read().iter().sum::<i32>(), 6);
    assert_eq!(format!("{lock:?}"), "RwLock { data: [1, 2, 3] }");
    assert_eq!(lock.into_inner(), [1, 2, 3]);
    let mut lock = RwLock::<u32, ReadersFirst>::default();
    *lock.get_mut() += 1;
    let write = lock.write();
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.read())));
    assert!(again.unwrap_err().downcast::<String>().unwrap().starts_with("deadlock"));
    RwLockWriteGuard::unlock_fair(write);
    assert_eq!(*lock.read(), 1);
}

/// Fibers of a runtime and of a manager, and threads, lock in every way, give up and are cancelled.
fn under_load<P: Priority>() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let lock = Arc::new(RwLock::with_priority((0_u64, 0_u64), P::default()));
        let writes = Arc::new(AtomicUsize::new(0));
        let work = |mut seed: Seed| {
            let (lock, writes) = (lock.clone(), writes.clone());
            let write = move |pair: &mut (u64, u64), waits: bool| {
                assert_eq!(pair.0, pair.1);
                // A fiber that is cancelled here leaves nothing half done.
                sinew::masked(|| {
                    pair.0 += 1;
                    if waits {
                        sinew::yield_now();
                    }
                    pair.1 += 1;
                });
                writes.fetch_add(1, Ordering::Relaxed);
            };
            move || {
                for _ in 0..100 {
                    let timeout = Duration::from_micros(seed.below(50) as u64);
                    let waits = seed.below(3) == 0;
                    match seed.below(7) {
                        0 => write(&mut lock.write(), waits),
                        1 => {
                            if let Some(mut pair) = lock.try_write_for(timeout) {
                                write(&mut pair, waits);
                            }
                        }
                        2 => {
                            if let Some(pair) = lock.try_read_for(timeout) {
                                assert_eq!(pair.0, pair.1);
                            }
                        }
                        3 => {
                            let right = lock.upgradable_read();
                            if waits {
                                sinew::yield_now();
                            }
                            let seen = *right;
                            let upgraded =
                                RwLockUpgradableReadGuard::try_upgrade_for(right, timeout);
                            if let Ok(mut pair) = upgraded {
                                assert_eq!(*pair, seen, "nobody wrote in between");
                                write(&mut pair, waits);
                            }
                        }
                        4 => {
                            let mut pair = lock.write();
                            write(&mut pair, false);
                            let pair = RwLockWriteGuard::downgrade(pair);
                            let seen = *pair;
                            if waits {
                                sinew::yield_now();
                            }
                            assert_eq!(*pair, seen);
                        }
                        _ => {
                            let pair = lock.read();
                            if waits {
                                sinew::yield_now();
                            }
                            assert_eq!(pair.0, pair.1);
                        }
                    }
                }
            }
        };
        let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(work(seed.fork()))).collect();
        let tasks: Vec<_> = (0..5).map(|_| work(seed.fork())).collect();
        let manager = std::thread::spawn(move || {
            let controller = SimpleLoopController::new();
            let manager = FiberManager::new(controller.clone(), Options::new()).unwrap();
            let tasks = tasks.into_iter().map(|task| manager.add_task_future(task));
            let tasks: Vec<_> = tasks.collect();
            controller.run();
            tasks.into_iter().for_each(|task| task.get().unwrap());
        });
        let fibers: Vec<_> = (0..30).map(|_| runtime.spawn(work(seed.fork()))).collect();
        for (n, fiber) in fibers.into_iter().enumerate() {
            if n % 10 == 9 {
                fiber.cancel();
                let _ = fiber.join();
            } else {
                fiber.join().unwrap();
            }
        }
        threads.into_iter().chain([manager]).for_each(|thread| thread.join().unwrap());
        let pair = *lock.try_write().expect("all have left");
        assert_eq!(pair, (writes.load(Ordering::Relaxed) as u64, pair.0));
        is_left(&lock);
    }
}

#[test]
fn in_turn_under_load() {
    under_load::<InTurn>();
}

#[test]
fn readers_first_under_load() {
    under_load::<ReadersFirst>();
}

#[test]
fn writers_first_under_load() {
    under_load::<WritersFirst>();
}
