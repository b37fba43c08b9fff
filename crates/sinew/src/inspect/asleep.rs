//! Finds out whether any fiber or thread is left that can go on.

use super::deadlock::has_stopped;
use super::snapshot::{FiberInfo, pinned_wait_of};
use crate::carrier::crew::Phase;
use crate::carrier::{self, Crew, TimedWaits};
use crate::fiber::state::Epoch;
use crate::fiber::{Control, Flags, WaitKind, slab};
use crate::primitive::Ordering;
use crate::threads;

/// Returns all fibers if none of them can go on: every fiber, and every thread that sinew knows
/// except the caller, waits for another fiber or thread to act.
///
/// Then they sleep forever, unless a thread that does not wait in sinew wakes one of them. A plain
/// thread may compute, or wait for something else, and have a sender, a lock or a handle with which
/// it can wake a fiber. Sinew cannot see that.
///
/// Returns `None` if a fiber or thread can go on: it runs or is about to run, or it waits for a
/// deadline, for the kernel, or for work on another thread.
///
/// # Examples
/// ```
/// assert!(sinew::inspect::all_asleep().is_none());
/// ```
pub fn all_asleep() -> Option<Vec<FiberInfo>> {
    let me = carrier::current::known_block().addr();
    let mut asleep = Vec::new();
    let mut awake = false;
    let before = all_rest()?;
    slab::for_each(|control| {
        if awake || control.life.is_vacant() || core::ptr::from_ref(control).addr() == me {
            return;
        }
        match sleeps(control) {
            Some(epoch) => asleep.push((control, epoch)),
            // A pinned fiber waits as its thread, and this loop looks at the thread's block as
            // well.
            None => awake = !waits_pinned(control),
        }
    });
    if awake || asleep.is_empty() {
        return None;
    }
    let timed = TimedWaits::collect();
    // If both checks below succeed, no member was woken since the first look, and no carrier ran
    // meanwhile. So no fiber was made in a block that was vacant when the loop passed it, and there
    // was a moment at which all slept.
    super::memory::settle();
    let still = |(control, epoch): &(&Control, Epoch)| {
        !timed.has(control) && control.wake.is_waiting(*epoch)
    };
    if !asleep.iter().all(still) || all_rest() != Some(before) {
        return None;
    }
    let fibers = super::snapshot::fibers();
    (!fibers.is_empty()).then_some(fibers)
}

/// Counts the threads that are not sinew's and do not sleep in a wait of sinew, as far as one look
/// can tell. Each of them may be able to wake the fibers. Returns `None` where the system does not
/// list the threads of a process.
pub(super) fn unseen_threads() -> Option<usize> {
    let all = std::fs::read_dir("/proc/self/task").ok()?.count();
    let mut asleep = 0;
    slab::for_each(|control| {
        let is_thread = !control.life.is_vacant() && control.flags().has(Flags::PROXY);
        // If a pinned fiber waits, the proxy of its thread sleeps. That thread is sinew's, and
        // counted already.
        asleep += usize::from(is_thread && sleeps(control).is_some() && !is_pinned_as(control));
    });
    Some(all.saturating_sub(threads::owned() + asleep))
}

/// Whether a pinned fiber waits as the thread of this proxy.
fn is_pinned_as(proxy: &Control) -> bool {
    let mut any = false;
    slab::for_each(|control| {
        let thread = pinned_wait_of(control, 0).map(|(thread, ..)| thread);
        any |= thread.is_some_and(|thread| core::ptr::eq(thread, proxy));
    });
    any
}

/// Returns how often each carrier of each crew went to sleep, if every carrier sleeps, is blocked
/// by a pinned fiber, or runs the caller.
fn all_rest() -> Option<Vec<(u32, u64)>> {
    let mut rests = Vec::new();
    for crew in Crew::all().into_iter().filter(|crew| crew.phase() < Phase::Closed) {
        for carrier in &crew.carriers {
            // A loop of the user steps this carrier, and sinew does not know whether that loop
            // sleeps.
            (!carrier.is_embedded()).then_some(())?;
            // ORDERING: Acquire: the carrier's sleep is read after this count; pairs with the
            // Release in `metrics::add`.
            let rest = carrier.counters.slept.load(Ordering::Acquire);
            let blocked = || slab::at(carrier.current().addr()).is_some_and(waits_pinned);
            (carrier.inbox.is_parked() || carrier.is_here() || blocked()).then_some(())?;
            rests.push((crew.number, rest));
        }
    }
    Some(rests)
}

/// Whether a fiber is pinned and waits as its thread.
fn waits_pinned(control: &Control) -> bool {
    pinned_wait_of(control, 0).is_some()
}

/// Returns the epoch of a wait that only another fiber or thread can end.
fn sleeps(control: &Control) -> Option<Epoch> {
    let epoch = control.wake.waiting()?;
    let (kind, ..) = control.recorded_wait();
    let by_others = matches!(
        kind,
        WaitKind::Park
            | WaitKind::Join
            | WaitKind::Future
            | WaitKind::Scope
            | WaitKind::Lock
            | WaitKind::Key
            | WaitKind::Condvar
            | WaitKind::Event
            | WaitKind::Value
            | WaitKind::Semaphore
            | WaitKind::Send
            | WaitKind::Receive
            | WaitKind::Select
    );
    (by_others && has_stopped(control)).then_some(epoch)
}
