//! Locks and condition variables.

use super::{Member, ROUNDS, in_every_pairing, pause};
use crate::kit::{LONG, MS};
use sinew::manager::{EventLoop, manager_for};
use sinew::sync::{Baton, Condvar, FairMutex, MultiLock, Mutex, RwLock};
use sinew_testkit::{Seed, watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn mutexes() {
    in_every_pairing(|stage, first, second| {
        let mutex = Arc::new(Mutex::new((0, 0)));
        let work = |mutex: Arc<Mutex<(usize, usize)>>| {
            move || {
                for n in 0..ROUNDS {
                    let mut pair = mutex.lock();
                    pair.0 += 1;
                    pause(n);
                    assert_eq!(pair.0, pair.1 + 1);
                    pair.1 += 1;
                }
            }
        };
        let members = [first, second].map(|side| stage.start(side, work(mutex.clone())));
        members.into_iter().for_each(Member::end);
        assert_eq!(*mutex.lock(), (2 * ROUNDS, 2 * ROUNDS));
    });
}

#[test]
fn timed_locks() {
    in_every_pairing(|stage, first, second| {
        let mutex = Arc::new(Mutex::new(0));
        let (held, release) = (Arc::new(Baton::new()), Arc::new(Baton::new()));
        let holder = stage.start(first, {
            let (mutex, held, release) = (mutex.clone(), held.clone(), release.clone());
            move || {
                let mut guard = mutex.lock();
                held.post();
                release.wait();
                *guard += 1;
            }
        });
        let taker = stage.start(second, move || {
            held.wait();
            assert!(mutex.try_lock().is_none());
            assert!(mutex.try_lock_for(MS).is_none());
            release.post();
            *mutex.try_lock_for(LONG).unwrap()
        });
        assert_eq!(taker.end(), 1);
        holder.end();
    });
}

#[test]
fn fair_mutexes() {
    in_every_pairing(|stage, first, second| {
        let mutex = Arc::new(FairMutex::new(0));
        let members = [first, second].map(|side| {
            let mutex = mutex.clone();
            stage.start(side, move || {
                for n in 0..ROUNDS {
                    let mut count = mutex.lock();
                    let seen = *count;
                    pause(n);
                    *count = seen + 1;
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(*mutex.lock(), 2 * ROUNDS);
    });
}

#[test]
fn reader_writer_locks() {
    in_every_pairing(|stage, first, second| {
        let lock = Arc::new(RwLock::new((0, 0)));
        let members = [first, second].map(|side| {
            let lock = lock.clone();
            stage.start(side, move || {
                for n in 0..ROUNDS {
                    if n % 4 == 0 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        pause(n);
                        pair.1 += 1;
                    } else {
                        let pair = lock.read();
                        pause(n + 7);
                        assert_eq!(pair.0, pair.1);
                    }
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(*lock.read(), (ROUNDS / 2, ROUNDS / 2));
    });
}

#[test]
fn condition_variables() {
    in_every_pairing(|stage, first, second| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let members = [(first, 0), (second, 1)].map(|(side, parity)| {
            let shared = shared.clone();
            stage.start(side, move || {
                let (turn, changed) = &*shared;
                for _ in 0..ROUNDS {
                    let mut turn = turn.lock();
                    changed.wait_while(&mut turn, |turn| *turn % 2 != parity);
                    *turn += 1;
                    changed.notify_all();
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(*shared.0.lock(), 2 * ROUNDS);
    });
}

#[test]
fn keys() {
    in_every_pairing(|stage, first, second| {
        let shared = Arc::new((MultiLock::new(), [AtomicUsize::new(0), AtomicUsize::new(0)]));
        let members = [first, second, first].map(|side| {
            let shared = shared.clone();
            stage.start(side, move || {
                for n in 0..ROUNDS {
                    let key = n % 2;
                    shared.0.with(key as u64, || {
                        let seen = shared.1[key].load(Ordering::Relaxed);
                        pause(n);
                        shared.1[key].store(seen + 1, Ordering::Relaxed);
                    });
                }
            })
        });
        members.into_iter().for_each(Member::end);
        let counts = shared.1.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [3 * ROUNDS / 2, 3 * ROUNDS / 2]);
    });
}

/// Threads and fibers lock one mutex, and hold it while they wait.
#[test]
fn threads_and_fibers_do_not_deadlock_each_other() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let mutex = Arc::new(Mutex::new(0));
    let theirs = mutex.clone();
    let thread = std::thread::spawn(move || {
        for _ in 0..100 {
            *theirs.lock() += 1;
            std::thread::yield_now();
        }
    });
    for n in 0..50 {
        let mutex = mutex.clone();
        manager.add_task(move || {
            for round in 0..20 {
                let mut count = mutex.lock();
                if (n + round) % 10 == 0 {
                    assert!(!Baton::new().wait_timeout(MS / 10));
                }
                *count += 1;
                drop(count);
                sinew::yield_now();
            }
        });
    }
    events.run();
    assert!(!manager.has_tasks());
    thread.join().unwrap();
    assert_eq!(*mutex.lock(), 1100);
}

/// Readers and writers of managers on several threads. Some writers become readers.
#[test]
fn readers_and_writers_of_many_managers() {
    let _watch = watch::a_minute();
    const THREADS: usize = 3;
    const READERS: usize = 100;
    const WRITERS: usize = 20;
    let lock = Arc::new(RwLock::new((0, 0)));
    let reads = Arc::new(AtomicUsize::new(0));
    let mut seed = Seed::from_env();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (lock, reads, mut seed) = (lock.clone(), reads.clone(), seed.fork());
            std::thread::spawn(move || {
                let events = EventLoop::new().unwrap();
                let manager = manager_for(&events);
                for _ in 0..READERS {
                    let (lock, reads) = (lock.clone(), reads.clone());
                    let waits = seed.below(10) == 0;
                    manager.add_task(move || {
                        for _ in 0..10 {
                            let pair = lock.read();
                            if waits {
                                assert!(!Baton::new().wait_timeout(MS / 10));
                            }
                            assert_eq!(pair.0, pair.1);
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                for n in 0..WRITERS {
                    let lock = lock.clone();
                    manager.add_task(move || {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        sinew::yield_now();
                        pair.1 += 1;
                        if n % 10 == 0 {
                            let seen = pair.1;
                            let read = lock_api::RwLockWriteGuard::downgrade(pair);
                            sinew::yield_now();
                            assert_eq!(read.1, seen, "no writer comes in between");
                        }
                    });
                }
                events.run();
                assert!(!manager.has_tasks());
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(reads.load(Ordering::Relaxed), THREADS * READERS * 10);
    assert_eq!(*lock.read(), (THREADS * WRITERS, THREADS * WRITERS));
}
