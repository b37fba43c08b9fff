//! The duties of a carrier besides dispatching: wakes from other threads, deadlines, predicates and
//! the driver. A carrier tends them after a number of dispatches (`stint`).
//!
//! The number of dispatches between two looks at the clock follows from how long dispatches take: a
//! few for fibers that compute, hundreds for fibers that only pass control on. Either way, the
//! carrier looks every few tens of microseconds. The inbox is checked more often, because a check
//! is one load. Its cache line stays with the carrier while no other thread writes there.

use super::{Carrier, Owner, wake};
use crate::clock;
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Control, FiberRef, Flags};
use crate::metrics;
use crate::primitive::Ordering;
use crate::queue::Delivery;
use core::cell::Cell;

/// The minimum and maximum number of dispatches between two looks at the clock.
const LEAST: u32 = 2;
const MOST: u32 = 512;
/// The maximum after a sleep: the fibers that run then may differ from the ones before.
const MOST_AT_FIRST: u32 = 16;
/// The target time between two looks at the clock, in nanoseconds.
const PERIOD: u64 = 20_000;
/// The minimum time between two polls of the driver while the carrier is busy, in nanoseconds.
const POLL_PERIOD: u64 = 30_000;
/// After this time the carrier polls, even if the fibers that were ready at the previous poll have
/// not all run. Before that, a fiber that the poll wakes would only wait behind them.
const LAST_POLL_PERIOD: u64 = 200_000;

/// A carrier with fewer nanoseconds than this between dispatches, on average, is busy. The average
/// covers at least this time.
const BUSY: u64 = 50_000;
/// How long a carrier with nothing else to do waits before it evaluates predicates again, at first
/// and at last, in nanoseconds.
const FIRST_PAUSE: u64 = 50_000;
const LAST_PAUSE: u64 = 10_000_000;

/// The schedule of a carrier's duties.
pub(crate) struct Duties {
    /// Dispatches between two looks at the clock, at present.
    pub(super) window: Cell<u32>,
    /// Dispatches of ended stints since the last look at the clock.
    pub(super) since: Cell<u32>,
    /// The length of the current stint.
    pub(super) stint: Cell<u32>,
    /// When predicates are evaluated next, and the pause before that.
    ask_at: Cell<u64>,
    pause: Cell<u64>,
    /// Fibers that were woken to evaluate a predicate, and have not been dispatched since.
    asking: Cell<u32>,
    /// Dispatches that went to the root since the last look at the clock. They ran no fiber.
    rooted: Cell<u32>,
    /// How many dispatches of the current stint had passed at the last look at the clock.
    begun: Cell<u32>,
    /// How often other fibers than those that evaluate predicates were dispatched, and since when.
    others: Cell<u32>,
    counted: Cell<u64>,
    /// Whether the root is to poll for events.
    pub(super) look: Cell<bool>,
    /// How many dispatches are left of the fibers that were ready after the last poll.
    ahead: Cell<usize>,
}

impl Duties {
    pub(crate) const fn new() -> Duties {
        Duties {
            window: Cell::new(64),
            since: Cell::new(0),
            stint: Cell::new(1),
            ask_at: Cell::new(0),
            pause: Cell::new(0),
            asking: Cell::new(0),
            rooted: Cell::new(0),
            begun: Cell::new(0),
            others: Cell::new(0),
            counted: Cell::new(0),
            look: Cell::new(false),
            ahead: Cell::new(0),
        }
    }
}

impl Owner {
    /// Notes the end of a sleep: the measured length of dispatches is from before the sleep.
    /// Returns the time of the previous look at the clock.
    pub(super) fn slept_until(&self, now: u64) -> u64 {
        let window = &self.duties.window;
        window.set(window.get().min(MOST_AT_FIRST));
        self.now.replace(now)
    }

    /// Counts a dispatch that led to the root.
    #[inline(always)]
    pub(super) fn note_root(&self) {
        let rooted = &self.duties.rooted;
        rooted.set(rooted.get().wrapping_add(1));
    }

    /// Looks at the clock and at everything that may have become ready.
    pub(super) fn tend(&self) {
        let duties = &self.duties;
        let dispatched = duties.since.replace(0);
        metrics::note(&self.shared().counters.dispatched, u64::from(dispatched));
        metrics::set(&self.shared().counters.ready, self.ready.len() as u64);
        let begun = duties.stint.get() - self.stint_left.get();
        metrics::set(&self.shared().counters.begun, u64::from(begun));
        let before = self.now.get();
        let now = clock::now();
        self.now.set(now);
        let window = duties.window.get();
        let elapsed = now.saturating_sub(before);
        if elapsed > 2 * PERIOD {
            duties.window.set((window / 2).max(LEAST));
        } else if elapsed < PERIOD / 2 && dispatched >= window {
            duties.window.set((window * 2).min(MOST));
        }
        self.run_next_left.set(self.run_next_uses(window));
        self.tend_placement(now);
        if !self.shared().inbox.is_empty() {
            self.take_inbox();
        }
        self.expire_due(now);
        // While other fibers run as well, predicates are evaluated each time. Otherwise they are
        // evaluated less and less often.
        let ran = (dispatched + begun)
            .saturating_sub(duties.begun.replace(begun))
            .saturating_sub(duties.rooted.replace(0));
        if self.is_busy(ran, now) {
            duties.pause.set(0);
            duties.ask_at.set(now);
        }
        if now >= duties.ask_at.get() {
            self.ask_pollers(now);
        }
        self.tell_postponed();
        let ahead = duties.ahead.get().saturating_sub(dispatched as usize);
        duties.ahead.set(ahead);
        let since = now.saturating_sub(self.shared().polled.load(Ordering::Relaxed));
        if since > LAST_POLL_PERIOD || since > POLL_PERIOD && ahead == 0 {
            duties.look.set(self.crew().drivers[self.index()].is_active());
        }
    }

    /// Polls for events if it is time to poll. Returns whether it polled. Only the root polls: the
    /// stack of a small fiber is too small for a poll.
    pub(super) fn look_if_due(&self) -> bool {
        let due = self.duties.look.replace(false);
        if due {
            self.look_for_events();
        }
        due
    }

    /// Polls for events. Returns whether there were any.
    pub(super) fn look_for_events(&self) -> bool {
        let driver = &self.crew().drivers[self.index()];
        self.shared().polled.store(self.now.get(), Ordering::Relaxed);
        let found = driver.is_active() && driver.poll();
        self.duties.ahead.set(self.ready.len() + self.shared().deque.len());
        found
    }

    /// Whether other fibers run than those that evaluate predicates. `ran` is the number of fibers
    /// that ran since the last call.
    fn is_busy(&self, ran: u32, now: u64) -> bool {
        let duties = &self.duties;
        let asking = duties.asking.get();
        duties.asking.set(asking.saturating_sub(ran));
        let others = duties.others.get().saturating_add(ran.saturating_sub(asking));
        duties.others.set(others);
        let since = now.saturating_sub(duties.counted.get());
        // A single dispatch in a short time says nothing about the average.
        if since < BUSY {
            return false;
        }
        duties.others.set(0);
        duties.counted.set(now);
        since < u64::from(others) * BUSY
    }

    /// Takes everything that other threads have put into the inbox.
    #[inline(never)]
    pub(super) fn take_inbox(&self) {
        let mut count = 0;
        self.shared().inbox.take(|entry| {
            count += 1;
            match entry {
                // SAFETY: the pusher has ended the fiber's wait, or has made the fiber, so its link
                // is free.
                Delivery::Ready(control) => unsafe { self.receive(&*control) },
                Delivery::Message(control) => {
                    // SAFETY: the message has a reference of its own.
                    let control = unsafe { FiberRef::from_counted(control) };
                    // A fiber that has rested since the message was sent is unstarted: the carrier
                    // that starts it sees the cancellation.
                    if control.flags().has(Flags::ROAMING) || control.is_bound_to(self.shared()) {
                        interrupt(&control);
                    }
                }
            }
        });
        metrics::note(&self.shared().counters.received, count);
    }

    /// Ends waits with a passed deadline.
    pub(super) fn expire(&self, now: u64) {
        let carrier = self.shared();
        if carrier.earliest.load(Ordering::Relaxed) > now {
            return;
        }
        let mut count = 0;
        let mut timers = carrier.timers.lock();
        while let Some((deadline, control)) = timers.pop_expired(now) {
            self.note_due(Some(deadline));
            // SAFETY: blocks are never unmapped. A fiber that leaves a timed wait takes the lock,
            // which is held here, so the epoch below is the one of the expired wait.
            let control = unsafe { &*control };
            if let Some(epoch) = control.wake.waiting() {
                count += u64::from(wake(control, epoch, Outcome::TimedOut));
            }
        }
        self.note_due(None);
        carrier.earliest.store(timers.earliest().unwrap_or(clock::NEVER), Ordering::Relaxed);
        drop(timers);
        metrics::note(&carrier.counters.expired, count);
    }

    /// Interrupts cancelled fibers that might have been unwinding, once no fiber on this thread
    /// unwinds.
    fn tell_postponed(&self) {
        let mut postponed = self.postponed.borrow_mut();
        if postponed.is_empty() || std::thread::panicking() {
            return;
        }
        for (control, epoch) in postponed.drain(..) {
            // SAFETY: blocks are never unmapped. If the fiber has left its wait, the epoch matches
            // nothing.
            wake(unsafe { &*control }, epoch, Outcome::Interrupted);
        }
    }

    /// Returns when predicates are to be evaluated, if any fiber waits for one.
    pub(super) fn ask_at(&self) -> Option<u64> {
        (!self.pollers.borrow().is_empty()).then(|| self.duties.ask_at.get())
    }

    /// Wakes the fibers that wait for a predicate, so that each evaluates its own.
    fn ask_pollers(&self, now: u64) {
        let mut pollers = self.pollers.borrow_mut();
        if pollers.is_empty() {
            return;
        }
        let pause = (2 * self.duties.pause.get()).clamp(FIRST_PAUSE, LAST_PAUSE);
        self.duties.pause.set(pause);
        self.duties.ask_at.set(now + pause);
        let mut asking = self.duties.asking.get();
        for (control, epoch) in pollers.drain(..) {
            // SAFETY: blocks are never unmapped. If the fiber has left its wait, the epoch matches
            // nothing.
            asking += u32::from(wake(unsafe { &*control }, epoch, Outcome::Notified));
        }
        self.duties.asking.set(asking);
    }
}

/// Notes a cancelled fiber that may be unwinding, if this is its carrier's thread.
pub(crate) fn postpone(carrier: &'static Carrier, control: &Control, epoch: Epoch) {
    if let Some(owner) = carrier.owner_here() {
        owner.postponed.borrow_mut().push((control, epoch));
    }
}

/// Ends the wait of a cancelled fiber, if it waits and may be interrupted.
///
/// The caller runs on the fiber's carrier, so the fiber does not run; or the fiber is migratable
/// and checks its mark after it has begun to wait.
pub(crate) fn interrupt(control: &Control) {
    if !control.flags().has(Flags::ROAMING) {
        // The fiber does not run, and this is its thread.
        control.set_flags(Flags::TOLD);
    }
    if cfg!(panic = "abort") {
        return;
    }
    // The flags are set before the wait begins, so they are read after the wait was seen.
    let Some(epoch) = control.wake.waiting() else { return };
    let flags = control.flags();
    if !flags.has(Flags::DEAF) {
        wake(control, epoch, Outcome::Interrupted);
    } else if !flags.has(Flags::MASKED) {
        // SAFETY: a fiber that waits has a carrier, and carriers are never freed.
        postpone(unsafe { &*control.carrier() }, control, epoch);
    }
}
