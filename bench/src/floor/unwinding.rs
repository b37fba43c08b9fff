//! Unwinding by hand: a panic that is thrown and caught.

use crate::measure::{Lap, Timed};
use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind, set_hook, take_hook};

pub(crate) const RESUMED: &str = "std::panic::resume_unwind of (), caught: no hook, no message";
pub(crate) const PANICKED: &str = "std::panic!() with a hook that does nothing, caught";

/// Throws an empty panic without calling the hook: the least that an unwinding costs.
pub(crate) fn resumed() -> Timed {
    Box::new(|count| {
        Lap::run(count, || {
            for _ in 0..count {
                let caught = catch_unwind(|| {
                    black_box(());
                    resume_unwind(Box::new(()))
                });
                black_box(caught.is_err());
            }
        })
    })
}

/// Throws an empty panic with `panic!`.
pub(crate) fn panicked() -> Timed {
    Box::new(|count| {
        let hook = take_hook();
        set_hook(Box::new(|_| {}));
        let lap = Lap::run(count, || {
            for _ in 0..count {
                let caught = catch_unwind(|| {
                    black_box(());
                    panic!()
                });
                black_box(caught.is_err());
            }
        });
        set_hook(hook);
        lap
    })
}
