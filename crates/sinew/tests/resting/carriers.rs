//! The carriers on which a resting fiber runs, and the settings with which it was started.

use crate::backends::{connected, on_each, on_each_with};
use crate::{answering, ask, on, until_it_rests};
use sinew::net::TcpStream;
use sinew::sync::channel::unbounded;
use std::ops::ControlFlow::Break;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The carrier that watches the source is busy. Another carrier takes the fiber over, unless only
/// the busy one can see the event.
#[test]
fn an_idle_carrier_takes_over_a_resting_fiber() {
    on_each_with(2, |runtime| {
        if runtime.handle().name().starts_with("Uring") {
            return;
        }
        let (one, other) = connected();
        let fiber = answering(on(runtime), other, || sinew::current_carrier().unwrap() as u8);
        let first = ask(&one);
        let go_on = Arc::new(AtomicBool::new(false));
        let seen = go_on.clone();
        let (begun, begins) = unbounded();
        let keeper = on(runtime).carrier(first.into()).spawn(move || {
            begun.send(()).unwrap();
            while !seen.load(SeqCst) {
                std::hint::spin_loop();
            }
        });
        begins.recv().unwrap();
        // Give the other carrier work, so that it watches its neighbour from then on.
        runtime.run(|| ());
        assert_eq!(ask(&one), 1 - first);
        go_on.store(true, SeqCst);
        keeper.unwrap().join().unwrap();
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

#[test]
fn settings_hold_for_every_call() {
    on_each_with(2, |runtime| {
        for carrier in [0, 1] {
            let (one, other) = connected();
            let carrier_of = || sinew::current_carrier().unwrap() as u8;
            let fiber = answering(on(runtime).carrier(carrier), other, carrier_of);
            (0..10).for_each(|_| assert_eq!(usize::from(ask(&one)), carrier));
            drop(one);
            fiber.join().unwrap().unwrap();
        }
        let (one, other) = connected();
        let fiber = answering(on(runtime).stack_size(1 << 20), other, || {
            // The sanitizer keeps locals outside of the stack, so the depth of the stack cannot be
            // measured.
            if !cfg!(sinew_asan) {
                sinew_testkit::stack::burn(700 << 10);
            }
            1
        });
        (0..3).for_each(|_| assert_eq!(ask(&one), 1));
        drop(one);
        fiber.join().unwrap().unwrap();
        let (_one, other) = connected();
        let none = |_: &mut TcpStream| Break(());
        assert!(on(runtime).carrier(2).spawn_for_each_arrival(other, none).is_err());
    });
}

#[test]
fn a_migratable_fiber_moves_while_it_runs_and_rests_in_between() {
    on_each(|runtime| {
        let (one, other) = connected();
        // SAFETY: nothing that belongs to a thread lives across a wait.
        let builder = unsafe { on(runtime).migratable() };
        let fiber = answering(builder, other, || {
            (0..20).for_each(|_| sinew::yield_now());
            1
        });
        (0..50).for_each(|_| assert_eq!(ask(&one), 1));
        until_it_rests(&fiber);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    });
}

/// A joiner may be on the carrier where the fiber runs when it begins to wait, and time out when
/// the fiber is elsewhere.
#[test]
fn a_resting_fiber_is_joined_wherever_it_ends() {
    on_each_with(2, |runtime| {
        let (one, other) = connected();
        let fiber = answering(on(runtime), other, || 1);
        let joiner = runtime.spawn(move || {
            let mut fiber = fiber;
            let mut tries = 0_u32;
            loop {
                match fiber.join_timeout(Duration::from_micros(50)) {
                    Ok(result) => return (result.unwrap().unwrap(), tries).1,
                    Err(again) => fiber = again,
                }
                tries += 1;
            }
        });
        let asker = std::thread::spawn(move || (0..500).for_each(|_| assert_eq!(ask(&one), 1)));
        asker.join().unwrap();
        joiner.join().unwrap();
    });
}
