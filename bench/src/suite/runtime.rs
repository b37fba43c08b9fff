//! The suite `runtime`: spawning, waiting, sleeping and ending.

use super::{CURRENT, FLOOR, GO, MAY, ON_ONE, SMOL, THREADS, TOKIO};
use super::{also, apart, at_most, figure, go_figure, go_timed, missing, timed};
use crate::balance;
use crate::floor::{asleep, threads, unwinding, yielding};
use crate::measure::{Benchmark, Contender, Work};
use crate::peer::{go, may, rayon, sinew_runtime as sinew, smol, tokio};
use crate::target::{SUBJECT, Target};

/// The peers on two processors.
const ON_TWO: &[&str] = &[TOKIO, SMOL, MAY, GO];

/// The number of fibers alive at once in the largest `memory` benchmark.
const MILLION: u64 = 1_000_000;

pub(crate) fn benchmarks() -> Vec<Benchmark> {
    let mut all = Vec::from(yields());
    all.extend(spawns());
    all.extend(trees());
    all.extend(memory());
    all.extend(timers());
    all.extend(balance());
    all.extend([sleep_20us(), idle(), migrate(), unwind()]);
    all
}

fn yields() -> [Benchmark; 2] {
    let mut two = yields_of("yield2", "2 fibers yield to each other, 1 carrier", 2);
    two.contenders.push(timed(THREADS, threads::SETTINGS, threads::yielding));
    two.targets = vec![at_most(0.17, ON_ONE), at_most(1.2, &[FLOOR])];
    let mut many = yields_of("yield1000", "1,000 fibers yield in turn, 1 carrier", 1_000);
    many.targets = vec![at_most(0.30, ON_ONE), at_most(1.4, &[FLOOR])];
    [two, many]
}

fn yields_of(name: &'static str, what: &'static str, count: u64) -> Benchmark {
    Benchmark {
        unit: "ns/yield",
        contenders: vec![
            timed(SUBJECT, sinew::ONE, move || sinew::yielding(count)),
            timed(FLOOR, yielding::FIFO, move || yielding::fifo(count)),
            timed(CURRENT, tokio::CURRENT, move || tokio::yielding(tokio::current(), count)),
            timed(TOKIO, tokio::ONE, move || tokio::yielding(tokio::workers(1), count)),
            timed(SMOL, smol::ONE, move || smol::yielding(count)),
            apart(MAY, may::ONE, move || may::yielding(count)),
            go_timed(1, move || go::yielding(count)),
        ],
        ..empty(name, what)
    }
}

fn spawns() -> [Benchmark; 4] {
    [
        Benchmark {
            unit: "ns/fiber",
            contenders: vec![
                timed(SUBJECT, sinew::ONE, || sinew::spawn_seq(1)),
                timed(CURRENT, tokio::CURRENT, || tokio::spawn_seq(tokio::current())),
                timed(TOKIO, tokio::ONE, || tokio::spawn_seq(tokio::workers(1))),
                timed(SMOL, smol::ONE, smol::spawn_seq),
                apart(MAY, may::ONE, || may::spawn_seq(1)),
                go_timed(1, || go::spawn_seq(1)),
            ],
            targets: vec![at_most(0.30, ON_ONE)],
            ..empty("spawn_seq", "spawn and join one at a time, 1 carrier")
        },
        Benchmark {
            unit: "ns/fiber",
            contenders: vec![
                timed(SUBJECT, sinew::TWO, || sinew::spawn_seq(2)),
                timed(TOKIO, tokio::TWO, || tokio::spawn_seq(tokio::workers(2))),
                timed(SMOL, smol::TWO, smol::spawn_seq_2),
                apart(MAY, may::TWO, || may::spawn_seq(2)),
                go_timed(2, || go::spawn_seq(2)),
            ],
            targets: vec![at_most(0.30, ON_TWO)],
            ..empty("spawn_seq_2", "spawn and join one at a time, 2 carriers")
        },
        Benchmark {
            unit: "ns/fiber",
            contenders: vec![
                timed(SUBJECT, sinew::ONE, || sinew::spawn_batch(1)),
                timed(CURRENT, tokio::CURRENT, || tokio::spawn_batch(tokio::current())),
                timed(TOKIO, tokio::ONE, || tokio::spawn_batch(tokio::workers(1))),
                timed(SMOL, smol::ONE, smol::spawn_batch),
                apart(MAY, may::ONE, || may::spawn_batch(1)),
                go_timed(1, || go::spawn_batch(1)),
            ],
            targets: vec![at_most(0.7, ON_ONE)],
            ..empty("spawn_batch", "spawn 10,000 empty fibers, join all, 1 carrier")
        },
        Benchmark {
            unit: "ns/fiber",
            contenders: vec![
                timed(SUBJECT, sinew::TWO, || sinew::spawn_batch(2)),
                timed(TOKIO, tokio::TWO, || tokio::spawn_batch(tokio::workers(2))),
                timed(SMOL, smol::TWO, smol::spawn_batch_2),
                apart(MAY, may::TWO, || may::spawn_batch(2)),
                go_timed(2, || go::spawn_batch(2)),
            ],
            targets: vec![at_most(0.5, ON_TWO)],
            ..empty("spawn_batch_2", "spawn 10,000 empty fibers, join all, 2 carriers")
        },
    ]
}

fn trees() -> [Benchmark; 2] {
    [
        Benchmark {
            unit: "ms/tree",
            contenders: vec![
                timed(SUBJECT, sinew::TWO, sinew::fork_join),
                timed("rayon", rayon::SETTINGS, rayon::fork_join),
                timed(TOKIO, tokio::TWO, tokio::fork_join),
                apart(MAY, may::TWO, may::fork_join),
                go_timed(2, go::fork_join),
            ],
            targets: vec![at_most(1.3, &["rayon"])],
            ..empty("fork_join", "a tree of 12 levels, leaves of 300 ns, 2 carriers")
        },
        Benchmark {
            unit: "ms/tree",
            contenders: vec![
                timed(SUBJECT, sinew::TWO, sinew::skynet),
                timed(TOKIO, tokio::TWO, tokio::skynet),
                missing(MAY, may::ASLEEP, may::TOO_MANY),
                go_timed(2, go::skynet),
            ],
            targets: vec![at_most(0.5, &[GO])],
            ..empty("skynet", "a million leaves, 10 children a node, their sum, 2 carriers")
        },
    ]
}

fn memory() -> [Benchmark; 4] {
    let unit = "bytes/fiber";
    [
        Benchmark {
            unit,
            contenders: vec![
                figure(SUBJECT, sinew::TWO, || sinew::memory(10_000)),
                figure(TOKIO, tokio::TWO, || tokio::memory(10_000)),
                figure(MAY, may::ASLEEP, || may::memory(10_000)),
                go_figure(2, || go::memory(10_000)),
            ],
            ..empty("memory_10k", "10,000 fibers sleep: resident bytes and page tables each")
        },
        Benchmark {
            unit,
            contenders: vec![
                figure(SUBJECT, sinew::TWO, || sinew::memory(100_000)),
                figure(TOKIO, tokio::TWO, || tokio::memory(100_000)),
                missing(MAY, may::ASLEEP, may::TOO_MANY),
                go_figure(2, || go::memory(100_000)),
            ],
            ..empty("memory_100k", "100,000 fibers sleep: resident bytes and page tables each")
        },
        Benchmark {
            unit,
            contenders: vec![
                figure(SUBJECT, sinew::TWO, || sinew::memory(MILLION)),
                figure(FLOOR, asleep::SETTINGS, asleep::bytes),
                figure(TOKIO, tokio::TWO, || tokio::memory(MILLION)),
                missing(MAY, may::ASLEEP, may::TOO_MANY),
                go_figure(2, || go::memory(MILLION)),
            ],
            targets: vec![Target::at_most_figure(5_000.0)],
            ..empty("memory_1m", "1,000,000 fibers sleep: resident bytes and page tables each")
        },
        Benchmark {
            unit: "ns/fiber",
            contenders: vec![
                figure(SUBJECT, sinew::ONE, || sinew::memory_spawn_time(MILLION)),
                figure(FLOOR, asleep::SETTINGS, asleep::time),
                figure(TOKIO, tokio::ONE, || tokio::memory_spawn_time(MILLION)),
                go_figure(1, || go::memory_spawn_time(MILLION)),
            ],
            targets: vec![at_most(1.3, &[FLOOR])],
            ..empty("memory_spawn_time", "until each of a million fibers sleeps, 1 carrier")
        },
    ]
}

fn timers() -> [Benchmark; 6] {
    let (cpu, late) = ("ms", "us");
    [
        Benchmark {
            unit: cpu,
            contenders: vec![
                figure(SUBJECT, sinew::TWO, || sinew::timers(30_000).cpu_ms),
                figure(TOKIO, tokio::TWO, || tokio::timers(30_000).cpu_ms),
                go_figure(2, || go::timers(30_000).cpu_ms),
            ],
            targets: vec![at_most(0.7, &[TOKIO])],
            ..empty("timers_cpu", "30,000 fibers sleep 1-100 ms ten times: processor time")
        },
        Benchmark {
            unit: late,
            contenders: vec![
                figure(SUBJECT, sinew::TWO, || sinew::timers(30_000).late_us),
                figure(TOKIO, tokio::TWO, || tokio::timers(30_000).late_us),
                go_figure(2, || go::timers(30_000).late_us),
            ],
            targets: vec![at_most(1.0, &[GO])],
            ..empty("timers_late", "30,000 fibers: lateness p99 of all sleeps")
        },
        Benchmark {
            unit: late,
            contenders: vec![
                figure(SUBJECT, sinew::TWO, || sinew::timers(30_000).settled_us),
                figure(TOKIO, tokio::TWO, || tokio::timers(30_000).settled_us),
                go_figure(2, || go::timers(30_000).settled_us),
            ],
            ..empty("timers_settled", "30,000 fibers: lateness p99 of their last five sleeps")
        },
        Benchmark {
            unit: cpu,
            contenders: vec![
                figure(SUBJECT, sinew::TWO, || sinew::timers(100_000).cpu_ms),
                figure(TOKIO, tokio::TWO, || tokio::timers(100_000).cpu_ms),
                go_figure(2, || go::timers(100_000).cpu_ms),
            ],
            targets: vec![at_most(0.7, &[TOKIO])],
            ..empty("timers_cpu_100k", "100,000 fibers sleep 1-100 ms ten times: processor time")
        },
        Benchmark {
            unit: late,
            contenders: vec![
                figure(SUBJECT, sinew::TWO, || sinew::timers(100_000).late_us),
                figure(TOKIO, tokio::TWO, || tokio::timers(100_000).late_us),
                go_figure(2, || go::timers(100_000).late_us),
            ],
            targets: vec![at_most(1.0, &[GO])],
            ..empty("timers_late_100k", "100,000 fibers: lateness p99 of all sleeps")
        },
        Benchmark {
            unit: late,
            contenders: vec![
                figure(SUBJECT, sinew::TWO, || sinew::timers(100_000).settled_us),
                figure(TOKIO, tokio::TWO, || tokio::timers(100_000).settled_us),
                go_figure(2, || go::timers(100_000).settled_us),
            ],
            ..empty("timers_settled_100k", "100,000 fibers: lateness p99 of their last five sleeps")
        },
    ]
}

fn sleep_20us() -> Benchmark {
    Benchmark {
        unit: "us/sleep",
        contenders: vec![
            timed(SUBJECT, sinew::ONE, sinew::sleeping),
            timed(THREADS, threads::SLEEPING, threads::sleeping),
            timed(CURRENT, tokio::CURRENT, || tokio::sleeping(tokio::current())),
            apart(MAY, may::ONE, may::sleeping),
            go_timed(1, go::sleeping),
        ],
        targets: vec![at_most(1.1, &[THREADS])],
        ..empty("sleep_20us", "a fiber sleeps 20 us again and again, its carrier has no other")
    }
}

fn idle() -> Benchmark {
    Benchmark {
        unit: "ms",
        contenders: vec![
            figure(SUBJECT, sinew::TWO, || sinew::idle(10_000)),
            figure(TOKIO, tokio::TWO, || tokio::idle(10_000)),
            figure(MAY, may::ASLEEP, || may::idle(10_000)),
            go_figure(2, || go::idle(10_000)),
        ],
        targets: vec![Target::at_most_figure(20.0)],
        ..empty("idle", "10,000 fibers sleep: processor time in 2 s")
    }
}

fn migrate() -> Benchmark {
    Benchmark {
        unit: "ms/crowd",
        contenders: vec![
            timed(SUBJECT, sinew::MIGRATABLE, sinew::migrate),
            timed("bound", sinew::BOUND, sinew::migrate_bound),
            timed("local", sinew::LOCAL, sinew::migrate_local),
            timed(TOKIO, tokio::TWO, tokio::migrate),
            go_timed(2, go::migrate),
        ],
        targets: vec![at_most(1.0, &[TOKIO, GO])],
        ..empty(
            "migrate",
            "64 fibers of one carrier, each yields 100 times and works 20 us between",
        )
    }
}

fn balance() -> [Benchmark; 3] {
    let of = |kind, name, what, target| Benchmark {
        unit: "x ideal",
        contenders: vec![
            crowds(SUBJECT, sinew::TWO, kind, sinew::crowds),
            crowds(TOKIO, tokio::TWO, kind, tokio::crowds),
            match go::settings(2) {
                Some(settings) => crowds(GO, settings, kind, go::crowds),
                None => missing(GO, "", go::MISSING),
            },
        ],
        targets: vec![Target::at_most_figure(target)],
        ..empty(name, what)
    };
    let mut mixed = of(
        balance::Kind::Mixed,
        "balance_mix",
        "23 seeded mixes of 3 to 100 fibers that sleep and compute in turns: 95th percentile",
        1.25,
    );
    mixed.also = vec![also("median", "their median", "x ideal", vec![])];
    [
        of(
            balance::Kind::Sleepers,
            "balance_sleep",
            "16 fibers sleep 20 ms and then compute 50 ms, 2 carriers",
            1.15,
        ),
        of(
            balance::Kind::Turns,
            "balance_turns",
            "10 fibers compute 5 ms in turn, ten times each, 2 carriers",
            1.15,
        ),
        mixed,
    ]
}

fn crowds(
    name: &'static str,
    settings: &'static str,
    kind: balance::Kind,
    make: fn() -> balance::Play,
) -> Contender {
    Contender { name, settings, work: Work::Figures(Box::new(balance::figures(kind, make))) }
}

fn unwind() -> Benchmark {
    Benchmark {
        unit: "ns/fiber",
        contenders: vec![
            timed(SUBJECT, sinew::ONE, sinew::unwind),
            timed(FLOOR, unwinding::RESUMED, unwinding::resumed),
            timed("panic", unwinding::PANICKED, unwinding::panicked),
        ],
        targets: vec![at_most(3.0, &[FLOOR])],
        ..empty("unwind", "spawn, park, cancel, join, 1 carrier; the floor throws and catches")
    }
}

fn empty(name: &'static str, what: &'static str) -> Benchmark {
    Benchmark {
        suite: "runtime",
        name,
        what,
        unit: "",
        contenders: Vec::new(),
        targets: Vec::new(),
        also: Vec::new(),
    }
}
