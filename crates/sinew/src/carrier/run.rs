//! The carrier's own loop, on its thread's own stack. It runs when no fiber is ready.
//!
//! It looks at its own queues and duties, then searches the other carriers' work, then sleeps.
//! README.md of this folder has the protocol, and the reason why nothing is missed.

use super::crew::{Crew, Phase};
use super::observe::Event;
use super::{Carrier, Owner, current, launch};
use crate::clock;
use crate::fiber::Control;
use crate::metrics;
use crate::primitive::{Ordering, fence};
use crate::queue::{Delivery, Steal};
use crate::report::{self, NeverUnwinds};
use core::cell::Cell;
use core::time::Duration;
use sinew_context::stack::{StackCache, overflow};
use std::sync::Arc;

/// The maximum number of rounds of a search before a carrier sleeps: some ten microseconds. Each
/// search that finds nothing halves the rounds of the next one.
const ROUNDS: u32 = 64;
/// A sleep shorter than this, in nanoseconds, was hardly worth it: waking up alone takes some tens
/// of microseconds.
const SHORT_SLEEP: u64 = 100_000;
/// The number of looks into the inbox before a carrier begins to search.
const GLANCES: u32 = 64;
const FEWEST_ROUNDS: u32 = 1;
/// The shortest sleep of a carrier with deadlines close together. Each sleep covers several of
/// them.
const BATCH: Duration = Duration::from_micros(400);
/// Deadlines are close together if, since the previous sleep, more than one has passed per this
/// many nanoseconds. Then the carrier is busy with deadlines, and waking up for every few deadlines
/// costs more than running their fibers. A few fibers that sleep for short times stay far below
/// this rate, so each of their sleeps is exact.
const DENSE: u64 = 20_000;
/// A carrier that sleeps longer than this keeps few stacks.
const LONG_SLEEP: Duration = Duration::from_millis(100);
/// How often an idle carrier looks for control blocks that it does not need, in nanoseconds.
const TRIM_EVERY: u64 = 1_000_000_000;
/// Stacks that a carrier keeps for itself over a long sleep.
const FEW_STACKS: usize = 32;
/// How long unstarted fibers are left to a carrier without progress, in nanoseconds, if they are
/// better left to it; see `is_neglected`.
const PATIENCE: u64 = 4_000;
/// If a carrier has not polled its driver for this long, in nanoseconds, an idle carrier polls it.
const STALLED: u64 = 300_000;
/// The time after which the sentinel first looks for work that the work's own carrier does not get
/// to. The time doubles with each look, up to [`LAST_WATCH`].
const FIRST_WATCH: Duration = Duration::from_micros(500);
/// The longest time between two looks of the sentinel.
const LAST_WATCH: Duration = Duration::from_millis(10);

/// State that a carrier's loop keeps from round to round.
struct Round {
    /// For each carrier, whether this carrier has left the fibers of its deque to it.
    left: Box<[Cell<Option<Left>>]>,
    watch: Cell<Duration>,
    rounds: Cell<u32>,
    /// Whether another carrier had fibers that were left to it.
    saw_lone: Cell<bool>,
    /// When the carrier last decided how long to sleep, and how many deadlines had passed by then.
    last_sleep: Cell<(u64, u64)>,
}

/// How the deque of another carrier was when this carrier first left its fibers there.
#[derive(Clone, Copy)]
struct Left {
    /// Whether there was one fiber.
    lone: bool,
    /// The mark of the deque, if there was one fiber, or else the number of live fibers.
    mark: usize,
    since: u64,
}

impl Round {
    /// Searches longer next time: the search found something, or a longer one would have.
    fn more(&self) {
        self.rounds.set((self.rounds.get() * 2).min(ROUNDS));
    }

    /// Searches shorter next time: the search found nothing.
    fn fewer(&self) {
        self.rounds.set((self.rounds.get() / 2).max(FEWEST_ROUNDS));
    }
}

/// Runs a carrier until its crew is closed and no fiber is left.
pub(crate) fn run(carrier: &'static Carrier, crew: Arc<Crew>) {
    overflow::arm();
    current::set_carrier(carrier);
    carrier.set_thread(true);
    // SAFETY: this thread runs as the carrier until this function returns, and this is the root.
    let owner = unsafe { Owner::of(carrier) };
    owner.random.set(clock::now() | 1 | (carrier.index() as u64) << 32);
    owner.now.set(clock::now());
    let cached = crew.settings.cached_stacks(crew.carriers.len());
    owner.stacks.replace(Some(StackCache::with_capacity(&crew.pool, cached)));
    owner.reserve.fill(&crew);
    owner.limit_starts();
    // The fibers could not go on without the loop, and the thread must not end before them.
    let guard = NeverUnwinds("the loop of a carrier panicked; aborting, since fibers need it");
    // SAFETY: this is the root.
    unsafe { owner.main_loop(&crew) };
    core::mem::forget(guard);
    crew.drivers[carrier.index()].close();
    // SAFETY: this is the root.
    unsafe { launch::drop_spare(owner) };
    owner.stacks.take();
    owner.reserve.empty();
    owner.start_limit.set(u32::MAX);
    owner.slab.trim();
    owner.observed.reset();
    carrier.set_thread(false);
    current::set_carrier(core::ptr::null());
}

impl Owner {
    /// Runs fibers, searches and sleeps until the crew is closed and no fiber is left.
    ///
    /// # Safety
    /// The caller is the root.
    unsafe fn main_loop(&self, crew: &Crew) {
        let round = Round {
            left: crew.carriers.iter().map(|_| Cell::new(None)).collect(),
            watch: Cell::new(FIRST_WATCH),
            rounds: Cell::new(ROUNDS),
            saw_lone: Cell::new(false),
            last_sleep: Cell::new((clock::now(), 0)),
        };
        loop {
            self.end_stint_if_observed();
            // SAFETY: this is the root.
            unsafe {
                self.run_ready();
                if !self.refused.is_empty() && self.refuse_some() {
                    continue;
                }
            }
            if self.glance(&round) {
                continue;
            }
            self.tend();
            self.look_if_due();
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
                Phase::Abandoned => {
                    crew.drivers[self.index()].close();
                    self.rest_for_ever()
                }
            }
            crew.idle.search();
            if self.search(crew, &round) {
                round.watch.set(FIRST_WATCH);
                if crew.idle.found() && (self.shared().deque.len() > 0 || self.sees_shared(crew)) {
                    crew.published();
                }
                continue;
            }
            self.sleep(crew, &round);
        }
    }

    /// Runs fibers until none is ready.
    ///
    /// # Safety
    /// The caller is the root.
    pub(super) unsafe fn run_ready(&self) {
        loop {
            self.look_if_due();
            let next = self.next();
            if core::ptr::eq(next, &self.root) {
                self.note_root();
                if self.look_if_due() {
                    continue;
                }
                return;
            }
            // SAFETY: the fiber was taken out of a queue of this carrier, and this is the root.
            unsafe { self.go_from_root(&*next) };
            self.trim_due.set(true);
            self.note_root();
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
            || !self.run_next.get().is_null()
            || !self.shared().inbox.is_empty()
            || self.shared().deque.len() > 0
            || self.shared().load.has_offers()
    }

    /// Waits a moment for a wake from another thread, before the other carriers are told that this
    /// one is idle. Does so only while searches have been of use. Does not change how often the
    /// clock is read.
    fn glance(&self, round: &Round) -> bool {
        if round.rounds.get() <= FEWEST_ROUNDS {
            return false;
        }
        for _ in 0..GLANCES {
            if !self.shared().inbox.is_empty() {
                round.more();
                self.take_inbox();
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    /// Searches for work for a little while. Returns whether there is some.
    fn search(&self, crew: &Crew, round: &Round) -> bool {
        round.saw_lone.set(false);
        // What a neighbour's live fibers were in an earlier search says nothing about this one.
        round.left.iter().for_each(|seen| seen.set(seen.get().filter(|left| left.lone)));
        if self.help_out(crew) {
            round.watch.set(FIRST_WATCH);
            return true;
        }
        for turn in 0..ROUNDS {
            if !self.shared().inbox.is_empty() || self.find_shared(crew, round) {
                round.more();
                return true;
            }
            let earliest = self.shared().earliest.load(Ordering::Relaxed);
            if turn % 16 == 15 && earliest != clock::NEVER && earliest <= clock::now() {
                // The deadline would have ended a sleep as well.
                round.fewer();
                return true;
            }
            if turn + 1 >= round.rounds.get() && !round.saw_lone.get() {
                // Stop here: the carrier looks once more after it has counted itself as a sleeper.
                break;
            }
            for _ in 0..24 {
                if !self.shared().inbox.is_empty() {
                    break;
                }
                core::hint::spin_loop();
            }
        }
        round.fewer();
        false
    }

    /// Polls the drivers of carriers that do not poll them, because one of their fibers runs for
    /// long. Returns true if this brought work to this carrier, such as a migratable fiber.
    fn help_out(&self, crew: &Crew) -> bool {
        if crew.carriers.len() == 1 {
            return false;
        }
        let now = self.now.get();
        for (carrier, driver) in crew.carriers.iter().zip(&crew.drivers) {
            let polled = carrier.polled.load(Ordering::Relaxed);
            if now.saturating_sub(polled) > STALLED
                && !core::ptr::eq(*carrier, self.shared())
                && !carrier.inbox.is_parked()
                && driver.is_active()
            {
                carrier.polled.store(now, Ordering::Relaxed);
                driver.poll();
            }
        }
        self.has_ready()
    }

    /// Takes unstarted or migratable fibers from outside or from another carrier.
    fn find_shared(&self, crew: &Crew, round: &Round) -> bool {
        if self.take_offers(self.shared()) {
            return true;
        }
        if let Some(control) = self.take_injected() {
            self.deque().push(control);
            return true;
        }
        let count = crew.carriers.len();
        let start = self.random() as usize % count;
        for offset in 0..count {
            let index = (start + offset) % count;
            let victim = crew.carriers[index];
            if core::ptr::eq(victim, self.shared()) {
                continue;
            }
            if victim.load.has_offers()
                && victim.load.has_old_offers(clock::now())
                && self.take_offers(victim)
            {
                return true;
            }
            let len = victim.deque.len();
            if len == 0 {
                continue;
            }
            // A lone fiber is left to its maker for a moment. So are the fibers of a carrier that
            // has no more load than this one, as long as it starts fibers that stay with it: both
            // then keep equal loads.
            let richer = victim.burden() > self.shared().burden() + 1;
            if (len == 1 || !richer) && !self.is_neglected(round, index, victim) {
                round.saw_lone.set(true);
            } else if self.steal_from(victim, len, richer) {
                return true;
            }
        }
        false
    }

    /// Whether `victim` has not made progress for long enough, with a fiber that was left to it. A
    /// lone fiber waits for its maker; if there are more, the live fibers of `victim` would become
    /// more.
    fn is_neglected(&self, round: &Round, index: usize, victim: &Carrier) -> bool {
        let lone = victim.deque.len() == 1;
        let mark = if lone { victim.deque.mark() } else { victim.load.live() as usize };
        let (seen, now) = (&round.left[index], clock::now());
        match seen.get() {
            Some(left) if left.lone == lone && (left.mark == mark || !lone && left.mark > mark) => {
                now - left.since > PATIENCE
            }
            _ => {
                seen.set(Some(Left { lone, mark, since: now }));
                false
            }
        }
    }

    /// Takes up to half of the fibers in the deque of `victim`. If `victim` is richer, it may be
    /// giving fibers to this carrier meanwhile, so stops when the loads are equal.
    fn steal_from(&self, victim: &Carrier, len: usize, richer: bool) -> bool {
        let mut taken = 0;
        while taken < len.div_ceil(2).min(32)
            && (taken == 0 || !richer || victim.burden() > self.shared().burden() + 1)
        {
            match victim.deque.steal() {
                Steal::Taken(control) => {
                    self.deque().push(control);
                    taken += 1;
                }
                Steal::Lost if taken == 0 => core::hint::spin_loop(),
                Steal::Lost | Steal::Empty => break,
            }
        }
        metrics::note(&self.shared().counters.stolen, taken as u64);
        if taken > 0 {
            self.note_if_observed(Event::Steal { victim: victim.index(), count: taken });
        }
        taken > 0
    }

    /// Takes the carrier's offers and all fibers that were submitted from outside. Returns one of
    /// them and puts the rest into the deque.
    #[inline(always)]
    pub(super) fn take_from_outside(&self) -> Option<*const Control> {
        if self.take_offers(self.shared())
            && let Some(offered) = self.take_oldest_shared()
        {
            return Some(offered);
        }
        self.take_injected()
    }

    /// Takes all fibers that were submitted from outside. Returns the first and puts the rest into
    /// the deque.
    pub(super) fn take_injected(&self) -> Option<*const Control> {
        let crew = self.crew();
        if crew.injector.is_empty() {
            return None;
        }
        let mut first = None;
        crew.injector.take(|entry| {
            let (Delivery::Ready(control) | Delivery::Message(control)) = entry;
            if first.is_none() {
                first = Some(control);
            } else {
                self.deque().push(control);
            }
        });
        if self.shared().deque.len() > 0 {
            crew.published();
        }
        first
    }

    /// Sleeps until there may be something to do. The caller counts as a searcher on entry, and not
    /// on return.
    fn sleep(&self, crew: &Crew, round: &Round) {
        crew.idle.sleep();
        if !self.shared().inbox.park() {
            crew.idle.wake();
            let _ = crew.idle.found();
            return;
        }
        // ORDERING: SeqCst fence; pairs with the one in `Idle::wants_wake`, which a publisher
        // passes before it looks for marks in `Crew::wake_one`. Either the publisher sees this
        // carrier's mark, or the last look sees the publisher's work. The exchange of the mark
        // alone does not order the Relaxed load by which the last look begins.
        fence(Ordering::SeqCst);
        let watches = self.becomes_sentinel(crew);
        if !self.sees_work(crew) {
            metrics::add(&self.shared().counters.slept, 1);
            let mut timeout = self.timeout(round, watches);
            self.count_stacks();
            if timeout.is_none_or(|timeout| timeout > LONG_SLEEP) {
                self.give_stacks_back();
                let trim_in = self.trim_slab();
                timeout = timeout.into_iter().chain(trim_in).min();
            }
            self.note_if_observed(Event::Sleep);
            self.shared().load.set_tended(u64::MAX);
            self.fall_asleep(crew, timeout);
            self.note_if_observed(Event::Awake);
            let before = self.slept_until(clock::now());
            self.shared().load.set_tended(self.now.get());
            self.shared().polled.store(self.now.get(), Ordering::Relaxed);
            if !self.shared().inbox.is_empty() && self.now.get() - before < SHORT_SLEEP {
                // A slightly longer search would have found this wake.
                round.more();
            }
        }
        if watches {
            round.watch.set((round.watch.get() * 2).min(LAST_WATCH));
            // ORDERING: SeqCst; pairs with the exchange in `becomes_sentinel` of the next sentinel.
            crew.sentinel.store(false, Ordering::SeqCst);
        }
        self.woken(crew, watches);
    }

    /// Whether there is work: the last look of a carrier that has counted itself as a sleeper.
    fn sees_work(&self, crew: &Crew) -> bool {
        let phase = crew.phase();
        self.sees_shared(crew)
            || phase > Phase::Closing
            || (phase == Phase::Closing && crew.is_empty())
    }

    /// Whether there is work that any carrier may take.
    fn sees_shared(&self, crew: &Crew) -> bool {
        !crew.injector.is_empty() || self.shared().load.has_offers() || self.sees_in_deques(crew, 2)
    }

    /// Whether another carrier has at least `count` fibers that any carrier may take.
    fn sees_in_deques(&self, crew: &Crew, count: usize) -> bool {
        let mut others =
            crew.carriers.iter().filter(|other| !core::ptr::eq(**other, self.shared()));
        others.any(|other| other.deque.len() >= count)
    }

    /// Makes this sleeper the sentinel, which looks now and then for work that others do not get
    /// to. There is at most one, and only while some carrier is awake. Returns whether this carrier
    /// became it.
    fn becomes_sentinel(&self, crew: &Crew) -> bool {
        // ORDERING: SeqCst; pairs with itself in other carriers, of which one gets the flag. It
        // comes after our mark in `Inbox::park` and before our look at the marks of others. So of
        // carriers that fall asleep at a time, the last one to mark its inbox does not take the
        // others for awake. `Owner::publish` reads the flag as a hint.
        if crew.carriers.len() == 1 || crew.sentinel.swap(true, Ordering::SeqCst) {
            return false;
        }
        let awake = crew.carriers.iter().any(|other| !other.inbox.is_parked());
        if !awake {
            // ORDERING: SeqCst; pairs with the exchange above, in the next sentinel.
            crew.sentinel.store(false, Ordering::SeqCst);
        }
        awake
    }

    /// Returns how long the sleep may last.
    fn timeout(&self, round: &Round, watches: bool) -> Option<Duration> {
        let mut earliest = self.shared().earliest.load(Ordering::Relaxed);
        if let Some(ask_at) = self.ask_at() {
            earliest = earliest.min(ask_at);
        }
        let dense = self.deadlines_are_dense(round);
        let timeout =
            clock::left_until(earliest).map(|left| if dense { left.max(BATCH) } else { left });
        match (timeout, watches) {
            (Some(timeout), true) => Some(timeout.min(round.watch.get())),
            (None, true) => Some(round.watch.get()),
            (timeout, false) => timeout,
        }
    }

    /// Whether deadlines have passed so fast since the previous sleep that the next sleep should
    /// cover several.
    fn deadlines_are_dense(&self, round: &Round) -> bool {
        let (now, expired) = (clock::now(), self.shared().counters.expired.load(Ordering::Relaxed));
        let (before, expired_before) = round.last_sleep.replace((now, expired));
        expired.saturating_sub(expired_before).saturating_mul(DENSE) > now - before
    }

    fn count_stacks(&self) {
        let stacks = self.stacks.borrow().as_ref().map_or(0, StackCache::len);
        metrics::set(&self.shared().counters.stacks, stacks as u64);
    }

    /// Gives back stacks that no fiber will need for a while.
    fn give_stacks_back(&self) {
        if let Some(stacks) = &*self.stacks.borrow()
            && stacks.len() > FEW_STACKS
        {
            stacks.flush();
        }
    }

    /// Gives back the memory of vacant control blocks, at most once a second. If a fiber has run
    /// since the last trim and a second has not passed, returns how long the carrier may sleep
    /// until the next trim.
    fn trim_slab(&self) -> Option<Duration> {
        if !self.trim_due.get() || !self.slab.is_large() {
            return None;
        }
        let now = clock::now();
        let left = self.trim_at.get().saturating_sub(now);
        if left > 0 {
            return Some(Duration::from_nanos(left));
        }
        self.trim_at.set(now.saturating_add(TRIM_EVERY));
        self.trim_due.set(false);
        self.slab.trim();
        None
    }

    /// Sleeps in the user's hook, or in the driver.
    fn fall_asleep(&self, crew: &Crew, timeout: Option<Duration>) {
        if let Some(hook) = &crew.settings.idle_hook {
            // The kernel is told about new waits of fibers when the driver is polled, which the
            // hook need not do, so poll first. This poll may clear the bell, so the hook must not
            // sleep if something came.
            if self.look_for_events() || self.has_ready() {
                return;
            }
            if report::contain(|| hook(self.shared(), timeout)).is_some() {
                self.shared().bell().clear();
                self.look_for_events();
                return;
            }
            report::say(format_args!(
                "the idle hook of runtime \"{}\" panicked; carrier {} sleeps without it this time",
                crew.settings.name,
                self.index()
            ));
        }
        crew.drivers[self.index()].wait(timeout);
    }

    /// Settles the counts after a sleep.
    ///
    /// The waker relies on this carrier to search, but the carrier runs work of its own first. So
    /// if there is shared work, this carrier makes sure that another carrier looks.
    fn woken(&self, crew: &Crew, watched: bool) {
        self.shared().inbox.unpark();
        crew.idle.wake();
        // ORDERING: SeqCst; pairs with the exchange in `Crew::wake_one`. A publisher that found the
        // flag set relies on the look below, which the fence in `Idle::found` precedes.
        crew.waking.store(false, Ordering::SeqCst);
        if crew.idle.found() && self.sees_shared(crew) {
            crew.published();
        }
        let others_have = || {
            self.sees_in_deques(crew, 1) || crew.carriers.iter().any(|one| one.load.has_offers())
        };
        if watched && !self.shared().inbox.is_empty() && others_have() {
            // Wakes another sleeper, which becomes the next sentinel.
            crew.wake_one();
        }
    }

    /// Keeps the thread for ever: the deadline of a shutdown has passed, and fibers are left.
    fn rest_for_ever(&self) -> ! {
        loop {
            std::thread::park();
        }
    }
}
