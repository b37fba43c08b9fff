//! Traps known from other libraries, each as a test that names it.

use sinew::runtime::PinnedWait;
use sinew::{ContextSlot, FiberBuilder, FiberState, Runtime};
use sinew_testkit::child::child;
use sinew_testkit::{Log, watch};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn carriers(count: usize) -> Runtime {
    Runtime::builder().carriers(count).pinned_wait(PinnedWait::Silent).build().unwrap()
}

/// An `Rc` in a thread-local is cloned onto a stack that waits. Both stay on one thread.
#[test]
fn an_rc_of_a_thread_local_stays_on_its_thread() {
    thread_local!(static SHARED: Rc<Cell<u64>> = Rc::new(Cell::new(0)));
    let _watch = watch::a_minute();
    let runtime = carriers(3);
    let fibers: Vec<_> = (0..200)
        .map(|_| {
            runtime.spawn(|| {
                let home = std::thread::current().id();
                let mine = SHARED.with(Rc::clone);
                for _ in 0..20 {
                    mine.set(mine.get() + 1);
                    sinew::yield_now();
                    sinew::sleep(Duration::from_micros(5));
                    assert_eq!(std::thread::current().id(), home);
                    assert!(Rc::ptr_eq(&mine, &SHARED.with(Rc::clone)));
                }
            })
        })
        .collect();
    for fiber in fibers {
        fiber.join().unwrap();
    }
}

/// A reference into a thread-local is held across a wait.
#[test]
fn a_reference_to_a_thread_local_outlives_a_wait() {
    thread_local!(static VALUE: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) });
    let _watch = watch::a_minute();
    carriers(2).run(|| {
        VALUE.with(|value| {
            value.borrow_mut().push(1);
            sinew::sleep(MS);
            assert!(!value.borrow().is_empty());
        });
    });
}

/// A child on another carrier borrows from a thread-local of a carrier whose runtime ends.
#[test]
fn a_carrier_does_not_end_before_its_borrowers() {
    let _watch = watch::a_minute();
    struct Checked(Arc<AtomicUsize>);
    impl Drop for Checked {
        fn drop(&mut self) {
            // The thread-local is destroyed last.
            assert_eq!(self.0.load(Ordering::SeqCst), 1, "a child still borrows");
        }
    }
    thread_local!(static LENT: RefCell<Option<Checked>> = const { RefCell::new(None) });
    let done = Arc::new(AtomicUsize::new(0));
    let began = Arc::new(AtomicBool::new(false));
    let (theirs, begins) = (done.clone(), began.clone());
    let runtime = carriers(2);
    let fiber = runtime.spawn(move || {
        LENT.with(|lent| {
            *lent.borrow_mut() = Some(Checked(theirs.clone()));
            let alive = lent.borrow().is_some();
            sinew::scope(|s| {
                s.spawn(|| {
                    begins.store(true, Ordering::SeqCst);
                    sinew::masked(|| sinew::sleep(20 * MS));
                    assert!(alive);
                    theirs.store(1, Ordering::SeqCst);
                });
            });
        });
    });
    sinew::wait_until(|| began.load(Ordering::SeqCst));
    runtime.shutdown_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(done.load(Ordering::SeqCst), 1);
    drop(fiber);
}

/// An OS lock blocks a carrier: the others go on.
#[test]
fn a_thread_and_fibers_contend_for_an_os_lock() {
    let _watch = watch::a_minute();
    let runtime = carriers(2);
    let lock = Arc::new(Mutex::new(0_u64));
    let fibers: Vec<_> = (0..20)
        .map(|_| {
            let lock = lock.clone();
            runtime.spawn(move || {
                for _ in 0..100 {
                    *lock.lock().unwrap() += 1;
                    sinew::yield_now();
                }
            })
        })
        .collect();
    for _ in 0..1000 {
        *lock.lock().unwrap() += 1;
    }
    for fiber in fibers {
        fiber.join().unwrap();
    }
    assert_eq!(*lock.lock().unwrap(), 3000);
}

#[test]
fn a_leaked_handle_and_a_leaked_fiber_are_harmless() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let theirs = log.clone();
    let runtime = carriers(1);
    std::mem::forget(runtime.spawn(move || theirs.on_drop("kept for ever")));
    std::mem::forget(runtime.spawn(sinew::current).join().unwrap());
    std::mem::forget(FiberBuilder::new().runtime(runtime.handle()).build(|| ()).unwrap());
    runtime.shutdown_timeout(Duration::from_secs(30)).unwrap();
    assert!(log.take().is_empty());
}

/// Signal handlers run on the fiber's own stack, and on the alternate stack.
#[test]
fn signals_arrive_while_a_fiber_runs() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: libc::c_int) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }
    let _watch = watch::a_minute();
    for flags in [0, libc::SA_ONSTACK] {
        // SAFETY: the handler adds to a counter.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = flags;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        let before = SEEN.load(Ordering::Relaxed);
        carriers(1).run(move || {
            for round in 1..100 {
                // SAFETY: sends a signal to our own thread.
                unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) };
                sinew::yield_now();
                sinew::sleep(Duration::from_micros(1));
                assert!(SEEN.load(Ordering::Relaxed) >= before + round);
            }
        });
    }
}

/// A first-class fiber belongs to the runtime's fiber that made it.
#[test]
fn a_first_class_fiber_waits_inside_a_runtimes_fiber() {
    let _watch = watch::a_minute();
    carriers(1).run(|| {
        let others = sinew::spawn(|| (0..50).for_each(|_| sinew::yield_now()));
        let numbers = sinew_context::Generator::new(|out| {
            for n in 0..10 {
                sinew::sleep(Duration::from_micros(10));
                sinew::yield_now();
                out.give(n);
            }
        })
        .unwrap();
        assert_eq!(numbers.sum::<i32>(), 45);
        others.join().unwrap();
    });
}

#[test]
fn a_future_that_gave_its_result_gives_no_second_one() {
    let _watch = watch::a_minute();
    let mut fiber = sinew::spawn(|| Box::new(7));
    assert_eq!(*sinew::block_on(&mut fiber).unwrap(), 7);
    assert!(catch_unwind(AssertUnwindSafe(|| sinew::block_on(&mut fiber))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| fiber.join())).is_err());
    let mut fiber = sinew::spawn(|| Box::new(7));
    assert_eq!(*sinew::block_on(&mut fiber).unwrap(), 7);
    drop(fiber);
}

#[test]
fn unpark_does_not_end_a_pinned_join() {
    let _watch = watch::a_minute();
    let runtime = carriers(2);
    let gate = Arc::new(Barrier::new(2));
    let theirs = gate.clone();
    let fiber = FiberBuilder::new().runtime(runtime.handle()).carrier(0).spawn(move || {
        let child = FiberBuilder::new().carrier(1).spawn(|| {
            std::thread::sleep(20 * MS);
            String::from("the child's")
        });
        let child = child.unwrap();
        theirs.wait();
        sinew::pinned(|| child.join().unwrap())
    });
    let fiber = fiber.unwrap();
    gate.wait();
    while !fiber.is_finished() {
        fiber.fiber().unpark();
    }
    assert_eq!(fiber.join().unwrap(), "the child's");
}

/// Values that a scope lends must outlive the children, wherever the scope is.
#[test]
fn a_scope_is_not_left_early() {
    let _watch = watch::a_minute();
    let in_predicate = || {
        let caught =
            catch_unwind(|| sinew::wait_until(|| sinew::scope(|s| s.spawn(|| ()).join().is_ok())));
        assert!(caught.is_err());
    };
    carriers(2).run(in_predicate);
    let strict = Runtime::builder().carriers(2).pinned_wait(PinnedWait::Error).build().unwrap();
    strict.run(|| {
        let caught = catch_unwind(|| sinew::pinned(|| sinew::scope(|s| drop(s.spawn(|| ())))));
        assert!(caught.is_err());
    });
    carriers(1).run(|| {
        let caught = catch_unwind(|| sinew::pinned(|| sinew::scope(|s| drop(s.spawn(|| ())))));
        assert!(caught.is_err());
    });
    let count = AtomicUsize::new(0);
    let count = Arc::new(count);
    let theirs = count.clone();
    carriers(2).run(move || {
        sinew::pinned(|| {
            sinew::scope(|s| drop(s.spawn(|| theirs.fetch_add(1, Ordering::Relaxed))))
        });
    });
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

thread_local!(static STATE: Cell<u32> = const { Cell::new(0) });
static FUSE: AtomicUsize = AtomicUsize::new(0);
static BAD_SLOT: ContextSlot<u32> = ContextSlot::new(|value| {
    *value = STATE.replace(*value);
    if FUSE.load(Ordering::SeqCst) > 0 && FUSE.fetch_sub(1, Ordering::SeqCst) == 1 {
        panic!("a hook on a fuse");
    }
});

/// A hook that panics in the middle of a switch must not unwind while the wait is registered.
#[test]
fn a_slots_panic_is_raised_after_the_wait_is_left() {
    let _watch = watch::a_minute();
    carriers(1).run(|| {
        for fuse in 1..5 {
            let other = sinew::spawn(sinew::park);
            let handle = other.fiber();
            let waiter = sinew::spawn(move || {
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    BAD_SLOT.enter(1, || {
                        FUSE.store(fuse, Ordering::SeqCst);
                        handle.wait_finished_timeout(2 * MS)
                    })
                }));
                let done = AtomicBool::new(false);
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    sinew::timeout(MS, || {
                        BAD_SLOT.enter(1, || {
                            FUSE.store(fuse, Ordering::SeqCst);
                            sinew::scope(|s| {
                                s.spawn(|| {
                                    sinew::masked(|| sinew::sleep(4 * MS));
                                    done.store(true, Ordering::SeqCst);
                                });
                                sinew::yield_now();
                            });
                        })
                    })
                }));
                FUSE.store(0, Ordering::SeqCst);
            });
            waiter.join().unwrap();
            // Another fiber gets the stack, and then the end is announced.
            sinew::spawn(|| std::hint::black_box([0x41_u8; 8 << 10])).join().unwrap();
            other.fiber().unpark();
            other.join().unwrap();
        }
    });
}

/// A result with a destructor that waits belongs to its fiber, and the runtime waits for it.
#[test]
fn a_result_that_waits_when_dropped_keeps_the_runtime() {
    struct Slow(Arc<AtomicBool>);
    impl Drop for Slow {
        fn drop(&mut self) {
            let home = std::thread::current().id();
            sinew::sleep(20 * MS);
            assert_eq!(std::thread::current().id(), home);
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let _watch = watch::a_minute();
    let dropped = Arc::new(AtomicBool::new(false));
    let theirs = dropped.clone();
    let runtime = carriers(1);
    let started = Arc::new(AtomicBool::new(false));
    let begun = started.clone();
    drop(runtime.spawn(move || {
        begun.store(true, Ordering::SeqCst);
        Slow(theirs)
    }));
    sinew::wait_until(|| started.load(Ordering::SeqCst));
    runtime.shutdown_timeout(Duration::from_secs(30)).unwrap();
    assert!(dropped.load(Ordering::SeqCst));
}

/// Values that a result's destructor makes are not left to the next fiber of the control block.
#[test]
fn locals_made_by_a_results_destructor_are_dropped() {
    struct Touches;
    sinew::fiber_local!(static LEFT: RefCell<Option<Rc<u32>>> = RefCell::new(None));
    impl Drop for Touches {
        fn drop(&mut self) {
            LEFT.with(|left| *left.borrow_mut() = Some(Rc::new(5)));
        }
    }
    let _watch = watch::a_minute();
    let runtime = carriers(2);
    for _ in 0..50 {
        let (gate, fiber) = {
            let gate = Arc::new(AtomicBool::new(false));
            let open = gate.clone();
            let fiber = runtime.spawn(move || {
                sinew::wait_until(|| open.load(Ordering::Acquire));
                Touches
            });
            (gate, fiber)
        };
        let handle = fiber.fiber();
        drop(fiber);
        gate.store(true, Ordering::Release);
        handle.wait_finished();
    }
    for _ in 0..200 {
        let found = runtime.spawn(|| LEFT.with(|left| left.borrow().is_some()));
        assert!(!found.join().unwrap(), "a stranger's value");
    }
}

#[test]
fn exiting_inside_a_binding_is_fine() {
    let outcome = child("exiting_inside_a_binding_is_fine", || {
        sinew::fiber_local!(static NAME: String = "outer".into());
        NAME.with(|_| ());
        NAME.set("inner".into(), || std::process::exit(0));
    });
    outcome.assert_success();
}

/// First-class fibers end bindings in another order than they began.
#[test]
fn bindings_end_in_any_order() {
    sinew::fiber_local!(static NAME: String = "base".into());
    let bind = |name: &'static str| {
        sinew_context::Generator::new(move |out| NAME.set(name.to_owned(), || out.give(())))
            .unwrap()
    };
    let (mut first, mut second) = (bind("first"), bind("second"));
    first.next();
    second.next();
    NAME.with(|name| {
        drop(first);
        drop(second);
        assert_eq!(name, "second");
    });
    assert_eq!(NAME.get(), "base");
}

/// A payload with a destructor that panics, in every place that catches one.
#[test]
fn payloads_that_panic_are_contained() {
    use std::future::Future;
    use std::task::{Context, Wake, Waker};
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a bomb");
        }
    }
    struct BadWaker;
    impl Wake for BadWaker {
        fn wake(self: Arc<Self>) {
            panic_any(Bomb);
        }
    }
    let _watch = watch::a_minute();
    static ARMED: AtomicBool = AtomicBool::new(true);
    let runtime = Runtime::builder()
        .carriers(1)
        .idle_hook(|idle| {
            if ARMED.swap(false, Ordering::SeqCst) {
                panic_any(Bomb);
            }
            idle.wait();
        })
        .build()
        .unwrap();
    runtime.run(|| sinew::sleep(2 * MS));
    let mut fiber = runtime.spawn(|| sinew::sleep(2 * MS));
    let waker = Waker::from(Arc::new(BadWaker));
    let polled = std::pin::Pin::new(&mut fiber);
    assert!(polled.poll(&mut Context::from_waker(&waker)).is_pending());
    fiber.fiber().wait_finished();
    fiber.join().unwrap();
    // The fiber is detached before it ends, so only the runtime drops its payload.
    let (detached, gate) = sinew::sync::channel::bounded::<()>(0);
    drop(runtime.spawn(move || {
        let _ = gate.recv();
        panic_any(Bomb)
    }));
    drop(detached);
    runtime.run(|| sinew::sleep(2 * MS));
}

/// A destructor of a thread-local waits after sinew's own thread-locals are gone.
#[test]
fn a_dying_thread_waits() {
    struct WaitsLate;
    impl Drop for WaitsLate {
        fn drop(&mut self) {
            assert_eq!(sinew::block_on(sinew::spawn(|| 7)).unwrap(), 7);
            sinew::sleep(MS);
            assert_eq!(sinew::spawn(|| 8).join().unwrap(), 8);
        }
    }
    thread_local!(static LATE: WaitsLate = const { WaitsLate });
    let _watch = watch::a_minute();
    std::thread::spawn(|| {
        LATE.with(|_| ());
        // This one is made later, so it is destroyed earlier.
        sinew::current().unpark();
        sinew::park();
    })
    .join()
    .unwrap();
}

/// A fiber waits for the end of a thread, through the handle that stands for it.
#[test]
fn a_thread_ends_like_a_fiber() {
    let _watch = watch::a_minute();
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        send.send(sinew::current()).unwrap();
        sinew::park();
    });
    let handle = receive.recv().unwrap();
    assert!(handle.is_alive());
    let waiter = sinew::spawn({
        let handle = handle.clone();
        move || handle.wait_finished()
    });
    sinew::wait_until(|| waiter.fiber().state() == FiberState::Suspended);
    handle.unpark();
    waiter.join().unwrap();
    thread.join().unwrap();
    assert_eq!(handle.state(), FiberState::Dead);
}

/// A fiber unwinds by `resume_unwind`, which no hook sees, and yields in a destructor. Another
/// fiber can still be cancelled.
#[test]
fn a_silent_unwinding_does_not_block_cancellations_of_others() {
    struct Yields(Arc<AtomicBool>);
    impl Drop for Yields {
        fn drop(&mut self) {
            while !self.0.load(Ordering::SeqCst) {
                sinew::yield_now();
            }
        }
    }
    let _watch = watch::a_minute();
    carriers(1).run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let neighbour = sinew::spawn(|| sinew::sleep(Duration::from_secs(3600)));
        let unwinds = sinew::spawn(move || {
            let _yields = Yields(theirs);
            resume_unwind(Box::new(1));
        });
        for _ in 0..10 {
            sinew::yield_now();
        }
        neighbour.cancel();
        assert!(sinew::is_cancel(&*neighbour.join().unwrap_err()));
        stop.store(true, Ordering::SeqCst);
        assert!(unwinds.join().is_err());
    });
}

/// A pinned wait in a destructor during a panic is cancelled. The panic continues unchanged.
#[test]
fn a_pinned_wait_in_a_destructor_is_not_cut_short() {
    struct WaitsPinned(Arc<AtomicBool>);
    impl Drop for WaitsPinned {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
            sinew::pinned(|| sinew::sleep(20 * MS));
        }
    }
    let _watch = watch::a_minute();
    let runtime = carriers(1);
    let waits = Arc::new(AtomicBool::new(false));
    let theirs = waits.clone();
    let fiber = runtime.spawn(move || {
        let _waits = WaitsPinned(theirs);
        panic!("an ordinary panic");
    });
    sinew::wait_until(|| waits.load(Ordering::SeqCst));
    fiber.cancel();
    let payload: Box<dyn std::any::Any + Send> = match fiber.join() {
        Ok(()) => unreachable!("it panicked"),
        Err(payload) => payload,
    };
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"an ordinary panic"));
}

/// Work from outside is taken although every carrier has fibers that are always ready.
#[test]
fn busy_carriers_take_work_from_outside() {
    let _watch = watch::a_minute();
    let runtime = carriers(2);
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..4)
        .map(|n| {
            let stop = stop.clone();
            let body = move || {
                while !stop.load(Ordering::Relaxed) {
                    sinew::yield_now();
                }
            };
            FiberBuilder::new().runtime(runtime.handle()).carrier(n % 2).spawn(body).unwrap()
        })
        .collect();
    for n in 0..100 {
        assert_eq!(runtime.spawn(move || n).join().unwrap(), n);
    }
    stop.store(true, Ordering::Relaxed);
    for fiber in busy {
        fiber.join().unwrap();
    }
}

/// An old unstarted fiber runs beside a fiber that spawns and joins for ever.
#[test]
fn joins_do_not_starve_older_fibers() {
    let _watch = watch::a_minute();
    carriers(1).run(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let theirs = ran.clone();
        let older = sinew::spawn(move || theirs.store(true, Ordering::Relaxed));
        let mut joins = 0;
        while !ran.load(Ordering::Relaxed) {
            sinew::spawn(|| ()).join().unwrap();
            joins += 1;
            assert!(joins < 10_000, "an older fiber starves");
        }
        older.join().unwrap();
    });
}

/// A carrier that was woken to search for work gets work of its own meanwhile.
#[test]
fn work_is_not_stranded_behind_a_woken_carrier() {
    let _watch = watch::a_minute();
    let runtime = carriers(3);
    for round in 0..6 {
        // All carriers are asleep.
        std::thread::sleep(20 * MS);
        let start = Instant::now();
        let anywhere = runtime.spawn(move || start.elapsed());
        let long = Duration::from_millis(500);
        let busy =
            FiberBuilder::new().runtime(runtime.handle()).carrier(round % 3).spawn(move || {
                let start = Instant::now();
                while start.elapsed() < long && !sinew::is_cancelled() {
                    std::hint::spin_loop();
                }
            });
        let waited = anywhere.join().unwrap();
        busy.unwrap().cancel();
        assert!(waited < long / 2, "waited {waited:?} beside two idle carriers");
    }
}

/// Any carrier can take a fiber that is joined before it began, until it runs. This holds even if
/// the joiner's carrier first comes to other work that blocks it.
#[test]
fn a_fiber_joined_at_once_is_not_hidden_from_other_carriers() {
    let _watch = watch::a_minute();
    let runtime = carriers(2);
    runtime.run(|| {
        for _ in 0..if cfg!(debug_assertions) { 2_000 } else { 30_000 } {
            let (sender, receiver) = std::sync::mpsc::channel::<()>();
            let blocks = sinew::spawn(move || sinew::pinned(|| receiver.recv().unwrap()));
            let frees = sinew::spawn(move || sender.send(()).unwrap());
            frees.join().unwrap();
            blocks.join().unwrap();
        }
    });
}

/// A cancelled joiner that goes on does not hide an unstarted fiber from other carriers.
#[test]
fn a_cancelled_joiner_hides_nothing() {
    let _watch = watch::a_minute();
    let runtime = carriers(2);
    let done = runtime.spawn(|| {
        let other = sinew::spawn(|| 7);
        let handle = other.fiber();
        sinew::current().cancel();
        // If the other carrier was quick, there was nothing to wait for.
        let raised = catch_unwind(AssertUnwindSafe(|| other.join())).is_err();
        assert!(raised || !handle.is_alive());
        sinew::masked(|| sinew::pinned(|| handle.wait_finished()))
    });
    done.join().unwrap();
}

/// The destructor of a closure that got no stack joins a fiber that only this carrier can run. The
/// wait does not block the carrier.
#[test]
fn a_destructor_without_a_stack_does_not_block_its_carrier() {
    struct Joins(Option<sinew::JoinHandle<()>>);
    impl Drop for Joins {
        fn drop(&mut self) {
            let _ = self.0.take().unwrap().join();
        }
    }
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).max_stacks(2).build().unwrap();
    runtime.run(|| {
        let sleeper = sinew::spawn(|| sinew::sleep(20 * MS));
        sinew::wait_until(|| sleeper.fiber().state() == FiberState::Suspended);
        let handle = sleeper.fiber();
        let joins = Joins(Some(sleeper));
        assert!(sinew::spawn(move || drop(joins)).join().is_err());
        handle.wait_finished();
    });
}

/// A waker that was given to a handle while its fiber ended is dropped with the handle.
#[test]
fn a_waker_does_not_outlive_its_handle() {
    use std::future::Future;
    use std::task::{Context, Wake, Waker};
    struct Counted;
    impl Wake for Counted {
        fn wake(self: Arc<Self>) {}
    }
    let _watch = watch::a_minute();
    let runtime = carriers(1);
    for round in 0..20_000 {
        let mut fiber = runtime.spawn(move || {
            for _ in 0..round % 97 * 20 {
                std::hint::spin_loop();
            }
        });
        let counted = Arc::new(Counted);
        let waker = Waker::from(counted.clone());
        for _ in 0..round % 89 * 20 {
            std::hint::spin_loop();
        }
        let polled = std::pin::Pin::new(&mut fiber).poll(&mut Context::from_waker(&waker));
        drop(waker);
        if polled.is_pending() {
            fiber.join().unwrap();
        } else {
            drop(fiber);
            assert_eq!(Arc::strong_count(&counted), 1, "round {round}");
        }
    }
}
