//! corosensei: asymmetric coroutines with an inline-assembly switch.

use super::round_robin;
use crate::measure::{Lap, Timed};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use std::hint::black_box;

pub(crate) const SETTINGS: &str = "0.3.4, default settings";

fn bouncing() -> Coroutine<(), (), ()> {
    Coroutine::new(|yielder, ()| {
        loop {
            yielder.suspend(());
        }
    })
}

pub(crate) fn switch(count: usize) -> Timed {
    let coroutines: Vec<_> = (0..count).map(|_| bouncing()).collect();
    round_robin(coroutines, |coroutine| match coroutine.resume(()) {
        CoroutineResult::Yield(()) => {}
        CoroutineResult::Return(()) => unreachable!(),
    })
}

/// Makes coroutines on one stack that is reused: the floor for `create`.
pub(crate) fn create_on_reused_stack() -> Timed {
    let mut stack = Some(DefaultStack::new(256 * 1024).expect("there is memory for a stack"));
    Box::new(move |count| {
        Lap::run(count, || {
            for number in 0..count {
                let mut coroutine: Coroutine<(), (), (), _> =
                    Coroutine::with_stack(stack.take().expect("it was put back"), move |_, ()| {
                        black_box(number);
                    });
                let _ = black_box(coroutine.resume(()).as_return().is_some());
                stack = Some(coroutine.into_stack());
            }
        })
    })
}

/// Makes each coroutine on a stack of its own, as `Coroutine::new` does.
pub(crate) fn create() -> Timed {
    Box::new(move |count| {
        Lap::run(count, || {
            for number in 0..count {
                let mut coroutine: Coroutine<(), (), ()> = Coroutine::new(move |_, ()| {
                    black_box(number);
                });
                let _ = black_box(coroutine.resume(()).as_return().is_some());
            }
        })
    })
}
