//! Fibers that keep their carriers for too long.

use super::backtrace::{Backtrace, BacktraceError};
use super::{memory, walk};
use crate::carrier::crew::Phase;
use crate::carrier::{Carrier, Crew};
use crate::clock;
use crate::fiber::{FiberRef, Flags, slab};
use crate::primitive::Ordering;
use crate::report;
use crate::spawn::{Fiber, FiberId, describe};
use core::time::Duration;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::Thread;

/// What a carrier was seen to do, as far as a change of it tells that the carrier has gone on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sign {
    fiber: FiberId,
    /// Waits of the fiber, dispatches that were counted, and those until the next count.
    waits: u32,
    dispatched: u64,
    tick: usize,
}

/// How long a watch sleeps at least.
pub(super) const LEAST: Duration = Duration::from_millis(1);

/// What is known of a carrier.
#[derive(Clone, Copy)]
struct Watched {
    sign: Option<Sign>,
    /// Since when that has not changed.
    since: u64,
    reported: bool,
}

/// Starts a thread that reports every fiber of `crew` that keeps its carrier for longer than `threshold`.
/// It ends with the crew. `dumps` says whether all fibers are dumped then.
pub(crate) fn start(crew: &Arc<Crew>, threshold: Duration, dumps: bool) -> io::Result<Thread> {
    let name = format!("{}-watch", crew.settings.name);
    // The program's tables are read before they are needed: that takes longer than a fiber may.
    let prepare = || walk::symbols(start as fn(&Arc<Crew>, Duration, bool) -> _ as usize);
    std::thread::Builder::new().name(format!("{name}-tables")).spawn(prepare)?;
    let crew = Arc::downgrade(crew);
    let watch = std::thread::Builder::new().name(name);
    Ok(watch.spawn(move || watch_all(&crew, threshold, dumps))?.thread().clone())
}

fn watch_all(crew: &Weak<Crew>, threshold: Duration, dumps: bool) {
    let mut watched = Vec::new();
    loop {
        std::thread::park_timeout((threshold / 4).max(LEAST));
        let Some(crew) = crew.upgrade() else { return };
        if crew.phase() >= Phase::Closed {
            return;
        }
        let nothing = Watched { sign: None, since: 0, reported: false };
        watched.resize(crew.carriers.len(), nothing);
        for (index, watched) in watched.iter_mut().enumerate() {
            if let Some((fiber, kept)) = look(&crew, index, watched, threshold) {
                tell(&crew, index, &fiber, kept, dumps);
            }
        }
    }
}

/// Looks at one carrier: the fiber that has kept it for too long, and how long that is, if it is new.
///
/// The carrier is asked nothing about its crew: it may have ended with this one by now, and be another's.
fn look(
    crew: &Crew,
    index: usize,
    watched: &mut Watched,
    threshold: Duration,
) -> Option<(Fiber, Duration)> {
    let now = clock::now();
    let carrier = crew.carriers[index];
    let Some(fiber) = running(carrier) else {
        watched.sign = None;
        return None;
    };
    let sign = sign_of(carrier, &fiber);
    if watched.sign != Some(sign) {
        *watched = Watched { sign: Some(sign), since: now, reported: false };
        return None;
    }
    let kept = Duration::from_nanos(now.saturating_sub(watched.since));
    let is_new = kept >= threshold && !watched.reported;
    watched.reported |= is_new;
    is_new.then_some((fiber, kept))
}

/// The fiber that runs on a carrier, if one does.
fn running(carrier: &Carrier) -> Option<Fiber> {
    // Looked up, so that what was written when the block was made is seen. The root is not found.
    let control = slab::at(carrier.current().addr())?;
    if control.flags().has(Flags::ROOT) || !control.life.try_acquire() {
        return None;
    }
    // SAFETY: just counted.
    let fiber = Fiber::from_ref(unsafe { FiberRef::from_counted(control) });
    core::ptr::eq(carrier.current(), control).then_some(fiber)
}

fn sign_of(carrier: &Carrier, fiber: &Fiber) -> Sign {
    Sign {
        fiber: fiber.id(),
        waits: fiber.control().waits(),
        dispatched: carrier.counters.dispatched.load(Ordering::Relaxed)
            + carrier.counters.begun.load(Ordering::Relaxed),
        // It belongs to the carrier's thread, which changes it at every dispatch.
        tick: memory::word((&raw const carrier.tick).addr()).unwrap_or(0),
    }
}

/// Tells what a fiber does to its carrier, and what all of them do, if that is wanted.
fn tell(crew: &Crew, index: usize, fiber: &Fiber, kept: Duration, dumps: bool) {
    let who = describe(fiber.control());
    let (carrier, crew) = (crew.carriers[index], crew.settings.name.escape_debug());
    let kept = kept.as_millis();
    let waits_pinned = fiber.control().extra().is_some_and(|extra| {
        // ORDERING: Acquire: pairs with the Release of the one who waits there.
        !extra.pinned_as.load(Ordering::Acquire).is_null()
    });
    let (what, backtrace) = if waits_pinned {
        let (kind, ..) = fiber.control().recorded_wait();
        let operation = kind.operation();
        let what = format!(
            "{who} is pinned and has blocked carrier {index} of \"{crew}\" in {operation} for {kept} ms"
        );
        (what, None)
    } else {
        let what = if sleeps_in_kernel(carrier) {
            format!(
                "{who} has blocked carrier {index} of \"{crew}\" in a call of the system for {kept} ms"
            )
        } else {
            format!("{who} has kept carrier {index} of \"{crew}\" for {kept} ms without waiting")
        };
        (what, Some(super::backtrace::anyhow(fiber)))
    };
    // Finding names may take long: others are watched meanwhile.
    let say = move || {
        let place = backtrace.map_or_else(String::new, place_in);
        report::say(format_args!("{what}{place}"));
        if dumps {
            super::say_dump();
        }
    };
    let thread = std::thread::Builder::new().name("sinew-report".to_owned());
    if let Err(error) = thread.spawn(say) {
        report::say(format_args!("there was no thread to report a stall: {error}"));
    }
}

/// Whether the thread of a carrier waits for something in the kernel.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn sleeps_in_kernel(carrier: &Carrier) -> bool {
    let path = format!("/proc/self/task/{}/stat", carrier.thread());
    let Ok(text) = std::fs::read_to_string(path) else { return false };
    // The state comes after the name, in which there may be anything.
    let state = text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('S' | 'D'))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn sleeps_in_kernel(_: &Carrier) -> bool {
    false
}

fn place_in(backtrace: Result<Backtrace, BacktraceError>) -> String {
    match backtrace {
        Ok(backtrace) => {
            backtrace.place().map_or_else(String::new, |place| format!("; it is in {place}"))
        }
        Err(error) => format!("; where it is cannot be told: {error}"),
    }
}
