//! Channels, and a wait for the first of several.

use super::{ROUNDS, in_every_pairing, pause};
use crate::kit::LONG;
use sinew::select;
use sinew::sync::channel::{self, RecvError};
use sinew::sync::{FiberFuture, Semaphore};
use std::sync::Arc;

#[test]
fn bounded_channels() {
    for capacity in [0, 1, 5] {
        in_every_pairing(|stage, first, second| {
            let (sender, receiver) = channel::bounded(capacity);
            let sends = stage.start(first, move || {
                (0..ROUNDS).for_each(|n| sender.send(n).unwrap());
            });
            let receives = stage.start(second, move || receiver.iter().sum::<usize>());
            assert_eq!(receives.end(), ROUNDS * (ROUNDS - 1) / 2);
            sends.end();
        });
    }
}

#[test]
fn unbounded_channels_and_their_ends() {
    in_every_pairing(|stage, first, second| {
        let (sender, receiver) = channel::unbounded();
        let (answers, answered) = channel::oneshot();
        let asks = stage.start(first, move || {
            (0..ROUNDS).for_each(|n| sender.send(n).unwrap());
            drop(sender);
            answered.recv()
        });
        let counts = stage.start(second, move || {
            answers.send(receiver.iter().count()).unwrap();
            receiver.recv()
        });
        assert_eq!(asks.end(), Ok(ROUNDS));
        assert_eq!(counts.end(), Err(RecvError));
    });
}

#[test]
fn broadcasts_and_watches() {
    in_every_pairing(|stage, first, second| {
        let (all, mut each) = channel::broadcast(ROUNDS);
        let (newest, mut watched) = channel::watch(0);
        let tells = stage.start(first, move || {
            for n in 1..=ROUNDS {
                all.send(n).unwrap();
                newest.replace(n);
                pause(n);
            }
        });
        let hears = stage.start(second, move || {
            let sum: usize = each.iter().map(Result::unwrap).sum();
            while *watched.borrow() != ROUNDS {
                watched.changed().unwrap();
            }
            sum
        });
        tells.end();
        assert_eq!(hears.end(), ROUNDS * (ROUNDS + 1) / 2);
    });
}

#[test]
fn selects() {
    in_every_pairing(|stage, first, second| {
        let (numbers, more) = (channel::bounded(0), channel::bounded(1));
        let done = Arc::new(FiberFuture::new());
        let (stops, permits) = (done.clone(), Arc::new(Semaphore::new(0)));
        let gives = permits.clone();
        let sends = stage.start(first, move || {
            for n in 0..ROUNDS {
                select! {
                    send(numbers.0, n) -> sent => sent.unwrap(),
                    send(more.0, n) -> sent => sent.unwrap(),
                    after(LONG) => panic!("nobody received"),
                }
                if n % 10 == 0 {
                    gives.add(1);
                }
            }
            stops.set(()).unwrap();
        });
        let receives = stage.start(second, move || {
            let (mut sum, mut permitted) = (0, 0);
            loop {
                select! {
                    recv(numbers.1) -> n => if let Ok(n) = n { sum += n; },
                    recv(more.1) -> n => if let Ok(n) = n { sum += n; },
                    wait(permits) -> permit => {
                        permit.forget();
                        permitted += 1;
                    },
                    wait(done) -> _ => break,
                }
            }
            sum += more.1.try_iter().sum::<usize>();
            (sum, permitted + permits.available())
        });
        sends.end();
        let expected = (ROUNDS * (ROUNDS - 1) / 2, ROUNDS.div_ceil(10));
        assert_eq!(receives.end(), expected);
    });
}
