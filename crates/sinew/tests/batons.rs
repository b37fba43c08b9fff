//! `Baton`: one waiter, any number of posters.

use sinew::sync::Baton;
use sinew::{Runtime, WaitKind};
use sinew_testkit::{Seed, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn waits(fiber: &sinew::Fiber) {
    sinew::wait_until(|| fiber.waits_for() == Some(WaitKind::Event));
}

/// The place where one side of a baton runs.
#[derive(Clone, Copy, Debug)]
enum Side {
    Carrier(usize),
    Pinned(usize),
    Migratable,
    Thread,
}

const SIDES: [Side; 5] =
    [Side::Carrier(0), Side::Carrier(1), Side::Pinned(0), Side::Migratable, Side::Thread];

/// Starts `f` on a side. Returns a closure that waits for its end.
fn start(runtime: &Runtime, side: Side, f: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce()> {
    let builder = sinew::FiberBuilder::new().runtime(runtime.handle());
    let fiber = match side {
        Side::Thread => {
            let thread = std::thread::spawn(f);
            return Box::new(move || thread.join().unwrap());
        }
        Side::Carrier(carrier) => builder.carrier(carrier).spawn(f),
        Side::Pinned(carrier) => builder.carrier(carrier).spawn(|| sinew::pinned(f)),
        // SAFETY: the closure keeps nothing that belongs to a thread across a wait.
        Side::Migratable => unsafe { builder.migratable() }.spawn(f),
    };
    let fiber = fiber.unwrap();
    Box::new(move || fiber.join().unwrap())
}

/// Batons for use one after the other, each with a value that is written before its post.
fn posts(count: usize) -> Arc<Vec<(Baton, AtomicUsize)>> {
    Arc::new((0..count).map(|_| Default::default()).collect())
}

#[test]
fn every_side_wakes_every_side() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder()
        .carriers(2)
        .pinned_wait(sinew::runtime::PinnedWait::Silent)
        .build()
        .unwrap();
    for waiter in SIDES {
        for poster in SIDES {
            if matches!((waiter, poster), (Side::Pinned(0), Side::Carrier(0) | Side::Pinned(0))) {
                // The pinned waiter would block the thread that the poster needs.
                continue;
            }
            let there = posts(200);
            let back = posts(200);
            let (mine, theirs) = (there.clone(), back.clone());
            let waiting = start(&runtime, waiter, move || {
                for (number, (baton, value)) in mine.iter().enumerate() {
                    baton.wait();
                    assert_eq!(value.load(Ordering::Relaxed), number + 1);
                    theirs[number].0.post();
                }
            });
            let posting = start(&runtime, poster, move || {
                let pinned = matches!(poster, Side::Pinned(_));
                for (number, (baton, value)) in there.iter().enumerate() {
                    value.store(number + 1, Ordering::Relaxed);
                    baton.post();
                    if !pinned {
                        back[number].0.wait();
                    }
                }
            });
            posting();
            waiting();
        }
    }
}

#[test]
fn a_post_stays_until_it_is_reset() {
    let check = || {
        let mut baton = Baton::new();
        assert!(!baton.try_wait() && !baton.is_posted());
        baton.post();
        baton.post();
        for _ in 0..2 {
            baton.wait();
            assert!(baton.wait_timeout(Duration::ZERO) && baton.wait_deadline(Instant::now()));
            assert!(baton.try_wait() && baton.is_posted());
        }
        baton.reset();
        assert!(!baton.is_posted());
        assert!(!baton.wait_timeout(MS));
        assert_eq!(format!("{baton:?}"), "Baton { posted: false }");
    };
    check();
    sinew::run(check);
}

#[test]
fn timed_waits_last_as_long_as_they_say() {
    let _watch = watch::a_minute();
    let check = || {
        let baton = Baton::new();
        let start = Instant::now();
        assert!(!baton.wait_timeout(3 * MS));
        assert!(start.elapsed() >= 3 * MS);
        let deadline = Instant::now() + 3 * MS;
        assert!(!baton.wait_deadline(deadline));
        assert!(Instant::now() >= deadline);
        assert!(!baton.wait_deadline(start), "one that has passed");
        // The timed waits left nothing behind.
        baton.post();
        assert!(baton.wait_timeout(Duration::MAX));
    };
    check();
    sinew::run(check);
    sinew::run(move || sinew::pinned(check));
    sinew::run(move || sinew::masked(check));
}

/// Deadlines pass during the post. A waiter that times out finds the baton posted the next time.
#[test]
fn a_timeout_and_a_post_at_the_same_time() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    for waiter in [Side::Carrier(0), Side::Migratable, Side::Thread] {
        for poster in [Side::Carrier(0), Side::Carrier(1), Side::Thread] {
            let batons = posts(300);
            let mut chances = seed.fork();
            let mine = batons.clone();
            let waiting = start(&runtime, waiter, move || {
                for (baton, value) in mine.iter() {
                    let patience = Duration::from_micros(chances.below(30) as u64);
                    while !baton.wait_timeout(patience) {}
                    assert_eq!(value.load(Ordering::Relaxed), 1);
                }
            });
            let mut chances = seed.fork();
            let posting = start(&runtime, poster, move || {
                for (baton, value) in batons.iter() {
                    sinew::sleep(Duration::from_micros(chances.below(30) as u64));
                    value.store(1, Ordering::Relaxed);
                    baton.post();
                }
            });
            waiting();
            posting();
        }
    }
}

#[test]
fn a_second_waiter_is_told_and_the_first_is_not_disturbed() {
    let _watch = watch::a_minute();
    let told = |second: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(second)).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    };
    let check = move |first: sinew::JoinHandle<()>, baton: &Baton| {
        let id = first.fiber().id();
        let message =
            format!("fiber {id} already waits on this Baton, which has one waiter at a time");
        assert_eq!(told(&|| baton.wait()), message);
        assert_eq!(told(&|| _ = baton.wait_timeout(MS)), message);
        assert_eq!(told(&|| baton.set_waiter(Waker::noop().clone())), message);
        assert!(!first.is_finished());
        baton.post();
        first.join().unwrap();
        // There is nothing to wait for any more.
        baton.wait();
    };
    for on_a_thread in [false, true] {
        let baton = Arc::new(Baton::new());
        let theirs = baton.clone();
        let first = sinew::spawn(move || theirs.wait());
        waits(&first.fiber());
        if on_a_thread {
            check(first, &baton);
        } else {
            sinew::run(move || check(first, &baton));
        }
    }
    let baton = Baton::new();
    baton.set_waiter(Waker::noop().clone());
    let message = "a custom waiter already waits on this Baton, which has one waiter at a time";
    assert_eq!(told(&|| baton.wait()), message);
    assert_eq!(told(&|| baton.set_waiter(Waker::noop().clone())), message);
}

#[test]
fn a_second_waiter_can_come_when_the_first_has_left() {
    let _watch = watch::a_minute();
    let baton = Arc::new(Baton::new());
    for cancelled in [false, true] {
        let theirs = baton.clone();
        let first =
            sinew::spawn(move || theirs.wait_timeout(if cancelled { 60_000 } else { 5 } * MS));
        sinew::wait_until(|| first.is_finished() || first.fiber().waits_for().is_some());
        if cancelled {
            first.cancel();
        }
        assert!(!first.join().unwrap_or(false));
    }
    baton.set_waiter(Waker::noop().clone());
    baton.post();
    assert!(baton.is_posted());
}

#[test]
fn a_cancelled_wait_unwinds_and_leaves_nothing_behind() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let baton = Arc::new(Baton::new());
        let theirs = baton.clone();
        let waiter = runtime.spawn(move || theirs.wait());
        waits(&waiter.fiber());
        waiter.cancel();
        assert!(sinew::is_cancel(&*waiter.join().unwrap_err()));
        let deadline = sinew::timeout(MS, || baton.wait());
        assert_eq!(deadline, Err(sinew::Elapsed));
        // A masked wait is not cut short.
        let theirs = baton.clone();
        let waiter = runtime.spawn(move || sinew::masked(|| theirs.wait()));
        waits(&waiter.fiber());
        waiter.cancel();
        sinew::sleep(MS);
        assert!(!waiter.is_finished());
        baton.post();
        waiter.join().unwrap();
    }
}

/// A wait is cancelled during the post. It returns or unwinds, and the baton is posted in any case.
#[test]
fn a_cancellation_and_a_post_at_the_same_time() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    for _ in 0..300 {
        let baton = Arc::new(Baton::new());
        let theirs = baton.clone();
        let waiter = runtime.spawn(move || theirs.wait());
        let theirs = baton.clone();
        let poster = runtime.spawn(move || theirs.post());
        waiter.cancel();
        if let Err(payload) = waiter.join() {
            assert!(sinew::is_cancel(&*payload));
        }
        baton.wait();
        poster.join().unwrap();
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_custom_waiter_is_woken_once_whatever_the_order() {
    let check = || {
        let woken = Arc::new(Woken::default());
        let count = || woken.0.load(Ordering::Relaxed);
        let baton = Baton::new();
        baton.set_waiter(woken.clone().into());
        assert_eq!(count(), 0);
        baton.post();
        baton.post();
        assert_eq!(count(), 1);
        // Once posted, each custom waiter is woken at once.
        baton.set_waiter(woken.clone().into());
        baton.set_waiter(woken.clone().into());
        assert_eq!(count(), 3);
        baton.wait();
        drop(baton);
        assert_eq!((count(), Arc::strong_count(&woken)), (3, 1));
    };
    check();
    sinew::run(check);
}

#[test]
fn a_custom_waiter_goes_with_the_baton() {
    let woken = Arc::new(Woken::default());
    let mut baton = Baton::new();
    baton.set_waiter(woken.clone().into());
    assert_eq!(Arc::strong_count(&woken), 2);
    baton.reset();
    assert_eq!(Arc::strong_count(&woken), 1);
    baton.set_waiter(woken.clone().into());
    drop(baton);
    assert_eq!(Arc::strong_count(&woken), 1);
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
}

/// Several threads set custom waiters for fibers while others post.
#[test]
fn custom_waiters_under_load() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let batons = posts(2000);
    let woken = Arc::new(Woken::default());
    let (mine, theirs) = (batons.clone(), woken.clone());
    let setting = start(&runtime, Side::Carrier(0), move || {
        mine.iter().for_each(|(baton, _)| baton.set_waiter(theirs.clone().into()));
    });
    let theirs = batons.clone();
    let posting = start(&runtime, Side::Carrier(1), move || {
        theirs.iter().for_each(|(baton, _)| baton.post());
    });
    setting();
    posting();
    assert_eq!(woken.0.load(Ordering::Relaxed), batons.len());
    drop(batons);
    assert_eq!(Arc::strong_count(&woken), 1);
}

#[test]
fn a_panic_of_a_custom_waiter_is_the_posters() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let baton = Baton::new();
    baton.set_waiter(Arc::new(Panics).into());
    assert!(catch_unwind(AssertUnwindSafe(|| baton.post())).is_err());
    assert!(baton.is_posted());
    baton.post();
    baton.wait();
    let set = || baton.set_waiter(Arc::new(Panics).into());
    assert!(catch_unwind(AssertUnwindSafe(set)).is_err());
}

/// The baton is freed as soon as the wait is over, while the poster is still in `post`.
#[test]
fn a_baton_may_go_when_the_wait_is_over() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    for waiter in [Side::Carrier(0), Side::Migratable, Side::Thread] {
        for poster in [Side::Carrier(0), Side::Carrier(1), Side::Thread] {
            let (send, receive) = sinew::sync::channel::bounded::<usize>(1);
            let waiting = start(&runtime, waiter, move || {
                for number in 0..500 {
                    let memory = Box::new(Baton::new());
                    send.send(std::ptr::from_ref(&*memory).expose_provenance()).unwrap();
                    let posted = if number % 3 == 0 {
                        let posted = memory.wait_timeout(Duration::from_micros(number % 7));
                        posted || memory.wait_timeout(Duration::MAX)
                    } else {
                        memory.wait();
                        true
                    };
                    assert!(posted);
                    // The next allocation overwrites it.
                    drop(memory);
                    std::hint::black_box(Box::new([u64::MAX]));
                }
            });
            let posting = start(&runtime, poster, move || {
                for address in receive.iter() {
                    // SAFETY: the baton stays allocated until it is posted.
                    unsafe { &*std::ptr::with_exposed_provenance::<Baton>(address) }.post();
                }
            });
            waiting();
            posting();
        }
    }
}
