//! generator-rs, which `may` is built on.

use super::round_robin;
use crate::measure::{Lap, Timed};
use generator::{Generator, Gn};
use std::hint::black_box;

pub(crate) const SETTINGS: &str = "0.8.11, default settings";

fn bouncing() -> Generator<'static, (), ()> {
    Gn::new_scoped(|mut scope| {
        loop {
            scope.yield_(());
        }
    })
}

pub(crate) fn switch(count: usize) -> Timed {
    let generators: Vec<_> = (0..count).map(|_| bouncing()).collect();
    round_robin(generators, |generator| {
        black_box(generator.resume());
    })
}

pub(crate) fn create() -> Timed {
    Box::new(move |count| {
        Lap::run(count, || {
            for number in 0..count {
                let mut generator: Generator<'_, (), u64> =
                    Gn::new_scoped(move |_| black_box(number));
                black_box(generator.resume());
            }
        })
    })
}
