//! The duties of a carrier besides dispatching: wakes from other threads, deadlines, predicates,
//! the driver, and a fair share for unstarted fibers. A carrier tends them after a number of
//! dispatches.
//!
//! The number of dispatches between two looks at the clock follows from how long dispatches take: a
//! few for fibers that compute, hundreds for fibers that only pass control on. Either way, the
//! carrier looks every few tens of microseconds. The inbox is checked more often, because a check
//! is one load. Its cache line stays with the carrier while no other thread writes there.

use super::{Carrier, wake};
use crate::clock;
use crate::fiber::life::STARTED;
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Control, FiberRef, Flags};
use crate::metrics;
use crate::primitive::Ordering;
use crate::queue::Entry;
use core::cell::Cell;

/// The minimum and maximum number of dispatches between two looks at the clock.
const LEAST: u32 = 2;
const MOST: u32 = 512;
/// The maximum after a sleep: the fibers that run then may differ from the ones before.
const MOST_AT_FIRST: u32 = 16;
/// The maximum number of dispatches between two looks into the inbox.
const GLANCE: u32 = 64;
/// The target time between two looks at the clock, in nanoseconds.
const PERIOD: u64 = 20_000;
/// The minimum time between two polls of the driver while the carrier is busy, in nanoseconds.
const POLL_PERIOD: u64 = 30_000;

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
    window: Cell<u32>,
    /// Dispatches since the last look.
    since: Cell<u32>,
    /// The length of the current tick.
    tick: Cell<u32>,
    /// When predicates are evaluated next, and the pause before that.
    ask_at: Cell<u64>,
    pause: Cell<u64>,
    /// Fibers that were woken to evaluate a predicate, and have not been dispatched since.
    asking: Cell<u32>,
    /// Dispatches that went to the root since the last look at the clock. They ran no fiber.
    rooted: Cell<u32>,
    /// How much of the current tick had passed at that look.
    begun: Cell<u32>,
    /// How often other fibers than those that evaluate predicates were dispatched, and since when.
    others: Cell<u32>,
    counted: Cell<u64>,
    /// Whether the root is to poll for events.
    look: Cell<bool>,
}

impl Duties {
    pub(crate) const fn new() -> Duties {
        Duties {
            window: Cell::new(64),
            since: Cell::new(0),
            tick: Cell::new(1),
            ask_at: Cell::new(0),
            pause: Cell::new(0),
            asking: Cell::new(0),
            rooted: Cell::new(0),
            begun: Cell::new(0),
            others: Cell::new(0),
            counted: Cell::new(0),
            look: Cell::new(false),
        }
    }
}

impl Carrier {
    /// Returns the fiber that runs next, when a tick is over.
    #[cold]
    #[inline(never)]
    pub(super) fn next_after_duties(&self) -> *const Control {
        if self.is_decided() {
            return self.next_as_decided();
        }
        if !self.observed.is_on() {
            let next = self.tend_and_next();
            self.note_start(next);
            return next;
        }
        self.note_stop();
        let next = if self.observed.goes_on() {
            let since = &self.duties.since;
            since.set(since.get() + 1);
            metrics::set(&self.counters.begun, since.get().into());
            self.tick.set(1);
            self.next_ready()
        } else {
            self.tend_and_next()
        };
        self.note_start(next);
        next
    }

    /// Returns the next fiber when it is already decided: the root has work, or a fiber has
    /// interrupted itself. The duties have to wait.
    fn next_as_decided(&self) -> *const Control {
        self.note_stop();
        let duties = &self.duties;
        duties.since.set(duties.since.get() + duties.tick.get());
        self.set_tick(1);
        let next = self.decided();
        self.note_start(next);
        next
    }

    fn tend_and_next(&self) -> *const Control {
        let duties = &self.duties;
        // The tick is over, and no other has begun.
        let since = duties.since.get() + duties.tick.replace(0);
        duties.since.set(since);
        let window = duties.window.get();
        if since >= window {
            self.tend();
        } else if !self.inbox.is_empty() {
            self.take_inbox();
        }
        if self.can_refuse() || duties.look.get() {
            // The remaining duties are due when the root asks for the next fiber.
            self.set_tick(1);
            return &self.root;
        }
        if let Some(injected) = self.take_injected() {
            // SAFETY: the fiber is ours, and this is the owner's thread.
            unsafe { self.deque.push(injected) };
        }
        // Unstarted fibers get turns in proportion to their number, but leave half of the turns to
        // started ones. While the newest unstarted fibers come first, the oldest gets a turn now
        // and then.
        let (unstarted, ready) = (self.deque.len(), self.ready.len());
        let tick = match (unstarted, ready) {
            (0, _) | (_, 0) => duties.window.get(),
            _ => ((unstarted + ready) / unstarted).clamp(2, window as usize) as u32,
        };
        self.set_tick(tick);
        if unstarted > 0
            && !self.is_embedded()
            && let Some(oldest) = self.oldest_shared()
            && let Some(oldest) = self.admit(oldest)
        {
            return oldest;
        }
        self.next_ready()
    }

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

    fn set_tick(&self, tick: u32) {
        self.heed_observers();
        let tick = self.observed.tick(tick.min(GLANCE));
        self.duties.tick.set(tick);
        self.tick.set(tick);
    }

    /// Makes the current tick end with the next dispatch.
    pub(super) fn shorten_tick(&self) {
        let (duties, left) = (&self.duties, self.tick.replace(1));
        // Count the dispatches of the tick that have passed.
        duties.since.set(duties.since.get() + duties.tick.replace(1) - left);
    }

    /// Ends the current tick with the next dispatch, if an observer was added since this carrier
    /// last looked.
    pub(super) fn shorten_tick_if_observed(&self) {
        let before = self.observed.is_on();
        self.heed_observers();
        if self.observed.is_on() && !before {
            let left = self.tick.get();
            self.shorten_tick();
            self.observed.tick(left);
        }
    }

    /// Looks at the clock and at everything that may have become ready.
    pub(super) fn tend(&self) {
        let duties = &self.duties;
        let dispatched = duties.since.replace(0);
        metrics::note(&self.counters.dispatched, u64::from(dispatched));
        metrics::set(&self.counters.ready, self.ready.len() as u64);
        let begun = duties.tick.get() - self.tick.get();
        metrics::set(&self.counters.begun, u64::from(begun));
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
        self.slot_left.set(if self.is_embedded() { 0 } else { (window / 4).max(1) });
        if !self.inbox.is_empty() {
            self.take_inbox();
        }
        if self.is_embedded() {
            self.expire_in_step(now);
        } else {
            self.expire(now);
        }
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
        if now.saturating_sub(self.polled.load(Ordering::Relaxed)) > POLL_PERIOD {
            duties.look.set(self.crew().drivers[self.index()].is_active());
        }
    }

    /// Polls for events if it is time to. Returns whether it was. Only the root polls: the stack of
    /// a small fiber is too small for it.
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
        self.polled.store(self.now.get(), Ordering::Relaxed);
        driver.is_active() && driver.poll()
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
        self.inbox.take(|entry| {
            count += 1;
            match entry {
                // SAFETY: the pusher has ended the fiber's wait, or has made the fiber, so its link
                // is free.
                Entry::Ready(control) => unsafe { self.received(&*control) },
                Entry::Message(control) => {
                    // SAFETY: the message has a reference of its own.
                    let control = unsafe { FiberRef::from_counted(control) };
                    // A fiber that has rested since the message was sent is unstarted: the carrier
                    // that starts it sees the cancellation.
                    if control.flags().has(Flags::ROAMING) || control.is_bound_to(self) {
                        interrupt(&control);
                    }
                }
            }
        });
        metrics::note(&self.counters.received, count);
    }

    /// Takes a fiber that came through the inbox.
    ///
    /// # Safety
    /// The fiber is ready, in no queue, and belongs to this carrier.
    #[inline(always)]
    unsafe fn received(&self, control: &Control) {
        // SAFETY: the fiber is in no queue, so its link is free.
        unsafe {
            if self.is_embedded() {
                return self.received_embedded(control);
            }
            self.ready.push(control);
        }
    }

    /// Takes a fiber that came through the inbox of a carrier in a foreign loop. Unstarted fibers
    /// from outside begin behind the started ones.
    unsafe fn received_embedded(&self, control: &Control) {
        let started = control.life.marks() & STARTED != 0;
        // SAFETY: the fiber is in no queue and belongs to this carrier, as the caller of `received`
        // promised.
        unsafe {
            if !started || control.flags().has(Flags::MIGRATABLE) {
                if !started && !control.flags().has(Flags::RECURRING) {
                    control.set_born(self.now.get());
                }
                self.deque.push(control);
            } else {
                if self.observed.is_on() {
                    self.note_woken(control.id());
                }
                self.ready.push(control);
            }
        }
    }

    /// Ends waits with a passed deadline.
    pub(super) fn expire(&self, now: u64) {
        if self.earliest.load(Ordering::Relaxed) > now {
            return;
        }
        let mut count = 0;
        let mut timers = self.timers.lock();
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
        self.earliest.store(timers.earliest().unwrap_or(clock::NEVER), Ordering::Relaxed);
        drop(timers);
        metrics::note(&self.counters.expired, count);
    }

    /// Interrupts cancelled fibers that might have been unwinding, once no fiber on this thread
    /// unwinds.
    fn tell_postponed(&self) {
        // SAFETY: this is the carrier's thread, and nothing below uses the list.
        let postponed = unsafe { &mut *self.postponed.get() };
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
        // SAFETY: this is the carrier's thread.
        let none = unsafe { (*self.pollers.get()).is_empty() };
        (!none).then(|| self.duties.ask_at.get())
    }

    /// Wakes the fibers that wait for a predicate, so that each evaluates its own.
    fn ask_pollers(&self, now: u64) {
        // SAFETY: this is the carrier's thread, and nothing below uses the list.
        let pollers = unsafe { &mut *self.pollers.get() };
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
pub(crate) fn postpone(carrier: &Carrier, control: &Control, epoch: Epoch) {
    if carrier.is_here() {
        // SAFETY: this is the carrier's thread, and nothing else uses the list meanwhile.
        unsafe { (*carrier.postponed.get()).push((control, epoch)) };
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
