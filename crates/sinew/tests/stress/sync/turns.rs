//! Events and sequences: every entered waiter is told once, and turns come in order.

use super::bout::{Bout, Worker};
use sinew::sync::{Event, Reached, Sequencer, SequencerWait};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub(super) fn event(bout: &mut Bout) {
    if bout.has_cancels() || bout.has_timeouts() {
        event_on_and_off(bout);
    } else {
        event_for_all(bout);
    }
}

/// An event that is set for a moment lets all entered waiters pass.
fn event_for_all(bout: &mut Bout) {
    #[derive(Default)]
    struct Shared {
        event: Event,
        entered: AtomicUsize,
        /// How often the event was set and reset.
        rounds: AtomicUsize,
    }
    let shared = Arc::new(Shared::default());
    let (theirs, count) = (shared.clone(), bout.some());
    bout.start("waits for an event", count, move |worker| {
        let Shared { event, entered, rounds } = &*theirs;
        for round in 0..worker.steps() {
            // No worker slips through between set and reset: each is woken in each round.
            while rounds.load(Ordering::SeqCst) < round {
                sinew::yield_now();
            }
            if worker.has_order() && worker.once_in(2) {
                entered.fetch_add(1, Ordering::SeqCst);
                event.wait();
                worker.did();
                continue;
            }
            let place = pin!(SequencerWait::new());
            let turn = event.enter(place);
            entered.fetch_add(1, Ordering::SeqCst);
            worker.pause();
            assert_eq!(turn.wait(), Reached::Yes);
            worker.did();
        }
    });
    bout.start("sets the event", 1, move |worker| {
        let Shared { event, entered, rounds } = &*shared;
        for round in 1..=worker.steps() {
            while entered.load(Ordering::SeqCst) < round * count {
                sinew::yield_now();
            }
            event.set();
            event.reset();
            rounds.store(round, Ordering::SeqCst);
            worker.did();
        }
    });
    bout.all_ended();
}

fn event_on_and_off(bout: &mut Bout) {
    let shared = Arc::new((Event::new(), AtomicBool::new(false)));
    let (theirs, count) = (shared.clone(), bout.some());
    let waiters = bout.start("waits for an event", count, move |worker| {
        let event = &theirs.0;
        for _ in 0..worker.steps() {
            worker.attempt(
                || event.is_set().then_some(()),
                |patience| event.wait_timeout(patience).then_some(()),
                || event.wait(),
            );
            worker.did();
            worker.pause();
        }
    });
    let theirs = shared.clone();
    bout.start("sets the event", 2, move |worker| {
        let (event, over) = &*theirs;
        while !over.load(Ordering::SeqCst) {
            event.set();
            worker.pause();
            event.reset();
            sinew::yield_now();
            worker.did();
        }
    });
    bout.ended(waiters);
    shared.1.store(true, Ordering::SeqCst);
    bout.all_ended();
}

/// The value of the counter after the last turn.
const END: u64 = u64::MAX / 2;

#[derive(Default)]
struct Turns {
    sequencer: Sequencer,
    next: AtomicU64,
    /// The number of the current turn.
    due: AtomicU64,
}

/// A turn that must be taken even if its worker is cancelled, because others wait for it.
struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
    has_come: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Turns { sequencer, due, .. } = self.turns;
        if !self.has_come {
            sinew::masked(|| sequencer.wait(self.number));
        }
        let before = due.swap(self.number + 1, Ordering::SeqCst);
        assert_eq!(before, self.number, "a turn out of order");
        assert_eq!(sequencer.increment(), self.number + 1);
    }
}

pub(super) fn sequencer(bout: &mut Bout) {
    let turns = Arc::new(Turns::default());
    let (theirs, count) = (turns.clone(), bout.some());
    let takers = bout.start("takes turns", count, move |worker| {
        for _ in 0..worker.steps() {
            let number = theirs.next.fetch_add(1, Ordering::SeqCst);
            let mut turn = Turn { turns: &theirs, number, has_come: false };
            worker.pause();
            while !await_turn(worker, &theirs.sequencer, number) {
                worker.did();
            }
            turn.has_come = true;
            worker.pause();
            drop(turn);
            worker.did();
        }
    });
    let (theirs, count) = (turns.clone(), bout.some());
    bout.start("watches", count, move |worker| {
        for _ in 0..worker.steps() {
            let token = (theirs.sequencer.get() + worker.below(4) as u64).min(END);
            let reached = if worker.once_in(2) {
                await_turn(worker, &theirs.sequencer, token)
            } else {
                enter_and_leave(worker, &theirs.sequencer, token)
            };
            assert!(!reached || theirs.sequencer.get() >= token, "told before it was reached");
            worker.did();
            worker.pause();
        }
    });
    bout.ended(takers);
    let taken = turns.next.load(Ordering::SeqCst);
    assert_eq!((turns.sequencer.get(), turns.due.load(Ordering::SeqCst)), (taken, taken));
    turns.sequencer.advance(END);
    bout.all_ended();
}

/// Waits for a value in one of several ways. Returns false if it gave up.
fn await_turn(worker: &mut Worker, sequencer: &Sequencer, token: u64) -> bool {
    let reached = worker.attempt(
        || (sequencer.get() >= token).then_some(()),
        |patience| sequencer.wait_timeout(token, patience).then_some(()),
        || sequencer.wait(token),
    );
    assert!(reached.is_none() || sequencer.get() >= token, "woken before its turn");
    reached.is_some()
}

/// Enters a place, and leaves it or not. Returns true if it was told that the value was reached.
fn enter_and_leave(worker: &mut Worker, sequencer: &Sequencer, token: u64) -> bool {
    let mut place = pin!(SequencerWait::new());
    let turn = sequencer.enter(token, place.as_mut());
    worker.pause();
    match worker.below(if worker.has_timeouts() { 6 } else { 5 }) {
        // Left by dropping the place.
        0 => false,
        1 => {
            turn.cancel();
            worker.pause();
            turn.cancel();
            turn.wait() == Reached::Yes
        }
        2 => {
            // Another fiber cancels it while it waits.
            sinew::scope(|scope| {
                scope.spawn(|| turn.cancel());
                turn.wait() == Reached::Yes
            })
        }
        3 => {
            turn.cancel();
            let before = turn.wait();
            // The place is used again.
            let turn = sequencer.enter(token, place.as_mut());
            turn.cancel();
            assert!(before == Reached::Cancelled || turn.wait() == Reached::Yes);
            turn.wait() == Reached::Yes
        }
        4 => turn.wait() == Reached::Yes,
        _ => sinew::select! {
            wait(turn) -> reached => *reached == Reached::Yes,
            default(worker.patience()) => false,
        },
    }
}
