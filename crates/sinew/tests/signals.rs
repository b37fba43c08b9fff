//! `Futex`, `Semaphore`, `Baton`, `WaitGroup`, `Barrier`, `Once`, `OnceLock`, `LazyLock`.

use sinew::sync::{Barrier, Baton, Futex, LazyLock, Once, OnceLock, Semaphore, WaitGroup};
use sinew::{Runtime, WaitKind};
use sinew_testkit::{Seed, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn waits(fiber: &sinew::Fiber, kind: WaitKind) {
    sinew::wait_until(|| fiber.waits_for() == Some(kind));
}

#[test]
fn no_post_is_missed() {
    let _watch = watch::a_minute();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let shared = Arc::new((Futex::new(), AtomicUsize::new(0)));
        const ROUNDS: usize = 300;
        let waiter = |shared: Arc<(Futex, AtomicUsize)>| {
            move || {
                let (futex, value) = &*shared;
                let mut seen = 0;
                while seen < ROUNDS {
                    let token = futex.get();
                    let now = value.load(Ordering::Acquire);
                    assert!(now >= seen);
                    seen = now;
                    if seen < ROUNDS {
                        futex.wait(token + 1);
                    }
                }
            }
        };
        let fibers: Vec<_> = (0..8).map(|_| runtime.spawn(waiter(shared.clone()))).collect();
        let thread = std::thread::spawn(waiter(shared.clone()));
        for _ in 0..ROUNDS {
            shared.1.fetch_add(1, Ordering::Release);
            shared.0.post();
        }
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        thread.join().unwrap();
        assert_eq!(shared.0.get(), ROUNDS as u64);
    }
}

#[test]
fn one_post_wakes_one_waiter() {
    let _watch = watch::a_minute();
    let futex = Arc::new(Futex::new());
    let woken = Arc::new(AtomicUsize::new(0));
    let fibers: Vec<_> = (0..5)
        .map(|_| {
            let (futex, woken) = (futex.clone(), woken.clone());
            sinew::spawn(move || {
                futex.wait(1);
                woken.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    fibers.iter().for_each(|fiber| waits(&fiber.fiber(), WaitKind::Event));
    futex.post_one();
    sinew::wait_until(|| woken.load(Ordering::Relaxed) == 1);
    sinew::sleep(2 * MS);
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    for _ in 0..3 {
        futex.post_one();
    }
    sinew::wait_until(|| woken.load(Ordering::Relaxed) == 4);
    // The mark is still there for the last waiter.
    futex.post();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

/// A waiter for a higher value does not use up a post.
#[test]
fn one_post_wakes_a_waiter_whose_value_is_reached() {
    let _watch = watch::a_minute();
    let futex = Arc::new(Futex::new());
    let wait_for = |token| {
        let futex = futex.clone();
        let fiber = sinew::spawn(move || futex.wait(token));
        waits(&fiber.fiber(), WaitKind::Event);
        fiber
    };
    let (patient, modest) = (wait_for(3), wait_for(1));
    futex.post_one();
    modest.join().unwrap();
    assert!(!patient.is_finished());
    futex.post_one();
    assert!(!patient.is_finished());
    futex.post_one();
    patient.join().unwrap();
}

#[test]
fn timed_waits_return_whether_they_succeeded() {
    let _watch = watch::a_minute();
    let check = || {
        let futex = Futex::new();
        let start = Instant::now();
        assert!(!futex.wait_timeout(1, 3 * MS));
        assert!(start.elapsed() >= 3 * MS);
        futex.post();
        assert!(futex.wait_timeout(1, Duration::MAX));
        assert!(futex.wait_timeout(1, Duration::ZERO));
        let permits = Semaphore::new(1);
        assert!(permits.acquire_timeout(2, MS).is_none());
        assert!(permits.acquire_timeout(1, Duration::ZERO).is_some());
        assert!(permits.acquire_deadline(2, Instant::now() + MS).is_none());
        assert!(permits.acquire_deadline(1, Instant::now()).is_some());
        assert!(!Baton::new().wait_timeout(MS));
    };
    check();
    sinew::run(check);
}

#[test]
fn permits_are_conserved() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let permits = Arc::new(Semaphore::new(5));
        let used = Arc::new(AtomicUsize::new(0));
        let work = |mut seed: Seed, permits: Arc<Semaphore>, used: Arc<AtomicUsize>| {
            move || {
                for _ in 0..100 {
                    let count = 1 + seed.below(4);
                    let taken = if seed.below(3) == 0 {
                        permits.acquire_timeout(count, Duration::from_micros(seed.below(80) as u64))
                    } else {
                        Some(permits.acquire_many(count))
                    };
                    let Some(taken) = taken else { continue };
                    struct Use<'a>(&'a AtomicUsize, usize);
                    impl Drop for Use<'_> {
                        fn drop(&mut self) {
                            self.0.fetch_sub(self.1, Ordering::Relaxed);
                        }
                    }
                    assert!(used.fetch_add(count, Ordering::Relaxed) + count <= 5);
                    let _use = Use(&used, count);
                    if seed.below(2) == 0 {
                        sinew::yield_now();
                    }
                    drop(_use);
                    drop(taken);
                }
            }
        };
        let fibers: Vec<_> = (0..20)
            .map(|_| runtime.spawn(work(seed.fork(), permits.clone(), used.clone())))
            .collect();
        let thread = std::thread::spawn(work(seed.fork(), permits.clone(), used.clone()));
        for (n, fiber) in fibers.into_iter().enumerate() {
            if n % 5 == 0 {
                fiber.cancel();
                let _ = fiber.join();
            } else {
                fiber.join().unwrap();
            }
        }
        thread.join().unwrap();
        assert_eq!(permits.available(), 5);
        assert!(permits.try_acquire_many(5).is_some());
    }
}

#[test]
fn permits_are_given_in_the_order_of_arrival() {
    let _watch = watch::a_minute();
    let permits = Arc::new(Semaphore::new(2));
    let one = permits.acquire();
    let large = {
        let permits = permits.clone();
        sinew::spawn(move || drop(permits.acquire_many(2)))
    };
    waits(&large.fiber(), WaitKind::Semaphore);
    assert!(permits.try_acquire().is_none(), "somebody was first");
    let small = {
        let permits = permits.clone();
        sinew::spawn(move || drop(permits.acquire()))
    };
    waits(&small.fiber(), WaitKind::Semaphore);
    // The first waiter leaves, so the next need not wait.
    large.cancel();
    small.join().unwrap();
    assert!(large.join().is_err());
    drop(one);
    assert_eq!(permits.available(), 2);
}

#[test]
fn too_many_permits_are_an_error() {
    let full = Semaphore::new(Semaphore::MAX_PERMITS);
    assert!(catch_unwind(AssertUnwindSafe(|| full.add(1))).is_err());
    assert_eq!(full.available(), Semaphore::MAX_PERMITS);
    assert!(catch_unwind(|| Semaphore::new(usize::MAX)).is_err());
    let few = Semaphore::new(1);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(few.acquire_many(usize::MAX)))).is_err());
    assert!(few.try_acquire_many(0).is_some());
}

#[test]
fn all_parts_are_waited_for() {
    let _watch = watch::a_minute();
    let done = Arc::new(AtomicUsize::new(0));
    let group = WaitGroup::new();
    for n in 0..50_u64 {
        let (part, done) = (group.clone(), done.clone());
        sinew::spawn(move || {
            sinew::sleep(Duration::from_micros(n * 10));
            done.fetch_add(1, Ordering::Relaxed);
            assert!(n % 10 != 0, "on purpose"); // parts end by panics, too
            drop(part);
        });
    }
    group.wait();
    assert_eq!(done.load(Ordering::Relaxed), 50);
}

#[test]
fn rounds_of_a_barrier() {
    let _watch = watch::a_minute();
    for carriers in [1, 3] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        const SIZE: usize = 40;
        let shared = Arc::new((Barrier::new(SIZE), AtomicUsize::new(0), AtomicUsize::new(0)));
        let work = |shared: Arc<(Barrier, AtomicUsize, AtomicUsize)>| {
            move || {
                let (barrier, there, leaders) = &*shared;
                for round in 1..=20 {
                    there.fetch_add(1, Ordering::Relaxed);
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(1, Ordering::Relaxed);
                    }
                    let there = there.load(Ordering::Relaxed);
                    assert!(there >= round * SIZE && there <= (round + 1) * SIZE);
                }
            }
        };
        let fibers: Vec<_> = (1..SIZE).map(|_| runtime.spawn(work(shared.clone()))).collect();
        work(shared.clone())();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(shared.2.load(Ordering::Relaxed), 20);
    }
    assert!(Barrier::new(0).wait().is_leader());
}

#[test]
fn a_cancelled_waiter_does_not_count_at_a_barrier() {
    let _watch = watch::a_minute();
    let barrier = Arc::new(Barrier::new(2));
    let wait = || {
        let barrier = barrier.clone();
        sinew::spawn(move || barrier.wait().is_leader())
    };
    let first = wait();
    waits(&first.fiber(), WaitKind::Event);
    first.cancel();
    assert!(first.join().is_err());
    let second = wait();
    waits(&second.fiber(), WaitKind::Event);
    assert!(barrier.wait().is_leader());
    assert!(!second.join().unwrap());
}

#[test]
fn a_once_runs_once() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let shared = Arc::new((Once::new(), AtomicUsize::new(0), OnceLock::new()));
    let fibers: Vec<_> = (0..30)
        .map(|n| {
            let shared = shared.clone();
            runtime.spawn(move || {
                let (once, count, value) = &*shared;
                once.call_once(|| {
                    sinew::sleep(MS);
                    count.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(count.load(Ordering::Relaxed), 1);
                *value.get_or_init(|| {
                    sinew::yield_now();
                    n
                })
            })
        })
        .collect();
    let values: Vec<i32> = fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect();
    assert!(values.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_failed_once_is_tried_again() {
    let _watch = watch::a_minute();
    let once = Once::new();
    assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| panic!("on purpose")))).is_err());
    assert!(!once.is_completed());
    let recursive = catch_unwind(AssertUnwindSafe(|| once.call_once(|| once.call_once(|| ()))));
    assert!(recursive.is_err());
    // If the closure is cancelled, a waiter runs its own.
    let once = Arc::new(Once::new());
    let first = {
        let once = once.clone();
        sinew::spawn(move || once.call_once(|| sinew::sleep(Duration::MAX)))
    };
    waits(&first.fiber(), WaitKind::Sleep);
    let ran = Arc::new(AtomicBool::new(false));
    let second = {
        let (once, ran) = (once.clone(), ran.clone());
        sinew::spawn(move || once.call_once(|| ran.store(true, Ordering::Relaxed)))
    };
    waits(&second.fiber(), WaitKind::Lock);
    first.cancel();
    second.join().unwrap();
    assert!(ran.load(Ordering::Relaxed) && once.is_completed());
}

#[test]
fn a_lazy_value_is_not_lost_by_cancellation() {
    let _watch = watch::a_minute();
    static VALUE: LazyLock<u32> = LazyLock::new(|| {
        sinew::sleep(20 * MS);
        7
    });
    let fiber = sinew::spawn(|| {
        let value = *VALUE;
        sinew::yield_now();
        value
    });
    waits(&fiber.fiber(), WaitKind::Sleep);
    fiber.cancel();
    assert_eq!(*VALUE, 7);
    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    let broken: LazyLock<u32> = LazyLock::new(|| panic!("on purpose"));
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| *broken)).is_err());
    }
}

/// More waiters than one round takes: groups pass one after the other, each with one leader.
#[test]
fn a_barrier_serves_groups() {
    let _watch = watch::a_minute();
    for _ in 0..500 {
        let barrier = Arc::new(Barrier::new(2));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let barrier = barrier.clone();
                std::thread::spawn(move || barrier.wait().is_leader())
            })
            .collect();
        let leaders = threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(()));
        assert_eq!(leaders.count(), 2);
    }
}
