//! Ends of resting fibers: by a cancellation, by a panic, and with the runtime.

use crate::backends::{all, connected, on_each};
use crate::{answering, ask, on, until_it_rests};
use sinew::Runtime;
use sinew::net::TcpStream;
use sinew_testkit::{Log, watch};
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

#[test]
fn a_fiber_cancelled_while_it_rests_drops_its_source_and_is_not_called_again() {
    on_each(|runtime| {
        for before in [0, 3] {
            for inside in [true, false] {
                let log = Log::new();
                let (mut one, other) = connected();
                let (theirs, dropped) = (log.clone(), log.on_drop("closure dropped"));
                let answer = move || {
                    let _kept = &dropped;
                    theirs.line("called");
                    0
                };
                let fiber = answering(on(runtime), other, answer);
                for _ in 0..before {
                    ask(&one);
                    assert_eq!(log.take(), ["called"]);
                }
                let cancel = move || {
                    until_it_rests(&fiber);
                    fiber.cancel();
                    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
                };
                if inside {
                    runtime.run(cancel);
                } else {
                    cancel();
                }
                assert_eq!(log.take(), ["closure dropped"]);
                assert_eq!(one.read(&mut [0]).unwrap(), 0, "the source was dropped");
            }
        }
    });
}

/// A call that computes does not notice the cancellation, but the fiber does not rest again.
#[test]
fn a_fiber_cancelled_while_it_runs_does_not_rest() {
    on_each(|runtime| {
        for waits in [true, false] {
            let (mut one, other) = connected();
            let (running, cancelled) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (begun, go_on) = (running.clone(), cancelled.clone());
            let mut calls = 0;
            let serve = move |stream: &mut TcpStream| -> ControlFlow<()> {
                calls += 1;
                assert_eq!(calls, 1);
                let _ = stream.read(&mut [0]).unwrap();
                begun.store(true, SeqCst);
                if waits {
                    sinew::park();
                    unreachable!("nobody wakes it");
                }
                while !go_on.load(SeqCst) {
                    std::hint::spin_loop();
                }
                Continue(())
            };
            let fiber = on(runtime).spawn_for_each_arrival(other, serve).unwrap();
            one.write_all(b"xy").unwrap();
            while !running.load(SeqCst) {
                std::thread::yield_now();
            }
            fiber.cancel();
            cancelled.store(true, SeqCst);
            assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
            assert_ne!(
                one.read(&mut [0]).map_err(|error| error.kind()),
                Err(ErrorKind::WouldBlock)
            );
        }
    });
}

#[test]
fn a_panic_ends_a_resting_fiber() {
    struct Panics(i32);
    impl Drop for Panics {
        fn drop(&mut self) {
            resume_unwind(Box::new(self.0));
        }
    }
    sinew::fiber_local!(static LOCAL: RefCell<Option<Panics>> = RefCell::new(None));
    on_each(|runtime| {
        // In a call.
        let (mut one, other) = connected();
        let fiber = on(runtime)
            .spawn_for_each_arrival(other, |_| -> ControlFlow<()> { resume_unwind(Box::new(7)) });
        one.write_all(b"x").unwrap();
        assert_eq!(*fiber.unwrap().join().unwrap_err().downcast::<i32>().unwrap(), 7);
        // In the destructor of a value that the closure owns, at the end.
        let (mut one, other) = connected();
        let panics = Panics(8);
        let fiber = on(runtime).spawn_for_each_arrival(other, move |_| {
            let _kept = &panics;
            Break(())
        });
        one.write_all(b"x").unwrap();
        assert_eq!(*fiber.unwrap().join().unwrap_err().downcast::<i32>().unwrap(), 8);
        // In the destructor of a local, when the fiber rests: no joiner can get the panic, and the
        // fiber goes on.
        let (one, other) = connected();
        let fiber = answering(on(runtime), other, || {
            LOCAL.with(|local| *local.borrow_mut() = Some(Panics(9)));
            1
        });
        assert_eq!((ask(&one), ask(&one)), (1, 1));
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

/// A destructor that waits is cancelled in its wait, in the closure and in the result.
#[test]
fn a_cancelled_end_drops_everything() {
    struct Waits(Arc<AtomicUsize>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            sinew::sleep(Duration::from_micros(10));
        }
    }
    on_each(|runtime| {
        let (mut one, other) = connected();
        let dropped = Arc::new(AtomicUsize::new(0));
        let (captured, made) = (Waits(dropped.clone()), dropped.clone());
        let serve = move |_: &mut TcpStream| {
            let _captured = &captured;
            sinew::current().cancel();
            Break(Waits(made.clone()))
        };
        let fiber = on(runtime).spawn_for_each_arrival(other, serve).unwrap();
        one.write_all(b"x").unwrap();
        let _ = fiber.join();
        assert_eq!(dropped.load(SeqCst), 2);
    });
}

#[test]
fn a_runtime_that_ends_cancels_its_resting_fibers() {
    let _watch = watch::a_minute();
    for backend in all() {
        for carriers in [1, 2] {
            let runtime = Runtime::builder().carriers(carriers).backend(backend).build().unwrap();
            let (clients, fibers): (Vec<_>, Vec<_>) = (0..50)
                .map(|index| {
                    let (one, other) = connected();
                    let fiber = answering(on(&runtime), other, || 0);
                    // Some fibers have run before.
                    if index % 2 == 0 {
                        ask(&one);
                    }
                    (one, fiber)
                })
                .unzip();
            runtime.shutdown_timeout(Duration::from_secs(20)).unwrap();
            for (mut client, fiber) in clients.into_iter().zip(fibers) {
                assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
                assert_eq!(client.read(&mut [0]).unwrap(), 0, "the source was dropped");
            }
        }
    }
}
