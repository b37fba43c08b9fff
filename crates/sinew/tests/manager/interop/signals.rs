//! Signals: what one side waits for until another has done its part.

use super::{Member, ROUNDS, in_every_pairing, pause};
use crate::kit::{LONG, kept};
use sinew::sync::{
    Barrier, Baton, CancellationToken, Event, FiberFuture, Futex, LazyLock, Once, OnceLock,
    Sequencer, WaitGroup, wait_for_multiple,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn events() {
    in_every_pairing(|stage, first, second| {
        let (there, back) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let copies = (there.clone(), back.clone());
        let asks = stage.start(first, move || {
            for _ in 0..ROUNDS {
                there.set();
                back.wait();
                back.reset();
            }
        });
        let answers = stage.start(second, move || {
            let (there, back) = copies;
            for n in 0..ROUNDS {
                if n % 2 == 0 {
                    there.wait();
                } else {
                    assert!(there.wait_timeout(LONG));
                }
                there.reset();
                back.set();
            }
        });
        asks.end();
        answers.end();
    });
}

#[test]
fn batons() {
    in_every_pairing(|stage, first, second| {
        let batons: Arc<[Baton]> = (0..2 * ROUNDS).map(|_| Baton::new()).collect();
        let copies = batons.clone();
        let posts = stage.start(first, move || {
            for pair in batons.chunks(2) {
                pair[0].post();
                pair[1].wait();
            }
        });
        let waits = stage.start(second, move || {
            for (n, pair) in copies.chunks(2).enumerate() {
                match n % 3 {
                    0 => pair[0].wait(),
                    1 => assert!(pair[0].wait_timeout(LONG)),
                    _ => pair[0].wait_with(|| ()),
                }
                pair[1].post();
            }
        });
        posts.end();
        waits.end();
    });
}

#[test]
fn values() {
    in_every_pairing(|stage, first, second| {
        let values: Arc<[FiberFuture<usize>]> =
            (0..3 * ROUNDS).map(|_| FiberFuture::new()).collect();
        let copies = values.clone();
        let sets = stage.start(first, move || {
            for n in 0..ROUNDS {
                values[3 * n].set(n).unwrap();
                values[3 * n + 1 + n % 2].set(n).unwrap();
                pause(n);
            }
        });
        let waits = stage.start(second, move || {
            for n in 0..ROUNDS {
                assert_eq!(*copies[3 * n].wait(), n);
                let index = wait_for_multiple(&[&copies[3 * n + 1], &copies[3 * n + 2]]);
                assert_eq!(index, Some(n % 2));
            }
        });
        sets.end();
        waits.end();
    });
}

#[test]
fn barriers() {
    in_every_pairing(|stage, first, second| {
        let (barrier, rounds) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
        let members = [first, second].map(|side| {
            let (barrier, rounds) = (barrier.clone(), rounds.clone());
            stage.start(side, move || {
                (0..ROUNDS)
                    .filter(|round| {
                        rounds.fetch_add(1, Ordering::SeqCst);
                        let leads = barrier.wait().is_leader();
                        assert!(rounds.load(Ordering::SeqCst) >= 2 * (round + 1));
                        leads
                    })
                    .count()
            })
        });
        let leads: usize = members.map(Member::end).iter().sum();
        assert_eq!(leads, ROUNDS);
    });
}

#[test]
fn things_done_once() {
    in_every_pairing(|stage, first, second| {
        let shared = Arc::new((Once::new(), OnceLock::new(), AtomicUsize::new(0)));
        let lazy: &'static LazyLock<usize> = kept(LazyLock::new(|| {
            sinew::yield_now();
            7
        }));
        let members = [first, second].map(|side| {
            let shared = shared.clone();
            stage.start(side, move || {
                shared.0.call_once(|| {
                    sinew::yield_now();
                    shared.2.fetch_add(1, Ordering::SeqCst);
                });
                assert_eq!(shared.2.load(Ordering::SeqCst), 1);
                let made = *shared.1.get_or_init(|| {
                    sinew::yield_now();
                    side
                });
                assert_eq!(**lazy, 7);
                made
            })
        });
        let [one, other] = members.map(Member::end);
        assert_eq!(one, other);
    });
}

#[test]
fn wait_groups() {
    in_every_pairing(|stage, first, second| {
        let (group, done) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
        let parts: Vec<_> = (0..20)
            .map(|n| {
                let (part, done) = (group.clone(), done.clone());
                stage.start(first, move || {
                    pause(n);
                    done.fetch_add(1, Ordering::SeqCst);
                    drop(part);
                })
            })
            .collect();
        let waits = stage.start(second, move || {
            group.wait();
            done.load(Ordering::SeqCst)
        });
        assert_eq!(waits.end(), 20);
        parts.into_iter().for_each(Member::end);
    });
}

#[test]
fn sequencers() {
    in_every_pairing(|stage, first, second| {
        let turn = Arc::new(Sequencer::new());
        let members = [(first, 0), (second, 1)].map(|(side, parity)| {
            let turn = turn.clone();
            stage.start(side, move || {
                for n in 0..ROUNDS as u64 {
                    let mine = 2 * n + parity;
                    if n % 2 == 0 {
                        turn.wait(mine);
                    } else {
                        assert!(turn.wait_timeout(mine, LONG));
                    }
                    assert_eq!(turn.increment(), mine + 1);
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(turn.get(), 2 * ROUNDS as u64);
    });
}

#[test]
fn words() {
    in_every_pairing(|stage, first, second| {
        let futex = Arc::new(Futex::new());
        let posts = futex.clone();
        let poster = stage.start(first, move || {
            for n in 0..ROUNDS {
                posts.post();
                pause(n);
            }
        });
        let waiter = stage.start(second, move || {
            for token in 1..=ROUNDS as u64 {
                futex.wait(token);
            }
        });
        poster.end();
        waiter.end();
    });
}

#[test]
fn tokens() {
    in_every_pairing(|stage, first, second| {
        let token = CancellationToken::new();
        let child = token.child();
        let waits = stage.start(first, move || {
            child.wait();
            child.is_cancelled()
        });
        let cancels = stage.start(second, move || token.cancel());
        assert!(waits.end());
        cancels.end();
    });
}
