//! Choices among channels.

use crate::LONG;
use crate::team::{Member, Team, everywhere};
use sinew::sync::channel::{self, Receiver, Sender};
use sinew::sync::{self, Arm, Patience};
use sinew::{WaitKind, select};
use sinew_testkit::watch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `select!` sees an arm that stays ready, whatever happens to the other.
#[test]
fn a_ready_arm_comes_before_the_default() {
    everywhere(|team| {
        for round in 0..100 {
            let (first, from_first) = channel::bounded(1);
            let (second, from_second) = channel::bounded(1);
            first.send(1).unwrap();
            let stays = (from_first.clone(), from_second.clone());
            let member = team.start(move || {
                let (from_first, from_second) = stays;
                select! {
                    recv(from_first) -> result => result.is_ok(),
                    recv(from_second) -> result => result.is_ok() || round % 2 == 1,
                    default => false,
                }
            });
            if round % 2 == 0 {
                second.send(1).unwrap();
            } else {
                drop(second);
            }
            assert!(member.end());
        }
    });
}

/// At least one arm is ready at any moment, but not always the same one. `select!` looks at one arm
/// after the other and must still not take the default.
#[test]
fn one_of_two_is_ready_at_any_moment() {
    const ROUNDS: usize = 200_000;
    let (first, from_first) = channel::bounded(1);
    let (second, from_second) = channel::bounded(1);
    let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let reach = |counter: &AtomicUsize, round| {
        while counter.load(Ordering::Acquire) < round {
            std::hint::spin_loop();
        }
    };
    let thread = {
        let (from_first, from_second) = (from_first.clone(), from_second.clone());
        let (begun, done) = (begun.clone(), done.clone());
        std::thread::spawn(move || {
            for round in 1..=ROUNDS {
                reach(&begun, round);
                select! {
                    recv(from_first) -> _ => {}
                    recv(from_second) -> _ => {}
                    default => panic!("round {round}: one of them was ready all the time"),
                }
                done.store(round, Ordering::Release);
            }
        })
    };
    for round in 1..=ROUNDS {
        first.send(1).unwrap();
        begun.store(round, Ordering::Release);
        (0..round % 32).for_each(|_| std::hint::spin_loop());
        second.send(1).unwrap();
        let _ = from_first.try_recv();
        while done.load(Ordering::Acquire) < round && !thread.is_finished() {
            std::hint::spin_loop();
        }
        if thread.is_finished() {
            break;
        }
        from_first.try_iter().chain(from_second.try_iter()).for_each(drop);
    }
    thread.join().unwrap();
}

#[test]
fn no_select_receives_from_itself() {
    everywhere(|team| {
        for capacity in [0, 10] {
            let (sender, receiver) = channel::bounded(capacity);
            let members: Vec<_> = (0..2)
                .map(|me| {
                    let (sender, receiver) = (sender.clone(), receiver.clone());
                    team.start(move || {
                        for round in 0..300 {
                            let from = if me == 0 || round % 2 == 0 {
                                select! {
                                    send(sender, me) -> sent => { sent.unwrap(); None }
                                    recv(receiver) -> message => message.ok(),
                                }
                            } else {
                                select! {
                                    recv(receiver) -> message => message.ok(),
                                    send(sender, me) -> sent => { sent.unwrap(); None }
                                }
                            };
                            assert!(capacity > 0 || from != Some(me), "received from itself");
                        }
                    })
                })
                .collect();
            members.into_iter().for_each(Member::end);
        }
    });
}

/// Sends `count` messages into each channel, in the order that `select` chooses.
fn send_all(senders: &[Sender<usize>], count: usize) {
    let mut sent = vec![0; senders.len()];
    while sent.iter().any(|&sent| sent < count) {
        let open: Vec<_> = (0..senders.len()).filter(|&n| sent[n] < count).collect();
        let mut arms: Vec<_> = open.iter().map(|&n| senders[n].arm(sent[n])).collect();
        let mut borrowed: Vec<_> = arms.iter_mut().map(|arm| arm as &mut dyn Arm).collect();
        let chosen = sync::select(&mut borrowed, Patience::Forever).unwrap();
        arms[chosen].take().unwrap();
        sent[open[chosen]] += 1;
    }
}

/// Receives `count` messages from each channel, in the order that `select` chooses.
fn receive_all(receivers: &[Receiver<usize>], count: usize) -> Vec<Vec<usize>> {
    let mut received = vec![Vec::new(); receivers.len()];
    while received.iter().any(|received| received.len() < count) {
        let open: Vec<_> = (0..receivers.len()).filter(|&n| received[n].len() < count).collect();
        let mut arms: Vec<_> = open.iter().map(|&n| receivers[n].arm()).collect();
        let mut borrowed: Vec<_> = arms.iter_mut().map(|arm| arm as &mut dyn Arm).collect();
        let chosen = sync::select(&mut borrowed, Patience::Forever).unwrap();
        received[open[chosen]].push(arms[chosen].take().unwrap());
    }
    received
}

#[test]
fn selects_among_plain_operations() {
    everywhere(|team| {
        const COUNT: usize = 200;
        let (senders, receivers): (Vec<_>, Vec<_>) =
            [0, 0, 2, 3].into_iter().map(channel::bounded).unzip();
        let mut members = Vec::new();
        for (sender, receiver) in senders.iter().zip(&receivers) {
            let (sender, receiver) = (sender.clone(), receiver.clone());
            members.push(team.start(move || send_all(&[sender], COUNT)));
            members.push(team.start(move || {
                assert_eq!(receiver.iter().take(COUNT).count(), COUNT);
            }));
        }
        let theirs = (senders.clone(), receivers.clone());
        members.push(team.start(move || send_all(&theirs.0, COUNT)));
        members.push(team.start(move || drop(receive_all(&theirs.1, COUNT))));
        members.into_iter().for_each(Member::end);
        assert!(receivers.iter().all(Receiver::is_empty));
    });
}

/// Plain operations and selects of both kinds share the ends of channels. The messages stay in
/// order.
#[test]
fn networks_of_selects() {
    everywhere(|team| {
        const COUNT: usize = 40;
        let check = |received: Vec<Vec<usize>>| {
            assert!(received.iter().all(|received| received.iter().copied().eq(0..COUNT)));
        };
        for capacity in [0, 1, 10] {
            let channels = |count| {
                (0..count).map(|_| channel::bounded(capacity)).unzip::<_, _, Vec<_>, Vec<_>>()
            };
            // Each channel has its own sender and receiver, or one member serves all by `select`.
            for (alone_sends, alone_receives) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let (senders, receivers) = channels(4);
                let groups = |alone: bool| if alone { 1 } else { 4 };
                let mut members = Vec::new();
                for group in senders.chunks(groups(alone_sends)) {
                    let group = group.to_vec();
                    members.push(team.start(move || send_all(&group, COUNT)));
                }
                for group in receivers.chunks(groups(alone_receives)) {
                    let group = group.to_vec();
                    members.push(team.start(move || check(receive_all(&group, COUNT))));
                }
                members.into_iter().for_each(Member::end);
            }
            // Two members send to each other, each in one select over both directions.
            let (left, right) = (channels(2), channels(2));
            let both = |(senders, receivers): (Vec<Sender<usize>>, Vec<Receiver<usize>>)| {
                move || {
                    let mut sent = [0; 2];
                    let mut received = vec![Vec::new(); 2];
                    let (unused, never) = channel::bounded(0);
                    while sent != [COUNT; 2] || received.iter().any(|r| r.len() < COUNT) {
                        let to = |n: usize| if sent[n] < COUNT { &senders[n] } else { &unused };
                        let from = |n: usize| {
                            if received[n].len() < COUNT { &receivers[n] } else { &never }
                        };
                        select! {
                            send(to(0), sent[0]) -> done => { done.unwrap(); sent[0] += 1; }
                            recv(from(0)) -> message => received[0].push(message.unwrap()),
                            send(to(1), sent[1]) -> done => { done.unwrap(); sent[1] += 1; }
                            recv(from(1)) -> message => received[1].push(message.unwrap()),
                        }
                    }
                    check(received);
                }
            };
            let members =
                [team.start(both((left.0, right.1))), team.start(both((right.0, left.1)))];
            members.into_iter().for_each(Member::end);
        }
    });
}

/// Receives from two channels that always have messages, by a select with two idle channels in
/// front of them. Returns how often the second was chosen.
fn choices(team: Team, trials: usize) -> usize {
    let (one, from_one) = channel::bounded(trials + 1);
    let (two, from_two) = channel::bounded(trials + 1);
    for _ in 0..=trials {
        one.send(0).unwrap();
        two.send(1).unwrap();
    }
    let (_unused, never) = channel::bounded(0);
    let (_also_unused, nowhere) = channel::bounded(0);
    let (out, results) = channel::bounded(0);
    let (done, end) = channel::bounded::<()>(0);
    let member = team.start(move || {
        loop {
            let number = select! {
                recv(never) -> number => number.unwrap(),
                recv(nowhere) -> number => number.unwrap(),
                recv(from_one) -> number => number.unwrap(),
                recv(from_two) -> number => number.unwrap(),
            };
            select! {
                send(out, number) -> sent => sent.unwrap(),
                recv(end) -> _ => return,
            }
        }
    });
    let twos = results.iter().take(trials).sum();
    drop(done);
    member.end();
    twos
}

#[test]
fn no_ready_arm_is_left_out() {
    everywhere(|team| {
        const TRIALS: usize = 1000;
        let twos = choices(team, TRIALS);
        assert!((TRIALS / 8..=TRIALS * 7 / 8).contains(&twos), "{twos} of {TRIALS}");
    });
}

/// Every ready arm is equally likely to be chosen, also when arms that are not ready stand in front
/// of it.
#[test]
fn ready_arms_have_equal_chances() {
    everywhere(|team| {
        const TRIALS: usize = 2000;
        let twos = choices(team, TRIALS) as f64;
        let (mean, deviation) = (TRIALS as f64 / 2.0, (TRIALS as f64 / 4.0).sqrt());
        assert!((twos - mean).abs() < 10.0 * deviation, "{twos} of {TRIALS}");
    });
}

#[test]
fn equal_arms_are_chosen_at_random() {
    everywhere(|team| {
        const COUNT: usize = 100;
        for capacity in [0, COUNT] {
            let (sender, receiver) = channel::bounded(capacity);
            let member = team.start(move || {
                let mut ones = 0;
                for _ in 0..COUNT {
                    sinew::yield_now();
                    ones += receiver.recv().unwrap();
                }
                ones
            });
            for _ in 0..COUNT {
                select! {
                    send(sender, 1) -> sent => sent.unwrap(),
                    send(sender, 0) -> sent => sent.unwrap(),
                }
            }
            let ones = member.end();
            assert!((COUNT / 10..=COUNT * 9 / 10).contains(&ones), "{ones} of {COUNT}");
        }
    });
}

#[test]
fn a_channel_twice_in_one_select() {
    everywhere(|team| {
        let (twice, from_twice) = channel::bounded(0);
        let (other, from_other) = channel::bounded(0);
        let first = {
            let from_twice = from_twice.clone();
            team.start(move || {
                select! {
                    recv(from_twice) -> message => message.unwrap(),
                    recv(from_twice) -> message => message.unwrap(),
                    recv(from_other) -> message => message.unwrap(),
                }
            })
        };
        first.waits(WaitKind::Select);
        let second = team.start(move || from_twice.recv().unwrap());
        second.waits(WaitKind::Receive);
        // The first leaves a list in which it is entered twice, in front of the second.
        other.send(7).unwrap();
        assert_eq!(first.end(), 7);
        twice.send(8).unwrap();
        assert_eq!(second.end(), 8);
    });
}

#[test]
fn one_arm_of_a_select_is_done() {
    everywhere(|team| {
        const COUNT: usize = 1000;
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| channel::bounded(0)).unzip();
        let (out, all) = channel::bounded(0);
        for receiver in receivers {
            let out = out.clone();
            team.start(move || receiver.iter().for_each(|number| out.send(number).unwrap()));
        }
        drop(out);
        team.start(move || {
            for number in 0..COUNT {
                select! {
                    send(senders[0], number) -> sent => sent.unwrap(),
                    send(senders[1], number) -> sent => sent.unwrap(),
                    send(senders[2], number) -> sent => sent.unwrap(),
                    send(senders[3], number) -> sent => sent.unwrap(),
                }
            }
        });
        let mut numbers: Vec<_> = all.iter().collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..COUNT), "one was sent twice, or not at all");
    });
}

#[test]
fn messages_of_arms_are_made_anew_each_time() {
    let _watch = watch::a_minute();
    let (one, from_one) = channel::bounded(1);
    let (two, from_two) = channel::bounded(1);
    let (mut made, mut sent) = (0, 0);
    loop {
        let mut make = || {
            made += 1;
            made
        };
        select! {
            send(one, make()) -> result => result.unwrap(),
            send(two, make()) -> result => result.unwrap(),
            default => break,
        }
        sent += 1;
    }
    // Each of the three rounds made both messages; the last round sent none.
    assert_eq!((sent, made), (2, 6));
    let mut rounds = [from_one.recv().unwrap(), from_two.recv().unwrap()].map(|n| (n - 1) / 2);
    rounds.sort_unstable();
    assert_eq!(rounds, [0, 1]);
}

#[test]
fn an_operation_waits_only_if_it_cannot_complete() {
    type Take = fn(&Receiver<u32>) -> u32;
    everywhere(|team| {
        let (room, _kept) = channel::bounded(1);
        let (closed_sender, closed) = channel::bounded::<u32>(0);
        drop(closed_sender);
        let (idle, from_idle) = channel::bounded::<u32>(0);
        // These operations return at once.
        room.send(7).unwrap();
        assert_eq!(select! { default => 7 }, 7);
        assert!(closed.recv().is_err());
        assert!(select! { recv(closed) -> message => message.is_err() });
        // An operation that would never return, a statement in Go, is refused.
        let nothing = catch_unwind(AssertUnwindSafe(|| sync::select(&mut [], Patience::Forever)));
        assert!(nothing.is_err());
        // These operations wait until the sender comes.
        let waits: [(Take, _); 3] = [
            (|receiver| receiver.recv().unwrap(), WaitKind::Receive),
            (
                |receiver| select! { recv(receiver) -> message => message.unwrap() },
                WaitKind::Select,
            ),
            (
                |receiver| {
                    let (unused, _never) = channel::bounded(0);
                    select! {
                        send(unused, 1) -> _ => unreachable!(),
                        recv(receiver) -> message => message.unwrap(),
                    }
                },
                WaitKind::Select,
            ),
        ];
        for (wait, kind) in waits {
            let from_idle = from_idle.clone();
            let member = team.start(move || wait(&from_idle));
            member.waits(kind);
            idle.send(7).unwrap();
            assert_eq!(member.end(), 7);
        }
    });
}

#[test]
fn arms_are_evaluated_once_and_in_order() {
    let _watch = watch::a_minute();
    let (full, _kept) = channel::bounded(0);
    let (sender, receiver) = channel::bounded(1);
    let (_unused, never) = channel::bounded(0);
    sender.send(42).unwrap();
    let steps = std::cell::RefCell::new(Vec::new());
    fn step<T>(steps: &std::cell::RefCell<Vec<u32>>, number: u32, value: T) -> T {
        steps.borrow_mut().push(number);
        value
    }
    let message = select! {
        send(step(&steps, 1, &full), step(&steps, 2, 7)) -> _ => step(&steps, 90, 0),
        recv(step(&steps, 3, &never)) -> message => step(&steps, 91, message.unwrap()),
        recv(step(&steps, 4, &receiver)) -> message => step(&steps, 6, message.unwrap()),
        default(step(&steps, 5, LONG)) => step(&steps, 92, 0),
    };
    assert_eq!(message, 42);
    assert_eq!(*steps.borrow(), [1, 2, 3, 4, 5, 6]);
}

type Way<E> = fn(&E, u32) -> Option<u32>;

/// Each way to send, alone and among other arms, meets each way to receive, in either order.
#[test]
fn every_way_to_send_meets_every_way_to_receive() {
    everywhere(|team| {
        let senders: [Way<Sender<u32>>; 5] = [
            |sender, number| sender.send(number).ok().map(|()| 0),
            |sender, number| sender.send_timeout(number, LONG).ok().map(|()| 0),
            |sender, number| select! { send(sender, number) -> sent => sent.ok().map(|()| 0) },
            |sender, number| {
                let (unused, never) = channel::bounded::<u32>(0);
                select! {
                    recv(never) -> _ => None,
                    send(sender, number) -> sent => sent.ok().map(|()| 0),
                    send(unused, number) -> _ => None,
                }
            },
            |sender, number| {
                select! {
                    send(sender, number) -> sent => sent.ok().map(|()| 0),
                    send(sender, number) -> sent => sent.ok().map(|()| 0),
                    default(LONG) => None,
                }
            },
        ];
        let receivers: [Way<Receiver<u32>>; 5] = [
            |receiver, _| receiver.recv().ok(),
            |receiver, _| receiver.recv_timeout(LONG).ok(),
            |receiver, _| select! { recv(receiver) -> message => message.ok() },
            |receiver, number| {
                let (unused, never) = channel::bounded::<u32>(0);
                select! {
                    recv(never) -> _ => None,
                    recv(receiver) -> message => message.ok(),
                    send(unused, number) -> _ => None,
                }
            },
            |receiver, _| {
                select! {
                    recv(receiver) -> message => message.ok(),
                    recv(receiver) -> message => message.ok(),
                    default(LONG) => None,
                }
            },
        ];
        let mut number = 0;
        for (n, send) in senders.into_iter().enumerate() {
            for (m, receive) in receivers.into_iter().enumerate() {
                number += 1;
                let (sender, receiver) = channel::bounded(1);
                assert_eq!(send(&sender, number), Some(0));
                assert_eq!(receive(&receiver, 0), Some(number));

                let (sender, receiver) = channel::bounded(0);
                let member = team.start(move || receive(&receiver, 0));
                member.waits(if m < 2 { WaitKind::Receive } else { WaitKind::Select });
                assert_eq!(send(&sender, number), Some(0));
                assert_eq!(member.end(), Some(number));

                let (sender, receiver) = channel::bounded(0);
                let member = team.start(move || send(&sender, number));
                member.waits(if n < 2 { WaitKind::Send } else { WaitKind::Select });
                assert_eq!(receive(&receiver, 0), Some(number));
                assert_eq!(member.end(), Some(0));
            }
        }
    });
}

#[test]
fn a_select_leaves_other_waiters_in_the_list() {
    everywhere(|team| {
        let (crowded, from_crowded) = channel::bounded(0);
        let (other, from_other) = channel::bounded(0);
        let (told, news) = channel::bounded(0);
        let first = {
            let from_crowded = from_crowded.clone();
            team.start(move || from_crowded.recv().unwrap())
        };
        first.waits(WaitKind::Receive);
        let last = team.start(move || {
            select! {
                recv(from_crowded) -> _ => panic!("nothing was sent there"),
                recv(from_other) -> message => told.send(message.unwrap()).unwrap(),
            }
            from_crowded.recv().unwrap()
        });
        last.waits(WaitKind::Select);
        other.send(1).unwrap();
        assert_eq!(news.recv(), Ok(1));
        crowded.send(2).unwrap();
        crowded.send(2).unwrap();
        assert_eq!((first.end(), last.end()), (2, 2));
    });
}
