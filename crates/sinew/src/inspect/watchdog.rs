//! A watchdog over carriers: reports fibers that keep their carriers for too long.

use super::{memory, walk};
use crate::carrier::crew::Phase;
use crate::carrier::{Carrier, Crew, thread};
use crate::clock;
use crate::fiber::{Fiber, FiberId, describe};
use crate::fiber::{FiberRef, Flags, slab};
use crate::primitive::Ordering;
use crate::report;
use core::time::Duration;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::Thread;

/// Signs of progress of a carrier. If any of them has changed, the carrier has gone on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sign {
    fiber: FiberId,
    /// Waits that the fiber has begun.
    waits: u32,
    /// Dispatches that the carrier has counted so far.
    dispatched: u64,
    /// Dispatches until the carrier counts again.
    progress: usize,
}

/// Shortest sleep of a watching thread.
pub(super) const LEAST: Duration = Duration::from_millis(1);

/// The state of the watch over one carrier.
#[derive(Clone, Copy)]
struct Watched {
    sign: Option<Sign>,
    /// Since when `sign` has not changed.
    since: u64,
    reported: bool,
}

/// Starts a thread that reports every fiber of `crew` that keeps its carrier for longer than
/// `threshold`. The thread ends with the crew. With `dumps`, a dump of all fibers follows each
/// report.
pub(crate) fn start(crew: &Arc<Crew>, threshold: Duration, dumps: bool) -> io::Result<Thread> {
    let name = format!("{}-watch", crew.settings.name);
    // Read the program's tables before they are needed: reading takes longer than a fiber may run.
    let prepare = || drop(walk::symbols(start as fn(&Arc<Crew>, Duration, bool) -> _ as usize));
    thread::start(format!("{name}-tables"), prepare)?;
    let crew = Arc::downgrade(crew);
    thread::start(name, move || watch_all(&crew, threshold, dumps))
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
            if let Some(stall) = look(&crew, index, watched, threshold) {
                stall.tell(dumps);
            }
        }
    }
}

/// Looks at one carrier. Returns the fiber that has kept it for too long, unless it was reported
/// before.
///
/// Asks the carrier nothing about its crew: the crew may have ended, and the carrier may serve
/// another crew.
fn look(crew: &Crew, index: usize, watched: &mut Watched, threshold: Duration) -> Option<Stall> {
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
    let runtime = crew.settings.name.clone();
    is_new.then_some(Stall { fiber, carrier, index, runtime, kept, sign })
}

/// Returns the fiber that runs on a carrier, if any.
fn running(carrier: &Carrier) -> Option<Fiber> {
    // Look the block up, so that the writes that made it are visible. The root is not found.
    let control = slab::at(carrier.current().addr())?;
    if control.flags().has(Flags::ROOT) || !control.life.try_acquire() {
        return None;
    }
    // SAFETY: `try_acquire` has counted a reference, which the `FiberRef` takes over.
    let fiber = Fiber::from_ref(unsafe { FiberRef::from_counted(control) });
    core::ptr::eq(carrier.current(), control).then_some(fiber)
}

fn sign_of(carrier: &Carrier, fiber: &Fiber) -> Sign {
    Sign {
        fiber: fiber.id(),
        waits: fiber.control().waits(),
        dispatched: carrier.counters.dispatched.load(Ordering::Relaxed)
            + carrier.counters.begun.load(Ordering::Relaxed),
        // The count belongs to the carrier's thread, which changes it at every dispatch.
        progress: memory::word(carrier.progress_address()).unwrap_or(0),
    }
}

/// A fiber that keeps its carrier.
///
/// The report has two lines. The first line says which fiber keeps which carrier and how, and
/// nothing slow comes before it. The second line says in which function the fiber is. For that the
/// carrier has to be stopped, and may not answer. The tables of a large program take long to read.
struct Stall {
    fiber: Fiber,
    carrier: &'static Carrier,
    index: usize,
    runtime: Arc<str>,
    kept: Duration,
    sign: Sign,
}

impl Stall {
    /// Reports the stall, and with `dumps` the state of all fibers. Uses a thread of its own, so
    /// that the watch over other carriers goes on.
    fn tell(self, dumps: bool) {
        let (what, is_pinned) = self.what();
        let text = what.clone();
        let say = move || {
            report::say(format_args!("{text}"));
            if !is_pinned && let Some(place) = self.place() {
                report::say(format_args!("{place}"));
            }
            if dumps {
                super::say_dump();
            }
        };
        if let Err(error) = thread::start("sinew-report".to_owned(), say) {
            report::say(format_args!("{what}; no thread could look where: {error}"));
        }
    }

    /// Describes how the fiber keeps its carrier. The returned flag says whether the fiber is
    /// pinned and waits.
    fn what(&self) -> (String, bool) {
        let who = describe(self.fiber.control());
        let (index, runtime) = (self.index, self.runtime.escape_debug());
        let kept = self.kept.as_millis();
        let waits_pinned = self.fiber.control().extra().is_some_and(|extra| {
            // ORDERING: Acquire shows the record of the wait; pairs with the Release in
            // `Wait::begin_as_thread`.
            !extra.pinned_as.load(Ordering::Acquire).is_null()
        });
        let what = if waits_pinned {
            let (kind, ..) = self.fiber.control().recorded_wait();
            let operation = kind.operation();
            format!(
                "{who} is pinned and has blocked carrier {index} of \"{runtime}\" in {operation} for {kept} ms"
            )
        } else if sleeps_in_kernel(self.carrier) {
            format!(
                "{who} has blocked carrier {index} of \"{runtime}\" in a system call for {kept} ms"
            )
        } else {
            format!("{who} has kept carrier {index} of \"{runtime}\" for {kept} ms without waiting")
        };
        (what, waits_pinned)
    }

    /// Describes the function that the fiber is in, if the program has tables for it.
    fn place(&self) -> Option<String> {
        let backtrace = super::backtrace::anyhow(&self.fiber);
        // The place is reported only if the fiber has kept the carrier all the time.
        let goes_on = sign_of(self.carrier, &self.fiber) != self.sign;
        let who = describe(self.fiber.control());
        let (index, runtime) = (self.index, self.runtime.escape_debug());
        if goes_on {
            return Some(format!(
                "{who} let carrier {index} of \"{runtime}\" go before its backtrace was taken"
            ));
        }
        let place = match backtrace {
            Ok(backtrace) => format!("is in {}", backtrace.place()?),
            Err(error) => format!("is at an unknown place: {error}"),
        };
        Some(format!("{who}, which keeps carrier {index} of \"{runtime}\", {place}"))
    }
}

/// Whether the thread of a carrier sleeps in the kernel.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn sleeps_in_kernel(carrier: &Carrier) -> bool {
    let path = format!("/proc/self/task/{}/stat", carrier.thread());
    let Ok(text) = std::fs::read_to_string(path) else { return false };
    // The state follows the name, which may contain anything.
    let state = text.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('S' | 'D'))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn sleeps_in_kernel(_: &Carrier) -> bool {
    false
}
