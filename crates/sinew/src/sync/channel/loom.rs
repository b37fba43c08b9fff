//! Models of channels: senders and receivers that leave, time out and are cancelled.

use super::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded, oneshot, unbounded};
use crate::model::{Tracked, check, check_within, deadline_passes, spawn, spawn_cancellable};
use core::time::Duration;

fn send(sender: &Sender<Tracked>, number: usize) {
    sender.send(Tracked::new(number)).unwrap();
}

fn receive(receiver: &Receiver<Tracked>) -> usize {
    receiver.recv().unwrap().get()
}

/// Messages arrive in order, each once, and then the end of the channel.
#[test]
fn messages_come_in_order_and_then_the_end() {
    for capacity in [Some(0), Some(1), None] {
        check(move || {
            let (sender, receiver) = capacity.map_or_else(unbounded, bounded);
            let other = spawn(move || {
                send(&sender, 1);
                send(&sender, 2);
            });
            assert_eq!(receive(&receiver), 1);
            assert_eq!(receive(&receiver), 2);
            assert!(receiver.recv().is_err());
            other.join().unwrap();
        });
    }
}

/// Two senders and two receivers: each message is received once.
#[test]
fn each_message_is_received_once() {
    for capacity in [0, 1] {
        check_within(2, move || {
            let (sender, receiver) = bounded(capacity);
            let theirs = sender.clone();
            let sending = spawn(move || send(&theirs, 1));
            let theirs = receiver.clone();
            let receiving = spawn(move || receive(&theirs));
            let last = spawn(move || send(&sender, 2));
            let mine = receive(&receiver);
            assert_eq!(mine + receiving.join().unwrap(), 3);
            assert!(receiver.recv().is_err());
            sending.join().unwrap();
            last.join().unwrap();
        });
    }
}

/// A sender that waits for room returns as soon as there is room, before its message is received.
#[test]
fn a_waiting_sender_is_given_room() {
    check(|| {
        let (sender, receiver) = bounded(1);
        send(&sender, 1);
        let other = spawn(move || send(&sender, 2));
        assert_eq!(receive(&receiver), 1);
        other.join().unwrap();
        assert_eq!(receive(&receiver), 2);
    });
}

/// The receiver leaves during a send: the sender gets its message back, or has sent it before.
#[test]
fn a_message_is_sent_or_given_back() {
    for capacity in [0, 1] {
        check(move || {
            let (sender, receiver) = bounded(capacity);
            let other = spawn(move || {
                let sent = sender.send(Tracked::new(1)).map_err(|error| error.0.get());
                let again = sender.send(Tracked::new(2)).map_err(|error| error.0.get());
                (sent, again)
            });
            let received = receiver.try_recv().map(|message| message.get()).ok();
            drop(receiver);
            let (sent, again) = other.join().unwrap();
            assert!(matches!(received, None | Some(1)));
            assert!(matches!(sent, Ok(()) | Err(1)));
            assert!(received.is_none() || sent.is_ok());
            // Without room in the queue, a message that was not received was not sent.
            assert!(received.is_some() || sent.is_err() || capacity == 1);
            assert!(again == Err(2) || received.is_some() && capacity == 1);
        });
    }
}

/// The end of the channel wakes all waiters.
#[test]
fn the_end_wakes_all() {
    check(|| {
        let (sender, receiver) = bounded::<Tracked>(0);
        let others = [(); 2].map(|()| {
            let receiver = receiver.clone();
            spawn(move || assert!(receiver.recv().is_err()))
        });
        drop(sender);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
    check(|| {
        let (sender, receiver) = bounded::<Tracked>(0);
        let others = [(); 2].map(|()| {
            let sender = sender.clone();
            spawn(move || assert_eq!(sender.send(Tracked::new(1)).unwrap_err().0.get(), 1))
        });
        drop(receiver);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// Sender and receiver of a meeting may both time out: they agree whether they met.
#[test]
fn both_sides_agree_whether_they_met() {
    check(|| {
        let (sender, receiver) = bounded(0);
        let other = spawn(move || match sender.send_timeout(Tracked::new(1), Duration::ZERO) {
            Ok(()) => true,
            Err(SendTimeoutError::Timeout(message) | SendTimeoutError::Disconnected(message)) => {
                assert_eq!(message.get(), 1);
                false
            }
        });
        let timer = spawn(deadline_passes);
        let met = match receiver.recv_timeout(Duration::ZERO) {
            Ok(message) => message.get() == 1,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        };
        assert_eq!(other.join().unwrap(), met);
        timer.join().unwrap();
    });
}

/// A message does not go to a cancelled receiver: the other receiver gets it.
#[test]
fn no_message_is_lost_with_a_cancelled_receiver() {
    check_within(2, || {
        let (sender, receiver) = bounded(0);
        let theirs = receiver.clone();
        let receive = |receiver: &Receiver<Tracked>| receiver.recv().map(|message| message.get());
        let (fiber, cancelled) = spawn_cancellable(move || receive(&theirs));
        let other = spawn(move || receive(&receiver));
        fiber.cancel();
        send(&sender, 1);
        drop(sender);
        let received = [cancelled.join().unwrap(), Some(other.join().unwrap())];
        let count = received.iter().filter(|received| **received == Some(Ok(1))).count();
        assert_eq!(count, 1, "one of the two receivers got the message");
    });
}

/// A cancelled sender has not sent: the receiver gets the message of the other sender.
#[test]
fn a_cancelled_sender_has_not_sent() {
    check_within(2, || {
        let (sender, receiver) = bounded(1);
        send(&sender, 1);
        let theirs = sender.clone();
        let (fiber, cancelled) = spawn_cancellable(move || send(&theirs, 2));
        let other = spawn(move || send(&sender, 3));
        fiber.cancel();
        let mut received = vec![receive(&receiver), receive(&receiver)];
        received.extend(receiver.recv().map(|message| message.get()));
        received.sort_unstable();
        let sent = cancelled.join().unwrap().is_some();
        assert_eq!(received, if sent { vec![1, 2, 3] } else { vec![1, 3] });
        other.join().unwrap();
    });
}

/// The receiver of a oneshot gets the message, or the end of the channel.
#[test]
fn a_oneshot_has_a_message_or_an_end() {
    check(|| {
        let (sender, receiver) = oneshot();
        let other = spawn(move || sender.send(Tracked::new(1)).map_err(|message| message.get()));
        assert_eq!(receiver.recv().unwrap().get(), 1);
        assert_eq!(other.join().unwrap(), Ok(()));
    });
    check(|| {
        let (sender, receiver) = oneshot::<Tracked>();
        let other = spawn(move || drop(sender));
        assert!(receiver.recv().is_err());
        other.join().unwrap();
    });
}
