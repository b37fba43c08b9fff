//! Semaphores: permits are conserved, and reach every waiter.

use super::{Member, ROUNDS, in_every_pairing, pause};
use crate::kit::{LONG, kept, simple};
use sinew::select;
use sinew::sync::Semaphore;
use sinew_testkit::watch;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn semaphores() {
    in_every_pairing(|stage, first, second| {
        let (semaphore, inside) = (Arc::new(Semaphore::new(3)), Arc::new(AtomicUsize::new(0)));
        let members = [first, second, first, second].map(|side| {
            let (semaphore, inside) = (semaphore.clone(), inside.clone());
            stage.start(side, move || {
                for n in 0..ROUNDS {
                    let count = 1 + n % 2;
                    let permits = match n % 3 {
                        0 => semaphore.acquire_many(count),
                        1 => semaphore.acquire_timeout(count, LONG).unwrap(),
                        _ => match semaphore.try_acquire_many(count) {
                            Some(permits) => permits,
                            None => semaphore.acquire_many(count),
                        },
                    };
                    assert!(inside.fetch_add(count, Ordering::SeqCst) + count <= 3);
                    pause(n);
                    inside.fetch_sub(count, Ordering::SeqCst);
                    drop(permits);
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(semaphore.available(), 3);
    });
}

/// Fibers of managers on many threads share permits, acquired in every way.
#[test]
fn permits_of_many_managers_are_conserved() {
    let _watch = watch::a_minute();
    const PERMITS: usize = 6;
    let semaphore = Arc::new(Semaphore::new(PERMITS));
    let taken = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (semaphore, taken) = (semaphore.clone(), taken.clone());
            std::thread::spawn(move || {
                let (manager, controller) = simple();
                let done = kept(Cell::new(0));
                for _ in 0..10 {
                    let (semaphore, taken) = (semaphore.clone(), taken.clone());
                    manager.add_task(move || {
                        for n in 0..100 {
                            let count = n % 5 + 1;
                            let permits = match n % 4 {
                                0 => semaphore.acquire_many(count),
                                1 => semaphore.acquire_timeout(count, LONG).unwrap(),
                                2 => select! {
                                    wait(semaphore) -> one => {
                                        drop(one);
                                        semaphore.acquire_many(count)
                                    },
                                },
                                _ => semaphore
                                    .try_acquire_many(count)
                                    .unwrap_or_else(|| semaphore.acquire_many(count)),
                            };
                            let now = taken.fetch_add(count, Ordering::SeqCst) + count;
                            assert!(now <= PERMITS, "{now}");
                            if n % 7 == 0 {
                                sinew::yield_now();
                            }
                            taken.fetch_sub(count, Ordering::SeqCst);
                            drop(permits);
                        }
                        done.set(done.get() + 1);
                    });
                }
                controller.run();
                done.get()
            })
        })
        .collect();
    let done: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(done, 40);
    assert_eq!((semaphore.available(), taken.load(Ordering::SeqCst)), (PERMITS, 0));
}

/// Waiters for more permits than are available wait in their order of arrival, and all of them get
/// their permits.
#[test]
fn permits_of_different_counts_reach_every_waiter() {
    let _watch = watch::a_minute();
    const MOST: usize = 5;
    let (manager, controller) = simple();
    let semaphore = kept(Semaphore::new(MOST));
    semaphore.acquire_many(MOST).forget();
    let served = kept(Cell::new(0));
    for count in 1..=MOST {
        manager.add_task(move || {
            let permits = semaphore.acquire_timeout(count, LONG).expect("it is served");
            sinew::yield_now();
            served.set(served.get() + 1);
            drop(permits);
        });
    }
    manager.add_task(|| semaphore.add(MOST));
    controller.run();
    assert_eq!((served.get(), semaphore.available()), (MOST, MOST));
}

#[test]
fn a_permit_publishes_earlier_writes() {
    let _watch = watch::a_minute();
    for _ in 0..200 {
        let (semaphore, data) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (theirs, read) = (semaphore.clone(), data.clone());
        let thread = std::thread::spawn(move || {
            theirs.acquire().forget();
            read.load(Ordering::Relaxed)
        });
        data.store(1, Ordering::Relaxed);
        semaphore.add(1);
        assert_eq!(thread.join().unwrap(), 1);
    }
}
