//! `main`, OS threads and fibers: which can be switched away from, dropped, or left behind.

use sinew_context::stack::StackPool;
use sinew_context::{FiberContext, unwind};
use sinew_testkit::child::child;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_thread_can_be_switched_away_from_without_being_declared() {
    let handle = std::thread::spawn(|| {
        let fiber = FiberContext::new(|thread| {
            assert!(thread.is_thread());
            assert_eq!(thread.stack_range(), None);
            thread.resume().unwrap()
        });
        let fiber = fiber.unwrap().resume().unwrap();
        assert!(!fiber.is_thread());
        assert!(fiber.resume().is_none());
        7
    });
    assert_eq!(handle.join().unwrap(), 7);
}

#[test]
fn main_itself_can_be_switched_away_from() {
    // The body of a child runs on the thread of the test harness. With one test thread, that is
    // `main` of the process.
    child("main_itself_can_be_switched_away_from", || {
        let fiber = FiberContext::new(|main| main.resume().unwrap());
        assert!(fiber.unwrap().resume().unwrap().resume().is_none());
    })
    .assert_success();
}

#[test]
fn dropping_the_value_of_a_thread_leaves_the_thread_in_the_fiber_for_good() {
    child("dropping_the_value_of_a_thread_leaves_the_thread_in_the_fiber_for_good", || {
        struct Never;
        impl Drop for Never {
            fn drop(&mut self) {
                println!("the thread's frames were unwound");
                std::process::exit(1);
            }
        }
        let _frame = Never;
        let fiber = FiberContext::new(|thread| {
            drop(thread);
            // The thread runs only this fiber from here on, which can still do everything.
            let other = FiberContext::new(|caller| caller).unwrap();
            assert!(other.resume().is_none());
            std::process::exit(0);
        });
        let _ = fiber.unwrap().resume();
        unreachable!("nobody can come back here");
    })
    .assert_success();
}

#[test]
fn a_thread_that_exits_with_fibers_suspended_on_it_leaks_them() {
    let pool = StackPool::new().unwrap();
    std::thread::spawn({
        let pool = pool.clone();
        move || {
            let fiber = FiberContext::with_allocator(&pool, |thread| thread.resume().unwrap());
            std::mem::forget(fiber.unwrap().resume().unwrap());
        }
    })
    .join()
    .unwrap();
    // The fiber's stack stays out for good; the pool works as before.
    assert_eq!(pool.stats().in_use, 1);
    assert!(FiberContext::with_allocator(&pool, |caller| caller).unwrap().resume().is_none());
}

static UNWOUND: AtomicUsize = AtomicUsize::new(0);

struct Unwound;

impl Drop for Unwound {
    fn drop(&mut self) {
        UNWOUND.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_fiber_dropped_by_the_destructor_of_a_thread_local_is_unwound_there() {
    thread_local!(static KEPT: RefCell<Vec<FiberContext>> = const { RefCell::new(Vec::new()) });
    std::thread::spawn(|| {
        for started in [true, false] {
            let unwound = Unwound;
            let fiber = FiberContext::new(move |thread| {
                let _unwound = unwound;
                thread.resume().unwrap()
            })
            .unwrap();
            let fiber = if started { fiber.resume().unwrap() } else { fiber };
            KEPT.with_borrow_mut(|kept| kept.push(fiber));
        }
    })
    .join()
    .unwrap();
    assert_eq!(UNWOUND.load(Ordering::Relaxed), 2);
}

#[test]
fn made_and_run_in_the_destructor_of_a_thread_local() {
    struct RunsFibers;
    impl Drop for RunsFibers {
        fn drop(&mut self) {
            let fiber = FiberContext::new(|thread| unwind(thread));
            assert!(fiber.unwrap().resume().is_none());
        }
    }
    thread_local!(static LATE: RunsFibers = const { RunsFibers });
    std::thread::spawn(|| LATE.with(|_| ())).join().unwrap();
}

#[test]
fn a_panicking_thread_unwinds_the_fibers_it_holds() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Count;
    impl Drop for Count {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let result = std::thread::spawn(|| {
        let make = || {
            let fiber = FiberContext::new(|thread| {
                let _count = Count;
                thread.resume().unwrap()
            });
            fiber.unwrap().resume().unwrap()
        };
        let _fibers = [make(), make(), make()];
        panic!("the thread");
    })
    .join();
    assert!(result.is_err());
    assert_eq!(DROPPED.load(Ordering::Relaxed), 3);
}

/// Carries a fiber to another thread against the rules of the types. It must not run there.
struct Smuggle(FiberContext);
// SAFETY: unsound on purpose, to test the check at run time.
unsafe impl Send for Smuggle {}

#[test]
fn resuming_on_another_thread_panics_and_runs_nothing() {
    let smuggled =
        Smuggle(FiberContext::new(|_| unreachable!("not run on another thread")).unwrap());
    let text = std::thread::spawn(move || {
        let smuggled = smuggled;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| smuggled.0.resume()));
        *result.unwrap_err().downcast::<String>().unwrap()
    })
    .join()
    .unwrap();
    assert!(text.contains("it can go on only where it was made"), "{text}");
}

#[test]
fn a_fiber_dropped_on_another_thread_is_leaked_with_a_panic() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Count;
    impl Drop for Count {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let fiber = FiberContext::new(|thread| {
        let _count = Count;
        thread.resume().unwrap()
    });
    let smuggled = Smuggle(fiber.unwrap().resume().unwrap());
    let text = std::thread::spawn(move || {
        let smuggled = smuggled;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(smuggled)));
        *result.unwrap_err().downcast::<String>().unwrap()
    })
    .join()
    .unwrap();
    assert!(text.contains("it is leaked"), "{text}");
    assert_eq!(DROPPED.load(Ordering::Relaxed), 0, "its frames are as they were");
}

#[test]
fn a_fiber_dropped_on_another_thread_that_panics_is_leaked_with_a_report() {
    let name = "a_fiber_dropped_on_another_thread_that_panics_is_leaked_with_a_report";
    let outcome = child(name, || {
        let smuggled = Smuggle(FiberContext::new(|caller| caller).unwrap());
        let result = std::thread::spawn(move || {
            let _smuggled = smuggled;
            panic!("for another reason");
        })
        .join();
        assert!(result.is_err());
    });
    outcome.assert_success();
    assert!(outcome.stderr.contains("sinew: a fiber of the thread at"), "{outcome:#?}");
    assert!(outcome.stderr.contains("it is leaked"), "{outcome:#?}");
}

#[test]
fn fibers_of_many_threads_do_not_meet() {
    let pool = StackPool::new().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..500_usize {
                    let sum = std::rc::Rc::new(Cell::new(0));
                    let fiber = FiberContext::with_allocator(pool, {
                        let sum = sum.clone();
                        move |mut thread| {
                            for number in 0..10 {
                                sum.set(sum.get() + number);
                                thread = thread.resume().unwrap();
                            }
                            thread
                        }
                    });
                    let mut fiber = Some(fiber.unwrap());
                    for _ in 0..=(round + thread) % 11 {
                        fiber = fiber.and_then(FiberContext::resume);
                    }
                    let steps = ((round + thread) % 11 + 1).min(10);
                    assert_eq!(sum.get(), steps * (steps - 1) / 2);
                }
            });
        }
    });
    assert_eq!(pool.stats().in_use, 0);
}
