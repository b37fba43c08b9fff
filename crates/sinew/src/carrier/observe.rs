//! What carriers note of their dispatches while somebody wants to know: traces and histograms.
//!
//! Nothing in the way of a fiber asks whether anybody does. While somebody does, a carrier makes every
//! tick one dispatch long, so that each goes through `tend`, which is not in the way otherwise; and marks
//! each fiber that it dispatches as observed. Whoever wakes a fiber that is marked, goes the way that is
//! for those of other carriers, and finds the mark there. A wake is noted in the block of the fiber, where
//! what it waited for is of no use any more, and recorded by the carrier on which it runs next: so each
//! carrier's records have one writer.
//!
//! A carrier learns that there is something to observe, or that there is no longer, at the end of a tick,
//! when it wakes up, or from a fiber of its own. The mark of a fiber is removed when it is woken and nobody
//! observes.

use super::Carrier;
use super::embed::Moment;
use crate::clock;
use crate::fiber::{Control, Flags, WaitKind, slab};
use crate::metrics::Counts;
use crate::primitive::{AtomicU32, Ordering, SpinLock};
use crate::queue::Recent;
use core::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::Arc;

/// Something that a carrier did, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Dispatched a fiber, which was woken at some time by some fiber.
    Start { fiber: u64, woken: Option<(u64, u64)> },
    /// Had a fiber stop to wait for something.
    Wait { fiber: u64, kind: WaitKind, address: usize },
    /// Had a fiber stop for others.
    Yield { fiber: u64 },
    /// Had a fiber end.
    End { fiber: u64 },
    /// Took so many fibers from another carrier.
    Steal { victim: usize, count: usize },
    /// Went to sleep.
    Sleep,
    /// Woke up.
    Awake,
}

/// Who has woken a fiber if no fiber has: its carrier itself, for the time or for an event, or a thread.
pub(crate) const BY_CARRIER: u64 = 0;
pub(crate) const BY_THREAD: u64 = u64::MAX;

/// An event as numbers: what it is, when, and of what.
pub(crate) type Record = [u64; 5];

impl Event {
    fn record(self, at: u64) -> Record {
        match self {
            Event::Start { fiber, woken: None } => [0, at, fiber, 0, 0],
            Event::Start { fiber, woken: Some((when, by)) } => [1, at, fiber, when, by],
            Event::Wait { fiber, kind, address } => [2, at, fiber, kind as u64, address as u64],
            Event::Yield { fiber } => [3, at, fiber, 0, 0],
            Event::End { fiber } => [4, at, fiber, 0, 0],
            Event::Steal { victim, count } => [5, at, victim as u64, count as u64, 0],
            Event::Sleep => [6, at, 0, 0, 0],
            Event::Awake => [7, at, 0, 0, 0],
        }
    }

    /// The event, and when it was.
    pub(crate) fn read([what, at, first, second, third]: Record) -> (u64, Event) {
        let event = match what {
            0 => Event::Start { fiber: first, woken: None },
            1 => Event::Start { fiber: first, woken: Some((second, third)) },
            2 => Event::Wait {
                fiber: first,
                kind: WaitKind::from_bits(second as u8),
                address: third as usize,
            },
            3 => Event::Yield { fiber: first },
            4 => Event::End { fiber: first },
            5 => Event::Steal { victim: first as usize, count: second as usize },
            6 => Event::Sleep,
            _ => Event::Awake,
        };
        (at, event)
    }
}

/// What the carriers of a crew have done last.
pub(crate) struct Recording {
    pub(crate) carriers: Box<[Recent<5>]>,
    /// When it was begun.
    pub(crate) since: u64,
    /// Names of fibers that have run, of the last ones.
    pub(crate) names: SpinLock<VecDeque<(u64, Arc<str>)>>,
    most_names: usize,
}

impl Recording {
    /// Room for the last `events` of each of `carriers`. `None` if there is no memory.
    pub(crate) fn new(carriers: usize, events: usize) -> Option<Recording> {
        let carriers: Option<_> = (0..carriers).map(|_| Recent::new(events)).collect();
        Some(Recording {
            carriers: carriers?,
            since: clock::now(),
            names: SpinLock::new(VecDeque::new()),
            most_names: events,
        })
    }

    fn learn_name(&self, fiber: u64, name: &Arc<str>) {
        let mut names = self.names.lock();
        let oldest = if names.len() == self.most_names { names.pop_front() } else { None };
        names.push_back((fiber, name.clone()));
        drop(names);
        // Its memory is given back without the lock.
        drop(oldest);
    }
}

/// How long the fibers of one carrier ran at a time, and how long they had to wait for that when they had
/// been woken.
pub(crate) struct Times {
    pub(crate) run: Counts,
    pub(crate) latency: Counts,
}

/// Who wants to know what the carriers of a crew do.
#[derive(Default)]
pub(crate) struct Observers {
    /// Changes when the rest does.
    generation: AtomicU32,
    wishes: SpinLock<Wishes>,
}

#[derive(Clone, Default)]
struct Wishes {
    traces: Vec<Arc<Recording>>,
    /// One for each carrier.
    times: Option<Arc<[Times]>>,
    /// Whether times are measured at present.
    measures: bool,
    /// Whether the carrier, which somebody else's loop steps, has a watcher.
    watched: bool,
}

impl Wishes {
    fn is_any(&self) -> bool {
        self.measures || self.watched || !self.traces.is_empty()
    }
}

impl Observers {
    fn change(&self, change: impl FnOnce(&mut Wishes)) {
        let mut wishes = self.wishes.lock();
        change(&mut wishes);
        // Zero in the lowest bit if there is nothing to observe.
        let next = (self.generation.load(Ordering::Relaxed) | 1).wrapping_add(1);
        self.generation.store(next | u32::from(wishes.is_any()), Ordering::Relaxed);
    }

    fn is_any(&self) -> bool {
        self.generation.load(Ordering::Relaxed) & 1 != 0
    }

    pub(crate) fn add_trace(&self, recording: Arc<Recording>) {
        self.change(|wishes| wishes.traces.push(recording));
    }

    pub(crate) fn remove_trace(&self, recording: &Arc<Recording>) {
        self.change(|wishes| wishes.traces.retain(|other| !Arc::ptr_eq(other, recording)));
    }

    /// Begins or ends to measure the times of so many carriers.
    pub(crate) fn measure(&self, measures: bool, carriers: usize) {
        self.change(|wishes| {
            wishes.measures = measures;
            if measures && wishes.times.is_none() {
                let new = |_| Times { run: Counts::new(), latency: Counts::new() };
                wishes.times = Some((0..carriers).map(new).collect());
            }
        });
    }

    /// Begins or ends to tell the watcher of the carrier.
    pub(crate) fn set_watched(&self, watched: bool) {
        self.change(|wishes| wishes.watched = watched);
    }

    /// What was measured by now, if anything ever was.
    pub(crate) fn times(&self) -> Option<Arc<[Times]>> {
        self.wishes.lock().times.clone()
    }
}

/// What a carrier knows of those who observe it. Belongs to its thread.
#[derive(Default)]
pub(crate) struct Observed {
    /// Which generation of the crew's observers this is.
    generation: Cell<u32>,
    on: Cell<bool>,
    /// Since when it is.
    begun: Cell<u64>,
    wishes: UnsafeCell<Wishes>,
    /// Dispatches that are left of the tick.
    left: Cell<u32>,
    /// The fiber that runs, if its start was noted, and since when.
    running: Cell<u64>,
    since: Cell<u64>,
    /// When what is woken now should have been.
    due: Cell<Option<u64>>,
}

impl Observed {
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.on.get()
    }

    /// Begins a tick of so many dispatches; returns how many are to pass until the carrier looks.
    pub(super) fn tick(&self, tick: u32) -> u32 {
        self.left.set(tick);
        if self.on.get() { 1 } else { tick }
    }

    /// A dispatch has passed; false if the tick is over with it.
    pub(super) fn goes_on(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 1
    }

    /// Forgets everything, before or after the carrier's thread has run.
    pub(super) fn reset(&self) {
        self.generation.set(0);
        self.on.set(false);
        self.running.set(0);
        // SAFETY: the carrier does not run, and is the caller's.
        unsafe { *self.wishes.get() = Wishes::default() };
    }

    fn wishes(&self) -> &Wishes {
        // SAFETY: this is the carrier's thread, and nothing that is done with it changes it.
        unsafe { &*self.wishes.get() }
    }
}

impl Carrier {
    /// Learns who wants to know, if that has changed.
    #[inline(always)]
    pub(super) fn heed_observers(&self) {
        if self.observed.generation.get()
            != self.crew().observers.generation.load(Ordering::Relaxed)
        {
            self.adopt_observers();
        }
    }

    #[cold]
    #[inline(never)]
    fn adopt_observers(&self) {
        let observers = &self.crew().observers;
        let wishes = observers.wishes.lock();
        self.observed.generation.set(observers.generation.load(Ordering::Relaxed));
        let new = wishes.clone();
        drop(wishes);
        if !self.observed.on.replace(new.is_any()) {
            self.observed.begun.set(clock::now());
        }
        self.observed.running.set(0);
        // SAFETY: this is the carrier's thread, and nobody has a reference to what was there.
        drop(core::mem::replace(unsafe { &mut *self.observed.wishes.get() }, new));
    }

    /// A fiber of this carrier has changed who observes: it is observed from here on.
    pub(crate) fn heed_observers_now(&self) {
        self.note_stop();
        self.shorten_tick_if_observed();
        self.note_start(self.current());
    }

    fn note(&self, event: Event, at: u64) {
        if self.observed.wishes().watched {
            match event {
                Event::Start { fiber, .. } => self.tell(Moment::Starting, fiber),
                Event::Wait { fiber, .. } | Event::Yield { fiber } | Event::End { fiber } => {
                    self.tell(Moment::Stopped, fiber);
                }
                Event::Steal { .. } | Event::Sleep | Event::Awake => {}
            }
        }
        for trace in &self.observed.wishes().traces {
            trace.carriers[self.index()].push(event.record(at));
        }
    }

    /// What is woken next should have been at this moment, if anybody wants to know.
    pub(super) fn note_due(&self, deadline: Option<u64>) {
        if self.observed.is_on() {
            self.observed.due.set(deadline);
        }
    }

    /// Notes something that is not about a fiber, if anybody wants to know.
    pub(super) fn note_if_observed(&self, event: Event) {
        if self.observed.is_on() {
            self.note(event, clock::now());
        }
    }

    /// The running fiber rests, if it is this one. What it waits for is recorded.
    #[inline(always)]
    pub(crate) fn note_rest(&self, control: &Control) {
        if self.observed.is_on() && self.observed.running.get() == control.id() {
            self.note_stop_as(|fiber| {
                let (kind, address, _) = control.recorded_wait();
                Event::Wait { fiber, kind, address }
            });
        }
    }

    /// The running fiber rests. If nobody observes it any more, the next who does learns its name.
    pub(super) fn forget_unless_observed(&self, control: &Control) {
        if !self.observed.is_on() {
            control.clear_flags(Flags::OBSERVED);
        }
    }

    /// The running fiber stops.
    pub(super) fn note_stop(&self) {
        self.note_stop_as(|fiber| self.how_it_stops(fiber));
    }

    fn note_stop_as(&self, event: impl FnOnce(u64) -> Event) {
        let fiber = self.observed.running.replace(0);
        if fiber == 0 {
            return;
        }
        let now = clock::now();
        let times = self.observed.wishes();
        if let (true, Some(times)) = (times.measures, &times.times) {
            times[self.index()].run.add(now.saturating_sub(self.observed.since.get()));
        }
        self.note(event(fiber), now);
    }

    /// What the current fiber is about to do, which has run until now.
    fn how_it_stops(&self, fiber: u64) -> Event {
        // SAFETY: what is current has a block, and is on its stack still.
        let me = unsafe { &*self.current() };
        if me.flags().has(Flags::ROOT) {
            Event::End { fiber }
        } else if me.wake.waiting().is_some() {
            let (kind, address, _) = me.recorded_wait();
            let address = match kind {
                WaitKind::Sleep => 0,
                // Who that is, while it is sure.
                WaitKind::Join => slab::at(address).map_or(0, |joined| joined.id() as usize),
                _ => address,
            };
            Event::Wait { fiber, kind, address }
        } else {
            // Or it was woken before it has stopped.
            Event::Yield { fiber }
        }
    }

    /// `next` is about to run, unless it is the root.
    #[inline(always)]
    pub(super) fn note_start(&self, next: *const Control) {
        if self.observed.is_on() {
            // SAFETY: it was taken out of a queue, and is ours.
            self.note_start_of(unsafe { &*next });
        }
    }

    #[cold]
    #[inline(never)]
    fn note_start_of(&self, next: &Control) {
        if next.flags().has(Flags::ROOT) {
            return;
        }
        let wishes = self.observed.wishes();
        if !next.flags().has(Flags::OBSERVED) {
            next.set_flags(Flags::OBSERVED);
            if let Some(name) = next.extra().and_then(|extra| extra.name()) {
                wishes.traces.iter().for_each(|trace| trace.learn_name(next.id(), name));
            }
        }
        let now = clock::now();
        // One from before may have been used up while nobody looked.
        let woken = next.take_wake().filter(|(when, _)| *when >= self.observed.begun.get());
        if let (true, Some(times), Some((when, _))) = (wishes.measures, &wishes.times, woken) {
            times[self.index()].latency.add(now.saturating_sub(when));
        }
        self.observed.running.set(next.id());
        self.observed.since.set(now);
        self.note(Event::Start { fiber: next.id(), woken }, now);
    }
}

/// Notes the wake of a fiber that is marked as observed. The caller has ended its wait.
pub(super) fn note_wake(control: &Control, carrier: &Carrier, flags: Flags) {
    if carrier.crew().observers.is_any() {
        if carrier.is_of_this_thread() {
            // Of those from elsewhere the carrier learns when it takes them out of its inbox.
            carrier.note_woken(control.id());
        }
        let by = match super::current::running() {
            // Between two fibers it looks after its duties, on the stack of the one before.
            Some((here, _)) if here.observed.is_on() => here.observed.running.get(),
            Some((_, running)) => running.id(),
            None => BY_THREAD,
        };
        let due = if carrier.is_here() { carrier.observed.due.get() } else { None };
        control.note_wake(due.unwrap_or_else(clock::now), by);
    } else if carrier.is_here() && !flags.has(Flags::ROAMING) {
        control.clear_flags(Flags::OBSERVED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_recorded() {
        let all = [
            Event::Start { fiber: 7, woken: None },
            Event::Start { fiber: 7, woken: Some((3, BY_THREAD)) },
            Event::Wait { fiber: 7, kind: WaitKind::Blocking, address: usize::MAX },
            Event::Yield { fiber: 7 },
            Event::End { fiber: 7 },
            Event::Steal { victim: 3, count: 32 },
            Event::Sleep,
            Event::Awake,
        ];
        for event in all {
            assert_eq!(Event::read(event.record(5)), (5, event));
        }
    }
}
