//! Whether anybody is left who could go on.

use super::deadlock::has_stopped;
use super::snapshot::{FiberInfo, pinned_wait_of};
use crate::carrier::crew::Phase;
use crate::carrier::{self, Crew, TimedWaits};
use crate::fiber::state::Epoch;
use crate::fiber::{Control, Flags, WaitKind, slab};
use crate::primitive::Ordering;

/// All fibers, if every one of them waits for what another one would have to do, and so does every thread
/// that is known to sinew, but for the caller: then nothing will ever happen, unless a thread that does not wait in
/// sinew wakes one of them. A plain thread that has a sender, a lock or a handle and computes, or waits for something
/// else, is such a thread: sinew cannot see what it has. `None` if somebody can go on: one that runs or will, one that waits for
/// the time, for the kernel or for work on another thread.
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
            // The block of its thread says whether that sleeps.
            None => awake = !waits_pinned(control),
        }
    });
    if awake || asleep.is_empty() {
        return None;
    }
    let timed = TimedWaits::collect();
    // Nobody has woken any of them since they were looked at, and no carrier has run anything meanwhile, that
    // might have made a fiber in a block that was passed when it was vacant: so there was a moment at which
    // all slept.
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

/// How many threads of the process are neither sinew's nor asleep in a wait of sinew's, as far as a look tells: any of
/// them may have what the fibers wait for. `None` where the system does not say how many threads there are.
pub(super) fn unseen_threads() -> Option<usize> {
    let all = std::fs::read_dir("/proc/self/task").ok()?.count();
    let mut asleep = 0;
    slab::for_each(|control| {
        let is_thread = !control.life.is_vacant() && control.flags().has(Flags::PROXY);
        // The proxy of a thread of sinew's, which is counted already, sleeps if a pinned fiber waits there.
        asleep += usize::from(is_thread && sleeps(control).is_some() && !is_pinned_as(control));
    });
    Some(all.saturating_sub(carrier::thread::owned() + asleep))
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

/// How often each carrier of each crew went to sleep, if all of them sleep, are blocked by a pinned fiber, or
/// run the caller.
fn all_rest() -> Option<Vec<(u32, u64)>> {
    let mut rests = Vec::new();
    for crew in Crew::all().into_iter().filter(|crew| crew.phase() < Phase::Closed) {
        for carrier in &crew.carriers {
            // What steps it is somebody else's, and not known to sleep.
            (!carrier.is_embedded()).then_some(())?;
            // ORDERING: Acquire: that it sleeps is read after that.
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

/// The wait of one who will not go on by itself.
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
