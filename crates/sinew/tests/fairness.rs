//! Every ready fiber gets turns.

use sinew::Runtime;
use sinew_testkit::watch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn one_carrier() -> Runtime {
    Runtime::builder().carriers(1).build().unwrap()
}

/// The processor time of this thread, which excludes time that other threads took.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock and place.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The carrier is never idle here, so its processor time is the time that passes. On a virtual
/// machine, time that the host takes away counts too. So one quiet round of several is enough. If
/// the sleeper had to wait for the yielding fiber, no round would be quiet.
#[test]
fn a_sleeper_wakes_beside_a_fiber_that_yields() {
    let _watch = watch::a_minute();
    let mut rounds = (0..20).map(|_| lateness_beside_one_that_yields());
    let quiet = rounds.any(|p99| p99 < Duration::from_millis(2));
    assert!(quiet, "one sleep of a hundred took more than twice as long in every round");
}

/// Returns the 99th percentile of the durations of 300 sleeps of one millisecond.
fn lateness_beside_one_that_yields() -> Duration {
    let mut took = one_carrier().run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let busy = sinew::spawn(move || {
            while !theirs.load(Ordering::Relaxed) {
                sinew::yield_now();
            }
        });
        sinew::yield_now();
        let took: Vec<Duration> = (0..300)
            .map(|_| {
                let start = thread_time();
                sinew::sleep(Duration::from_millis(1));
                thread_time() - start
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        took
    });
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

/// Lets `count` fibers take turns for a while. Returns how many turns each got.
fn turns(count: usize, body: impl Fn(usize) + Send + Sync + Clone + 'static) -> Vec<u64> {
    one_carrier().run(move || {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Arc<Vec<AtomicU64>> = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
        let fibers: Vec<_> = (0..count)
            .map(|index| {
                let (stop, counts, body) = (stop.clone(), counts.clone(), body.clone());
                sinew::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        counts[index].fetch_add(1, Ordering::Relaxed);
                        body(index);
                    }
                })
            })
            .collect();
        // On a busy machine, a while may be too short for every fiber to begin.
        let all = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
        while {
            sinew::sleep(Duration::from_millis(100));
            all() < 100 * count as u64
        } {}
        stop.store(true, Ordering::Relaxed);
        for fiber in fibers {
            fiber.fiber().unpark();
            fiber.join().unwrap();
        }
        counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    })
}

#[test]
fn each_of_many_gets_its_share() {
    let _watch = watch::a_minute();
    for count in [2, 10, 500] {
        let turns = turns(count, |_| sinew::yield_now());
        let all: u64 = turns.iter().sum();
        let least = *turns.iter().min().unwrap();
        assert!(least as f64 >= 0.5 * all as f64 / count as f64, "{least} of {all} by {count}");
    }
}

/// Two fibers that wake each other all the time use the slot. The other fibers must not starve.
#[test]
fn the_slot_does_not_starve_the_queue() {
    let _watch = watch::a_minute();
    let shares = one_carrier().run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let pings = Arc::new(AtomicU64::new(0));
        let (stopped, count, me) = (stop.clone(), pings.clone(), sinew::current());
        let pong = sinew::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                sinew::park();
                count.fetch_add(1, Ordering::Relaxed);
                me.unpark();
            }
        });
        let others: Vec<_> = (0..8)
            .map(|_| {
                let stop = stop.clone();
                sinew::spawn(move || {
                    let mut turns = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        turns += 1;
                        sinew::yield_now();
                    }
                    turns
                })
            })
            .collect();
        let end = Instant::now() + Duration::from_millis(100);
        while Instant::now() < end {
            pong.fiber().unpark();
            sinew::park();
        }
        stop.store(true, Ordering::Relaxed);
        pong.fiber().unpark();
        pong.join().unwrap();
        let least = others.into_iter().map(|other| other.join().unwrap()).min().unwrap();
        (pings.load(Ordering::Relaxed), least)
    });
    // Ten fibers: two that ping, eight that yield.
    let (pings, least) = shares;
    assert!(least * 4 >= pings, "{least} turns beside {pings} pings");
}

/// Fibers that have not started get turns beside fibers that are always ready.
#[test]
fn unstarted_fibers_start_beside_busy_ones() {
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let busy: Vec<_> = (0..3)
            .map(|_| {
                let stop = stop.clone();
                sinew::spawn_local(move || {
                    while !stop.load(Ordering::Relaxed) {
                        sinew::yield_now();
                    }
                })
            })
            .collect();
        let started = Arc::new(AtomicU64::new(0));
        let fibers: Vec<_> = (0..1000)
            .map(|_| {
                let started = started.clone();
                sinew::spawn(move || started.fetch_add(1, Ordering::Relaxed))
            })
            .collect();
        let mut turns = 0;
        while started.load(Ordering::Relaxed) < 1000 {
            turns += 1;
            assert!(turns < 4000, "only {started:?} of 1000 began in {turns} turns");
            sinew::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        for fiber in fibers {
            fiber.join().unwrap();
        }
        busy.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

/// A fiber that keeps its carrier busy does not keep unstarted fibers from running elsewhere.
#[test]
fn work_leaves_a_carrier_that_is_blocked() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    for count in [1, 2, 50] {
        runtime.run(move || {
            let fibers: Vec<_> = (0..count).map(|_| sinew::spawn(|| ())).collect();
            // Block the thread, without a wait of sinew's.
            let end = Instant::now() + Duration::from_secs(30);
            while !fibers.iter().all(sinew::JoinHandle::is_finished) {
                assert!(Instant::now() < end, "unstarted fibers stay with a blocked carrier");
                std::thread::sleep(Duration::from_micros(100));
            }
        });
    }
}
