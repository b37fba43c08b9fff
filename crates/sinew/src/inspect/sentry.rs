//! A thread that looks for fibers that wait forever: in deadlocks, in a process in which all fibers
//! are asleep, and as leaks.

use super::asleep::{all_asleep, unseen_threads};
use super::deadlock::deadlocks;
use super::leak::{is_suspect, leaks};
use super::snapshot::FiberInfo;
use crate::carrier::crew::Phase;
use crate::carrier::{Crew, thread};
use crate::clock;
use crate::fiber::WaitKind;
use crate::fiber::{Fiber, FiberId, describe};
use crate::report;
use core::time::Duration;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;

/// Starts a thread that looks every `period` for fibers that wait forever, and reports each of them
/// once. The thread ends with the crew.
pub(crate) fn start(crew: &Arc<Crew>, period: Duration) -> io::Result<Thread> {
    let name = format!("{}-locks", crew.settings.name);
    let crew = Arc::downgrade(crew);
    thread::start(name, move || {
        let period = period.max(super::watchdog::LEAST);
        let mut search_at = clock::after(clock::now(), period.saturating_mul(PATIENCE));
        while crew.upgrade().is_some_and(|crew| crew.phase() < Phase::Closed) {
            std::thread::park_timeout(period);
            // The findings concern all runtimes, and each runtime may have such a thread.
            let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
            report_new(&mut told);
            let begin = clock::now();
            if begin >= search_at {
                report_leaks(&mut told.leaks, period.saturating_mul(PATIENCE));
                let end = clock::now();
                search_at = clock::after(end, period.saturating_mul(PATIENCE))
                    .saturating_add(SHARE * (end - begin));
            }
        }
    })
}

/// Periods that a fiber waits at a channel or a semaphore before memory is searched for a pointer
/// to it, and periods between two such searches.
const PATIENCE: u32 = 10;
/// The pause after a search, as a multiple of the time that the search took.
const SHARE: u64 = 50;

/// A member of a report: a fiber, and which of its waits it is in.
type Member = (FiberId, u32);

/// Reports leaked fibers that have waited for at least `patience`. Skips the fibers in `told`,
/// which were reported before.
fn report_leaks(told: &mut BTreeSet<Member>, patience: Duration) {
    let suspects: HashSet<Member> = super::snapshot::fibers()
        .iter()
        .filter(|info| is_suspect(info) && info.wait.is_some_and(|wait| wait.since >= patience))
        .map(|info| (info.id(), info.waits))
        .collect();
    told.retain(|member| suspects.contains(member));
    if told.len() == suspects.len() {
        return;
    }
    let Ok(leaked) = leaks() else { return };
    for info in leaked {
        let member = (info.id(), info.waits);
        let Some(wait) = info.wait else { continue };
        if suspects.contains(&member) && told.insert(member) {
            let who = describe(info.fiber.control());
            let thing = if wait.kind == WaitKind::Semaphore { "semaphore" } else { "channel" };
            report::say(format_args!(
                "{who} waits for ever in {} at {:#x}: only fibers that wait for ever have a pointer to that {thing}",
                wait.kind.operation(),
                wait.address
            ));
            if let Ok(backtrace) = info.fiber.backtrace() {
                say(&backtrace.to_string());
            }
        }
    }
}

/// The reports that were made and still hold.
struct Told {
    deadlocks: BTreeSet<Vec<Member>>,
    leaks: BTreeSet<Member>,
    /// The fibers that were asleep at the last look.
    asleep: Vec<Member>,
    /// The fibers in the last report that all fibers are asleep.
    all_of: Vec<FiberId>,
}

static TOLD: Mutex<Told> = Mutex::new(Told {
    deadlocks: BTreeSet::new(),
    leaks: BTreeSet::new(),
    asleep: Vec::new(),
    all_of: Vec::new(),
});

/// Reports new deadlocks. Reports once that all fibers are asleep.
fn report_new(told: &mut Told) {
    let member = |fiber: &Fiber| (fiber.id(), fiber.control().waits());
    let mut now = BTreeSet::new();
    for deadlock in deadlocks() {
        // The first member of a deadlock depends on the other waiters, so sort the members.
        let mut key: Vec<_> = deadlock.members().map(|(fiber, _)| member(fiber)).collect();
        key.sort();
        if !told.deadlocks.contains(&key) {
            say(&deadlock.to_string());
        }
        now.insert(key);
    }
    told.deadlocks = now;
    let fibers = all_asleep().unwrap_or_default();
    let asleep: Vec<_> = fibers.iter().map(|info| member(&info.fiber)).collect();
    let all_of: Vec<_> = fibers.iter().map(FiberInfo::id).collect();
    // Report sleepers only if no thread has woken them since the last look, and report them only
    // once.
    if !asleep.is_empty() && asleep == told.asleep && all_of != told.all_of {
        let count = fibers.len();
        let but = match unseen_threads() {
            Some(0) => "and nothing can wake them".to_owned(),
            Some(1) => "and only a thread outside of sinew could wake them".to_owned(),
            Some(threads) => format!("and only {threads} threads outside of sinew could wake them"),
            None => {
                "and only threads outside of sinew, if there are any, could wake them".to_owned()
            }
        };
        report::say(format_args!("all fibers are asleep, {count} of them, {but}:"));
        super::say_dump();
        told.all_of = all_of;
    }
    told.asleep = asleep;
}

fn say(text: &str) {
    text.lines().for_each(|line| report::say(format_args!("{line}")));
}
