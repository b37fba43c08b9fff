//! Fibers that borrow.

use sinew_context::{FiberContext, scope};
use sinew_testkit::Log;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn fibers_borrow_from_outside_and_return_before_the_scope_does() {
    let mut numbers = vec![1, 2, 3];
    let total = scope(|s| {
        let fiber = s.fiber(|caller| {
            numbers.push(4);
            caller
        });
        assert!(fiber.unwrap().resume().is_none());
        10
    });
    numbers.push(total);
    assert_eq!(numbers, [1, 2, 3, 4, 10]);
}

#[test]
fn suspended_and_unstarted_fibers_are_ended_at_the_end_of_the_scope() {
    let log = Log::new();
    scope(|s| {
        let started = s.fiber(|caller| {
            let _noise = log.on_drop("started");
            caller.resume().unwrap()
        });
        let _started = started.unwrap().resume();
        let captured = log.on_drop("unstarted");
        let _unstarted = s.fiber(move |caller| {
            let _captured = &captured;
            caller
        });
    });
    assert_eq!(log.take(), ["unstarted", "started"]);
}

#[test]
fn a_panic_leaves_the_scope_after_its_fibers_have_ended() {
    let log = Log::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        scope(|s| {
            let fiber = s.fiber(|caller| {
                let _noise = log.on_drop("fiber");
                caller.resume().unwrap()
            });
            let _fiber = fiber.unwrap().resume();
            panic!("body");
        })
    }));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"body"));
    assert_eq!(log.take(), ["fiber"]);
}

#[test]
fn a_scope_inside_a_fiber_is_unwound_with_it() {
    let log = Log::new();
    let fiber = FiberContext::new({
        let log = log.clone();
        move |caller| {
            let local = Cell::new(0);
            scope(|s| {
                let inner = s.fiber(|outer| {
                    let _noise = log.on_drop("inner");
                    local.set(1);
                    outer.resume().unwrap()
                });
                let _inner = inner.unwrap().resume();
                let _noise = log.on_drop("outer");
                caller.resume().unwrap()
            })
        }
    });
    drop(fiber.unwrap().resume());
    assert_eq!(log.take(), ["outer", "inner"]);
}

#[test]
fn injected_functions_may_borrow() {
    let count = Cell::new(0);
    let fiber = FiberContext::new(|caller| caller.resume().unwrap());
    let fiber = fiber.unwrap().resume().unwrap();
    scope(|s| {
        let ended = s.resume_with(fiber, |caller| {
            count.set(count.get() + 1);
            caller
        });
        assert!(ended.is_none());
    });
    assert_eq!(count.get(), 1);
}

#[test]
fn generators_and_consumers_may_borrow() {
    let words = ["a", "b", "c"].map(String::from);
    let mut seen = Vec::new();
    scope(|s| {
        let generator = s.generator(|out| words.iter().for_each(|word| out.give(word.as_str())));
        let consumer = s.consumer(|input| seen.extend(input));
        consumer.unwrap().extend(generator.unwrap());
    });
    assert_eq!(seen, words);
}

#[test]
fn scopes_nest() {
    let mut outer = 0;
    scope(|s| {
        let fiber = s.fiber(|caller| {
            let mut inner = 0;
            scope(|t| {
                let fiber = t.fiber(|caller| {
                    inner += 1;
                    outer += 1;
                    caller
                });
                let _ = fiber.unwrap().resume();
            });
            outer += inner;
            caller
        });
        let _ = fiber.unwrap().resume();
    });
    assert_eq!(outer, 2);
}
