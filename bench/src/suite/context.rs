//! The suite `context`: stacks and switches.

use crate::floor::asleep;
use crate::measure::{Benchmark, Contender, Timed, Work};
use crate::peer::{corosensei, fcontext, generator, sinew};
use crate::target::{SUBJECT, Target};

/// The number of stacks alive at once in `stacks`.
pub(crate) const MILLION: usize = 1_000_000;

const FLOOR: &str = "floor";
const HAND: &str = "by hand, no checks";

pub(crate) fn benchmarks() -> Vec<Benchmark> {
    vec![
        Benchmark {
            targets: vec![at_most(1.0, &["corosensei"])],
            ..switch("switch", "one-way switch between two contexts", 1)
        },
        Benchmark {
            targets: vec![at_most(0.85, &["corosensei"])],
            ..switch("switch1000", "one-way switch, 1,000 contexts in turn", 1000)
        },
        Benchmark {
            targets: vec![at_most(1.0, &["fcontext"])],
            ..switch("switch30000", "one-way switch, 30,000 contexts in turn", 30_000)
        },
        Benchmark {
            suite: "context",
            name: "create",
            what: "create, run and destroy on a pooled stack",
            unit: "ns/fiber",
            contenders: vec![
                timed(SUBJECT, sinew::SETTINGS, sinew::create),
                timed(
                    FLOOR,
                    "a corosensei coroutine on one reused stack",
                    corosensei::create_on_reused_stack,
                ),
                hand(floor_create),
                timed("corosensei", corosensei::SETTINGS, corosensei::create),
                timed("generator", generator::SETTINGS, generator::create),
                fcontext_create(),
            ],
            targets: vec![at_most(1.2, &[FLOOR])],
            also: Vec::new(),
        },
        Benchmark {
            suite: "context",
            name: "stacks",
            what: "a million fibers suspended on guarded 256 KiB stacks: resident bytes and page tables each",
            unit: "bytes/fiber",
            contenders: vec![
                figure(SUBJECT, sinew::SETTINGS, sinew::million),
                figure(FLOOR, asleep::SETTINGS, asleep::bytes),
            ],
            targets: vec![Target::at_most_figure(4800.0)],
            also: Vec::new(),
        },
    ]
}

fn switch(name: &'static str, what: &'static str, count: usize) -> Benchmark {
    Benchmark {
        suite: "context",
        name,
        what,
        unit: "ns/switch",
        contenders: vec![
            timed(SUBJECT, sinew::SETTINGS, move || sinew::switch(count)),
            timed("corosensei", corosensei::SETTINGS, move || corosensei::switch(count)),
            generator_switch(count),
            fcontext_switch(count),
            floor_switch(count),
        ],
        targets: Vec::new(),
        also: Vec::new(),
    }
}

fn at_most(ratio: f64, of: &'static [&'static str]) -> Target {
    Target::at_most(ratio, of)
}

/// Returns a contender that makes its contexts when it is first measured, and keeps them.
fn timed(
    name: &'static str,
    settings: &'static str,
    make: impl Fn() -> Timed + 'static,
) -> Contender {
    Contender { name, settings, work: Work::lazy(make) }
}

fn figure(name: &'static str, settings: &'static str, figure: fn() -> f64) -> Contender {
    Contender { name, settings, work: Work::Figure(figure) }
}

fn generator_switch(count: usize) -> Contender {
    // The guards of generator cost two mappings for each stack, and so do corosensei's. In one
    // process both together exceed the kernel's limit of 65,530.
    if count > 10_000 {
        return missing("generator", generator::SETTINGS, "no mappings left beside corosensei");
    }
    timed("generator", generator::SETTINGS, move || generator::switch(count))
}

fn floor_switch(count: usize) -> Contender {
    timed(FLOOR, HAND, move || crate::floor::switch::switch_loop(count))
}

fn floor_create() -> Timed {
    crate::floor::switch::create()
}

fn hand(make: fn() -> Timed) -> Contender {
    timed("hand", HAND, make)
}

#[cfg(has_fcontext)]
fn fcontext_switch(count: usize) -> Contender {
    timed("fcontext", fcontext::SETTINGS, move || fcontext::switch(count))
}

#[cfg(has_fcontext)]
fn fcontext_create() -> Contender {
    timed("fcontext", fcontext::SETTINGS, fcontext::create)
}

#[cfg(not(has_fcontext))]
fn fcontext_switch(_: usize) -> Contender {
    missing("fcontext", fcontext::SETTINGS, fcontext::MISSING)
}

#[cfg(not(has_fcontext))]
fn fcontext_create() -> Contender {
    missing("fcontext", fcontext::SETTINGS, fcontext::MISSING)
}

fn missing(name: &'static str, settings: &'static str, why: &'static str) -> Contender {
    Contender { name, settings, work: Work::Missing(why) }
}
