//! Fiber-locals and slots: nothing of a call remains when the fiber rests.

use crate::backends::{connected, on_each, on_each_with};
use crate::{BOUND, Bound, answering, ask, on, until_it_rests};
use sinew::ContextSlot;
use sinew::net::TcpStream;
use sinew::sync::channel::unbounded;
use sinew_testkit::Log;
use std::cell::Cell;
use std::io::{Read, Write};
use std::ops::ControlFlow::{Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

sinew::fiber_local!(inherit static GIVEN: u32 = 0);

#[test]
fn locals_are_dropped_where_they_were_made() {
    on_each(|runtime| {
        let log = Log::new();
        let (one, other) = connected();
        let theirs = log.clone();
        let answer = move || {
            BOUND.with(|bound| {
                assert!(bound.borrow().is_none(), "it has rested");
                *bound.borrow_mut() = Some(Bound::new(theirs.clone()));
            });
            GIVEN.get() as u8
        };
        let fiber = answering(on(runtime).local(&GIVEN, 7), other, answer);
        // The initial value of a local is dropped with the others.
        for expected in [7, 0, 0, 0] {
            assert_eq!(ask(&one), expected);
            until_it_rests(&fiber);
            assert_eq!(log.take(), ["dropped"]);
        }
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

thread_local!(static STATE: Cell<u32> = const { Cell::new(0) });

static SLOT: ContextSlot<u32> = ContextSlot::new(|value| *value = STATE.replace(*value));

/// A first-class fiber that stays suspended inside of a slot does not keep the slot's state.
#[test]
fn slots_are_left_where_they_were_entered() {
    on_each_with(1, |runtime| {
        let (one, other) = connected();
        let mut calls = 0;
        let answer = move || {
            calls += 1;
            if calls == 1 {
                let suspended = sinew_context::FiberContext::new(|caller| {
                    SLOT.enter(7, || caller.resume()).0.expect("nobody resumes it")
                });
                // The first-class fiber neither continues nor is unwound: its stack is lost.
                std::mem::forget(suspended.unwrap().resume());
                STATE.set(5);
            } else {
                // Other fibers see the state from before.
                SLOT.enter(1, || {
                    let theirs = sinew::spawn_local(|| STATE.get()).join();
                    assert_eq!((theirs.unwrap(), STATE.get()), (5, 1));
                });
            }
            calls
        };
        let fiber = answering(on(runtime), other, answer);
        assert_eq!([ask(&one), ask(&one), ask(&one)], [1, 2, 3]);
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

/// A caught panic is dropped with the rest of the call, and so are the locals that its destructor
/// makes.
#[test]
fn locals_made_by_a_destructor_are_dropped() {
    static SWAPS: AtomicUsize = AtomicUsize::new(0);
    static PANICS: ContextSlot<u32> = ContextSlot::new(|_| {
        // The hook runs when the fiber continues after its wait.
        if SWAPS.fetch_add(1, SeqCst) == 2 {
            std::panic::panic_any(Makes);
        }
    });
    struct Makes;
    impl Drop for Makes {
        fn drop(&mut self) {
            LATE.with(|late| late.set(true));
        }
    }
    sinew::fiber_local!(static LATE: Cell<bool> = Cell::new(false));
    on_each(|runtime| {
        SWAPS.store(0, SeqCst);
        let (mut one, other) = connected();
        let (waiting, waits) = unbounded();
        let mut calls = 0;
        let serve = move |stream: &mut TcpStream| {
            calls += 1;
            assert!(!LATE.with(Cell::get), "a local of the call before");
            assert_eq!(stream.read(&mut [0]).unwrap(), 1);
            if calls == 2 {
                return Break(());
            }
            waiting.send(()).unwrap();
            let _ = catch_unwind(AssertUnwindSafe(|| PANICS.enter(0, || stream.read(&mut [0]))));
            Continue(())
        };
        let fiber = on(runtime).spawn_for_each_arrival(other, serve).unwrap();
        one.write_all(b"x").unwrap();
        waits.recv().unwrap();
        // A read may yield first without waiting: then the panic comes at that point.
        let handle = fiber.fiber();
        sinew::wait_until(|| handle.waits_for().is_some());
        // The byte is read, or left to the next call if the panic is raised before.
        one.write_all(b"yz").unwrap();
        fiber.join().unwrap();
    });
}
