//! A thread of sinew does not destroy its thread-locals while a suspended fiber may have lent one.
//!
//! Each test forgets a suspended fiber that is inside `LocalKey::with`, lets the thread come to its
//! end, and checks whether the value was dropped. Each test runs in a separate process, since its
//! threads stay.

use sinew::Runtime;
use sinew::manager::{FiberManager, Options, SimpleLoopController};
use sinew_context::{FiberContext, live_fibers};
use sinew_testkit::child::{child, child_with};
use sinew_testkit::watch;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

static DROPPED: AtomicBool = AtomicBool::new(false);
static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Value(u32);

impl Drop for Value {
    fn drop(&mut self) {
        self.0 = 0;
        DROPPED.store(true, Ordering::SeqCst);
    }
}

thread_local!(static VALUE: Value = const { Value(7) });

fn collect_reports() {
    sinew::set_report_hook(|line| REPORTS.lock().unwrap().push(line.to_owned()));
}

/// Waits until the thread reports that it stays, or destroys its thread-local.
fn assert_stays(expected: &str) {
    let said = || REPORTS.lock().unwrap().iter().any(|line| line.contains(expected));
    while !said() && !DROPPED.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    assert!(!DROPPED.load(Ordering::SeqCst), "a borrowed thread-local was dropped");
}

/// Starts a fiber that lends the thread's value to a plain thread, and forgets the fiber. Returns
/// once the plain thread has the reference. The plain thread reads the value on request.
fn lend_and_forget() -> (mpsc::Sender<()>, mpsc::Receiver<u32>) {
    let (read, when) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let fiber = FiberContext::new(move |caller| {
        VALUE.with(|value| {
            std::thread::scope(|threads| {
                threads.spawn(move || {
                    when.recv().unwrap();
                    tell.send(value.0).unwrap();
                });
                caller.resume().unwrap()
            })
        })
    });
    std::mem::forget(fiber.unwrap().resume().unwrap());
    (read, told)
}

#[test]
fn a_carrier_outlives_a_forgotten_fiber_that_has_lent_its_thread_local() {
    let test = "a_carrier_outlives_a_forgotten_fiber_that_has_lent_its_thread_local";
    child(test, || {
        let _watch = watch::a_minute();
        collect_reports();
        let runtime = Runtime::builder().carriers(1).name("kept").build().unwrap();
        let (read, told) = runtime.run(lend_and_forget);
        runtime.shutdown_timeout(Duration::from_secs(30)).expect("its own fibers have ended");
        assert_stays("thread \"kept-0\" is done, but 1 suspended first-class fiber still belong");
        read.send(()).unwrap();
        assert_eq!(told.recv(), Ok(7));
    })
    .assert_success();
}

#[test]
fn a_thread_for_blocking_work_outlives_a_forgotten_fiber() {
    let test = "a_thread_for_blocking_work_outlives_a_forgotten_fiber";
    let soon = |command: &mut std::process::Command| _ = command.env("SINEW_BLOCKING_KEEP", "5");
    child_with(test, soon, || {
        let _watch = watch::a_minute();
        collect_reports();
        let (read, told) = sinew::run(|| sinew::blocking(lend_and_forget));
        assert_stays("is done, but 1 suspended first-class fiber still belong");
        read.send(()).unwrap();
        assert_eq!(told.recv(), Ok(7));
    })
    .assert_success();
}

#[test]
fn a_thread_for_blocking_work_outlives_the_fibers_of_a_leaked_manager() {
    let test = "a_thread_for_blocking_work_outlives_the_fibers_of_a_leaked_manager";
    let soon = |command: &mut std::process::Command| _ = command.env("SINEW_BLOCKING_KEEP", "5");
    child_with(test, soon, || {
        let _watch = watch::a_minute();
        collect_reports();
        let (read, told) = sinew::run(|| {
            sinew::blocking(|| {
                let (read, when) = mpsc::channel();
                let (tell, told) = mpsc::channel();
                let controller = SimpleLoopController::new();
                let manager = FiberManager::new(controller, Options::default()).unwrap();
                manager.add_task(move || {
                    VALUE.with(|value| {
                        std::thread::scope(|threads| {
                            threads.spawn(move || {
                                when.recv().unwrap();
                                tell.send(value.0).unwrap();
                            });
                            sinew::park();
                        });
                    });
                });
                manager.loop_until_no_ready();
                std::mem::forget(manager);
                (read, told)
            })
        });
        assert_stays("the fibers of 1 leaked manager still belong");
        read.send(()).unwrap();
        assert_eq!(told.recv(), Ok(7));
    })
    .assert_success();
}

#[test]
fn a_thread_whose_fibers_have_ended_ends() {
    let test = "a_thread_whose_fibers_have_ended_ends";
    child(test, || {
        let _watch = watch::a_minute();
        collect_reports();
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        runtime.run(|| {
            let fiber =
                FiberContext::new(|caller| VALUE.with(|_| caller.resume().unwrap())).unwrap();
            let suspended = fiber.resume().unwrap();
            assert_eq!(live_fibers(), 1);
            drop(suspended);
            assert_eq!(live_fibers(), 0);
        });
        drop(runtime);
        while !DROPPED.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(REPORTS.lock().unwrap().is_empty());
    })
    .assert_success();
}

/// A migratable fiber takes a suspended first-class fiber from its carrier to the other carrier,
/// where it ends. The thread that counted the first-class fiber ends all the same.
#[test]
fn a_thread_ends_when_its_fibers_have_ended_elsewhere() {
    let test = "a_thread_ends_when_its_fibers_have_ended_elsewhere";
    child(test, || {
        let _watch = watch::a_minute();
        collect_reports();
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        for _ in 0..3 {
            take_a_fiber_to_the_other_carrier(&runtime);
        }
        // The value is destroyed at the end of each carrier.
        let values = (0..2).map(|carrier| {
            let builder = sinew::FiberBuilder::new().runtime(runtime.handle()).carrier(carrier);
            builder.spawn(|| ENDED.with(|_| ())).unwrap().join().unwrap();
        });
        assert_eq!(values.count(), 2);
        drop(runtime);
        while ENDS.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        assert!(REPORTS.lock().unwrap().is_empty());
    })
    .assert_success();
}

/// While the wanderer waits, a busy fiber takes its carrier and keeps it, so only the other carrier
/// can continue the wanderer.
fn take_a_fiber_to_the_other_carrier(runtime: &Runtime) {
    let (started, carrier) = mpsc::channel();
    let (go, gone) = sinew::sync::channel::bounded::<()>(1);
    let moved = Arc::new(AtomicBool::new(false));
    let wander = {
        let moved = moved.clone();
        move || {
            let here = sinew::current_carrier();
            let fiber = FiberContext::new(|caller| caller.resume().unwrap()).unwrap();
            let suspended = fiber.resume().unwrap();
            started.send(here).unwrap();
            gone.recv().unwrap();
            assert_ne!(sinew::current_carrier(), here);
            drop(suspended);
            moved.store(true, Ordering::SeqCst);
        }
    };
    // SAFETY: nothing that belongs to a thread lives across the wait; the first-class fiber holds
    // nothing.
    let builder = unsafe { sinew::FiberBuilder::new().runtime(runtime.handle()).migratable() };
    let wanderer = builder.spawn(wander).unwrap();
    let carrier = carrier.recv().unwrap().expect("the wanderer runs on a carrier");
    let (taken, busy) = mpsc::channel();
    let builder = sinew::FiberBuilder::new().runtime(runtime.handle()).carrier(carrier);
    let occupant = builder.spawn(move || {
        taken.send(()).unwrap();
        while !moved.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
    });
    busy.recv().unwrap();
    go.send(()).unwrap();
    wanderer.join().unwrap();
    occupant.unwrap().join().unwrap();
}

/// Counts the threads that have destroyed their thread-locals.
static ENDS: AtomicUsize = AtomicUsize::new(0);

struct Ended;

impl Drop for Ended {
    fn drop(&mut self) {
        ENDS.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local!(static ENDED: Ended = const { Ended });
