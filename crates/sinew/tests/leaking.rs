//! Fibers that wait at channels of which nobody else has an end.
//!
//! Not under sanitizers: one keeps locals off the stack, and the other has more memory than can be searched.
#![cfg(all(target_os = "linux", not(any(sinew_asan, sinew_tsan))))]

use sinew::inspect::leaks;
use sinew::sync::channel;
use sinew::{FiberId, JoinHandle, Runtime, WaitKind};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::time::Duration;

/// Waits until all of them do at a channel.
fn wait_for(fibers: &[&JoinHandle<()>]) {
    let at_channel = |fiber: &&JoinHandle<()>| {
        let wait = fiber.fiber().waits_for();
        matches!(wait, Some(WaitKind::Send | WaitKind::Receive))
            && fiber.fiber().state() == sinew::State::Suspended
    };
    sinew::wait_until(|| fibers.iter().all(at_channel), None);
}

fn leaked() -> Vec<FiberId> {
    leaks().unwrap().into_iter().map(|info| info.id()).collect()
}

/// One that waits for somebody else.
fn receives(runtime: &Runtime, receiver: channel::Receiver<u8>) -> JoinHandle<()> {
    runtime.spawn(move || {
        let _ = receiver.recv();
    })
}

/// One that has both ends of its channel.
#[inline(never)]
fn forgetful(runtime: &Runtime) -> JoinHandle<()> {
    runtime.spawn(|| {
        let (sender, receiver) = channel::bounded::<u8>(1);
        let _ = receiver.recv();
        drop(sender);
    })
}

/// Two of which each has the other's sender.
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
fn those_who_can_be_woken_are_not_listed() {
    child("those_who_can_be_woken_are_not_listed", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        // By this thread, by a fiber that sleeps, by one that has not begun, by what lies in the heap, by
        // a global, and by one that is woken by another.
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

/// Writes over what was on the stack below the caller: pointers that are left there keep fibers from being
/// listed, right or wrong.
#[inline(never)]
fn scrub() {
    let mut room = [1_u8; 64 * 1024];
    std::hint::black_box(&mut room);
}

/// One that receives, and one that has the only sender on its stack while it waits in some way.
#[inline(never)]
fn held(runtime: &Runtime, wait: impl FnOnce() + Send + 'static) -> [JoinHandle<()>; 2] {
    let (sender, receiver) = channel::bounded::<u8>(1);
    let receives = receives(runtime, receiver);
    let holds = runtime.spawn(move || {
        wait();
        drop(sender);
    });
    sinew::wait_until(|| holds.fiber().state() == sinew::State::Suspended, None);
    [receives, holds]
}

#[test]
fn an_end_on_the_stack_of_a_fiber_that_waits_is_seen() {
    child("an_end_on_the_stack_of_a_fiber_that_waits_is_seen", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let gate = std::sync::Arc::new(sinew::sync::Mutex::new(()));
        let guard = gate.lock();
        let (mut reader, writer) = sinew::io::pipe().unwrap();
        let fibers = [
            held(&runtime, sinew::park),
            held(&runtime, || sinew::sleep(Duration::from_secs(1000))),
            held(&runtime, {
                let gate = gate.clone();
                move || drop(gate.lock())
            }),
            held(&runtime, move || drop(std::io::Read::read(&mut reader, &mut [0]))),
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
fn those_who_cannot_are() {
    child("those_who_cannot_are", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let lost = forgetful(&runtime);
        let [first, second] = two_shy_ones(&runtime);
        let (sender, receiver) = channel::bounded::<u8>(1);
        let waits = receives(&runtime, receiver);
        wait_for(&[&lost, &first, &second, &waits]);
        let all = [&lost, &first, &second].map(|fiber| fiber.fiber().id());
        let found = leaked();
        assert_eq!(found, all, "and one waits for this thread: {:?}", waits.fiber().id());
        drop(sender);
        waits.join().unwrap();
        for fiber in [lost, first, second] {
            fiber.cancel();
            // The last one finds that nobody has a sender any more.
            let _ = fiber.join();
        }
        assert_eq!(leaked(), []);
    })
    .assert_success();
}

#[test]
fn one_with_a_deadline_is_not_listed() {
    child("one_with_a_deadline_is_not_listed", || {
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
