//! Boost.Fiber, through the functions in `bench/cpp`.

use crate::measure::{Contender, Work};

/// The work of a contender.
#[derive(Clone, Copy)]
#[cfg_attr(not(has_boost_fiber), allow(dead_code, reason = "Boost.Fiber is not built"))]
pub(crate) enum What {
    /// Makes this many fibers, lets them run, and repeats that.
    Tasks(u64),
    /// Makes fibers that run at once.
    Dispatch,
    /// Two fibers suspend and schedule each other.
    Signal,
    /// Two fibers wake each other with a mutex and a condition variable each.
    Condition,
    /// Another thread sends tasks, each of which gets a fiber. At most this many tasks are
    /// outstanding.
    Each(u64),
    /// Another thread sends tasks, and a few fibers run all of them. At most this many tasks are
    /// outstanding.
    Workers(u64),
    /// A fiber and the main fiber yield to each other.
    Yield,
}

#[cfg(not(has_boost_fiber))]
pub(crate) fn contender(name: &'static str, _: What) -> Contender {
    let why = "not built: install libboost-fiber-dev and g++";
    Contender { name, settings: "", work: Work::Missing(why) }
}

#[cfg(has_boost_fiber)]
pub(crate) fn contender(name: &'static str, what: What) -> Contender {
    Contender { name, settings: linked::settings(what), work: Work::Timed(linked::timed(what)) }
}

#[cfg(has_boost_fiber)]
mod linked {
    use super::What;
    use crate::floor::threads::OnFirst;
    use crate::load::TASKS;
    use crate::measure::{Lap, Timed};
    use std::time::Duration;

    pub(super) fn settings(what: What) -> &'static str {
        macro_rules! with {
            ($text:literal) => {
                concat!("Boost ", env!("BOOST_VERSION"), ", pooled stacks, round_robin, ", $text)
            };
        }
        match what {
            What::Tasks(_) => with!("launch::post"),
            What::Dispatch => with!("launch::dispatch: it runs at once"),
            What::Signal => with!("context::suspend and schedule"),
            What::Condition => with!("mutex and condition_variable"),
            What::Each(_) => with!("buffered_channel, a fiber for each"),
            What::Workers(_) => with!("buffered_channel, 4 fibers for all"),
            What::Yield => with!("yields to the main fiber"),
        }
    }

    /// The result of a C++ function: the time, and the number of operations.
    #[repr(C)]
    struct Said {
        nanoseconds: u64,
        done: u64,
    }

    /// The parameters of the thread that sends tasks.
    #[repr(C)]
    struct Remote {
        count: u64,
        outstanding: u64,
        processor: usize,
    }

    unsafe extern "C" {
        safe fn boost_fiber_tasks(batches: u64, batch: u64, dispatch: bool) -> Said;
        safe fn boost_fiber_signal(rounds: u64) -> Said;
        safe fn boost_fiber_condition(rounds: u64) -> Said;
        safe fn boost_fiber_remote_each(remote: Remote) -> Said;
        safe fn boost_fiber_remote_workers(remote: Remote) -> Said;
        safe fn boost_fiber_yield(calls: u64) -> Said;
    }

    /// Runs `run` with its threads on the processors that `load::Remote` uses.
    fn remote(run: extern "C" fn(Remote) -> Said, count: u64, outstanding: u64) -> Said {
        let kept = OnFirst::stay();
        run(Remote { count, outstanding, processor: kept.last() })
    }

    pub(super) fn timed(what: What) -> Timed {
        Box::new(move |count| {
            let batch = match what {
                What::Tasks(batch) => batch,
                What::Dispatch => TASKS,
                _ => 1,
            };
            let batches = count.div_ceil(batch);
            let count = batches * batch;
            let said = match what {
                What::Tasks(batch) => boost_fiber_tasks(batches, batch, false),
                What::Dispatch => boost_fiber_tasks(batches, batch, true),
                What::Signal => boost_fiber_signal(count),
                What::Condition => boost_fiber_condition(count),
                What::Each(outstanding) => remote(boost_fiber_remote_each, count, outstanding),
                What::Workers(outstanding) => {
                    remote(boost_fiber_remote_workers, count, outstanding)
                }
                What::Yield => boost_fiber_yield(count),
            };
            assert_eq!(said.done, count, "Boost.Fiber has done another number of operations");
            Lap::new(Duration::from_nanos(said.nanoseconds), count)
        })
    }
}
