//! Fibers themselves: parking, their ends, and futures that are polled in them.

use super::in_every_pairing;
use crate::kit::{LONG, MS, kept, simple};
use sinew::manager;
use sinew::sync::{Baton, FiberFuture, channel};
use sinew_testkit::watch;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn parking() {
    in_every_pairing(|stage, first, second| {
        let (send, receive) = channel::oneshot();
        let (done, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (theirs, tells) = (done.clone(), told.clone());
        let parks = stage.start(first, move || {
            send.send(sinew::current()).unwrap();
            while !told.load(Ordering::SeqCst) {
                sinew::park();
            }
            assert!(
                sinew::timeout(MS, || loop {
                    sinew::park()
                })
                .is_err()
            );
            done.store(true, Ordering::SeqCst);
        });
        let unparks = stage.start(second, move || {
            let parked = receive.recv().unwrap();
            tells.store(true, Ordering::SeqCst);
            parked.unpark();
        });
        unparks.end();
        parks.end();
        assert!(theirs.load(Ordering::SeqCst));
    });
}

#[test]
fn ends_of_fibers() {
    in_every_pairing(|stage, first, second| {
        // One side spawns a fiber of the runtime, and the other joins it.
        let gate = Arc::new(Baton::new());
        let opened = gate.clone();
        let handle = stage.runtime.handle().clone();
        let spawner = stage.start(first, move || {
            let fiber = handle.spawn(move || {
                opened.wait();
                7
            });
            gate.post();
            fiber
        });
        let fiber = spawner.end();
        let joiner = stage.start(second, move || fiber.join().unwrap());
        assert_eq!(joiner.end(), 7);
        // One side waits for the end of a fiber of the other.
        let waits = stage.start(first, || {
            let inner = sinew::spawn(sinew::current);
            inner.join().unwrap()
        });
        let fiber = waits.end();
        let ended = stage.start(second, move || fiber.wait_finished_timeout(LONG));
        assert!(ended.end());
    });
}

/// A future that is polled in one fiber waits for the result of another fiber.
#[test]
fn futures_in_fibers_wait_for_neighbours() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let step = kept(Cell::new(0));
    let released = kept(FiberFuture::<()>::new());
    let holds = manager.add_task_future(|| {
        step.set(1);
        assert!(!Baton::new().wait_timeout(5 * MS));
        step.set(2);
        released.set(()).unwrap();
        7
    });
    let waits = manager.add_task_future(move || {
        let seven = sinew::block_on(async { holds.await.unwrap() });
        assert_eq!(step.get(), 2);
        step.set(3);
        // The polled code runs in the fiber, and may wait.
        sinew::block_on(async {
            assert!(manager::on_fiber());
            sinew::sleep(MS);
        });
        seven
    });
    controller.run();
    assert_eq!((waits.get().unwrap(), step.get()), (7, 3));
    assert!(released.is_set());
}
