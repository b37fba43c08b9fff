//! The carrier's own loop, on its thread's own stack: entered when no fiber is ready.
//!
//! It looks at everything, then at the others' work, then sleeps. README.md of this folder has the
//! protocol, and why nothing is missed.

use super::crew::{Crew, Phase};
use super::driver::Driver;
use super::{Carrier, current, dispatch, launch};
use crate::clock;
use crate::fiber::Control;
use crate::metrics;
use crate::primitive::Ordering;
use crate::queue::{Entry, Steal};
use crate::report;
use core::cell::Cell;
use core::time::Duration;
use sinew_context::stack::{StackCache, overflow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Rounds of looking around before a carrier sleeps: some ten microseconds.
const ROUNDS: u32 = 60;
/// How long somebody else's only unstarted fiber is left to its maker.
const PATIENCE: u64 = 4_000;
/// How often a sleeper looks for work that its owner does not get to, at first and at last.
const FIRST_WATCH: Duration = Duration::from_micros(500);
const LAST_WATCH: Duration = Duration::from_millis(10);

/// What the loop remembers from round to round.
struct Round {
    /// The only unstarted fiber of another carrier: its carrier, its mark, and since when.
    lone: Cell<Option<(usize, usize, u64)>>,
    watch: Cell<Duration>,
}

/// Runs a carrier until its crew is closed and no fiber is left.
pub(crate) fn run(carrier: &'static Carrier, crew: Arc<Crew>, driver: Box<dyn Driver>) {
    overflow::arm();
    current::set_carrier(carrier);
    carrier.random.set(clock::now() | 1 | (carrier.index() as u64) << 32);
    carrier.now.set(clock::now());
    // SAFETY: nobody else looks at what belongs to the thread.
    unsafe {
        *carrier.stacks.get() = Some(StackCache::new(&crew.pool));
        *carrier.driver.get() = Some(driver);
    }
    carrier.main_loop(&crew);
    // SAFETY: no fiber is left, so nobody uses them.
    unsafe {
        *carrier.stacks.get() = None;
        *carrier.driver.get() = None;
    }
    current::set_carrier(core::ptr::null());
}

impl Carrier {
    fn main_loop(&self, crew: &Crew) {
        let round = Round { lone: Cell::new(None), watch: Cell::new(FIRST_WATCH) };
        loop {
            self.run_ready();
            if !self.refused.is_empty() {
                self.refuse_some();
                continue;
            }
            self.tend();
            if self.has_ready() {
                continue;
            }
            match crew.phase() {
                Phase::Open => {}
                Phase::Closing if crew.is_empty() => {
                    crew.advance(Phase::Closed);
                    continue;
                }
                Phase::Closing => {}
                Phase::Closed => return,
                Phase::Abandoned => self.rest_for_ever(),
            }
            crew.idle.search();
            if self.search(crew, &round) {
                round.watch.set(FIRST_WATCH);
                if crew.idle.found() && self.deque.len() > 0 {
                    crew.published();
                }
                continue;
            }
            self.sleep(crew, &round);
        }
    }

    /// Runs fibers until none is ready.
    fn run_ready(&self) {
        loop {
            let next = self.next();
            if core::ptr::eq(next, &self.root) {
                return;
            }
            // SAFETY: taken out of a queue of this carrier, whose root we are.
            unsafe { dispatch::go(self, &self.root, &*next) };
        }
    }

    fn has_ready(&self) -> bool {
        !self.ready.is_empty()
            || !self.slot.get().is_null()
            || !self.inbox.is_empty()
            || self.deque.len() > 0
    }

    /// Tells those who wait for a fiber that there was no stack for it.
    #[cold]
    fn refuse_some(&self) {
        for _ in 0..self.refused.len() {
            if let Some(control) = self.refused.pop() {
                // SAFETY: refused fibers are unstarted, and this is the root.
                unsafe { launch::refuse(self, &*control) };
            }
        }
    }

    /// Looks for work for a little while. True if there is some.
    fn search(&self, crew: &Crew, round: &Round) -> bool {
        for turn in 0..ROUNDS {
            if !self.inbox.is_empty() {
                return true;
            }
            if self.find_shared(crew, round) {
                return true;
            }
            if turn % 16 == 15 && self.earliest.load(Ordering::Relaxed) <= clock::now() {
                return true;
            }
            for _ in 0..24 {
                core::hint::spin_loop();
            }
        }
        false
    }

    /// Takes unstarted or migratable fibers from outside or from another carrier.
    fn find_shared(&self, crew: &Crew, round: &Round) -> bool {
        if let Some(control) = self.take_injected() {
            // SAFETY: ours.
            unsafe { self.deque.push(control) };
            return true;
        }
        let count = crew.carriers.len();
        let start = self.random() as usize % count;
        for offset in 0..count {
            let index = (start + offset) % count;
            let victim = crew.carriers[index];
            if core::ptr::eq(victim, self) {
                continue;
            }
            match victim.deque.len() {
                0 => {}
                1 if !self.is_neglected(round, index, victim) => {}
                len => {
                    if self.steal_from(victim, len) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Whether the only unstarted fiber of `victim` has been left alone for long enough.
    fn is_neglected(&self, round: &Round, index: usize, victim: &Carrier) -> bool {
        let (mark, now) = (victim.deque.mark(), clock::now());
        match round.lone.get() {
            Some((seen, at, since)) if seen == index && at == mark => now - since > PATIENCE,
            _ => {
                round.lone.set(Some((index, mark, now)));
                false
            }
        }
    }

    /// Takes up to half of what `victim` has.
    fn steal_from(&self, victim: &Carrier, len: usize) -> bool {
        let mut taken = 0;
        while taken < len.div_ceil(2).min(32) {
            match victim.deque.steal() {
                Steal::Taken(control) => {
                    // SAFETY: ours now.
                    unsafe { self.deque.push(control) };
                    taken += 1;
                }
                Steal::Lost if taken == 0 => core::hint::spin_loop(),
                Steal::Lost | Steal::Empty => break,
            }
        }
        metrics::add(&self.counters.stolen, taken as u64);
        taken > 0
    }

    /// Takes all fibers that were submitted from outside: returns the first, keeps the rest.
    pub(super) fn take_injected(&self) -> Option<*const Control> {
        let crew = self.crew();
        if crew.injector.is_empty() {
            return None;
        }
        let mut first = None;
        crew.injector.take(|entry| {
            let (Entry::Ready(control) | Entry::Message(control)) = entry;
            if first.is_none() {
                first = Some(control);
            } else {
                // SAFETY: this is the owner's thread, and the fiber is ours.
                unsafe { self.deque.push(control) };
            }
        });
        if let Some(first) = first {
            // SAFETY: alive, and ours.
            self.await_left(unsafe { &*first });
        }
        if self.deque.len() > 0 {
            crew.published();
        }
        first
    }

    /// Sleeps until there may be something to do. The caller counts as a searcher, and does not
    /// when this returns.
    fn sleep(&self, crew: &Crew, round: &Round) {
        crew.idle.sleep();
        if !self.inbox.park() {
            crew.idle.wake();
            let _ = crew.idle.found();
            return;
        }
        let watches = self.becomes_sentinel(crew);
        if !self.sees_work(crew) {
            metrics::add(&self.counters.slept, 1);
            let timeout = self.timeout(round, watches);
            self.rest(crew, timeout);
        }
        if watches {
            round.watch.set((round.watch.get() * 2).min(LAST_WATCH));
            crew.sentinel.store(false, Ordering::SeqCst);
        }
        self.woken(crew);
    }

    /// The final look of a carrier that has counted itself as asleep.
    fn sees_work(&self, crew: &Crew) -> bool {
        !crew.injector.is_empty()
            || (crew.phase() >= Phase::Closing
                && (crew.phase() > Phase::Closing || crew.is_empty()))
            || crew
                .carriers
                .iter()
                .any(|other| !core::ptr::eq(*other, self) && other.deque.len() > 1)
    }

    /// Whether this sleeper looks now and then for what others do not get to: one does, while any
    /// carrier is awake.
    fn becomes_sentinel(&self, crew: &Crew) -> bool {
        if crew.carriers.len() == 1 || crew.sentinel.swap(true, Ordering::SeqCst) {
            return false;
        }
        let awake = crew.carriers.iter().any(|other| !other.inbox.is_parked());
        if !awake {
            crew.sentinel.store(false, Ordering::SeqCst);
        }
        awake
    }

    /// How long the sleep may last.
    fn timeout(&self, round: &Round, watches: bool) -> Option<Duration> {
        let mut earliest = self.earliest.load(Ordering::Relaxed);
        if let Some(ask_at) = self.ask_at() {
            earliest = earliest.min(ask_at);
        }
        let timeout = clock::until(clock::now(), earliest);
        match (timeout, watches) {
            (Some(timeout), true) => Some(timeout.min(round.watch.get())),
            (None, true) => Some(round.watch.get()),
            (timeout, false) => timeout,
        }
    }

    /// Sleeps in the user's hook, or in the driver.
    fn rest(&self, crew: &Crew, timeout: Option<Duration>) {
        if let Some(hook) = &crew.settings.idle_hook {
            if catch_unwind(AssertUnwindSafe(|| hook(self, timeout))).is_ok() {
                self.bell().clear();
                return;
            }
            report::say(format_args!(
                "the idle hook of runtime \"{}\" panicked; carrier {} sleeps without it this time",
                crew.settings.name,
                self.index()
            ));
        }
        // SAFETY: this is the carrier's thread, which has its driver while it runs.
        let driver = unsafe { (*self.driver.get()).as_ref() };
        driver.expect("a running carrier has a driver").wait(self.bell(), timeout);
    }

    /// Settles the counts after a sleep. What the caller does next is look for work.
    fn woken(&self, crew: &Crew) {
        self.inbox.unpark();
        crew.idle.wake();
        crew.waking.store(false, Ordering::SeqCst);
        let _ = crew.idle.found();
    }

    /// The deadline of a shutdown has passed, and fibers are left: their thread must not end.
    fn rest_for_ever(&self) -> ! {
        loop {
            std::thread::park();
        }
    }
}
