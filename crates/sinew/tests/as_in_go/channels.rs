//! Channels on their own, without `select!` networks.

use crate::LONG;
use crate::team::{Member, Team, everywhere};
use sinew::sync::channel::{self, Receiver, RecvError, Sender, TryRecvError, TrySendError};
use sinew::{WaitKind, select};
use sinew_testkit::watch;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

#[test]
fn receivers_of_empty_and_senders_to_full_channels_wait() {
    everywhere(|team| {
        for capacity in [0, 1, 10] {
            let (sender, receiver) = channel::bounded(capacity);
            let receivers: Vec<_> = (0..2)
                .map(|_| {
                    let receiver = receiver.clone();
                    team.start(move || receiver.recv().unwrap())
                })
                .collect();
            receivers.iter().for_each(|member| member.waits(WaitKind::Receive));
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            select! {
                recv(receiver) -> _ => panic!("received from an empty channel"),
                default => {}
            }
            sender.send(1).unwrap();
            sender.send(2).unwrap();
            assert_eq!(receivers.into_iter().map(Member::end).sum::<usize>(), 3);

            (0..capacity).for_each(|number| sender.send(number).unwrap());
            let late = {
                let sender = sender.clone();
                team.start(move || sender.send(99).unwrap())
            };
            late.waits(WaitKind::Send);
            assert_eq!(sender.try_send(98), Err(TrySendError::Full(98)));
            select! {
                send(sender, 97) -> _ => panic!("sent into a full channel"),
                default => {}
            }
            for expected in (0..capacity).chain([99]) {
                assert_eq!(receiver.recv(), Ok(expected));
            }
            late.end();
        }
    });
}

#[test]
fn sent_messages_outlive_the_close() {
    let receive = [
        |receiver: &Receiver<usize>| receiver.recv(),
        |receiver: &Receiver<usize>| match receiver.try_recv() {
            Err(TryRecvError::Empty) => panic!("it is closed, not empty"),
            result => result.map_err(|_| RecvError),
        },
        |receiver: &Receiver<usize>| receiver.recv_timeout(LONG).map_err(|_| RecvError),
        |receiver: &Receiver<usize>| select! { recv(receiver) -> result => result },
        |receiver: &Receiver<usize>| {
            select! {
                recv(receiver) -> result => result,
                default => panic!("a closed channel can be received from"),
            }
        },
        |receiver: &Receiver<usize>| {
            let (_unused, never) = channel::bounded::<usize>(0);
            select! {
                recv(never) -> _ => unreachable!(),
                recv(receiver) -> result => result,
            }
        },
    ];
    let _watch = watch::a_minute();
    for capacity in [0, 1, 10] {
        for first in 0..receive.len() {
            let (sender, receiver) = channel::bounded(capacity);
            (0..capacity).for_each(|number| sender.send(number).unwrap());
            drop(sender);
            let mut ways = receive.iter().cycle().skip(first);
            for number in 0..capacity {
                assert_eq!(ways.next().unwrap()(&receiver), Ok(number));
            }
            for _ in 0..3 * receive.len() {
                assert_eq!(ways.next().unwrap()(&receiver), Err(RecvError));
            }
        }
    }
}

/// Go panics here. In sinew the message comes back, and the channel stays empty.
#[test]
fn sending_without_a_receiver_gives_the_message_back() {
    let _watch = watch::a_minute();
    for capacity in [0, 2] {
        let (sender, receiver) = channel::bounded(capacity);
        drop(receiver);
        assert_eq!(sender.send(1).unwrap_err().0, 1);
        assert_eq!(sender.try_send(2), Err(TrySendError::Disconnected(2)));
        assert_eq!(sender.send_timeout(3, LONG).unwrap_err().into_inner(), 3);
        let result = select! { send(sender, 4) -> result => result };
        assert_eq!(result.unwrap_err().0, 4);
        select! {
            send(sender, 5) -> result => assert_eq!(result.unwrap_err().0, 5),
            default => panic!("it is closed, not full"),
        }
        assert!(sender.is_empty());
    }
}

#[test]
fn a_close_ends_every_kind_of_wait() {
    everywhere(|team| {
        for capacity in [0, 1, 10] {
            let (sender, receiver) = channel::bounded::<u32>(capacity);
            let (_unused, never) = channel::bounded::<u32>(0);
            let waiting: Vec<_> = (0..9)
                .map(|way| {
                    let (receiver, never) = (receiver.clone(), never.clone());
                    team.start(move || match way % 3 {
                        0 => receiver.recv(),
                        1 => receiver.recv_timeout(LONG).map_err(|error| {
                            assert_eq!(error, channel::RecvTimeoutError::Disconnected);
                            RecvError
                        }),
                        _ => select! {
                            recv(never) -> _ => unreachable!(),
                            recv(receiver) -> result => result,
                        },
                    })
                })
                .collect();
            for (way, member) in waiting.iter().enumerate() {
                member.waits(if way % 3 == 2 { WaitKind::Select } else { WaitKind::Receive });
            }
            drop(sender);
            waiting.into_iter().for_each(|member| assert_eq!(member.end(), Err(RecvError)));
        }
    });
}

#[test]
fn messages_keep_their_order() {
    everywhere(|team| {
        for capacity in [0, 1, 10, 100] {
            let (sender, receiver) = channel::bounded(capacity);
            for _ in 0..2 {
                let sender = sender.clone();
                let member = team.start(move || (0..100).for_each(|n| sender.send(n).unwrap()));
                for expected in 0..100 {
                    assert_eq!(receiver.recv(), Ok(expected));
                }
                member.end();
            }
        }
    });
}

#[test]
fn many_to_many() {
    everywhere(|team| {
        for capacity in [0, 1, 10] {
            const MEMBERS: usize = 4;
            const EACH: usize = 100;
            let (sender, receiver) = channel::bounded(capacity);
            let senders: Vec<_> = (0..MEMBERS)
                .map(|_| {
                    let sender = sender.clone();
                    team.start(move || (0..EACH).for_each(|n| sender.send(n).unwrap()))
                })
                .collect();
            let receivers: Vec<_> = (0..MEMBERS)
                .map(|_| {
                    let receiver = receiver.clone();
                    // Each receives exactly as many messages as one sender sends, so no receiver
                    // waits for ever.
                    team.start(move || {
                        (0..EACH).map(|_| receiver.recv().unwrap()).collect::<Vec<_>>()
                    })
                })
                .collect();
            senders.into_iter().for_each(Member::end);
            let mut counts = HashMap::new();
            for number in receivers.into_iter().flat_map(Member::end) {
                *counts.entry(number).or_insert(0) += 1;
            }
            assert_eq!(counts.len(), EACH);
            assert!(counts.values().all(|&count| count == MEMBERS));
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        }
    });
}

#[test]
fn lengths_and_capacities() {
    for capacity in [0, 1, 10] {
        let (sender, receiver) = channel::bounded(capacity);
        for number in 0..capacity {
            assert_eq!((sender.len(), receiver.len()), (number, number));
            sender.send(number).unwrap();
        }
        assert_eq!((sender.len(), receiver.len()), (capacity, capacity));
        assert_eq!((sender.capacity(), receiver.capacity()), (Some(capacity), Some(capacity)));
        receiver.try_iter().for_each(drop);
        assert!(sender.is_empty() && receiver.is_empty());
    }
    // A channel allocates no room before it is used.
    let (sender, receiver) = channel::bounded(usize::MAX);
    sender.send(7).unwrap();
    assert_eq!((sender.len(), receiver.recv()), (1, Ok(7)));
}

#[test]
fn a_message_does_not_go_with_the_close() {
    everywhere(|team| {
        for _ in 0..100 {
            let (sender, receiver) = channel::bounded(1);
            sender.send(1).unwrap();
            let other = receiver.clone();
            let member = team.start(move || {
                select! {
                    recv(other) -> result => result,
                    default => panic!("there was a message, or the end of them"),
                }
            });
            drop(sender);
            let both = [receiver.recv(), member.end()];
            assert!(both == [Ok(1), Err(RecvError)] || both == [Err(RecvError), Ok(1)]);
        }
    });
}

#[test]
fn messages_of_any_type_that_were_not_sent() {
    let _watch = watch::a_minute();
    let token = Arc::new(());
    let boxed = || Box::new(token.clone()) as Box<dyn Any + Send>;
    let (sender, receiver) = channel::bounded(1);
    sender.send(boxed()).unwrap();
    select! {
        send(sender, boxed()) -> _ => panic!("it is full"),
        default => {}
    }
    select! {
        send(sender, boxed()) -> _ => panic!("it is full"),
        send(sender, Box::new("another type")) -> _ => panic!("it is full"),
        default => {}
    }
    assert_eq!(Arc::strong_count(&token), 2, "what was not sent is dropped");
    assert!(receiver.recv().unwrap().is::<Arc<()>>());
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn workers_share_a_queue() {
    everywhere(|team| {
        const NUMBERS: [usize; 10] = [2, 3, 7, 11, 13, 17, 19, 23, 27, 31];
        const COUNT: usize = 2000;
        let (queue, work) = channel::bounded(69);
        let (results, done) = channel::bounded(69);
        for worker in 0..23 {
            let (work, results) = (work.clone(), results.clone());
            team.start(move || {
                for number in work {
                    if number == NUMBERS[worker % NUMBERS.len()] {
                        sinew::yield_now();
                    }
                    results.send(number).unwrap();
                }
            });
        }
        drop((work, results));
        let feeder = team.start(move || {
            let numbers = NUMBERS.iter().copied().cycle().take(COUNT);
            numbers.inspect(|&number| queue.send(number).unwrap()).sum::<usize>()
        });
        let (count, sum) = done.iter().fold((0, 0), |(count, sum), n| (count + 1, sum + n));
        assert_eq!((count, sum), (COUNT, feeder.end()));
    });
}

#[test]
fn trying_until_the_other_side_is_there() {
    fn check<T: Copy + PartialEq + std::fmt::Debug + Send + 'static>(team: Team, one: T, two: T) {
        for capacity in [0, 1] {
            let (sender, receiver) = channel::bounded(capacity);
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            let theirs = receiver.clone();
            let member = team.start(move || assert_eq!(theirs.recv(), Ok(one)));
            sinew::wait_until(|| sender.try_send(one).is_ok());
            member.end();
            let member = team.start(move || sender.send(two).unwrap());
            let mut received = None;
            sinew::wait_until(|| {
                received = receiver.try_recv().ok();
                received.is_some()
            });
            assert_eq!(received, Some(two));
            member.end();
        }
    }
    everywhere(|team| {
        check(team, 123_i32, 234);
        check(team, 123_456_i64, 234_567);
        check(team, true, true);
        check(team, "hello", "hello again");
        check(team, [7_u64; 40], [8; 40]);
    });
}

#[test]
fn channels_through_channels() {
    everywhere(|team| {
        let (senders, from_senders) = channel::bounded::<Sender<u32>>(1);
        let (sender, receiver) = channel::bounded(1);
        senders.send(sender).unwrap();
        let sender = from_senders.recv().unwrap();
        select! {
            send(sender, 2) -> sent => sent.unwrap(),
            default => panic!("there is room"),
        }
        drop(sender);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [2]);
        // Requests that carry the channel for the answer.
        let (requests, served) = channel::bounded::<(u32, Sender<u32>)>(0);
        let server = team.start(move || {
            served.iter().for_each(|(number, answer)| answer.send(number * number).unwrap());
        });
        for number in 0..10 {
            let (answer, result) = channel::bounded(1);
            requests.send((number, answer)).unwrap();
            assert_eq!(result.recv(), Ok(number * number));
        }
        drop(requests);
        server.end();
    });
}

#[test]
fn messages_without_size() {
    fn check<T: Copy + Send + 'static>(team: Team, nothing: T) {
        for capacity in [0, 1, 3] {
            let (sender, receiver) = channel::bounded(capacity);
            let member = team.start(move || {
                for _ in 0..20 {
                    sender.send(nothing).unwrap();
                }
            });
            assert_eq!(receiver.iter().count(), 20);
            member.end();
        }
    }
    everywhere(|team| {
        check(team, ());
        check(team, [0_u8; 0]);
    });
}

/// Many members wait for one channel, and each leaves its list from the middle.
#[test]
fn leaving_a_crowded_channel_takes_no_longer() {
    /// Measures the time when all wait for one channel, or each for its own channel.
    fn take(crowded: bool) -> f64 {
        const COUNT: usize = 4000;
        let others: Vec<_> = (0..COUNT).map(|_| channel::bounded::<()>(0)).collect();
        let (own, members): (Vec<_>, Vec<_>) = (0..COUNT)
            .map(|n| {
                let other = others[if crowded { 0 } else { n }].1.clone();
                let (sender, receiver) = channel::bounded(0);
                let member = sinew::spawn(move || {
                    loop {
                        select! {
                            recv(other) -> _ => unreachable!(),
                            recv(receiver) -> message => match message {
                                Ok(()) => {}
                                Err(RecvError) => return,
                            },
                        }
                    }
                });
                (sender, member)
            })
            .unzip();
        let waits = |member: &sinew::JoinHandle<()>| member.fiber().waits_for().is_some();
        sinew::wait_until(|| members.iter().all(waits));
        let start = Instant::now();
        for turn in 0..4 * COUNT {
            // The order is unrelated to each member's position in the list.
            own[turn * 617 % COUNT].send(()).unwrap();
        }
        let time = start.elapsed();
        drop(own);
        members.into_iter().for_each(|member| member.join().unwrap());
        time.as_secs_f64()
    }
    let _watch = watch::a_minute();
    let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        // A search through half of the list would take several times as long. One undisturbed try
        // is enough.
        let mut ratios = (0..5).map(|_| take(true) / take(false));
        assert!(ratios.any(|ratio| ratio < 1.7));
    });
}

#[test]
fn a_loop_over_a_channel_ends_with_it() {
    everywhere(|team| {
        let letters = || {
            let (sender, receiver) = channel::bounded(0);
            team.start(move || ('a'..='z').for_each(|letter| sender.send(letter).unwrap()));
            receiver
        };
        let mut text = String::new();
        for letter in letters() {
            text.push(letter);
        }
        assert_eq!(text, "abcdefghijklmnopqrstuvwxyz");
        assert_eq!(letters().iter().count(), 26);
        let borrowed = letters();
        let mut count = 0;
        for _ in &borrowed {
            count += 1;
        }
        assert_eq!((count, borrowed.recv()), (26, Err(RecvError)));
    });
}
