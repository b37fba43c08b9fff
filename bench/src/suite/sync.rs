//! The suite `sync`: locks, signals and channels.

use super::{CURRENT, GO, MAY, TOKIO, apart, at_most, go_timed, go_timed_as, missing, timed};
use crate::measure::{Benchmark, Timed};
use crate::peer::{crossbeam, go, locks, may, may_sync, sinew_runtime, sinew_sync as sinew};
use crate::peer::{tokio, tokio_sync};
use crate::target::SUBJECT;
use ::tokio::runtime::Runtime;

const STD: &str = "std";
const PARKING_LOT: &str = "parking_lot";
const PARKING_LOT_8: &str = "p_lot-8";
const PARKING_LOT_64: &str = "p_lot-64";
const CROSSBEAM: &str = "crossbeam";
const CROSSBEAM_RECV: &str = "cb-recv";
/// sinew's channel for one message, as a contender of `future`.
const ONESHOT: &str = "oneshot";
const ASYNC_CHANNEL: &str = "tokio+async";
const FLUME: &str = "tokio+flume";

/// The peers on one processor that have locks, signals and channels.
const ON_ONE: &[&str] = &[CURRENT, TOKIO, MAY, GO];

pub(crate) fn benchmarks() -> Vec<Benchmark> {
    let mut all = vec![
        mutex_uncontended(),
        mutex_contended(),
        mutex_handoff(),
        mutex_handoff_64(),
        rwlock_read(),
    ];
    all.extend([pingpong(), pingpong_cross(), pingpong_cross_busy(), channel_mpmc()]);
    all.extend(waits());
    all
}

fn mutex_uncontended() -> Benchmark {
    Benchmark {
        unit: "ns/lock",
        contenders: vec![
            timed(SUBJECT, sinew_runtime::ONE, sinew::mutex_uncontended),
            timed(STD, locks::STD, locks::std_mutex),
            timed(PARKING_LOT, locks::PARKING_LOT, locks::parking_lot_mutex),
            timed(CURRENT, tokio::CURRENT, || tokio_sync::mutex_uncontended(tokio::current())),
            apart(MAY, may::ONE, may_sync::mutex_uncontended),
            go_timed(1, || go::sync(1, "mutex_uncontended")),
        ],
        targets: vec![at_most(1.0, &[STD])],
        ..empty("mutex_uncontended", "lock, increment, unlock")
    }
}

fn mutex_contended() -> Benchmark {
    Benchmark {
        unit: "ns/lock",
        contenders: vec![
            timed(SUBJECT, sinew::HALVES, sinew::mutex_contended),
            timed(PARKING_LOT, locks::PARKING_LOT_2, || locks::parking_lot_contended(2)),
            timed(PARKING_LOT_64, locks::PARKING_LOT_64, || locks::parking_lot_contended(64)),
            timed(STD, locks::STD_2, || locks::std_contended(2)),
            timed("std-64", locks::STD_64, || locks::std_contended(64)),
            timed(TOKIO, tokio::TWO, tokio_sync::mutex_contended),
            apart(MAY, may::TWO, may_sync::mutex_contended),
            go_timed(2, || go::sync(2, "mutex_contended")),
        ],
        targets: vec![at_most(1.2, &[MAY, GO, PARKING_LOT, PARKING_LOT_64])],
        ..empty("mutex_contended", "64 fibers lock, increment and unlock, 2 carriers")
    }
}

fn mutex_handoff() -> Benchmark {
    Benchmark {
        unit: "ns/change",
        targets: vec![at_most(0.30, ON_ONE)],
        ..on_one(
            "mutex_handoff",
            "2 fibers yield with the lock held and after unlocking: time of a change of holder",
            (sinew::mutex_handoff, may_sync::mutex_handoff, tokio_sync::mutex_handoff),
        )
    }
}

fn mutex_handoff_64() -> Benchmark {
    let mut row = Benchmark {
        unit: "ns/change",
        targets: vec![at_most(0.25, ON_ONE)],
        ..on_one(
            "mutex_handoff_64",
            "64 fibers yield with the lock held and lock it again: time of a change of holder",
            (sinew::mutex_handoff_64, may_sync::mutex_handoff_64, tokio_sync::mutex_handoff_64),
        )
    };
    row.contenders.push(timed("fair", sinew::FAIR, sinew::fair_handoff_64));
    row
}

fn rwlock_read() -> Benchmark {
    Benchmark {
        unit: "ns/read",
        contenders: vec![
            timed(SUBJECT, sinew::HALVES, sinew::rwlock_read),
            timed(PARKING_LOT, locks::PARKING_LOT_2, || locks::parking_lot_read(2)),
            timed(PARKING_LOT_8, locks::PARKING_LOT_8, || locks::parking_lot_read(8)),
            timed(STD, locks::STD_2, || locks::std_read(2)),
            timed("std-8", locks::STD_8, || locks::std_read(8)),
            timed(TOKIO, tokio::TWO, tokio_sync::rwlock_read),
            apart(MAY, may::TWO, may_sync::rwlock_read),
            go_timed(2, || go::sync(2, "rwlock_read")),
        ],
        targets: vec![at_most(1.0, &[PARKING_LOT, PARKING_LOT_8])],
        ..empty("rwlock_read", "8 fibers lock for reading, read a number, unlock, 2 carriers")
    }
}

fn pingpong() -> Benchmark {
    Benchmark {
        unit: "ns/round",
        targets: vec![at_most(0.30, ON_ONE)],
        ..on_one(
            "pingpong",
            "a round trip over two channels, 1 carrier",
            (sinew::pingpong, || may_sync::pingpong(1), tokio_sync::pingpong),
        )
    }
}

fn pingpong_cross() -> Benchmark {
    Benchmark {
        unit: "ns/round",
        contenders: vec![
            timed(SUBJECT, sinew::APART, || sinew::pingpong_cross(false)),
            timed(CROSSBEAM, crossbeam::SPINNING, crossbeam::pingpong_spinning),
            timed(CROSSBEAM_RECV, crossbeam::BLOCKING, crossbeam::pingpong_blocking),
            timed(CURRENT, tokio_sync::TWO_CURRENT, || tokio_sync::pingpong_cross(false)),
            timed(TOKIO, tokio_sync::FREE, || tokio_sync::pingpong(tokio::workers(2))),
            apart(MAY, may::TWO, || may_sync::pingpong(2)),
            go_timed(2, || go::sync(2, "pingpong")),
            go_timed_as("go-locked", 2, || go::sync(2, "pingpong_locked")),
        ],
        targets: vec![at_most(3.0, &[CROSSBEAM, CROSSBEAM_RECV])],
        ..empty(
            "pingpong_cross",
            "a round trip between 2 carriers; tokio with workers, `may` and go can run both sides \
             on one processor, go-locked has a thread for each side",
        )
    }
}

fn pingpong_cross_busy() -> Benchmark {
    Benchmark {
        unit: "ns/round",
        contenders: vec![
            timed(SUBJECT, sinew::APART, || sinew::pingpong_cross(true)),
            timed(CROSSBEAM, crossbeam::SPINNING, crossbeam::pingpong_spinning),
            timed(CROSSBEAM_RECV, crossbeam::BLOCKING, crossbeam::pingpong_blocking),
            timed(CURRENT, tokio_sync::TWO_CURRENT, || tokio_sync::pingpong_cross(true)),
            timed(TOKIO, tokio_sync::FREE, tokio_sync::pingpong_busy),
            go_timed(2, || go::sync(2, "pingpong_busy")),
        ],
        targets: vec![at_most(3.0, &[CROSSBEAM, CROSSBEAM_RECV])],
        ..empty(
            "pingpong_cross_busy",
            "a round trip between 2 carriers, each with a fiber that yields; crossbeam: without it",
        )
    }
}

fn channel_mpmc() -> Benchmark {
    Benchmark {
        unit: "ns/message",
        contenders: vec![
            timed(SUBJECT, sinew::HALVES, sinew::channel_mpmc),
            timed("spawned", sinew::SPAWNED, sinew::channel_mpmc_spawned),
            timed(ASYNC_CHANNEL, tokio_sync::ASYNC_CHANNEL, tokio_sync::channel_mpmc_async_channel),
            timed(FLUME, tokio_sync::FLUME, tokio_sync::channel_mpmc_flume),
            missing(MAY, may::TWO, may_sync::UNBOUNDED),
            go_timed(2, || go::sync(2, "channel_mpmc")),
            timed(CROSSBEAM, crossbeam::EIGHT, crossbeam::channel_mpmc),
        ],
        targets: vec![at_most(0.7, &[ASYNC_CHANNEL, FLUME, GO])],
        ..empty("channel_mpmc", "4 fibers send, 4 receive, room for 64 messages, 2 carriers")
    }
}

/// Returns the benchmarks in which two fibers on one carrier take turns: one waits, and the other
/// wakes it.
fn waits() -> [Benchmark; 6] {
    let row = |name, what, contenders| Benchmark {
        unit: "ns/wait",
        targets: vec![at_most(0.35, ON_ONE)],
        ..on_one(name, what, contenders)
    };
    let mut future = row(
        "future",
        "2 fibers in turn: make a future, set the other's, wait for one's own, 1 carrier; sinew: on \
         the stack; the others allocate: oneshot, tokio oneshot, may Blocker with a place, go chan of 1",
        (sinew::future, may_sync::future, tokio_sync::future),
    );
    future.contenders.insert(1, timed(ONESHOT, sinew_runtime::ONE, sinew::oneshots));
    future.targets.push(at_most(0.35, ON_ONE).by(ONESHOT));
    [
        future,
        row(
            "condvar",
            "2 fibers in turn: lock, wait for one's turn, pass it, notify, unlock, 1 carrier; \
             tokio Notify and std Mutex, go sync.Cond",
            (sinew::condvar, may_sync::condvar, tokio_sync::condvar),
        ),
        row(
            "semaphore",
            "2 fibers in turn: wait for a permit, give the other one, 1 carrier; go chan of 1",
            (sinew::semaphore, may_sync::semaphore, tokio_sync::semaphore),
        ),
        Benchmark {
            unit: "ns/change",
            ..row(
                "multilock",
                "2 fibers yield with a key locked and after unlocking: time of a change of holder, \
                 1 carrier; the others: a map of mutexes, in a mutex",
                (sinew::multilock, may_sync::multilock, tokio_sync::multilock),
            )
        },
        row(
            "sequencer",
            "2 fibers in turn: wait for a value of a counter, increment it, 1 carrier; \
             tokio watch, may Condvar, go sync.Cond",
            (sinew::sequencer, may_sync::sequencer, tokio_sync::sequencer),
        ),
        row(
            "select",
            "2 fibers in turn: send to one of the other's 2 channels, wait for one's own 2, 1 carrier",
            (sinew::select, may_sync::select, tokio_sync::select),
        ),
    ]
}

/// Functions that make the work of sinew, of may, and of tokio on a given runtime.
type Makers = (fn() -> Timed, fn() -> Timed, fn(Runtime) -> Timed);

/// Returns a benchmark of contenders that run on one processor. The Go program has a benchmark of
/// this name, too.
fn on_one(name: &'static str, what: &'static str, (sinew, may, tokio): Makers) -> Benchmark {
    Benchmark {
        contenders: vec![
            timed(SUBJECT, sinew_runtime::ONE, sinew),
            timed(CURRENT, tokio::CURRENT, move || tokio(tokio::current())),
            timed(TOKIO, tokio::ONE, move || tokio(tokio::workers(1))),
            apart(MAY, may::ONE, may),
            go_timed(1, move || go::sync(1, name)),
        ],
        ..empty(name, what)
    }
}

fn empty(name: &'static str, what: &'static str) -> Benchmark {
    Benchmark {
        suite: "sync",
        name,
        what,
        unit: "",
        contenders: Vec::new(),
        targets: Vec::new(),
        also: Vec::new(),
    }
}
