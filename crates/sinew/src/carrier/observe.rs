//! Notes of carriers about their dispatches, for traces, histograms and watchers.
//!
//! The usual path of a fiber has no check for observers. While there are observers, a carrier makes
//! every stint one dispatch long, so that each dispatch goes through `tend`. It also marks each
//! fiber that it dispatches as observed. The waker of a marked fiber takes the slow path, which is
//! otherwise for fibers of other carriers, and finds the mark there. The waker notes the wake in
//! the fiber's block, in place of the record of the wait, which is over. The carrier on which the
//! fiber runs next records the wake, so each carrier's records have one writer.
//!
//! A carrier learns of new or removed observers at the end of a stint, when it wakes up, or from
//! one of its own fibers. A fiber loses its mark when it is woken and there are no observers.

use super::embed::Moment;
use super::{Carrier, Owner};
use crate::clock;
use crate::fiber::{Control, Flags, WaitKind, slab};
use crate::metrics::Counts;
use crate::primitive::{AtomicU32, Ordering, SpinLock};
use crate::queue::Recent;
use core::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::Arc;

/// Something that a carrier did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Dispatched a fiber. `woken` has the time of its wake and the waker.
    Start { fiber: u64, woken: Option<(u64, u64)> },
    /// A fiber stopped to wait for something.
    Wait { fiber: u64, kind: WaitKind, address: usize },
    /// A fiber stopped to let others run.
    Yield { fiber: u64 },
    /// A fiber ended.
    End { fiber: u64 },
    /// Took `count` fibers from another carrier.
    Steal { victim: usize, count: usize },
    /// Went to sleep.
    Sleep,
    /// Woke up.
    Awake,
}

/// In the place of a waker's id: the carrier itself woke the fiber, for a deadline or an event.
pub(crate) const BY_CARRIER: u64 = 0;
/// In the place of a waker's id: a thread that is no carrier woke the fiber.
pub(crate) const BY_THREAD: u64 = u64::MAX;

/// An event as numbers: its kind, its time, and its three arguments.
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

    /// Decodes a record into the time and the event.
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

/// The latest events of a crew's carriers.
pub(crate) struct Recording {
    pub(crate) carriers: Box<[Recent<5>]>,
    /// When the recording began.
    pub(crate) since: u64,
    /// The names of the fibers that ran last.
    pub(crate) names: SpinLock<VecDeque<(u64, Arc<str>)>>,
    most_names: usize,
}

impl Recording {
    /// Makes room for the last `events` of each of `carriers`. Returns `None` if there is no
    /// memory.
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
        // The name is freed without the lock.
        drop(oldest);
    }
}

/// How long the fibers of one carrier ran at a time, and how long they waited for their turn after
/// they were woken.
pub(crate) struct Times {
    pub(crate) run: Counts,
    pub(crate) latency: Counts,
}

/// The observers of a crew.
#[derive(Default)]
pub(crate) struct Observers {
    /// Changes whenever `wishes` changes. Odd if there is something to observe.
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
    /// Whether the crew's carrier, which a foreign loop steps, has a watcher.
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
        // The lowest bit is zero if there is nothing to observe.
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

    /// Begins or ends measuring the times of `carriers` carriers.
    pub(crate) fn measure(&self, measures: bool, carriers: usize) {
        self.change(|wishes| {
            wishes.measures = measures;
            if measures && wishes.times.is_none() {
                let new = |_| Times { run: Counts::new(), latency: Counts::new() };
                wishes.times = Some((0..carriers).map(new).collect());
            }
        });
    }

    /// Begins or ends telling the watcher of the carrier.
    pub(crate) fn set_watched(&self, watched: bool) {
        self.change(|wishes| wishes.watched = watched);
    }

    /// Returns the measured times, if any were ever measured.
    pub(crate) fn times(&self) -> Option<Arc<[Times]>> {
        self.wishes.lock().times.clone()
    }
}

/// A carrier's copy of its crew's observers. Belongs to its thread.
#[derive(Default)]
pub(crate) struct Observed {
    /// The generation of the crew's observers that was copied.
    generation: Cell<u32>,
    on: Cell<bool>,
    /// Since when there are observers.
    begun: Cell<u64>,
    wishes: UnsafeCell<Wishes>,
    /// Dispatches that would be left of the stint if there were no observers.
    left: Cell<u32>,
    /// The running fiber, if its start was noted, and since when it runs.
    running: Cell<u64>,
    since: Cell<u64>,
    /// The deadline for which the carrier is waking a fiber at this moment. The fiber's latency
    /// counts from it.
    due: Cell<Option<u64>>,
}

impl Observed {
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.on.get()
    }

    /// Begins a stint of `length` dispatches. Returns the number of dispatches until the carrier
    /// looks up: one if it is observed.
    pub(super) fn begin_stint(&self, length: u32) -> u32 {
        self.left.set(length);
        if self.on.get() { 1 } else { length }
    }

    /// Counts a dispatch of an observed carrier. Returns false if the stint ends with it.
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
        // SAFETY: the carrier does not run, and belongs to the caller.
        unsafe { *self.wishes.get() = Wishes::default() };
    }

    fn wishes(&self) -> &Wishes {
        // SAFETY: this is the carrier's thread, and the reference is not held across a change of
        // the observers.
        unsafe { &*self.wishes.get() }
    }
}

impl Owner {
    /// Copies the crew's observers, if they have changed.
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
        // SAFETY: this is the carrier's thread, and there is no reference to the old value.
        drop(core::mem::replace(unsafe { &mut *self.observed.wishes.get() }, new));
    }

    /// Copies the observers after a fiber of this carrier has changed them. The fiber is observed
    /// from here on.
    pub(crate) fn heed_observers_now(&self) {
        self.note_stop();
        self.end_stint_if_observed();
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

    /// Notes the deadline for which fibers are woken next, if the carrier is observed.
    pub(super) fn note_due(&self, deadline: Option<u64>) {
        if self.observed.is_on() {
            self.observed.due.set(deadline);
        }
    }

    /// Notes an event that is not about a fiber, if the carrier is observed.
    pub(super) fn note_if_observed(&self, event: Event) {
        if self.observed.is_on() {
            self.note(event, clock::now());
        }
    }

    /// Notes that `control` rests, if it is the running fiber. Its wait is recorded in its block.
    #[inline(always)]
    pub(crate) fn note_rest(&self, control: &Control) {
        if self.observed.is_on() && self.observed.running.get() == control.id() {
            self.note_stop_as(|fiber| {
                let (kind, address, _) = control.recorded_wait();
                Event::Wait { fiber, kind, address }
            });
        }
    }

    /// Removes the mark from a fiber that rests, if there are no observers. So the next observer
    /// learns its name.
    pub(super) fn forget_unless_observed(&self, control: &Control) {
        if !self.observed.is_on() {
            control.clear_flags(Flags::OBSERVED);
        }
    }

    /// Notes that the running fiber stops.
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

    /// Returns the event by which the current fiber stops.
    fn how_it_stops(&self, fiber: u64) -> Event {
        // SAFETY: the current fiber, or the root, has a block and is still on its stack.
        let me = unsafe { &*self.current() };
        if me.flags().has(Flags::ROOT) {
            Event::End { fiber }
        } else if me.wake.waiting().is_some() {
            let (kind, address, _) = me.recorded_wait();
            let address = match kind {
                WaitKind::Sleep => 0,
                // The id of the joined fiber, read while the block certainly belongs to it.
                WaitKind::Join => slab::at(address).map_or(0, |joined| joined.id() as usize),
                _ => address,
            };
            Event::Wait { fiber, kind, address }
        } else {
            // The fiber yields, or was woken before it stopped.
            Event::Yield { fiber }
        }
    }

    /// Notes that `next` is about to run, unless it is the root.
    #[inline(always)]
    pub(super) fn note_start(&self, next: *const Control) {
        if self.observed.is_on() {
            // SAFETY: `next` was taken out of a queue, and is ours.
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
        // A wake from before this observation may belong to an earlier dispatch.
        let woken = next.take_wake().filter(|(when, _)| *when >= self.observed.begun.get());
        if let (true, Some(times), Some((when, _))) = (wishes.measures, &wishes.times, woken) {
            times[self.index()].latency.add(now.saturating_sub(when));
        }
        self.observed.running.set(next.id());
        self.observed.since.set(now);
        self.note(Event::Start { fiber: next.id(), woken }, now);
    }
}

/// Notes the wake of a fiber that is marked as observed. The caller has ended the fiber's wait.
pub(super) fn note_wake(control: &Control, carrier: &'static Carrier, flags: Flags) {
    if carrier.crew().observers.is_any() {
        if let Some(owner) = carrier.owner_of_this_thread() {
            // The carrier learns of wakes on other threads when it takes the fibers out of its
            // inbox.
            owner.note_woken(control.id());
        }
        let by = match super::current::running() {
            // Between two fibers the carrier tends its duties, on the stack of the first. `running`
            // is `BY_CARRIER` then.
            Some((here, _)) if here.observed.is_on() => here.observed.running.get(),
            Some((_, running)) => running.id(),
            None => BY_THREAD,
        };
        let due = carrier.owner_here().and_then(|owner| owner.observed.due.get());
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
