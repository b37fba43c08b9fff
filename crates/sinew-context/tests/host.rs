//! The hook by which a runtime names its running fiber.
//!
//! A single test, because a process can set the hook only once.

use sinew_context::{FiberContext, hook};
use std::cell::Cell;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static RUNNING: Cell<u64> = const { Cell::new(0) };
    /// A fiber of the "runtime" smuggles a first-class fiber to another through this variable.
    static SMUGGLED: Cell<Option<FiberContext>> = const { Cell::new(None) };
}

fn running() -> Option<NonZeroU64> {
    NonZeroU64::new(RUNNING.get())
}

fn text_of<T>(f: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { panic!("it should panic") };
    *payload.downcast::<String>().unwrap()
}

#[test]
fn a_fiber_of_one_runtime_fiber_is_not_run_in_another() {
    let before = FiberContext::new(|caller| caller).unwrap();
    // SAFETY: the hook returns the number that this test sets.
    unsafe { hook::set_host_hook(running) }.unwrap();
    // SAFETY: the hook returns the number that this test sets.
    assert_eq!(unsafe { hook::set_host_hook(running) }, Err(hook::AlreadySet));
    assert!(before.is_at_home(), "outside of the runtime's fibers the thread is the host");
    assert!(before.resume().is_none());

    // In fiber 1 of the runtime: make a fiber, run it until it suspends, store it in a
    // thread-local.
    RUNNING.set(1);
    let fiber = FiberContext::new(|caller| {
        let caller = caller.resume().unwrap();
        assert_eq!(RUNNING.get(), 1);
        caller
    });
    SMUGGLED.set(Some(fiber.unwrap().resume().unwrap()));
    SMUGGLED.with(|place| {
        let unstarted = FiberContext::new(|caller| caller).unwrap();
        let first = place.replace(Some(unstarted)).unwrap();

        // In fiber 2: neither the started nor the unstarted fiber can be resumed or dropped.
        RUNNING.set(2);
        assert!(!first.is_at_home());
        let text = text_of(|| first.resume_with(|caller| caller));
        assert!(
            text.contains("a fiber of the runtime's fiber 1 was resumed in the runtime's fiber 2"),
            "{text}"
        );
        let second = place.take().unwrap();
        let text = text_of(|| drop(second));
        assert!(text.contains("it is leaked"), "{text}");

        // Back in fiber 1, then on the bare thread.
        RUNNING.set(1);
        let mine = FiberContext::new(|caller| caller.resume().unwrap()).unwrap();
        let mine = mine.resume().unwrap();
        RUNNING.set(0);
        assert!(text_of(|| mine.resume()).contains("was resumed in the thread at"));
        RUNNING.set(1);
        let mine = FiberContext::new(|caller| caller).unwrap();
        assert!(mine.resume().is_none());
    });
}
