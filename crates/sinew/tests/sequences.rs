//! `Sequencer` and `Event`.

use sinew::sync::{Baton, Event, FiberFuture, Reached, Sequencer, SequencerWait, Waitable};
use sinew::sync::{wait_for_multiple, wait_timeout};
use sinew::{Runtime, WaitKind};
use sinew_testkit::{Seed, watch};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn waits(fiber: &sinew::Fiber) {
    sinew::wait_until(|| fiber.waits_for() == Some(WaitKind::Value));
}

/// Each turn comes when the previous one is over, whichever fiber is ready first.
#[test]
fn turns_come_in_order() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let shared = Arc::new((Sequencer::new(), Mutex::new(Vec::new())));
        let mut numbers: Vec<u64> = (0..200).collect();
        for index in (1..numbers.len()).rev() {
            numbers.swap(index, seed.below(index + 1));
        }
        let take = |number: u64, shared: Arc<(Sequencer, Mutex<Vec<u64>>)>| {
            move || {
                shared.0.wait(number);
                shared.1.lock().unwrap().push(number);
                shared.0.increment();
            }
        };
        let threads: Vec<_> =
            numbers[..4].iter().map(|&n| std::thread::spawn(take(n, shared.clone()))).collect();
        let fibers: Vec<_> =
            numbers[4..].iter().map(|&n| runtime.spawn(take(n, shared.clone()))).collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(shared.1.lock().unwrap().iter().copied().eq(0..200));
    }
}

/// The counter does not go back, and wakes exactly the waiters whose values it has reached.
#[test]
fn advancing_wakes_the_waiters_that_are_reached() {
    let _watch = watch::a_minute();
    let sequencer = Arc::new(Sequencer::new());
    let woken = Arc::new(AtomicUsize::new(0));
    let fibers: Vec<_> = (1..=50)
        .map(|token| {
            let (sequencer, woken) = (sequencer.clone(), woken.clone());
            sinew::spawn(move || {
                sequencer.wait(token);
                assert!(sequencer.get() >= token);
                woken.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    fibers.iter().for_each(|fiber| waits(&fiber.fiber()));
    assert!(sequencer.advance(20));
    fibers[..20].iter().for_each(|fiber| fiber.fiber().wait_finished());
    assert_eq!(woken.load(Ordering::Relaxed), 20);
    assert!(!sequencer.advance(10));
    assert_eq!(sequencer.get(), 20);
    sequencer.advance(u64::MAX);
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

/// A cancelled wait returns `Cancelled`, unless its value came first.
#[test]
fn a_cancelled_wait_returns_cancelled() {
    let _watch = watch::a_minute();
    let sequencer = Sequencer::new();
    let mut place = pin!(SequencerWait::new());
    for round in 0..3 {
        let turn = sequencer.enter(round + 1, place.as_mut());
        assert!(!turn.is_told());
        assert_eq!(turn.wait_timeout(MS), None);
        turn.cancel();
        turn.cancel();
        assert_eq!(turn.wait(), Reached::Cancelled);
        // The place can be used again.
        let turn = sequencer.enter(round + 1, place.as_mut());
        sequencer.increment();
        turn.cancel();
        assert_eq!(turn.wait(), Reached::Yes);
    }
}

/// A place that is entered cannot be entered again. A dropped place leaves no trace.
#[test]
fn places_are_entered_once_and_leave() {
    let _watch = watch::a_minute();
    let sequencer = Sequencer::new();
    {
        let mut place = pin!(SequencerWait::new());
        let _ = sequencer.enter(1, place.as_mut());
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = sequencer.enter(2, place.as_mut());
        }));
        assert!(again.is_err());
    }
    for _ in 0..100 {
        let places: Vec<_> = (0..20).map(|_| Box::pin(SequencerWait::new())).collect();
        for (token, mut place) in places.into_iter().enumerate() {
            let _ = sequencer.enter(token as u64 + 1000, place.as_mut());
            if token % 3 == 0 {
                drop(place);
            } else {
                std::mem::forget(place);
            }
        }
    }
    // Forgotten places are signalled all the same.
    sequencer.advance(2000);
}

/// A fiber that is cancelled in its wait leaves the list.
#[test]
fn cancelled_fibers_leave() {
    let _watch = watch::a_minute();
    let sequencer = Arc::new(Sequencer::new());
    let fibers: Vec<_> = (0..20)
        .map(|_| {
            let sequencer = sequencer.clone();
            sinew::spawn(move || sequencer.wait(1))
        })
        .collect();
    fibers.iter().for_each(|fiber| waits(&fiber.fiber()));
    fibers.iter().step_by(2).for_each(|fiber| fiber.cancel());
    fibers.iter().step_by(2).for_each(|fiber| fiber.fiber().wait_finished());
    sequencer.increment();
    for (n, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().is_err(), n % 2 == 0);
    }
}

/// Waits, timeouts, cancellations and increments all at once: each wait ends once, with the right
/// result.
#[test]
fn sequences_under_load() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let sequencer = Arc::new(Sequencer::new());
        let done = Arc::new(AtomicBool::new(false));
        let waiters: Vec<_> = (0..24)
            .map(|_| {
                let sequencer = sequencer.clone();
                let mut seed = seed.fork();
                runtime.spawn(move || {
                    for _ in 0..100 {
                        let token = sequencer.get() + seed.below(6) as u64;
                        match seed.below(3) {
                            0 => {
                                sequencer.wait(token);
                                assert!(sequencer.get() >= token);
                            }
                            1 => {
                                let timeout = Duration::from_micros(seed.below(60) as u64);
                                if sequencer.wait_timeout(token, timeout) {
                                    assert!(sequencer.get() >= token);
                                }
                            }
                            _ => {
                                let place = pin!(SequencerWait::new());
                                let turn = sequencer.enter(token, place);
                                if seed.below(2) == 0 {
                                    sinew::yield_now();
                                }
                                turn.cancel();
                                if turn.wait() == Reached::Yes {
                                    assert!(sequencer.get() >= token);
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        let drivers: Vec<_> = (0..2)
            .map(|_| {
                let (sequencer, done) = (sequencer.clone(), done.clone());
                std::thread::spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        sequencer.increment();
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        for (n, fiber) in waiters.into_iter().enumerate() {
            if n % 6 == 0 {
                fiber.cancel();
                let _ = fiber.join();
            } else {
                fiber.join().unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
        drivers.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn events_are_set_and_reset() {
    let _watch = watch::a_minute();
    let event = Arc::new(Event::new());
    let start = Instant::now();
    assert!(!event.wait_timeout(2 * MS));
    assert!(start.elapsed() >= 2 * MS);
    for _ in 0..50 {
        let fibers: Vec<_> = (0..5)
            .map(|_| {
                let event = event.clone();
                sinew::spawn(move || event.wait())
            })
            .collect();
        fibers.iter().for_each(|fiber| waits(&fiber.fiber()));
        event.set();
        event.set();
        // The waiters pass all the same.
        event.reset();
        event.reset();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert!(!event.is_set());
    }
    event.set();
    assert!(event.is_set() && event.wait_timeout(Duration::ZERO));
}

/// A place that is dropped where waiting is not allowed leaves the list all the same.
#[test]
fn places_are_dropped_anywhere() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder()
        .carriers(2)
        .pinned_wait(sinew::runtime::PinnedWait::Error)
        .build()
        .unwrap();
    let sequencer: &'static Sequencer = Box::leak(Box::new(Sequencer::new()));
    let done = Arc::new(AtomicBool::new(false));
    let driver = {
        let done = done.clone();
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                sequencer.increment();
            }
        })
    };
    runtime.run(|| {
        for _ in 0..300 {
            let mut place = Box::pin(SequencerWait::new());
            let _ = sequencer.enter(sequencer.get() + 100_000, place.as_mut());
            sinew::pinned(|| drop(place));
            let mut place = Some(Box::pin(SequencerWait::new()));
            let _ = sequencer.enter(sequencer.get() + 100_000, place.as_mut().unwrap().as_mut());
            sinew::wait_until(|| {
                place.take().is_none_or(|place| {
                    drop(place);
                    true
                })
            });
        }
    });
    done.store(true, Ordering::Relaxed);
    driver.join().unwrap();
}

/// Places of a sequencer can be awaited together with futures, and with a timeout.
#[test]
fn places_are_futures() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let shared = Arc::new((Sequencer::new(), Event::new(), FiberFuture::<u32>::new()));
    let (theirs, tried) = (shared.clone(), Arc::new(Baton::new()));
    let ready = tried.clone();
    let fiber = runtime.spawn(move || {
        let (sequencer, event, future) = &*theirs;
        let (place, other) = (pin!(SequencerWait::new()), pin!(SequencerWait::new()));
        let (turn, set) = (sequencer.enter(1, place), event.enter(other));
        assert!(!wait_timeout(&turn, Duration::from_millis(1)));
        ready.post();
        let mut order = Vec::new();
        let mut left: Vec<(u32, &dyn Waitable)> = vec![(1, &turn), (2, &set), (3, future)];
        while !left.is_empty() {
            let all: Vec<_> = left.iter().map(|(_, wait)| *wait).collect();
            let index = wait_for_multiple(&all).unwrap();
            order.push(left.remove(index).0);
        }
        order
    });
    tried.wait();
    shared.1.set();
    shared.2.set(7).unwrap();
    shared.0.increment();
    let mut order = fiber.join().unwrap();
    order.sort_unstable();
    assert_eq!(order, [1, 2, 3]);
}

#[test]
fn the_counter_stays_at_the_greatest_value() {
    let _watch = watch::a_minute();
    let sequencer = Sequencer::new();
    assert!(sequencer.advance(u64::MAX - 2));
    // Eight threads increment at the very end.
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                let mut last = 0;
                for _ in 0..1000 {
                    let value = sequencer.increment();
                    assert!(value >= last && value > u64::MAX - 2);
                    last = value;
                }
            });
        }
    });
    assert_eq!((sequencer.get(), sequencer.increment()), (u64::MAX, u64::MAX));
    assert!(!sequencer.advance(u64::MAX));
    sequencer.wait(u64::MAX);
}
