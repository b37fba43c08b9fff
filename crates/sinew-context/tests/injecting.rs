//! `resume_with`: functions that run on top of another fiber.

use sinew_context::stack::{ProtectedFixedSize, StackPool};
use sinew_context::{FiberContext, unwind};
use sinew_testkit::Log;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

fn waiting() -> FiberContext {
    let fiber = FiberContext::new(|caller| caller.resume().unwrap());
    fiber.unwrap().resume().unwrap()
}

#[test]
fn the_suspended_call_returns_the_result_of_the_injected_function() {
    let main: Rc<Cell<Option<FiberContext>>> = Rc::default();
    // Receives another fiber than its caller, and ends into it.
    let fiber =
        FiberContext::new(|caller| caller.resume().expect("what the injected function returns"));
    let fiber = fiber.unwrap().resume().unwrap();
    let other = FiberContext::with_entry(&ProtectedFixedSize::default(), {
        let main = main.clone();
        move |from| {
            assert!(from.is_none(), "started by a fiber that has ended");
            main.take().expect("the injected function kept it")
        }
    })
    .unwrap();
    let back = fiber.resume_with(move |caller| {
        main.set(Some(caller));
        Some(other)
    });
    assert!(back.is_none(), "the other has ended into main");
}

#[test]
fn returning_none_makes_the_suspended_call_return_none() {
    let main: Rc<Cell<Option<FiberContext>>> = Rc::default();
    let fiber = FiberContext::new({
        let main = main.clone();
        move |caller| {
            assert!(caller.resume().is_none());
            main.take().expect("the injected function kept it")
        }
    });
    let fiber = fiber.unwrap().resume().unwrap();
    let back = fiber.resume_with(move |caller| {
        main.set(Some(caller));
        None
    });
    assert!(back.is_none());
}

#[test]
fn a_panic_goes_through_the_target_and_can_be_caught_there() {
    let log = Log::new();
    let main: Rc<Cell<Option<FiberContext>>> = Rc::default();
    let fiber = FiberContext::new({
        let (log, main) = (log.clone(), main.clone());
        move |caller| {
            let result = catch_unwind(AssertUnwindSafe(|| {
                let _frame = log.on_drop("frame of the target");
                let _ = caller.resume();
                unreachable!("the injected function panics");
            }));
            log.line(*result.unwrap_err().downcast_ref::<&str>().unwrap());
            main.take().expect("the injected function kept it")
        }
    });
    let fiber = fiber.unwrap().resume().unwrap();
    let back = fiber.resume_with(move |caller| {
        main.set(Some(caller));
        panic!("injected")
    });
    assert!(back.is_none());
    assert_eq!(log.take(), ["frame of the target", "injected"]);
    assert!(!std::thread::panicking());
}

#[test]
fn runs_before_the_function_of_a_fiber_that_never_started() {
    let log = Log::new();
    let fiber = FiberContext::new({
        let log = log.clone();
        move |caller| {
            log.line("function");
            caller
        }
    });
    let back = fiber.unwrap().resume_with({
        let log = log.clone();
        move |caller| {
            log.line("injected");
            caller
        }
    });
    assert!(back.is_none());
    assert_eq!(log.take(), ["injected", "function"]);
}

#[test]
fn the_argument_of_an_unstarted_fiber_can_be_replaced_or_withheld() {
    let fiber = FiberContext::with_entry(&ProtectedFixedSize::default(), |from| {
        assert!(from.is_none());
        MAIN.with(Cell::take).expect("the injected function kept it")
    });
    thread_local!(static MAIN: Cell<Option<FiberContext>> = const { Cell::new(None) });
    let back = fiber.unwrap().resume_with(|caller| {
        MAIN.set(Some(caller));
        None
    });
    assert!(back.is_none());
}

#[test]
fn unwind_injected_into_an_unstarted_fiber_drops_its_closure() {
    let log = Log::new();
    let captured = log.on_drop("captured");
    let pool = StackPool::new().unwrap();
    let fiber = FiberContext::with_allocator(&pool, move |caller| {
        let _captured = &captured;
        unreachable!("never runs: {caller:?}")
    });
    assert!(fiber.unwrap().resume_with(unwind).is_none());
    assert_eq!(log.take(), ["captured"]);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn an_injected_function_may_itself_be_suspended() {
    let log = Log::new();
    let fiber = waiting();
    let fiber = fiber.resume_with({
        let log = log.clone();
        move |caller| {
            log.line("injected");
            let caller = caller.resume().unwrap();
            log.line("injected again");
            caller
        }
    });
    log.line("main");
    assert!(fiber.expect("suspended inside the injected function").resume().is_none());
    assert_eq!(log.take(), ["injected", "main", "injected again"]);
}

#[test]
fn injected_functions_nest() {
    let log = Log::new();
    let mut fiber = waiting();
    for depth in 0..5 {
        let log = log.clone();
        fiber = fiber
            .resume_with(move |caller| {
                let caller = caller.resume().unwrap();
                log.line(depth);
                caller
            })
            .unwrap();
    }
    assert!(fiber.resume().is_none());
    assert_eq!(log.take(), ["4", "3", "2", "1", "0"]);
}

#[test]
fn dropping_a_fiber_suspended_in_an_injected_function_unwinds_both() {
    let log = Log::new();
    let fiber = FiberContext::new({
        let log = log.clone();
        move |caller| {
            let _outer = log.on_drop("function");
            caller.resume().unwrap()
        }
    });
    let fiber = fiber.unwrap().resume().unwrap();
    let fiber = fiber.resume_with({
        let log = log.clone();
        move |caller| {
            let _inner = log.on_drop("injected");
            caller.resume()
        }
    });
    drop(fiber);
    assert_eq!(log.take(), ["injected", "function"]);
}

#[test]
fn can_be_injected_into_a_thread_that_waits() {
    let log = Log::new();
    let fiber = FiberContext::new({
        let log = log.clone();
        move |main| {
            let log = log.clone();
            main.resume_with(move |fiber| {
                log.line("on the thread's stack");
                Some(fiber)
            })
            .unwrap()
        }
    });
    let fiber = fiber.unwrap().resume().unwrap();
    log.line("main");
    assert!(fiber.resume().is_none());
    assert_eq!(log.take(), ["on the thread's stack", "main"]);
}

#[test]
fn a_panic_injected_into_a_waiting_thread_comes_out_of_its_resume() {
    let place: Rc<Cell<Option<FiberContext>>> = Rc::default();
    let fiber = FiberContext::new({
        let place = place.clone();
        move |main| {
            let back = main.resume_with(move |fiber| {
                place.set(Some(fiber));
                panic!("into main")
            });
            back.unwrap()
        }
    });
    let fiber = fiber.unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| fiber.resume()));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"into main"));
    assert!(place.take().unwrap().resume().is_none());
}
