//! Tickets of a `FairMutex`: turns that are taken first and waited for later.

use sinew::sync::{Baton, FairMutex, FairMutexPlace, FiberFuture, Waitable};
use sinew::sync::{wait_for_multiple, wait_timeout};
use sinew::{Runtime, select};
use sinew_testkit::{Seed, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn tickets_come_in_the_order_in_which_they_were_taken() {
    let _watch = watch::a_minute();
    let mutex = FairMutex::new(Vec::new());
    let mut guard = mutex.lock();
    let (mut first, second) = (pin!(FairMutexPlace::new()), pin!(FairMutexPlace::new()));
    let earlier = mutex.enter(first.as_mut());
    let later = mutex.enter(second);
    assert!(!earlier.has_come() && !later.has_come());
    guard.push(0);
    drop(guard);
    assert!(earlier.has_come() && !later.has_come());
    earlier.wait().push(1);
    assert!(later.has_come());
    later.wait().push(2);
    // A place can be used again.
    mutex.enter(first).wait().push(3);
    assert_eq!(*mutex.lock(), [0, 1, 2, 3]);
}

/// The place is dropped before its turn has come, after it, and while others are behind it.
#[test]
fn an_abandoned_ticket_passes_its_turn() {
    let _watch = watch::a_minute();
    let mutex = FairMutex::new(());
    for come in [false, true] {
        let mut guard = Some(mutex.lock());
        let last = pin!(FairMutexPlace::new());
        let behind = {
            let place = pin!(FairMutexPlace::new());
            let abandoned = mutex.enter(place);
            let behind = mutex.enter(last);
            if come {
                guard.take();
            }
            assert_eq!(abandoned.has_come(), come);
            assert!(!behind.has_come());
            behind
        };
        drop(guard);
        assert!(behind.has_come());
        drop(behind.wait());
    }
    assert!(mutex.try_lock().is_some());
}

#[test]
fn a_ticket_that_waits_in_vain_keeps_its_turn() {
    let _watch = watch::a_minute();
    let mutex = FairMutex::new(7);
    let (guard, tried) = (mutex.lock(), Baton::new());
    std::thread::scope(|s| {
        s.spawn(|| {
            let place = pin!(FairMutexPlace::new());
            let ticket = mutex.enter(place);
            assert!(!wait_timeout(&ticket, Duration::from_millis(1)));
            let ticket = ticket.wait_timeout(Duration::from_millis(1)).unwrap_err();
            tried.post();
            let never = FiberFuture::<()>::new();
            let either: [&dyn Waitable; 2] = [&never, &ticket];
            assert_eq!(wait_for_multiple(&either), Some(1));
            assert_eq!(*ticket.wait(), 7);
        });
        tried.wait();
        drop(guard);
    });
    assert!(mutex.try_lock().is_some());
}

#[test]
fn a_ticket_is_an_arm() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let mutex = FairMutex::new(7);
        let guard = mutex.lock();
        let place = pin!(FairMutexPlace::new());
        let ticket = mutex.enter(place);
        select! {
            wait(ticket) -> () => unreachable!(),
            default(Duration::from_millis(1)) => {},
        }
        drop(guard);
        let value = select! {
            wait(ticket) -> () => *ticket.wait(),
        };
        assert_eq!(value, 7);
    });
}

#[test]
fn misused_tickets_are_reported() {
    let _watch = watch::a_minute();
    let mutex = FairMutex::new(());
    let message = |misuse: &mut dyn FnMut()| {
        let payload = catch_unwind(AssertUnwindSafe(misuse)).unwrap_err();
        *payload.downcast::<String>().unwrap_or_else(|payload| {
            Box::new((*payload.downcast::<&str>().expect("a message")).to_owned())
        })
    };
    let guard = mutex.lock();
    // The call would wait for itself.
    let text = message(&mut || drop(mutex.lock()));
    assert!(text.contains("deadlock"), "{text}");
    let text = message(&mut || {
        let place = pin!(FairMutexPlace::new());
        drop(mutex.enter(place).wait());
    });
    assert!(text.contains("deadlock"), "{text}");
    let mut place = pin!(FairMutexPlace::new());
    mutex.enter(place.as_mut());
    let text = message(&mut || {
        mutex.enter(place.as_mut());
    });
    assert!(text.contains("already has a turn"), "{text}");
    drop(guard);
}

/// Tickets are waited for, given up, timed out and cancelled, while other fibers lock.
#[test]
fn turns_under_load() {
    let _watch = watch::a_minute();
    let mut seeds = Seed::from_env();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let mutex = Arc::new(FairMutex::new(0_u32));
        let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = {
            let (mutex, inside, done) = (mutex.clone(), inside.clone(), done.clone());
            move |mut seed: Seed| {
                struct Leave<'a>(&'a AtomicUsize);
                impl Drop for Leave<'_> {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                for _ in 0..200 {
                    let place = pin!(FairMutexPlace::new());
                    let guard = match seed.below(4) {
                        0 => Some(mutex.lock()),
                        1 => {
                            let ticket = mutex.enter(place);
                            sinew::yield_now();
                            Some(ticket.wait())
                        }
                        2 => {
                            mutex.enter(place);
                            None
                        }
                        _ => {
                            let timeout = Duration::from_micros(seed.below(50) as u64);
                            mutex.enter(place).wait_timeout(timeout).ok()
                        }
                    };
                    if let Some(mut guard) = guard {
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        let _leave = Leave(&inside);
                        if seed.below(2) == 0 {
                            sinew::yield_now();
                        }
                        *guard += 1;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        let fibers: Vec<_> = (0..16)
            .map(|_| {
                let (work, seed) = (work.clone(), seeds.fork());
                runtime.spawn(move || work(seed))
            })
            .collect();
        let thread = std::thread::spawn({
            let (work, seed) = (work.clone(), seeds.fork());
            move || work(seed)
        });
        for fiber in fibers.iter().step_by(4) {
            fiber.cancel();
        }
        for (n, fiber) in fibers.into_iter().enumerate() {
            let result = fiber.join();
            assert!(result.is_ok() || n % 4 == 0 && sinew::is_cancel(&*result.unwrap_err()));
        }
        thread.join().unwrap();
        // A cancelled fiber may have left between the two counts.
        assert!(*mutex.lock() as usize >= done.load(Ordering::Relaxed));
        assert_eq!(inside.load(Ordering::Relaxed), 0);
    }
}

/// A waiter that has just become the owner is not mistaken for an owner that locks again.
#[test]
fn a_turn_that_comes_as_it_is_waited_for() {
    let _watch = watch::a_minute();
    let mutex = FairMutex::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for round in 0..5000 {
                    let place = pin!(FairMutexPlace::new());
                    let ticket = mutex.enter(place);
                    for _ in 0..round % 100 {
                        std::hint::spin_loop();
                    }
                    *ticket.wait() += 1;
                }
            });
        }
    });
    assert_eq!(*mutex.lock(), 20_000);
}
