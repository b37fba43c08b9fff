//! Cases that no library of fibers can make sound, each with sinew's alternative.
//!
//! Any interleaving of flows of control on a thread breaks code that assumes strict nesting there.
//! These tests show that the holes are real, so that the documents can name them. The tests do not
//! reach undefined behaviour themselves.

use sinew::manager::{FiberManager, Options, SimpleLoopController};
use sinew::sync::Event;
use sinew::{ContextSlot, Runtime};
use sinew_context::FiberContext;
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn one_carrier() -> Runtime {
    Runtime::builder().carriers(1).build().unwrap()
}

/// The lazy initialiser of a `thread_local!` waits, and another fiber of the carrier uses the same
/// key. The initialiser runs a second time, and the first value is dropped although references to
/// it may exist.
///
/// Alternatives: initialise before fibers run, keep waits out of initialisers, or use
/// `fiber_local!`, whose initialisers may wait.
#[test]
fn a_thread_local_initialiser_that_waits_runs_twice() {
    thread_local! {
        static RUNS: Cell<u32> = const { Cell::new(0) };
        static LAZY: u32 = {
            RUNS.set(RUNS.get() + 1);
            sinew::sleep(Duration::from_millis(2));
            RUNS.get()
        };
    }
    let _watch = watch::a_minute();
    let runs = one_carrier().run(|| {
        let fibers = [0, 1].map(|_| sinew::spawn_local(|| LAZY.with(|value| *value)));
        for fiber in fibers {
            fiber.join().unwrap();
        }
        RUNS.get()
    });
    assert_eq!(runs, 2, "the standard library has cured it: say so in docs/soundness.md");
    sinew::fiber_local!(static CURED: u32 = { sinew::sleep(Duration::from_millis(2)); 7 });
    one_carrier().run(|| {
        let fibers = [0, 1].map(|_| sinew::spawn_local(|| CURED.get()));
        assert_eq!(fibers.map(|fiber| fiber.join().unwrap()), [7, 7]);
    });
}

/// A scoped thread-local (as in the crate `scoped-tls`) shows one fiber the value that another has
/// set, even after that fiber's frame is gone.
///
/// Alternatives: a context slot around it, or the scoped bindings of `fiber_local!`.
#[test]
fn a_scoped_thread_local_leaks_into_a_neighbour() {
    thread_local!(static SCOPED: Cell<u32> = const { Cell::new(0) });
    fn scoped<R>(value: u32, f: impl FnOnce() -> R) -> R {
        let before = SCOPED.replace(value);
        let result = f();
        SCOPED.set(before);
        result
    }
    static SLOT: ContextSlot<u32> = ContextSlot::new(|value| *value = SCOPED.replace(*value));
    let _watch = watch::a_minute();
    let (seen, cured) = one_carrier().run(|| {
        let holder = sinew::spawn_local(|| scoped(1, sinew::park));
        while holder.fiber().waits_for().is_none() {
            sinew::yield_now();
        }
        let seen = sinew::spawn_local(|| SCOPED.get()).join().unwrap();
        holder.fiber().unpark();
        holder.join().unwrap();
        let holder = sinew::spawn_local(|| SLOT.enter(0, || scoped(1, sinew::park)));
        while holder.fiber().waits_for().is_none() {
            sinew::yield_now();
        }
        let cured = sinew::spawn_local(|| SCOPED.get()).join().unwrap();
        holder.fiber().unpark();
        holder.join().unwrap();
        (seen, cured)
    });
    assert_eq!((seen, cured), (1, 0));
}

/// Records its drop.
struct Tells(&'static AtomicBool);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A first-class fiber on a plain thread lends a thread-local to a child of a `sinew::scope`, and
/// is forgotten. The thread ends and destroys the value while the child still borrows it.
///
/// Alternatives: drop the fiber before its thread ends, or clone the value out of `LocalKey::with`.
/// Threads of sinew do not end in this case; see `tests/outliving.rs`.
#[test]
fn a_plain_thread_destroys_a_thread_local_that_a_forgotten_fiber_has_lent() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    thread_local!(static VALUE: Tells = const { Tells(&DROPPED) });
    let _watch = watch::a_minute();
    let (begun, end) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let theirs = (begun.clone(), end.clone());
    let thread = std::thread::spawn(move || {
        let fiber = FiberContext::new(move |thread| {
            VALUE.with(|value| {
                sinew::scope(|scope| {
                    scope.spawn(move || {
                        let borrowed: &Tells = value;
                        theirs.0.set();
                        theirs.1.wait();
                        // A use of `borrowed` here would be a use after free.
                        let _ = borrowed;
                    });
                    thread.resume().unwrap()
                })
            })
        });
        std::mem::forget(fiber.unwrap().resume());
    });
    begun.wait();
    thread.join().unwrap();
    assert!(DROPPED.load(Ordering::SeqCst), "the hole is closed: say so in docs/soundness.md");
    end.set();
}

/// A manager is leaked on a plain thread while one of its fibers lends a thread-local. The thread
/// stays for good, but only after the destructors of its thread-locals have run.
///
/// Alternative: drop the manager before its thread ends.
#[test]
fn a_plain_thread_destroys_a_thread_local_that_a_leaked_managers_fiber_has_lent() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    thread_local!(static VALUE: Tells = const { Tells(&DROPPED) });
    let test = "a_plain_thread_destroys_a_thread_local_that_a_leaked_managers_fiber_has_lent";
    child(test, || {
        let _watch = watch::a_minute();
        let (begun, end) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let theirs = (begun.clone(), end.clone());
        std::thread::spawn(move || {
            let manager =
                FiberManager::new(SimpleLoopController::new(), Options::default()).unwrap();
            manager.add_task(move || {
                VALUE.with(|value| {
                    std::thread::scope(|threads| {
                        threads.spawn(move || {
                            let borrowed: &Tells = value;
                            theirs.0.set();
                            theirs.1.wait();
                            // A use of `borrowed` here would be a use after free.
                            let _ = borrowed;
                        });
                        sinew::park();
                    });
                });
            });
            manager.loop_until_no_ready();
            std::mem::forget(manager);
        });
        begun.wait();
        // The destructor sets this. If the hole is closed, the watchdog ends the test.
        while !DROPPED.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        end.set();
    })
    .assert_success();
}

/// While a fiber waits in a destructor during a panic, the other fibers of its carrier see
/// `panicking()`.
#[test]
fn neighbours_of_an_unwinding_fiber_seem_to_panic() {
    struct Parks;
    impl Drop for Parks {
        fn drop(&mut self) {
            sinew::park();
        }
    }
    let _watch = watch::a_minute();
    one_carrier().run(|| {
        let unwinds = sinew::spawn_local(|| {
            let _parks = Parks;
            panic!("on purpose");
        });
        while unwinds.fiber().waits_for().is_none() {
            sinew::yield_now();
        }
        assert!(std::thread::panicking());
        unwinds.fiber().unpark();
        assert!(unwinds.join().is_err());
        assert!(!std::thread::panicking());
    });
}
