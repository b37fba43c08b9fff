//! Channels that deliver each message to all receivers: `broadcast` and `watch`.

use sinew::sync::channel::{self, BroadcastRecvError, RecvError};
use sinew::{Runtime, WaitKind, select};
use sinew_testkit::{Seed, watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counts its instances.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>, u64);

impl Counted {
    fn new(count: &Arc<AtomicUsize>, number: u64) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count.clone(), number)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::new(&self.0, self.1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn every_receiver_gets_every_message_in_order() {
    let _watch = watch::a_minute();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let (sender, receiver) = channel::broadcast(10_000);
        let fibers: Vec<_> = (0..5)
            .map(|_| {
                let mut receiver = receiver.clone();
                runtime.spawn(move || receiver.iter().map(Result::unwrap).collect::<Vec<u32>>())
            })
            .collect();
        let thread = {
            let mut receiver = receiver.clone();
            std::thread::spawn(move || receiver.iter().map(Result::unwrap).collect::<Vec<u32>>())
        };
        drop(receiver);
        for number in 0..1000 {
            sender.send(number).unwrap();
        }
        drop(sender);
        for fiber in fibers {
            assert!(fiber.join().unwrap().into_iter().eq(0..1000));
        }
        assert!(thread.join().unwrap().into_iter().eq(0..1000));
    }
}

#[test]
fn a_slow_receiver_learns_how_many_messages_it_missed() {
    let (sender, mut receiver) = channel::broadcast(4);
    for number in 0..10 {
        sender.send(number).unwrap();
    }
    assert_eq!(receiver.len(), 4);
    assert_eq!(receiver.recv(), Err(BroadcastRecvError::Lagged(6)));
    assert_eq!(receiver.recv(), Ok(6));
    sender.send(10).unwrap();
    sender.send(11).unwrap();
    assert_eq!(receiver.try_recv(), Err(BroadcastRecvError::Lagged(1)));
    assert_eq!(receiver.iter().take(4).collect::<Vec<_>>(), [Ok(8), Ok(9), Ok(10), Ok(11)]);
    assert_eq!(receiver.try_recv(), Err(BroadcastRecvError::Empty));
    assert!(receiver.is_empty());
    let text = BroadcastRecvError::Lagged(6).to_string();
    assert!(text.contains('6'), "{text}");
}

/// A message is dropped as soon as every receiver has seen it or is gone.
#[test]
fn a_message_is_dropped_after_its_last_receiver() {
    let count = Arc::new(AtomicUsize::new(0));
    let alive = || count.load(Ordering::Relaxed);
    let (sender, mut first) = channel::broadcast(16);
    let mut second = first.clone();
    for number in 0..3 {
        sender.send(Counted::new(&count, number)).unwrap();
    }
    assert_eq!(alive(), 3);
    assert_eq!(first.recv().unwrap().1, 0);
    assert_eq!(alive(), 3);
    // The last receiver gets the message itself, not a clone.
    let last = second.recv().unwrap();
    assert_eq!(alive(), 3);
    drop(last);
    assert_eq!(alive(), 2);
    let third = second.clone();
    drop(second);
    assert_eq!(alive(), 2);
    drop(third);
    assert_eq!(alive(), 2);
    drop(first);
    assert_eq!(alive(), 0);
    assert_eq!(sender.receivers(), 0);
    // There is no receiver, so the message is given back.
    let back = sender.send(Counted::new(&count, 9)).unwrap_err().0;
    assert_eq!((back.1, alive()), (9, 1));
    drop(back);
    // A later receiver does not get earlier messages.
    let mut late = sender.subscribe();
    assert_eq!(late.try_recv().unwrap_err(), BroadcastRecvError::Empty);
    sender.send(Counted::new(&count, 10)).unwrap();
    drop(sender);
    assert_eq!(late.recv().unwrap().1, 10);
    assert_eq!(late.recv().unwrap_err(), BroadcastRecvError::Disconnected);
    assert_eq!(alive(), 0);
}

#[test]
#[should_panic(expected = "capacity 0")]
fn a_broadcast_needs_room() {
    channel::broadcast::<()>(0);
}

#[test]
#[should_panic(expected = "capacity 18446744073709551615")]
fn a_broadcast_with_too_much_room_panics() {
    channel::broadcast::<u64>(usize::MAX);
}

/// A clone that panics loses only its own message.
#[test]
fn a_clone_that_panics() {
    struct Fragile;
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            panic!("no copies");
        }
    }
    let (sender, mut first) = channel::broadcast(2);
    let mut second = first.clone();
    sender.send(Fragile).unwrap_or_else(|_| panic!("two receivers"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| first.recv().is_ok()));
    assert!(caught.is_err());
    // The last receiver needs no clone.
    assert!(second.recv().is_ok());
    drop(sender);
    assert!(matches!(first.recv(), Err(BroadcastRecvError::Disconnected)));
}

#[test]
fn a_cancelled_receiver_has_received_nothing() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let (sender, receiver) = channel::broadcast(4);
    let (level, watcher) = channel::watch(0);
    let mut theirs = receiver.clone();
    let waits = runtime.spawn(move || theirs.recv().is_ok());
    let mut theirs = watcher.clone();
    let watches = runtime.spawn(move || theirs.changed().is_ok());
    for fiber in [waits, watches] {
        sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Event));
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    }
    assert_eq!((sender.receivers(), level.receivers()), (1, 1));
    sender.send(7).unwrap();
    assert_eq!(receiver.len(), 1);
}

#[test]
fn a_watcher_sees_the_last_value() {
    let _watch = watch::a_minute();
    let (sender, mut receiver) = channel::watch(0);
    assert!(!receiver.has_changed());
    assert_eq!(receiver.changed_timeout(Duration::from_millis(1)), Ok(false));
    for number in 1..=5 {
        sender.send(number).unwrap();
    }
    assert!(receiver.has_changed());
    assert_eq!(receiver.changed_timeout(Duration::MAX), Ok(true));
    assert!(!receiver.has_changed());
    assert_eq!(*receiver.borrow(), 5);
    assert!(!sender.send_if(|_| false));
    assert!(!receiver.has_changed());
    assert_eq!(sender.replace(6), 5);
    assert_eq!(*receiver.borrow_and_update(), 6);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sender.modify(|_| panic!("no change"));
    }));
    assert!(caught.is_err() && !receiver.has_changed());
    // The last change is seen before the end.
    sender.modify(|value| *value += 1);
    drop(sender);
    assert_eq!(receiver.changed(), Ok(()));
    assert_eq!(receiver.changed(), Err(RecvError));
    assert!(receiver.is_disconnected());
    assert_eq!(*receiver.wait_until(|value| *value == 7).unwrap(), 7);
    assert!(receiver.wait_until(|value| *value == 8).is_err());
}

#[test]
fn no_change_is_missed() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let (sender, receiver) = channel::watch(0_u64);
        let watchers: Vec<_> = (0..4)
            .map(|_| {
                let mut receiver = receiver.clone();
                runtime.spawn(move || {
                    let mut last = 0;
                    while receiver.changed().is_ok() {
                        let now = *receiver.borrow();
                        assert!(now >= last);
                        last = now;
                    }
                    last
                })
            })
            .collect();
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let sender = sender.clone();
                runtime.spawn(move || {
                    for _ in 0..500 {
                        sender.modify(|value| *value += 1);
                        sinew::yield_now();
                    }
                })
            })
            .collect();
        drop(sender);
        senders.into_iter().for_each(|fiber| fiber.join().unwrap());
        for watcher in watchers {
            assert_eq!(watcher.join().unwrap(), 1000);
        }
    }
}

/// Both kinds as arms, with messages of an ordinary channel in between.
#[test]
fn every_receiver_gets_every_message_in_select() {
    let _watch = watch::a_minute();
    let mut seeds = Seed::from_env();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let (sender, mut receiver) = channel::broadcast(1000);
        let (level, mut watcher) = channel::watch(0_u32);
        let (other, messages) = channel::bounded(1);
        let fiber = runtime.spawn(move || {
            let (mut broadcasts, mut sent, mut last) = (0, 0, 0);
            while last < 300 || broadcasts < 300 || sent < 300 {
                select! {
                    recv(receiver) -> message => {
                        if let Ok(number) = message {
                            assert_eq!(number, broadcasts);
                            broadcasts += 1;
                        }
                    }
                    recv(messages) -> message => sent += u32::from(message.is_ok()),
                    wait(watcher) -> changed => {
                        assert!(changed.is_ok());
                        last = *watcher.borrow();
                    }
                    default(Duration::from_secs(30)) => panic!("something was lost"),
                }
            }
            (broadcasts, sent, last)
        });
        let mut seed = seeds.fork();
        for number in 0..300 {
            sender.send(number).unwrap();
            if seed.below(2) == 0 {
                std::thread::yield_now();
            }
            level.send(number + 1).unwrap();
            other.send(()).unwrap();
        }
        assert_eq!(fiber.join().unwrap(), (300, 300, 300));
    }
}

/// A change that was seen before its announcement does not select its arm again.
#[test]
fn a_late_announcement_selects_nothing() {
    let _watch = watch::a_minute();
    let (level, mut watcher) = channel::watch(0_u32);
    let (sender, mut receiver) = channel::broadcast(8);
    std::thread::scope(|s| {
        s.spawn(move || {
            for number in 1..=20_000 {
                level.send(number).unwrap();
                sender.send(number).unwrap();
            }
        });
        let mut last = 0;
        while last < 20_000 {
            select! {
                wait(watcher) -> changed => match changed {
                    Ok(()) => assert!(*watcher.borrow() > 0),
                    Err(_) => assert!(watcher.is_disconnected()),
                },
                recv(receiver) -> message => match message {
                    Ok(number) => last = number,
                    Err(BroadcastRecvError::Lagged(_)) => {}
                    Err(error) => panic!("{error}"),
                },
            }
        }
    });
}
