//! Misuse that the types cannot exclude. Each case ends in a clear message.

use sinew_context::{FiberContext, scope, unwind};
use sinew_testkit::child::child;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SIGABRT: i32 = 6;

fn make<F: FnOnce(FiberContext) -> FiberContext + 'static>(f: F) -> FiberContext {
    FiberContext::new(f).unwrap()
}

#[test]
fn a_panic_that_escapes_the_function_aborts() {
    child("a_panic_that_escapes_the_function_aborts", || {
        let _ = make(|_caller| panic!("nobody catches me")).resume();
    })
    .assert_died(SIGABRT, &["nobody catches me", "a panic escaped the entry function of a fiber"]);
}

#[test]
fn dropping_the_unwinding_aborts() {
    child("dropping_the_unwinding_aborts", || {
        let fiber = make(|caller| {
            let _ = catch_unwind(AssertUnwindSafe(|| caller.resume()));
            unreachable!("the payload was dropped")
        });
        drop(fiber.resume());
    })
    .assert_died(SIGABRT, &["the unwinding of a fiber was caught and not raised again"]);
}

#[test]
fn forgetting_the_unwinding_and_returning_aborts() {
    child("forgetting_the_unwinding_and_returning_aborts", || {
        let fiber = make(|caller| {
            let payload = catch_unwind(AssertUnwindSafe(|| caller.resume())).unwrap_err();
            std::mem::forget(payload);
            make(|caller| caller)
        });
        drop(fiber.resume());
    })
    .assert_died(SIGABRT, &["the unwinding of a fiber was caught and not raised again"]);
}

#[test]
fn forgetting_the_unwinding_and_being_unwound_again_aborts() {
    child("forgetting_the_unwinding_and_being_unwound_again_aborts", || {
        let fiber = make(|caller| {
            let payload = catch_unwind(AssertUnwindSafe(|| caller.resume())).unwrap_err();
            std::mem::forget(payload);
            unwind(make(|caller| caller))
        });
        drop(fiber.resume());
    })
    .assert_died(SIGABRT, &["the unwinding of a fiber was caught and not raised again"]);
}

#[test]
fn raising_the_unwinding_of_another_fiber_aborts() {
    child("raising_the_unwinding_of_another_fiber_aborts", || {
        thread_local!(static STOLEN: Cell<Option<Box<dyn std::any::Any + Send>>> =
            const { Cell::new(None) });
        let fiber = make(|caller| {
            let payload = catch_unwind(AssertUnwindSafe(|| caller.resume())).unwrap_err();
            STOLEN.set(Some(payload));
            let _ = make(|caller| {
                std::mem::forget(caller);
                std::panic::resume_unwind(STOLEN.take().unwrap())
            })
            .resume();
            unreachable!()
        });
        drop(fiber.resume());
    })
    .assert_died(SIGABRT, &["the unwinding of one fiber was raised in another"]);
}

#[test]
fn dropping_a_fiber_in_the_middle_of_its_unwinding_aborts() {
    child("dropping_a_fiber_in_the_middle_of_its_unwinding_aborts", || {
        struct SwitchAway;
        impl Drop for SwitchAway {
            fn drop(&mut self) {
                // The helper receives the fiber that is being unwound, and drops it.
                let helper = make(|half_unwound| {
                    drop(half_unwound);
                    unreachable!()
                });
                let _ = helper.resume();
            }
        }
        let fiber = make(|caller| {
            let _switch = SwitchAway;
            caller.resume().unwrap()
        });
        drop(fiber.resume());
    })
    .assert_died(SIGABRT, &["dropped while its unwinding was suspended in a destructor"]);
}

#[test]
fn a_function_that_needs_its_caller_cannot_be_started_by_a_fiber_that_ended() {
    child("a_function_that_needs_its_caller_cannot_be_started_by_a_fiber_that_ended", || {
        let needs_caller = make(|caller| caller);
        let _ = make(|main| {
            std::mem::forget(main);
            needs_caller
        })
        .resume();
    })
    .assert_died(SIGABRT, &["Make it with `FiberContext::with_entry`"]);
}

#[test]
fn unwind_on_a_thread_is_a_panic() {
    let fiber = make(|caller| caller);
    let result = catch_unwind(AssertUnwindSafe(|| unwind(fiber)));
    let payload = result.unwrap_err();
    let text = payload.downcast_ref::<&str>().expect("a plain message");
    assert!(text.contains("an OS thread or a runtime's fiber ends by returning"), "{text}");
}

#[test]
fn unwind_injected_into_a_thread_is_a_panic_there() {
    let log = sinew_testkit::Log::new();
    let fiber = make({
        let log = log.clone();
        move |main| {
            let _unwound_by_main = log.on_drop("the fiber");
            let _ = main.resume_with(unwind);
            unreachable!("main drops this fiber as it panics")
        }
    });
    let result = catch_unwind(AssertUnwindSafe(|| fiber.resume()));
    assert!(result.unwrap_err().downcast_ref::<&str>().unwrap().contains("OS thread"));
    assert_eq!(log.take(), ["the fiber"]);
}

#[test]
fn a_scope_whose_fiber_was_forgotten_aborts() {
    child("a_scope_whose_fiber_was_forgotten_aborts", || {
        let text = String::from("borrowed");
        scope(|s| {
            let fiber = s.fiber(|caller| {
                let caller = caller.resume().unwrap();
                assert_eq!(text, "borrowed");
                caller
            });
            std::mem::forget(fiber.unwrap().resume());
        });
    })
    .assert_died(SIGABRT, &["a scope ended while 1 of its fibers had not"]);
}

#[test]
fn a_scope_whose_fiber_was_moved_out_aborts() {
    child("a_scope_whose_fiber_was_moved_out_aborts", || {
        let text = String::from("borrowed");
        let fiber = scope(|s| {
            s.fiber(|caller| {
                assert_eq!(text, "borrowed");
                caller
            })
            .unwrap()
        });
        let _ = fiber.resume();
    })
    .assert_died(SIGABRT, &["a scope ended while 1 of its fibers had not"]);
}

#[test]
fn a_scope_whose_injected_function_is_suspended_elsewhere_aborts() {
    child("a_scope_whose_injected_function_is_suspended_elsewhere_aborts", || {
        let outside = make(|caller| caller.resume().unwrap()).resume().unwrap();
        let text = String::from("borrowed");
        let outside = scope(|s| {
            s.resume_with(outside, |caller| {
                let caller = caller.resume().unwrap();
                assert_eq!(text, "borrowed");
                Some(caller)
            })
        });
        drop(outside);
    })
    .assert_died(SIGABRT, &["a scope ended while 1 of its fibers had not"]);
}

#[test]
fn a_generator_that_swallows_its_end_and_yields_again_aborts() {
    child("a_generator_that_swallows_its_end_and_yields_again_aborts", || {
        let mut generator = sinew_context::Generator::new(|out| {
            let payload = catch_unwind(AssertUnwindSafe(|| out.give(1))).unwrap_err();
            std::mem::forget(payload);
            out.give(2);
        })
        .unwrap();
        assert_eq!(generator.next(), Some(1));
        drop(generator);
    })
    .assert_died(SIGABRT, &["a generator or consumer ended, but the fiber that used it is gone"]);
}
