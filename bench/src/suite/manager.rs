//! The suite `manager`: fibers in an event loop of the user.

use super::{FLOOR, at_most, timed};
use crate::floor::yielding;
use crate::load::{OUTSTANDING, TASKS};
use crate::measure::{Benchmark, Contender, Lap, Timed};
use crate::peer::boost_fiber::{What, contender as boost};
use crate::peer::tokio_local::{self as tokio, ByHand, Place};
use crate::peer::{corosensei, crossbeam, sinew_manager as sinew};
use crate::target::{SUBJECT, Target};
use ::tokio::sync::Notify;

const BOOST: &str = "boost";
const DISPATCH: &str = "b-dispatch";
const WORKERS: &str = "b-workers";
const SET: &str = "tokio-set";
const LOCAL: &str = "tokio-local";

pub(crate) fn benchmarks() -> Vec<Benchmark> {
    vec![task(), task_one(), baton(), remote(), remote_round(), main_context()]
}

fn task() -> Benchmark {
    Benchmark {
        unit: "ns/task",
        contenders: vec![
            timed(SUBJECT, sinew::SETTINGS, sinew::task),
            timed("eager", sinew::EAGER, sinew::task_eager),
            floor_task(),
            boost(BOOST, What::Tasks(TASKS)),
            boost(DISPATCH, What::Dispatch),
            timed(SET, tokio::SET, || tokio::task(Place::set())),
            timed(LOCAL, tokio::LOCAL, || tokio::task(Place::local())),
        ],
        targets: vec![at_most(0.35, &[BOOST, DISPATCH, SET, LOCAL])],
        ..empty("task", "add 100 empty tasks from the main context, run the loop, and repeat")
    }
}

fn task_one() -> Benchmark {
    Benchmark {
        unit: "ns/task",
        contenders: vec![
            timed(SUBJECT, sinew::SETTINGS, sinew::task_one),
            floor_task(),
            boost(BOOST, What::Tasks(1)),
            timed(SET, tokio::SET, || tokio::task_one(Place::set())),
            timed(LOCAL, tokio::LOCAL, || tokio::task_one(Place::local())),
        ],
        targets: vec![at_most(0.35, &[BOOST, SET, LOCAL])],
        ..empty("task_one", "add an empty task from the main context, run the loop, and repeat")
    }
}

fn baton() -> Benchmark {
    Benchmark {
        unit: "ns/round",
        contenders: vec![
            timed(SUBJECT, sinew::SETTINGS, sinew::baton),
            timed(FLOOR, yielding::FIFO, || of_two(yielding::fifo(2))),
            boost(BOOST, What::Condition),
            boost("b-by-hand", What::Signal),
            timed(SET, tokio::SET_NOTIFY, || tokio::baton::<Notify>(Place::set())),
            timed(LOCAL, tokio::LOCAL_NOTIFY, || tokio::baton::<Notify>(Place::local())),
            timed("t-by-hand", tokio::SET_BY_HAND, || tokio::baton::<ByHand>(Place::set())),
        ],
        targets: vec![at_most(0.35, &[BOOST, SET, LOCAL])],
        ..empty(
            "baton",
            "2 fibers of one manager in turn: post the other's baton, wait for one's own; the \
             contenders by hand are for one thread only",
        )
    }
}

/// Each task of sinew has a fiber. Some peers are faster if tasks share fibers, or cannot wait at
/// all.
fn remote_targets() -> Vec<Target> {
    vec![at_most(1.0, &[BOOST, SET, LOCAL]), at_most(1.0, &[WORKERS])]
}

fn remote() -> Benchmark {
    Benchmark {
        unit: "ns/task",
        targets: remote_targets(),
        ..remote_of(
            "remote",
            "another thread adds tasks, until all have run; at most 1,024 of them have not run",
            OUTSTANDING,
        )
    }
}

fn remote_round() -> Benchmark {
    Benchmark {
        unit: "us/task",
        targets: remote_targets(),
        ..remote_of(
            "remote_round",
            "another thread adds one task at a time and polls until it has run",
            1,
        )
    }
}

fn remote_of(name: &'static str, what: &'static str, outstanding: u64) -> Benchmark {
    Benchmark {
        contenders: vec![
            timed(SUBJECT, sinew::SETTINGS, move || sinew::remote(outstanding)),
            boost(BOOST, What::Each(outstanding)),
            timed(SET, tokio::SET_REMOTE, move || tokio::remote_set(outstanding)),
            timed(LOCAL, tokio::LOCAL_REMOTE, move || tokio::remote_local(outstanding)),
            boost(WORKERS, What::Workers(outstanding)),
            timed("t-receiver", tokio::RECEIVER, move || tokio::remote_receiver(outstanding)),
            timed("crossbeam", crossbeam::TASKS, move || crossbeam::remote(outstanding)),
        ],
        ..empty(name, what)
    }
}

fn main_context() -> Benchmark {
    let mut contenders = vec![
        timed(SUBJECT, sinew::SETTINGS, sinew::main_context),
        boost(BOOST, What::Yield),
        timed(SET, tokio::SET_CALL, || tokio::baton::<ByHand>(Place::set())),
        timed(LOCAL, tokio::LOCAL_CALL, || tokio::baton::<ByHand>(Place::local())),
    ];
    contenders.push(floor_call());
    Benchmark {
        unit: "ns/call",
        contenders,
        targets: vec![at_most(1.0, &[BOOST, SET, LOCAL])],
        ..empty(
            "main_context",
            "a fiber runs a closure on the main context, and goes on; tokio's tasks have no stack \
             that they could leave: they ask another task",
        )
    }
}

/// Returns the floor: a task with a stack, without a queue or a loop.
fn floor_task() -> Contender {
    let make = corosensei::create_on_reused_stack;
    timed(FLOOR, "a corosensei coroutine on one reused stack", make)
}

fn floor_call() -> Contender {
    let make = || of_two(crate::floor::switch::switch_loop(1));
    timed(FLOOR, "by hand, there and back, no checks", make)
}

/// Counts the work in pairs of its operations.
fn of_two(mut work: Timed) -> Timed {
    Box::new(move |count| {
        let lap = work(2 * count);
        Lap::new(lap.time(), lap.operations() / 2)
    })
}

fn empty(name: &'static str, what: &'static str) -> Benchmark {
    Benchmark {
        suite: "manager",
        name,
        what,
        unit: "",
        contenders: Vec::new(),
        targets: Vec::new(),
        also: Vec::new(),
    }
}
