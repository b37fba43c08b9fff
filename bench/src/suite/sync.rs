//! Locks and channels.

use super::{CURRENT, GO, MAY, TOKIO, apart, at_most, go_timed, timed};
use crate::measure::{Benchmark, SUBJECT};
use crate::peer::{go, locks, may, sinew_runtime as sinew, tokio};

const STD: &str = "std";
const PARKING_LOT: &str = "parking_lot";

/// The peers on one processor that have what is measured.
const ON_ONE: &[&str] = &[CURRENT, TOKIO, MAY, GO];

pub(crate) fn benchmarks() -> Vec<Benchmark> {
    vec![
        Benchmark {
            unit: "ns/lock",
            contenders: vec![
                timed(SUBJECT, sinew::ONE, sinew::mutex_uncontended),
                timed(STD, locks::STD, locks::std_mutex),
                timed(PARKING_LOT, locks::PARKING_LOT, locks::parking_lot_mutex),
                timed(CURRENT, tokio::CURRENT, || tokio::mutex_uncontended(tokio::current())),
                apart(MAY, may::ONE, may::mutex_uncontended),
                go_timed(1, go::mutex_uncontended),
            ],
            targets: vec![at_most(1.0, &[STD])],
            ..empty("mutex_uncontended", "lock, increment, unlock")
        },
        Benchmark {
            unit: "ns/change",
            contenders: vec![
                timed(SUBJECT, sinew::ONE, sinew::mutex_handoff),
                timed(CURRENT, tokio::CURRENT, || tokio::mutex_handoff(tokio::current())),
                timed(TOKIO, tokio::ONE, || tokio::mutex_handoff(tokio::workers(1))),
                apart(MAY, may::ONE, may::mutex_handoff),
                go_timed(1, go::mutex_handoff),
            ],
            targets: vec![at_most(0.30, ON_ONE)],
            ..empty(
                "mutex_handoff",
                "2 fibers yield with the lock and after it: each time it changes hands",
            )
        },
        Benchmark {
            unit: "ns/round",
            contenders: vec![
                timed(SUBJECT, sinew::ONE, sinew::pingpong),
                timed(CURRENT, tokio::CURRENT, || tokio::pingpong(tokio::current())),
                timed(TOKIO, tokio::ONE, || tokio::pingpong(tokio::workers(1))),
                apart(MAY, may::ONE, may::pingpong),
                go_timed(1, go::pingpong),
            ],
            targets: vec![at_most(0.30, ON_ONE)],
            ..empty("pingpong", "a round trip over two channels, 1 carrier")
        },
    ]
}

fn empty(name: &'static str, what: &'static str) -> Benchmark {
    Benchmark { suite: "sync", name, what, unit: "", contenders: Vec::new(), targets: Vec::new() }
}
