//! Fibers that wait at channels and semaphores, and that nothing can wake.
//!
//! The tests do not run under sanitizers: one keeps locals outside of the stack, and the other has
//! more memory than can be searched.
#![cfg(all(target_os = "linux", not(any(sinew_asan, sinew_tsan))))]

use sinew::inspect::leaks;
use sinew::sync::{Semaphore, channel};
use sinew::{FiberId, JoinHandle, Runtime, WaitKind};
use sinew_context::FiberContext;
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Waits until all these fibers wait at a channel.
fn wait_for(fibers: &[&JoinHandle<()>]) {
    let at_channel = |fiber: &&JoinHandle<()>| {
        let wait = fiber.fiber().waits_for();
        matches!(wait, Some(WaitKind::Send | WaitKind::Receive))
            && fiber.fiber().state() == sinew::FiberState::Suspended
    };
    sinew::wait_until(|| fibers.iter().all(at_channel));
}

fn leaked() -> Vec<FiberId> {
    leaks().unwrap().into_iter().map(|info| info.id()).collect()
}

/// Starts a fiber that receives.
fn receives(runtime: &Runtime, receiver: channel::Receiver<u8>) -> JoinHandle<()> {
    runtime.spawn(move || {
        let _ = receiver.recv();
    })
}

/// Starts a fiber that has both ends of its channel.
#[inline(never)]
fn forgetful(runtime: &Runtime) -> JoinHandle<()> {
    runtime.spawn(|| {
        let (sender, receiver) = channel::bounded::<u8>(1);
        let _ = receiver.recv();
        drop(sender);
    })
}

/// Starts two fibers, each of which has the sender of the other's channel.
#[inline(never)]
fn two_shy_ones(runtime: &Runtime) -> [JoinHandle<()>; 2] {
    let ((to_first, first), (to_second, second)) = (channel::bounded::<u8>(1), channel::bounded(1));
    let shy = |mine: channel::Receiver<u8>, theirs: channel::Sender<u8>| {
        runtime.spawn(move || {
            if let Ok(message) = mine.recv() {
                let _ = theirs.send(message);
            }
        })
    };
    [shy(first, to_second), shy(second, to_first)]
}

#[test]
fn a_fiber_that_can_be_woken_is_not_listed() {
    child("a_fiber_that_can_be_woken_is_not_listed", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        // The wakers are: this thread, a suspended fiber, a sender in the heap, and a fiber that
        // this thread can wake.
        let (here, received) = channel::bounded::<u8>(1);
        let by_thread = receives(&runtime, received);
        let (there, received) = channel::bounded::<u8>(1);
        let by_sleeper = receives(&runtime, received);
        let sleeper = runtime.spawn(move || {
            sinew::park();
            drop(there);
        });
        let (boxed, received) = channel::unbounded::<u8>();
        let by_heap = receives(&runtime, received);
        let heap = vec![None, Some(Box::new(boxed))];
        let (second, received) = channel::bounded::<u8>(1);
        let (first, relayed) = channel::bounded::<u8>(1);
        let relays = runtime.spawn(move || {
            let _ = relayed.recv();
            drop(second);
        });
        let at_the_end = receives(&runtime, received);
        let all = [by_thread, by_sleeper, by_heap, relays, at_the_end];
        wait_for(&all.each_ref());
        for _ in 0..3 {
            assert_eq!(leaked(), []);
        }
        drop((here, heap, first));
        sleeper.fiber().unpark();
        sleeper.join().unwrap();
        all.into_iter().for_each(|fiber| fiber.join().unwrap());
    })
    .assert_success();
}

/// Overwrites the stack below the caller. Pointers that are left there would keep fibers from being
/// listed.
#[inline(never)]
fn scrub() {
    let mut room = [1_u8; 64 * 1024];
    std::hint::black_box(&mut room);
}

/// Starts a fiber that receives, and a fiber that has the only sender on its stack while it waits
/// in `wait`.
#[inline(never)]
fn held(runtime: &Runtime, wait: impl FnOnce() + Send + 'static) -> [JoinHandle<()>; 2] {
    let (sender, receiver) = channel::bounded::<u8>(1);
    let receives = receives(runtime, receiver);
    let holds = runtime.spawn(move || {
        wait();
        drop(sender);
    });
    sinew::wait_until(|| holds.fiber().state() == sinew::FiberState::Suspended);
    [receives, holds]
}

#[test]
fn an_end_on_the_stack_of_a_fiber_that_waits_is_seen() {
    child("an_end_on_the_stack_of_a_fiber_that_waits_is_seen", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let gate = Arc::new(sinew::sync::Mutex::new(()));
        let guard = gate.lock();
        let (mut reader, writer) = sinew::io::pipe().unwrap();
        let fibers = [
            held(&runtime, sinew::park),
            held(&runtime, || sinew::sleep(Duration::from_secs(1000))),
            held(&runtime, {
                let gate = gate.clone();
                move || drop(gate.lock())
            }),
            held(&runtime, move || drop(reader.read(&mut [0]))),
        ];
        for [receives, _] in &fibers {
            wait_for(&[receives]);
        }
        for _ in 0..3 {
            scrub();
            assert_eq!(leaked(), []);
        }
        drop((guard, writer));
        for [receives, holds] in fibers {
            holds.fiber().unpark();
            holds.cancel();
            let _ = holds.join();
            receives.join().unwrap();
        }
    })
    .assert_success();
}

#[test]
fn a_fiber_that_nothing_can_wake_is_listed() {
    child("a_fiber_that_nothing_can_wake_is_listed", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let lost = forgetful(&runtime);
        let [first, second] = two_shy_ones(&runtime);
        let (sender, receiver) = channel::bounded::<u8>(1);
        let waits = receives(&runtime, receiver);
        wait_for(&[&lost, &first, &second, &waits]);
        // The last fiber waits for this thread.
        assert_soon(&[&lost, &first, &second]);
        drop(sender);
        waits.join().unwrap();
        for fiber in [lost, first, second] {
            fiber.cancel();
            // The last fiber finds that there is no sender any more.
            let _ = fiber.join();
        }
        assert_eq!(leaked(), []);
    })
    .assert_success();
}

#[test]
fn a_fiber_with_a_deadline_is_not_listed() {
    child("a_fiber_with_a_deadline_is_not_listed", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let patient = runtime.spawn(|| {
            let (sender, receiver) = channel::bounded::<u8>(1);
            let _ = receiver.recv_timeout(Duration::from_secs(1000));
            drop(sender);
        });
        wait_for(&[&patient]);
        assert_eq!(leaked(), []);
        patient.cancel();
        assert!(patient.join().is_err());
    })
    .assert_success();
}

/// Searches until exactly these fibers are found. A running fiber leaves pointers behind, and soon
/// overwrites them.
fn assert_soon(expected: &[&JoinHandle<()>]) {
    let expected: Vec<_> = expected.iter().map(|fiber| fiber.fiber().id()).collect();
    loop {
        scrub();
        let found = leaked();
        if found == expected {
            return;
        }
        let wrong = found.iter().find(|id| !expected.contains(id));
        assert_eq!(wrong, None, "found {found:?}, expected {expected:?}");
    }
}

/// Waits until all these fibers are suspended.
fn wait_suspended(fibers: &[&JoinHandle<()>]) {
    let suspended = |fiber: &&JoinHandle<()>| fiber.fiber().state() == sinew::FiberState::Suspended;
    sinew::wait_until(|| fibers.iter().all(suspended));
}

/// Lets a fiber run all the time while `f` runs. The fiber has its own carrier: switches between it
/// and the others would leave pointers to their stacks behind.
fn beside_a_busy_fiber(f: impl FnOnce()) {
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let busy = runtime.spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            sinew::yield_now();
        }
    });
    f();
    done.store(true, Ordering::Relaxed);
    busy.join().unwrap();
}

#[test]
fn ends_in_a_box_are_followed() {
    child("ends_in_a_box_are_followed", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        beside_a_busy_fiber(|| {
            let lost = boxed(&runtime);
            // The sender is in a block of the heap that this thread owns.
            let (sender, receiver) = channel::bounded::<u8>(1);
            let kept = std::hint::black_box(Box::new(vec![Box::new(sender)]));
            let waits = receives(&runtime, receiver);
            wait_for(&[&lost, &waits]);
            assert_soon(&[&lost]);
            drop(kept);
            waits.join().unwrap();
            lost.cancel();
            lost.join().unwrap_err();
        });
    })
    .assert_success();
}

/// Starts a fiber that has both ends of its channel, in blocks of the heap.
#[inline(never)]
fn boxed(runtime: &Runtime) -> JoinHandle<()> {
    runtime.spawn(|| {
        let ends = std::hint::black_box(Box::new(vec![Box::new(channel::bounded::<u8>(1))]));
        let _ = ends[0].1.recv();
        drop(ends);
    })
}

/// Starts two fibers, each of which has the permit that the other waits for.
#[inline(never)]
fn two_who_keep_permits(runtime: &Runtime) -> [JoinHandle<()>; 2] {
    let permits = [(); 2].map(|()| Arc::new(Semaphore::new(1)));
    let both = Arc::new(sinew::sync::Barrier::new(2));
    [0, 1].map(|index| {
        let (mine, other) = (permits[index].clone(), permits[1 - index].clone());
        let both = both.clone();
        runtime.spawn(move || {
            let _mine = mine.acquire();
            both.wait();
            drop(both);
            drop(other.acquire());
        })
    })
}

/// Starts a fiber that receives with a permit, and a fiber that would send when it has that permit.
#[inline(never)]
fn a_permit_and_a_message(runtime: &Runtime) -> [JoinHandle<()>; 2] {
    let permits = Arc::new(Semaphore::new(1));
    let (sender, receiver) = channel::bounded::<u8>(1);
    let theirs = permits.clone();
    let first = runtime.spawn(move || {
        let _permit = theirs.acquire();
        let _ = receiver.recv();
    });
    wait_for(&[&first]);
    let second = runtime.spawn(move || {
        drop(permits.acquire());
        let _ = sender.send(1);
    });
    [first, second]
}

#[test]
fn circles_of_semaphores_and_channels_are_found_beside_a_busy_fiber() {
    child("circles_of_semaphores_and_channels_are_found_beside_a_busy_fiber", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        beside_a_busy_fiber(|| {
            let [left, right] = two_who_keep_permits(&runtime);
            let [first, second] = a_permit_and_a_message(&runtime);
            // This thread has a pointer to the semaphore that this fiber waits for.
            let permits = Arc::new((0_u64, Semaphore::new(0)));
            let theirs = permits.clone();
            let waits = runtime.spawn(move || drop(theirs.1.acquire()));
            wait_suspended(&[&left, &right, &first, &second, &waits]);
            let all = [&left, &right, &first, &second];
            assert_soon(&all);
            permits.1.add(1);
            waits.join().unwrap();
            all.iter().for_each(|fiber| fiber.cancel());
            for fiber in [left, right, first, second] {
                let _ = fiber.join();
            }
        });
    })
    .assert_success();
}

#[test]
fn an_end_that_was_lent_or_will_be_used_later_is_seen() {
    child("an_end_that_was_lent_or_will_be_used_later_is_seen", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        // The child borrows the sender, which is on the stack of the receiving fiber.
        let lends = runtime.spawn(move || {
            let (sender, receiver) = channel::bounded::<u8>(1);
            sinew::scope(|s| {
                s.spawn(|| {
                    while !seen.load(Ordering::Relaxed) {
                        sinew::yield_now();
                    }
                    sender.send(1).unwrap();
                });
                assert_eq!(receiver.recv(), Ok(1));
            });
        });
        // The sender is on the stack of a fiber that waits with a timeout.
        let (sender, receiver) = channel::bounded::<u8>(1);
        let waits = receives(&runtime, receiver);
        let (end, ended) = channel::oneshot::<()>();
        let patient = runtime.spawn(move || {
            let (mine, own) = channel::bounded::<u8>(1);
            let _ = own.recv_timeout(Duration::from_secs(1000));
            drop((mine, sender, end));
        });
        wait_for(&[&lends, &waits, &patient]);
        for _ in 0..3 {
            scrub();
            assert_eq!(leaked(), []);
        }
        done.store(true, Ordering::Relaxed);
        lends.join().unwrap();
        patient.cancel();
        patient.join().unwrap_err();
        drop(ended);
        waits.join().unwrap();
    })
    .assert_success();
}

/// Starts a fiber that receives, and a suspended first-class fiber that has the only sender on its
/// stack.
#[inline(never)]
fn kept(runtime: &Runtime) -> (JoinHandle<()>, FiberContext) {
    let (sender, receiver) = channel::bounded::<u8>(1);
    let fiber = FiberContext::new(move |caller| {
        let caller = caller.resume().unwrap();
        drop(sender);
        caller
    });
    (receives(runtime, receiver), fiber.unwrap().resume().unwrap())
}

/// Starts a fiber that receives, and a fiber that waits in a first-class fiber and has the only
/// sender on its own stack.
#[inline(never)]
fn nested(runtime: &Runtime) -> [JoinHandle<()>; 2] {
    held(runtime, || {
        let inner = FiberContext::new(|caller| {
            sinew::park();
            caller
        });
        assert!(inner.unwrap().resume().is_none());
    })
}

#[test]
fn an_end_beside_a_first_class_fiber_is_seen() {
    child("an_end_beside_a_first_class_fiber_is_seen", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let (waits, suspended) = kept(&runtime);
        let [waits_too, parks] = nested(&runtime);
        wait_for(&[&waits, &waits_too]);
        for _ in 0..3 {
            scrub();
            assert_eq!(leaked(), []);
        }
        assert!(suspended.resume().is_none());
        parks.fiber().unpark();
        for fiber in [waits, waits_too, parks] {
            fiber.join().unwrap();
        }
    })
    .assert_success();
}

/// Starts a fiber that receives, and a fiber that has ended with the only sender as its result.
#[inline(never)]
fn returned(runtime: &Runtime) -> (JoinHandle<()>, JoinHandle<channel::Sender<u8>>) {
    let (sender, receiver) = channel::bounded::<u8>(1);
    let ends = runtime.spawn(move || sender);
    sinew::wait_until(|| ends.is_finished());
    (receives(runtime, receiver), ends)
}

/// Starts a fiber that receives, and a fiber that has run, rests, and has the only sender in its
/// closure.
#[inline(never)]
fn rests(runtime: &Runtime) -> (JoinHandle<()>, JoinHandle<()>, sinew::io::PipeWriter) {
    let (sender, receiver) = channel::bounded::<u8>(1);
    let (reader, mut writer) = sinew::io::pipe().unwrap();
    let (ran, runs) = std::sync::mpsc::channel();
    let builder = sinew::FiberBuilder::new().runtime(runtime.handle());
    let rests = builder.spawn_for_each_arrival(reader, move |reader| {
        let _kept = &sender;
        let _ = ran.send(());
        match reader.read(&mut [0]) {
            Ok(1) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    writer.write_all(b".").unwrap();
    runs.recv().unwrap();
    (receives(runtime, receiver), rests.unwrap(), writer)
}

#[test]
fn an_end_in_the_block_of_a_fiber_is_seen() {
    child("an_end_in_the_block_of_a_fiber_is_seen", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let (waits, ended) = returned(&runtime);
        let (waits_too, rests, writer) = rests(&runtime);
        wait_for(&[&waits, &waits_too]);
        sinew::wait_until(|| rests.fiber().state() == sinew::FiberState::Suspended);
        for _ in 0..3 {
            scrub();
            assert_eq!(leaked(), []);
        }
        drop(ended.join().unwrap());
        drop(writer);
        for fiber in [waits, rests, waits_too] {
            fiber.join().unwrap();
        }
    })
    .assert_success();
}
