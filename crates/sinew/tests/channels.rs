//! Channels: the behaviours that the tests of Go's `chan`, of the standard library and of crossbeam
//! check.

use sinew::sync::channel::{
    self, RecvError, RecvTimeoutError, SendTimeoutError, TryRecvError, TrySendError,
};
use sinew::{Runtime, WaitKind};
use sinew_testkit::{Seed, watch};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn waits(fiber: &sinew::Fiber, kind: WaitKind) {
    sinew::wait_until(|| fiber.waits_for() == Some(kind));
}

/// Each message is received once, and the messages of one sender in order.
#[test]
fn every_message_arrives_once_and_in_order() {
    let _watch = watch::a_minute();
    for carriers in [1, 2, 4] {
        for capacity in [Some(0), Some(1), Some(64), None] {
            let runtime = Runtime::builder().carriers(carriers).build().unwrap();
            let (sender, receiver) = capacity.map_or_else(channel::unbounded, channel::bounded);
            const SENDERS: usize = 6;
            const EACH: usize = 200;
            let send = |id: usize, sender: channel::Sender<(usize, usize)>| {
                move || {
                    for number in 0..EACH {
                        sender.send((id, number)).unwrap();
                        if number % 31 == id {
                            sinew::yield_now();
                        }
                    }
                }
            };
            let receive = |receiver: channel::Receiver<(usize, usize)>| {
                move || {
                    let mut last = HashMap::new();
                    let mut count = 0;
                    for (id, number) in receiver {
                        assert!(last.insert(id, number).is_none_or(|last| last < number));
                        count += 1;
                    }
                    count
                }
            };
            let senders: Vec<_> =
                (1..SENDERS).map(|id| runtime.spawn(send(id, sender.clone()))).collect();
            let thread = std::thread::spawn(send(0, sender));
            let receivers: Vec<_> =
                (0..3).map(|_| runtime.spawn(receive(receiver.clone()))).collect();
            let other = std::thread::spawn(receive(receiver));
            senders.into_iter().for_each(|fiber| fiber.join().unwrap());
            thread.join().unwrap();
            let count: usize = receivers.into_iter().map(|fiber| fiber.join().unwrap()).sum();
            assert_eq!(count + other.join().unwrap(), SENDERS * EACH);
        }
    }
}

/// A sender waits while the channel is full, a receiver while it is empty.
#[test]
fn senders_wait_for_room_and_receivers_for_messages() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::bounded(2);
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    let fiber = {
        let sender = sender.clone();
        sinew::spawn(move || sender.send(3).unwrap())
    };
    waits(&fiber.fiber(), WaitKind::Send);
    assert_eq!((sender.len(), sender.capacity()), (2, Some(2)));
    assert_eq!(receiver.recv(), Ok(1));
    fiber.join().unwrap();
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [2, 3]);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    let fiber = sinew::spawn(move || receiver.recv());
    waits(&fiber.fiber(), WaitKind::Receive);
    sender.send(4).unwrap();
    assert_eq!(fiber.join().unwrap(), Ok(4));
}

/// With capacity 0, `send` returns when the message was received.
#[test]
fn a_rendezvous() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::bounded(0);
    assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)));
    let received = Arc::new(AtomicUsize::new(0));
    let fiber = {
        let received = received.clone();
        sinew::spawn(move || {
            sender.send(2).unwrap();
            assert_eq!(received.load(Ordering::Relaxed), 0, "before the receiver has run on");
            sender.send(3).unwrap();
        })
    };
    waits(&fiber.fiber(), WaitKind::Send);
    assert_eq!(receiver.recv(), Ok(2));
    assert_eq!(receiver.recv(), Ok(3));
    received.store(1, Ordering::Relaxed);
    let _ = fiber.join();
    assert_eq!(receiver.recv(), Err(RecvError));
}

/// When all senders are gone, the queued messages are received first, then an error. When all
/// receivers are gone, senders get their messages back, and queued messages are dropped.
#[test]
fn disconnected() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::bounded(3);
    sender.send(1).unwrap();
    let second = sender.clone();
    drop(sender);
    second.send(2).unwrap();
    drop(second);
    assert_eq!(receiver.recv(), Ok(1));
    assert_eq!(receiver.try_recv(), Ok(2));
    assert_eq!(receiver.recv(), Err(RecvError));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    assert_eq!(receiver.recv_timeout(MS), Err(RecvTimeoutError::Disconnected));

    let message = Arc::new(());
    let (sender, receiver) = channel::bounded(3);
    sender.send(message.clone()).unwrap();
    let other = receiver.clone();
    drop(receiver);
    assert!(!sender.is_disconnected());
    drop(other);
    assert_eq!(Arc::strong_count(&message), 1, "dropped with the last receiver");
    assert!(sender.is_disconnected());
    assert!(sender.send(message.clone()).is_err());
    assert!(matches!(sender.try_send(message.clone()), Err(TrySendError::Disconnected(_))));
    assert!(matches!(
        sender.send_timeout(message.clone(), MS),
        Err(SendTimeoutError::Disconnected(_))
    ));
}

/// A disconnection wakes all waiters.
#[test]
fn disconnection_wakes_all() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let (sender, receiver) = channel::bounded::<u32>(0);
        let receivers: Vec<_> = (0..40)
            .map(|_| {
                let receiver = receiver.clone();
                runtime.spawn(move || receiver.recv())
            })
            .collect();
        receivers.iter().for_each(|fiber| waits(&fiber.fiber(), WaitKind::Receive));
        drop(sender);
        receivers.into_iter().for_each(|fiber| assert_eq!(fiber.join().unwrap(), Err(RecvError)));

        let (sender, receiver) = channel::bounded::<u32>(0);
        let senders: Vec<_> = (0..40)
            .map(|n| {
                let sender = sender.clone();
                runtime.spawn(move || sender.send(n).unwrap_err().0)
            })
            .collect();
        senders.iter().for_each(|fiber| waits(&fiber.fiber(), WaitKind::Send));
        drop(receiver);
        for (n, fiber) in senders.into_iter().enumerate() {
            assert_eq!(fiber.join().unwrap(), n as u32);
        }
    }
}

#[test]
fn timed_operations_return_a_message_or_a_timeout() {
    let _watch = watch::a_minute();
    let check = || {
        let (sender, receiver) = channel::bounded(1);
        let start = Instant::now();
        assert_eq!(receiver.recv_timeout(3 * MS), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 3 * MS);
        sender.send_timeout(1, Duration::ZERO).unwrap();
        assert_eq!(sender.send_timeout(2, 3 * MS), Err(SendTimeoutError::Timeout(2)));
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Ok(1));
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        sender.send_timeout(3, Duration::MAX).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::MAX), Ok(3));
    };
    check();
    sinew::run(check);
}

/// An operation that is cancelled or times out while it waits has neither sent nor received.
#[test]
fn no_message_is_lost_by_leaving() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for carriers in [1, 2, 4] {
        for capacity in [0, 1, 3] {
            let runtime = Runtime::builder().carriers(carriers).build().unwrap();
            let (sender, receiver) = channel::bounded::<Arc<()>>(capacity);
            let token = Arc::new(());
            let (sent, received) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let senders: Vec<_> = (0..10)
                .map(|_| {
                    let (sender, sent, token) = (sender.clone(), sent.clone(), token.clone());
                    let mut seed = seed.fork();
                    runtime.spawn(move || {
                        for _ in 0..60 {
                            let timeout = Duration::from_micros(seed.below(60) as u64);
                            // A cancelled fiber is unwound before it counts, and has not sent.
                            if sender.send_timeout(token.clone(), timeout).is_ok() {
                                sent.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    })
                })
                .collect();
            drop(sender);
            let receivers: Vec<_> = (0..10)
                .map(|_| {
                    let (receiver, received) = (receiver.clone(), received.clone());
                    let mut seed = seed.fork();
                    runtime.spawn(move || {
                        loop {
                            let timeout = Duration::from_micros(seed.below(60) as u64);
                            match receiver.recv_timeout(timeout) {
                                Ok(_) => received.fetch_add(1, Ordering::Relaxed),
                                Err(RecvTimeoutError::Timeout) => continue,
                                Err(RecvTimeoutError::Disconnected) => return,
                            };
                        }
                    })
                })
                .collect();
            for (n, fiber) in senders.iter().chain(&receivers).enumerate() {
                if n % 4 == 0 {
                    fiber.cancel();
                }
                sinew::yield_now();
            }
            for fiber in senders {
                let _ = fiber.join();
            }
            for fiber in receivers {
                let _ = fiber.join();
            }
            let left = receiver.try_iter().count();
            let (sent, received) = (sent.load(Ordering::Relaxed), received.load(Ordering::Relaxed));
            assert_eq!(sent, received + left);
            assert_eq!(Arc::strong_count(&token), 1);
        }
    }
}

/// Go's prime sieve: a chain of channels that grows.
#[test]
fn a_sieve_of_primes() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let primes = runtime.run(|| {
            let (sender, mut receiver) = channel::bounded(0);
            sinew::spawn(move || (2..).take_while(|&n| sender.send(n).is_ok()).for_each(drop));
            let mut primes = Vec::new();
            for _ in 0..50 {
                let prime: u32 = receiver.recv().unwrap();
                primes.push(prime);
                let (sender, next) = channel::bounded(0);
                sinew::spawn(move || {
                    receiver
                        .iter()
                        .filter(|n| n % prime != 0)
                        .take_while(|&n| sender.send(n).is_ok())
                        .for_each(drop);
                });
                receiver = next;
            }
            primes
        });
        assert_eq!(primes.last(), Some(&229));
    }
}

/// Destructors of messages may use the channel, because they never run under its lock.
#[test]
fn messages_that_send_when_dropped() {
    let _watch = watch::a_minute();
    struct Sends(channel::Sender<Option<Sends>>);
    impl Drop for Sends {
        fn drop(&mut self) {
            let _ = self.0.try_send(None);
        }
    }
    let (sender, receiver) = channel::unbounded();
    for _ in 0..10 {
        sender.send(Some(Sends(sender.clone()))).unwrap();
    }
    drop(receiver.recv());
    drop(receiver);
    assert!(sender.is_disconnected());
}

/// Messages larger than the room in a block, and messages of size zero.
#[test]
fn large_and_empty_messages() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::bounded(1);
    let fiber = sinew::spawn(move || receiver.iter().map(|big: [u64; 200]| big[199]).sum::<u64>());
    for n in 0..20 {
        sender.send([n; 200]).unwrap();
    }
    drop(sender);
    assert_eq!(fiber.join().unwrap(), 190);
    let (sender, receiver) = channel::unbounded();
    (0..1000).for_each(|_| sender.send(()).unwrap());
    assert_eq!(receiver.try_iter().count(), 1000);
}

/// The receiver gets one message, or learns that there is none.
#[test]
fn oneshots() {
    let _watch = watch::a_minute();
    for _ in 0..100 {
        let (sender, receiver) = channel::oneshot();
        let fiber = sinew::spawn(move || receiver.recv());
        sender.send(7).unwrap();
        assert_eq!(fiber.join().unwrap(), Ok(7));
    }
    let (sender, mut receiver) = channel::oneshot::<u32>();
    let fiber = sinew::spawn(move || receiver.recv_timeout(Duration::from_secs(60)));
    waits(&fiber.fiber(), WaitKind::Receive);
    drop(sender);
    assert_eq!(fiber.join().unwrap(), Err(RecvTimeoutError::Disconnected));
    let message = Arc::new(());
    let (sender, receiver) = channel::oneshot();
    sender.send(message.clone()).unwrap();
    drop(receiver);
    assert_eq!(Arc::strong_count(&message), 1);
}

/// The last receiver's drop frees queued messages, however many senders wait with further ones.
#[test]
fn messages_are_dropped_with_the_last_receiver() {
    let _watch = watch::a_minute();
    for count in [0, 1, 15, 16, 17, 32] {
        let message = Arc::new(());
        let (sender, receiver) = channel::bounded(1);
        sender.send(message.clone()).unwrap();
        let senders: Vec<_> = (0..count)
            .map(|_| {
                let (sender, message) = (sender.clone(), message.clone());
                sinew::spawn(move || sender.send(message).is_err())
            })
            .collect();
        senders.iter().for_each(|fiber| waits(&fiber.fiber(), WaitKind::Send));
        drop(receiver);
        assert!(senders.into_iter().all(|fiber| fiber.join().unwrap()));
        assert_eq!((Arc::strong_count(&message), sender.len()), (1, 0));
    }
}
