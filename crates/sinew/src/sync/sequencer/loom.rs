//! Models of the combiner: it tells each place once, and forgets no place.
//!
//! Each waiter drops its place as soon as the place is told. So a model notices a combiner that
//! tells a place twice, or that reads a place after it has told it.

use super::{Reached, Sequencer, SequencerWait};
use crate::model::{Kept, check, check_within, deadline_passes, spawn, spawn_cancellable};
use core::time::Duration;

type Place = Kept<SequencerWait<'static>>;

fn place() -> Place {
    Kept::new(SequencerWait::new())
}

/// Enters a place, waits, and drops the place.
fn enter_and_wait(sequencer: Kept<Sequencer>, token: u64) -> Reached {
    let place = place();
    let reached = as_static(&sequencer).enter(token, place.pin()).wait();
    place.drop();
    reached
}

fn as_static(sequencer: &Kept<Sequencer>) -> &'static Sequencer {
    // SAFETY: a `Kept` value lives as long as the execution.
    unsafe { &*core::ptr::from_ref::<Sequencer>(sequencer) }
}

/// A waiter that enters during an increment is told.
#[test]
fn no_value_is_missed() {
    check(|| {
        let sequencer = Kept::new(Sequencer::new());
        let other = spawn(move || sequencer.increment());
        assert_eq!(enter_and_wait(sequencer, 1), Reached::Yes);
        other.join().unwrap();
        sequencer.drop();
    });
}

/// Two waiters enter while a third thread increments: both are told, whichever thread is the
/// combiner.
#[test]
fn two_enter_while_the_counter_grows() {
    check(|| {
        let sequencer = Kept::new(Sequencer::new());
        let others = [2, 1].map(|token| spawn(move || enter_and_wait(sequencer, token)));
        sequencer.increment();
        sequencer.increment();
        others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), Reached::Yes));
        sequencer.drop();
    });
}

/// Waiters take turns: each increments when it is told.
#[test]
fn waiters_take_turns() {
    check(|| {
        let sequencer = Kept::new(Sequencer::new());
        let others = [1, 2].map(|token| {
            spawn(move || {
                assert_eq!(enter_and_wait(sequencer, token), Reached::Yes);
                assert_eq!(sequencer.increment(), token + 1);
            })
        });
        sequencer.increment();
        assert_eq!(enter_and_wait(sequencer, 3), Reached::Yes);
        others.into_iter().for_each(|other| other.join().unwrap());
        sequencer.drop();
    });
}

/// A place is cancelled while its value is reached: it is told once, that it is cancelled or that
/// the value is reached.
#[test]
fn a_place_is_cancelled_while_its_value_is_reached() {
    check(|| {
        let sequencer = Kept::new(Sequencer::new());
        let mine = place();
        let turn = as_static(&sequencer).enter(1, mine.pin());
        let other = spawn(move || sequencer.increment());
        turn.cancel();
        turn.wait();
        mine.drop();
        other.join().unwrap();
        sequencer.drop();
    });
}

/// One thread cancels its place while another thread enters a place, and a third thread increments.
#[test]
fn a_place_is_cancelled_while_it_is_sorted_in() {
    check(|| {
        let sequencer = Kept::new(Sequencer::new());
        let other = spawn(move || enter_and_wait(sequencer, 1));
        let mine = place();
        let turn = as_static(&sequencer).enter(2, mine.pin());
        let third = spawn(move || sequencer.increment());
        turn.cancel();
        assert_eq!(turn.wait(), Reached::Cancelled);
        mine.drop();
        assert_eq!(other.join().unwrap(), Reached::Yes);
        third.join().unwrap();
        sequencer.drop();
    });
}

/// Two places in the heap are cancelled at the same time; the remaining place is told.
#[test]
fn two_are_cancelled_and_one_is_told() {
    check_within(2, || {
        let sequencer = Kept::new(Sequencer::new());
        let places = [place(), place(), place()];
        let turns = [(3, 0), (2, 1), (1, 2)]
            .map(|(token, index)| as_static(&sequencer).enter(token, places[index].pin()));
        let [first, second, third] = turns;
        let other = spawn(move || {
            first.cancel();
            assert_eq!(first.wait(), Reached::Cancelled);
            places[0].drop();
        });
        let incrementing = spawn(move || sequencer.increment());
        second.cancel();
        assert_eq!(second.wait(), Reached::Cancelled);
        places[1].drop();
        assert_eq!(third.wait(), Reached::Yes);
        places[2].drop();
        other.join().unwrap();
        incrementing.join().unwrap();
        sequencer.drop();
    });
}

/// A wait that times out takes its place back, even while the place is being told.
#[test]
fn a_wait_that_times_out_takes_its_place_back() {
    check(|| {
        let sequencer = Kept::new(Sequencer::new());
        let other = spawn(move || sequencer.increment());
        let timer = spawn(deadline_passes);
        sequencer.wait_timeout(1, Duration::ZERO);
        other.join().unwrap();
        timer.join().unwrap();
        sequencer.drop();
    });
}

/// A cancelled fiber takes its place back during its unwinding.
#[test]
fn a_cancelled_fiber_takes_its_place_back() {
    check(|| {
        let sequencer = Kept::new(Sequencer::new());
        let (fiber, cancelled) = spawn_cancellable(move || sequencer.wait(1));
        let other = spawn(move || sequencer.increment());
        fiber.cancel();
        let _ = cancelled.join().unwrap();
        assert_eq!(enter_and_wait(sequencer, 1), Reached::Yes);
        other.join().unwrap();
        sequencer.drop();
    });
}
