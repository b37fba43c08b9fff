//! Models of `select`: at most one operation is done, and the other arms have no effect.

use super::{Patience, select};
use crate::model::{Tracked, check, check_within, deadline_passes, spawn, spawn_cancellable};
use crate::sync::FiberFuture;
use crate::sync::channel::{Receiver, Sender, bounded, watch};
use core::time::Duration;
use std::sync::Arc;

/// Receives from the first of two channels; returns the index of the channel and the message.
fn receive_one(
    first: &Receiver<Tracked>,
    second: &Receiver<Tracked>,
    patience: Patience,
) -> Option<(usize, usize)> {
    let (mut a, mut b) = (first.arm(), second.arm());
    let index = select(&mut [&mut a, &mut b], patience)?;
    let (mut taken, mut left) = if index == 0 { (a, b) } else { (b, a) };
    assert!(left.take().is_err(), "the operations of two arms were done");
    Some((index, taken.take().unwrap().get()))
}

fn send(sender: &Sender<Tracked>, number: usize) {
    sender.send(Tracked::new(number)).unwrap();
}

/// Two senders: one message is taken, and the other stays in its channel.
#[test]
fn one_message_is_taken_and_the_other_stays() {
    for capacity in [0, 1] {
        check(move || {
            let channels = [bounded(capacity), bounded(capacity)];
            let others = [0, 1].map(|index| {
                let sender = channels[index].0.clone();
                spawn(move || send(&sender, index))
            });
            let receivers = [&channels[0].1, &channels[1].1];
            let (index, number) =
                receive_one(receivers[0], receivers[1], Patience::Forever).unwrap();
            assert_eq!(index, number);
            assert_eq!(receivers[1 - index].recv().unwrap().get(), 1 - index);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert!(receivers.iter().all(|receiver| receiver.try_recv().is_err()));
        });
    }
}

/// Two selects meet over one of two channels, and agree on the channel.
#[test]
fn two_selects_meet_once() {
    check(|| {
        let (a, b) = (bounded::<Tracked>(0), bounded::<Tracked>(0));
        let (their_receiver, their_sender) = (a.1.clone(), b.0.clone());
        let other = spawn(move || {
            let (mut receive, mut send) = (their_receiver.arm(), their_sender.arm(Tracked::new(2)));
            let index = select(&mut [&mut receive, &mut send], Patience::Forever);
            (index, receive.take().map(|message| message.get()).ok(), send.take().is_ok())
        });
        let (mut send, mut receive) = (a.0.arm(Tracked::new(1)), b.1.arm());
        let index = select(&mut [&mut send, &mut receive], Patience::Forever);
        let (theirs, received, sent) = other.join().unwrap();
        assert_eq!(index, theirs);
        if index == Some(0) {
            assert!(send.take().is_ok());
            assert_eq!((received, sent), (Some(1), false));
            assert!(receive.take().is_err());
        } else {
            assert!(send.take().is_err());
            assert_eq!((received, sent), (None, true));
            assert_eq!(receive.take().unwrap().get(), 2);
        }
    });
}

/// Two selects that enter the channels in opposite orders meet once.
#[test]
fn two_selects_that_cross_meet_once() {
    check(|| {
        let (a, b) = (bounded::<Tracked>(0), bounded::<Tracked>(0));
        let (their_receiver, their_sender) = (a.1.clone(), b.0.clone());
        let other = spawn(move || {
            let (mut send, mut receive) = (their_sender.arm(Tracked::new(2)), their_receiver.arm());
            let index = select(&mut [&mut send, &mut receive], Patience::Forever);
            (index, receive.take().map(|message| message.get()).ok(), send.take().is_ok())
        });
        let (mut send, mut receive) = (a.0.arm(Tracked::new(1)), b.1.arm());
        let index = select(&mut [&mut send, &mut receive], Patience::Forever);
        let (theirs, received, sent) = other.join().unwrap();
        assert_eq!(index, theirs.map(|theirs| 1 - theirs));
        assert_eq!(send.take().is_ok(), index == Some(0));
        assert_eq!(receive.take().is_ok(), index == Some(1));
        assert_eq!(received, (index == Some(0)).then_some(1));
        assert_eq!(sent, index == Some(1));
    });
}

/// A select between both ends of one channel meets another select, and not itself.
#[test]
fn a_select_does_not_meet_itself() {
    check(|| {
        fn meet((sender, receiver): &(Sender<Tracked>, Receiver<Tracked>), mine: usize) -> usize {
            let (mut send, mut receive) = (sender.arm(Tracked::new(mine)), receiver.arm());
            match select(&mut [&mut send, &mut receive], Patience::Forever) {
                Some(0) => mine,
                _ => receive.take().unwrap().get(),
            }
        }
        let ends = bounded(0);
        let theirs = (ends.0.clone(), ends.1.clone());
        let other = spawn(move || meet(&theirs, 1));
        assert_eq!(meet(&ends, 2), other.join().unwrap());
    });
}

/// A plain receiver that a select wakes for nothing waits again, and gets the next message.
#[test]
fn a_receiver_woken_for_nothing_waits_again() {
    check_within(2, || {
        let (a, b) = (bounded::<Tracked>(0), bounded::<Tracked>(0));
        let receivers = [a.1.clone(), b.1.clone()]
            .map(|receiver| spawn(move || receiver.recv().map(|message| message.get()).ok()));
        let (mut first, mut second) = (a.0.arm(Tracked::new(1)), b.0.arm(Tracked::new(1)));
        let index = select(&mut [&mut first, &mut second], Patience::Forever).unwrap();
        let (taken, left) =
            if index == 0 { (first.take(), second.take()) } else { (second.take(), first.take()) };
        assert!(taken.is_ok());
        assert!(left.is_err());
        send(if index == 0 { &b.0 } else { &a.0 }, 1);
        receivers.into_iter().for_each(|receiver| assert_eq!(receiver.join().unwrap(), Some(1)));
    });
}

/// Room for a message appears after another arm was done: the message is given back.
#[test]
fn a_message_that_is_not_selected_is_not_sent() {
    check(|| {
        let (a, b) = (bounded::<Tracked>(0), bounded::<Tracked>(1));
        send(&b.0, 1);
        let receiver = b.1.clone();
        let receiving = spawn(move || assert_eq!(receiver.recv().unwrap().get(), 1));
        let sender = a.0.clone();
        let sending = spawn(move || send(&sender, 2));
        let (mut receive, mut send) = (a.1.arm(), b.0.arm(Tracked::new(3)));
        let index = select(&mut [&mut receive, &mut send], Patience::Forever);
        receiving.join().unwrap();
        if index == Some(0) {
            assert_eq!(receive.take().unwrap().get(), 2);
            assert_eq!(send.take().unwrap_err().0.get(), 3);
            assert!(b.1.try_recv().is_err());
        } else {
            assert_eq!(b.1.recv().unwrap().get(), 3);
            assert_eq!(a.1.recv().unwrap().get(), 2);
        }
        sending.join().unwrap();
    });
}

/// Patience runs out during a send: the message was taken, or it was not sent.
#[test]
fn a_timeout_takes_no_message() {
    check(|| {
        let (a, b) = (bounded::<Tracked>(0), bounded::<Tracked>(0));
        let sender = a.0.clone();
        let other = spawn(move || sender.send_timeout(Tracked::new(1), Duration::ZERO).is_ok());
        let timer = spawn(deadline_passes);
        let taken = receive_one(&a.1, &b.1, Patience::For(Duration::ZERO));
        assert!(matches!(taken, None | Some((0, 1))));
        assert_eq!(other.join().unwrap(), taken.is_some());
        timer.join().unwrap();
    });
}

/// A select is cancelled during a send: it has taken the message, or another receiver gets it.
#[test]
fn a_cancelled_select_takes_no_message() {
    check(|| {
        let (a, b) = (bounded::<Tracked>(0), bounded::<Tracked>(0));
        let (first, second) = (a.1.clone(), b.1.clone());
        let (fiber, selecting) =
            spawn_cancellable(move || receive_one(&second, &first, Patience::Forever).unwrap());
        let receiver = a.1;
        let sender = a.0;
        let other = spawn(move || send(&sender, 1));
        fiber.cancel();
        match selecting.join().unwrap() {
            Some(taken) => assert_eq!(taken, (1, 1)),
            None => assert_eq!(receiver.recv().unwrap().get(), 1),
        }
        other.join().unwrap();
    });
}

/// A select waits for a future and for the end of a channel: it finds the event that ended its
/// wait, and the other event is not lost.
#[test]
fn a_future_and_the_end_of_a_channel() {
    check(|| {
        let (sender, receiver) = bounded::<Tracked>(0);
        let future = Arc::new(FiberFuture::new());
        let theirs = future.clone();
        let setter = spawn(move || theirs.set(Tracked::new(7)).unwrap());
        let other = spawn(move || drop(sender));
        let (mut value, mut message) = (future.arm(), receiver.arm());
        match select(&mut [&mut value, &mut message], Patience::Forever) {
            Some(0) => assert_eq!(value.take().get(), 7),
            _ => assert!(message.take().is_err()),
        }
        assert_eq!(future.wait().get(), 7);
        assert!(receiver.recv().is_err());
        setter.join().unwrap();
        other.join().unwrap();
    });
}

/// A change that was seen before its post does not select the arm again.
#[test]
fn a_late_announcement_selects_nothing() {
    check(|| {
        let (sender, mut watcher) = watch(0);
        let other = spawn(move || {
            let _ = sender.replace(1);
        });
        for _ in 0..2 {
            let mut arm = watcher.arm();
            assert_eq!(select(&mut [&mut arm], Patience::Forever), Some(0));
            if arm.take().is_err() {
                assert!(watcher.is_disconnected());
                break;
            }
        }
        other.join().unwrap();
    });
}
