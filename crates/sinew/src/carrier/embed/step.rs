//! What a foreign loop calls: steps of its carrier, and what it must know to sleep between them.

use super::super::{Owner, dispatch, launch};
use super::Inside;
use crate::clock;
use crate::fiber::{Control, Flags};
use crate::primitive::Ordering;

/// The maximum number of polls in one step, which polls again while each poll finds more events.
const MOST_ROUNDS: u32 = 16;

/// The maximum number of times that a step serves deadlines that have passed since the step began.
/// Without a limit, fibers with short sleeps would keep the loop: if they compute in between, each
/// is due as soon as the others have run.
const MOST_TIMEOUTS: u32 = 64;

impl Owner {
    /// Runs ready fibers until there are none. Returns true if there is more to do, such as fibers
    /// that have yielded. The thread must not have entered the carrier before.
    pub(crate) fn step(&'static self) -> bool {
        let _inside = Inside::enter(self);
        debug_assert_eq!(self.embedded.entered.get(), 1, "steps do not nest");
        self.embedded.stepping.set(true);
        self.embedded.begun.set(clock::now());
        self.embedded.timeouts.set(MOST_TIMEOUTS);
        self.shared().inbox.unpark();
        // SAFETY: steps do not nest, so no fiber of the carrier runs, and this is the root.
        let again = unsafe { self.run_all_ready() };
        self.embedded.stepping.set(false);
        again
    }

    /// # Safety
    /// The caller is the root.
    unsafe fn run_all_ready(&self) -> bool {
        let mut rounds = 0;
        loop {
            self.end_stint_if_observed();
            self.tend();
            // SAFETY: the caller is the root.
            unsafe {
                self.run_ready();
                if !self.refused.is_empty() && self.refuse_some() {
                    continue;
                }
            }
            // Poll after fibers have run, so that the kernel knows all new waits. Poll until there
            // are no more events, because a loop with an edge-triggered watch is not told again of
            // earlier events. But bound the rounds, so that the loop gets its turn.
            if self.look_for_events() || self.has_ready() {
                rounds += 1;
                if rounds < MOST_ROUNDS {
                    continue;
                }
                self.ready_yielded();
                return true;
            }
            let earliest = self.shared().earliest.load(Ordering::Relaxed);
            if earliest <= self.embedded.begun.get() {
                continue;
            }
            if earliest != clock::NEVER && earliest <= clock::now() {
                // Fibers with short sleeps must not keep the loop.
                self.ready_yielded();
                return true;
            }
            if !self.embedded.yielded.is_empty() {
                self.ready_yielded();
                return true;
            }
            if self.shared().inbox.park() {
                return false;
            }
        }
    }

    fn ready_yielded(&self) {
        while let Some(control) = self.embedded.yielded.pop() {
            // SAFETY: fibers in the list are ours, and a popped fiber's link is free.
            unsafe {
                (*control).clear_flags(Flags::YIELDED);
                if self.observed.is_on() {
                    self.note_woken((*control).id());
                }
                self.ready.push(control);
            }
        }
    }

    /// Ends waits whose deadlines have passed. Deadlines that passed during this step are served a
    /// limited number of times.
    pub(in crate::carrier) fn expire_in_step(&self, now: u64) {
        let (begun, left) = (self.embedded.begun.get(), self.embedded.timeouts.get());
        let earliest = self.shared().earliest.load(Ordering::Relaxed);
        if earliest <= begun || earliest > now {
            return self.expire(now);
        }
        if left > 0 {
            self.embedded.timeouts.set(left - 1);
            self.expire(now);
        }
    }

    /// Runs an unstarted fiber until it first stops, before the caller goes on.
    ///
    /// # Safety
    /// The fiber is in no queue, counted, and belongs to the caller. If a fiber of this carrier
    /// runs, it has no wait under way.
    pub(crate) unsafe fn run_now(&'static self, next: &Control) {
        let _inside = Inside::enter(self);
        self.end_stint_if_observed();
        // SAFETY: the running fiber, or the root, has a block.
        let me = unsafe { &*self.current() };
        let root = me.flags().has(Flags::ROOT);
        // SAFETY: the fiber is in no queue, and belongs to the caller.
        let started = unsafe { launch::try_start(self, next) }.ok();
        // SAFETY: the fiber is in no queue and belongs to the caller. The closure is called on the
        // root.
        let start_or_refuse = || unsafe { self.start_or_refuse(next) };
        let context = started.or_else(|| match root {
            true => start_or_refuse(),
            // SAFETY: `me` runs on this carrier and has no wait under way.
            false => unsafe { self.on_root(me, start_or_refuse) }.ok().flatten(),
        });
        let Some(context) = context else {
            // There is no stack, and the reserve is in use. The loop will start or end the fiber.
            if !self.is_stepping() {
                self.shared().ring();
            }
            return;
        };
        let outer = self.run_next.replace(me);
        self.embedded.interrupted.set(self.embedded.interrupted.get() + 1);
        if !root {
            me.set_flags(Flags::IMMEDIATE);
        }
        if self.observed.is_on() {
            self.note_stop();
            self.note_start(next);
        }
        // SAFETY: `me` is in `run_next`, and is dispatched when `next` stops. If `me` is the root,
        // it is entered meanwhile only to do calls. The root and fibers of embedded carriers stay
        // on their thread.
        unsafe {
            let message = dispatch::message_of(me, false);
            dispatch::switch(self, me, (next, context), message);
            if root && self.embedded.call.get().is_some() {
                self.do_calls();
            }
        }
        if !root {
            me.clear_flags(Flags::IMMEDIATE);
        }
        self.embedded.interrupted.set(self.embedded.interrupted.get() - 1);
        self.run_next.set(outer);
        if root && !self.embedded.stepping.get() {
            // Every other fiber has had its turn. And the kernel must know the new waits, as in a
            // step, because the loop may sleep next.
            self.ready_yielded();
            self.look_for_events();
        }
    }

    /// Looks into the inbox `looks` times before the loop sleeps. Meanwhile pushers need not ring.
    /// Returns whether there is something to do.
    pub(crate) fn linger(&self, looks: u32) -> bool {
        let inbox = &self.shared().inbox;
        inbox.unpark();
        for _ in 0..looks {
            if !inbox.is_empty() {
                return true;
            }
            core::hint::spin_loop();
        }
        !inbox.park()
    }

    /// Clears the bell. Afterwards the caller looks for the work for which it was rung.
    pub(crate) fn silence(&self) {
        let carrier = self.shared();
        if carrier.embedded.rung.load(Ordering::Relaxed) {
            // A caller of `ring_for_loop` that comes now finds `rung` set, and the swap below then
            // shows us its work.
            carrier.bell().clear();
            // ORDERING: AcqRel; pairs with the swap in `ring_for_loop`.
            carrier.embedded.rung.swap(false, Ordering::AcqRel);
        }
    }

    /// Whether a step is in progress on this thread.
    pub(crate) fn is_stepping(&self) -> bool {
        self.embedded.stepping.get()
    }

    /// Whether the carrier has something to run, as far as its thread knows.
    pub(crate) fn is_due(&self) -> bool {
        self.has_ready()
            || self.can_refuse()
            || !self.embedded.yielded.is_empty()
            || !self.shared().inbox.is_empty()
    }

    /// Returns the number of fibers that are ready, or will be when the others have run.
    pub(crate) fn queued(&self) -> usize {
        let next = usize::from(!self.run_next.get().is_null());
        // A fiber in `run_next` that has interrupted itself is not queued.
        let next = next.saturating_sub(self.embedded.interrupted.get() as usize);
        next + self.ready.len() + self.shared().deque.len() + self.embedded.yielded.len()
    }

    /// Returns when the carrier must be stepped again, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> u64 {
        let carrier = self.shared();
        let mut earliest = carrier.earliest.load(Ordering::Relaxed);
        if earliest != clock::NEVER {
            let mut timers = carrier.timers.lock();
            // Skip stale entries: the loop must not wake up for fibers that no longer wait.
            earliest = timers.earliest_live().unwrap_or(clock::NEVER);
            carrier.earliest.store(earliest, Ordering::Relaxed);
        }
        self.ask_at().map_or(earliest, |ask_at| earliest.min(ask_at))
    }
}
