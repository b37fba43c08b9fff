//! The peers, each in its best ordinary configuration.

pub(crate) mod boost_fiber;
pub(crate) mod corosensei;
pub(crate) mod crossbeam;
pub(crate) mod fcontext;
pub(crate) mod fio;
pub(crate) mod generator;
pub(crate) mod go;
pub(crate) mod hyper;
pub(crate) mod locks;
pub(crate) mod may;
pub(crate) mod may_http;
pub(crate) mod may_io;
pub(crate) mod may_minihttp;
pub(crate) mod may_sync;
pub(crate) mod nginx;
pub(crate) mod rayon;
pub(crate) mod sinew;
pub(crate) mod sinew_http;
pub(crate) mod sinew_io;
pub(crate) mod sinew_manager;
pub(crate) mod sinew_runtime;
pub(crate) mod sinew_sync;
pub(crate) mod smol;
mod threads;
pub(crate) mod threads_http;
pub(crate) mod threads_io;
pub(crate) mod tokio;
pub(crate) mod tokio_io;
pub(crate) mod tokio_local;
pub(crate) mod tokio_sync;

use crate::measure::{Lap, Timed};

/// Switches to each context in turn. `step` switches to a context and back, which is two switches.
///
/// A single context is not kept in the vector, so that the loop contains nothing but the switch.
pub(crate) fn round_robin<C: 'static>(
    mut contexts: Vec<C>,
    step: impl Fn(&mut C) + 'static,
) -> Timed {
    let count = contexts.len() as u64;
    if count == 1 {
        let mut context = contexts.pop().expect("there is one context");
        return Box::new(move |switches| {
            let rounds = (switches / 2).max(1);
            Lap::run(2 * rounds, || {
                for _ in 0..rounds {
                    step(&mut context);
                }
            })
        });
    }
    Box::new(move |switches| {
        let rounds = (switches / 2).div_ceil(count).max(1);
        Lap::run(2 * rounds * count, || {
            for _ in 0..rounds {
                contexts.iter_mut().for_each(&step);
            }
        })
    })
}
