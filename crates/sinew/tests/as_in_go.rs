//! What Go's tests of channels, of `select` and of its package `sync` check, as behaviours of
//! `sinew::sync` and `sinew::select!`.
//!
//! A channel is closed by dropping its last sender: what Go reports as a zero value and `false` is an
//! error here. Sending to nobody gives the message back where Go panics. There are no nil channels:
//! an arm that is not wanted is left out (`sinew::sync::select`), or has a channel nobody uses.
//!
//! | in Go | here, or why not |
//! | --- | --- |
//! | `chan_test.go` of its runtime | |
//! | `TestChan`: receivers and senders wait | [`empty_and_full_channels_keep_one_waiting`] |
//! | `TestChan`: receiving after a close | [`what_was_sent_outlives_the_close`] |
//! | `TestChan`: a close ends a wait | [`a_close_ends_every_kind_of_wait`] |
//! | `TestChan`: order, four to four | [`messages_keep_their_order`], [`many_to_many`] |
//! | `TestChan`: `len`, `cap` | [`lengths_and_capacities`] |
//! | `TestNonblockRecvRace` | [`a_message_does_not_go_with_the_close`] |
//! | `TestNonblockSelectRace`, `TestNonblockSelectRace2` | [`a_ready_arm_comes_before_the_default`], [`one_of_two_is_ready_at_any_moment`] |
//! | `TestSelfSelect` | [`no_select_receives_from_itself`] |
//! | `TestSelectStress` | [`selects_among_plain_operations`] |
//! | `TestSelectFairness` | [`no_ready_arm_is_left_out`], [`ready_arms_have_equal_chances`] |
//! | `TestChanSendInterface` | [`messages_of_any_type_that_were_not_sent`] |
//! | `TestPseudoRandomSend` | [`equal_arms_are_chosen_at_random`] |
//! | `TestMultiConsumer` | [`workers_share_a_queue`] |
//! | `TestSelectDuplicateChannel` | [`a_channel_twice_in_one_select`] |
//! | `TestShrinkStackDuringBlockedSend`, `TestNoShrinkStackWhileParking`, `TestSelectStackAdjust` | no: stacks neither shrink nor move |
//! | `TestChanSendBarrier`, `TestChanSendSelectBarrier` | no: there is no garbage collector |
//! | `test/chan` | |
//! | `doubleselect` | [`one_arm_of_a_select_is_done`] |
//! | `fifo` | [`messages_keep_their_order`], [`a_chain_reads_in_turn`] |
//! | `goroutines` | [`a_long_chain_passes_one_message`] |
//! | `nonblock` | [`trying_until_somebody_is_there`] |
//! | `perm` | no: a `Sender` has no `recv`, and a `Receiver` no `send` |
//! | `powser1`, `powser2` | [`power_series`] |
//! | `select` | [`messages_of_arms_are_made_anew_each_time`] |
//! | `select2` | `allocation::warm_operations_do_not_allocate` |
//! | `select3` | [`what_waits_and_what_does_not`], `selecting::one_channel_in_several_arms` |
//! | `select4`, `select5` (order) | [`arms_are_evaluated_once_and_in_order`] |
//! | `select5` (forms), `select7` | [`every_way_to_send_meets_every_way_to_receive`] |
//! | `select6` | [`a_select_leaves_other_waiters_in_the_list`] |
//! | `select8` | `selecting::bodies_are_ordinary_code` |
//! | `sendstmt` | [`channels_through_channels`] |
//! | `sieve1` | `channels::a_sieve_of_primes` |
//! | `sieve2` | [`primes_by_merging_multiples`] |
//! | `zerosize` | [`messages_without_size`] |
//! | elsewhere in `test` | |
//! | `chancap` | [`lengths_and_capacities`]; a negative size is not a `usize` |
//! | `chanlinear` | [`leaving_a_crowded_channel_takes_no_longer`] |
//! | `closedchan` | [`what_was_sent_outlives_the_close`], [`sending_to_nobody`]; a sender is dropped once |
//! | `ken/chan` | [`networks_of_selects`] |
//! | `ken/chan1` | [`many_to_many`], [`workers_share_a_queue`] |
//! | `range` (channels) | [`a_loop_over_a_channel_ends_with_it`] |
//! | `typeparam/chans` | [`merged_filtered_and_owned`] |
//! | `makechan`, `syntax/chan`, `syntax/chan1`, `typeparam/chansimp`, `typeparam/select`, `abi/*select*` | no: about Go's compiler |
//! | `src/sync` | |
//! | `TestSemaphore`, `TestMutex` | `signals::permits_are_conserved`, `as_in_std::a_mutex_counts` |
//! | `TestMutexFairness` | [`a_busy_mutex_is_had_in_time`], `locks::an_overtaken_waiter_is_next` |
//! | `TestMutexMisuse`, `TestRLocker`, `TestCondCopy` | no: guards unlock, and what is borrowed is neither copied nor moved |
//! | `TestCondSignal`, `TestCondBroadcast` | `as_in_std::a_notification_wakes_one`, `as_in_std::all_are_notified` |
//! | `TestCondSignalGenerations`, `TestRace` | [`a_notification_is_for_those_who_wait`], `locks::notified_once_each` |
//! | `TestCondSignalStealing` | [`a_latecomer_takes_no_notification`] |
//! | `TestOnce`, `TestOncePanic` | `as_in_std::done_once`, `as_in_std::tried_again_after_a_panic`: in Go a panic counts as done |
//! | `TestOnceFunc`, `TestOnceValue`, `TestOnceValues`, `TestOnceFuncPanic`, `TestOnceValuePanic`, `TestOnceValuesPanic` | `as_in_std::a_lazy_value_is_made_once`, `as_in_std::a_lazy_value_that_could_not_be_made` |
//! | `TestOnceFuncPanicNil`, `TestOnceFuncGoexit`, `TestOnceFuncPanicTraceback`, `TestOnceXGC` | no: about Go's runtime |
//! | `TestParallelReaders`, `TestRWMutex` | `as_in_std::readers_share_and_a_writer_does_not`, `locks::locks_under_load` |
//! | `TestWaitGroup`, `TestWaitGroupRace`, `TestWaitGroupGo` | [`a_wait_group_is_not_left_early`], `signals::all_parts_are_waited_for` |
//! | `TestWaitGroupMisuse`, `TestWaitGroupAlign` | no: parts are values, which cannot be counted wrongly |
//! | `TestIssue76126` | `signals::all_parts_are_waited_for`: a part that panics has ended, and the process has not |

mod team;

use sinew::WaitKind;
use sinew::select;
use sinew::sync::channel::{self, Receiver, RecvError, Sender, TryRecvError, TrySendError};
use sinew::sync::{self, Arm, Condvar, Mutex, Patience, WaitGroup};
use sinew_testkit::watch;
use std::any::Any;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use team::{Member, Team, everywhere};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn empty_and_full_channels_keep_one_waiting() {
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
fn what_was_sent_outlives_the_close() {
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

/// In Go a panic; here the message comes back, and nothing of it is to be found in the channel.
#[test]
fn sending_to_nobody() {
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
                    // Exactly as many as one sender sends: they wait for nothing that never comes.
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
    // Room is not made before it is used.
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

/// An arm that stays ready is seen, whatever happens to the other.
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

/// `select!` looks at one arm after the other: it may find each of them just when it is not ready,
/// although one always is. Go looks at all of them in one moment.
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

/// Plain operations and selects of both kinds at the ends of the same channels, which stay in order.
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
            // Who sends and who receives: each one for itself, or one for all by `select`.
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
            // Two that send to each other, each in one select over both directions.
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

/// Receives what two channels have in plenty, by a select with two idle channels in front of them;
/// says how often the second was chosen.
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

/// The choice is where to begin, so that the turns of arms that are not ready fall to the next one
/// that is: here three of four to the first. In Go each ready arm has the same chance.
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
        // The first leaves a list in which it stands twice, in front of the second.
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
fn a_chain_reads_in_turn() {
    everywhere(|team| {
        const LINKS: usize = 10;
        let (sender, receiver) = channel::bounded(0);
        let (start, mut before) = channel::bounded(0);
        for link in 0..LINKS {
            let (after, next) = channel::bounded(0);
            let (turn, receiver) = (before, receiver.clone());
            team.start(move || {
                turn.recv().unwrap();
                assert_eq!(receiver.recv(), Ok(link));
                after.send(()).unwrap();
            });
            before = next;
        }
        start.send(()).unwrap();
        (0..LINKS).for_each(|number| sender.send(number).unwrap());
        assert_eq!(before.recv(), Ok(()), "a link of the chain broke");
    });
}

#[test]
fn a_long_chain_passes_one_message() {
    everywhere(|team| {
        let links = if team == Team::Threads { 100 } else { 10_000 };
        let (leftmost, result) = channel::bounded(0);
        let mut left: Sender<usize> = leftmost;
        let members: Vec<_> = (0..links)
            .map(|_| {
                let (next, right) = channel::bounded(0);
                let left = std::mem::replace(&mut left, next);
                team.start(move || left.send(right.recv().unwrap() + 1).unwrap())
            })
            .collect();
        team.start(move || left.send(0).unwrap());
        assert_eq!(result.recv(), Ok(links));
        members.into_iter().for_each(Member::end);
    });
}

#[test]
fn trying_until_somebody_is_there() {
    fn check<T: Copy + PartialEq + std::fmt::Debug + Send + 'static>(team: Team, one: T, two: T) {
        for capacity in [0, 1] {
            let (sender, receiver) = channel::bounded(capacity);
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            let theirs = receiver.clone();
            let member = team.start(move || assert_eq!(theirs.recv(), Ok(one)));
            sinew::wait_until(|| sender.try_send(one).is_ok(), None);
            member.end();
            let member = team.start(move || sender.send(two).unwrap());
            let mut received = None;
            sinew::wait_until(
                || {
                    received = receiver.try_recv().ok();
                    received.is_some()
                },
                None,
            );
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
    // Both arms of all three rounds, of the last one in vain.
    assert_eq!((sent, made), (2, 6));
    let mut rounds = [from_one.recv().unwrap(), from_two.recv().unwrap()].map(|n| (n - 1) / 2);
    rounds.sort_unstable();
    assert_eq!(rounds, [0, 1]);
}

#[test]
fn what_waits_and_what_does_not() {
    type Take = fn(&Receiver<u32>) -> u32;
    everywhere(|team| {
        let (room, _kept) = channel::bounded(1);
        let (closed_sender, closed) = channel::bounded::<u32>(0);
        drop(closed_sender);
        let (idle, from_idle) = channel::bounded::<u32>(0);
        // At once.
        room.send(7).unwrap();
        assert_eq!(select! { default => 7 }, 7);
        assert!(closed.recv().is_err());
        assert!(select! { recv(closed) -> message => message.is_err() });
        // Never, which Go has as a statement, is refused.
        let nothing = catch_unwind(AssertUnwindSafe(|| sync::select(&mut [], Patience::Forever)));
        assert!(nothing.is_err());
        // Until somebody comes.
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

/// Each way to send, alone and among others, with each way to receive, whoever is first.
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
        // Requests that carry where to answer.
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

/// Each prime has one who sends its multiples; what is in none of them is a prime.
#[test]
fn primes_by_merging_multiples() {
    everywhere(|team| {
        let multiples_of = |prime: u32| {
            let (sender, receiver) = channel::bounded(0);
            team.start(move || {
                (2..).map(|n| n * prime).take_while(|&n| sender.send(n).is_ok()).for_each(drop);
            });
            receiver
        };
        let mut primes = vec![2];
        let first = multiples_of(2);
        let mut composites = BinaryHeap::from([(-i64::from(first.recv().unwrap()), 0)]);
        let mut sources = vec![first];
        for number in 3.. {
            let mut is_prime = true;
            while let Some(&(next, source)) = composites.peek()
                && -next == i64::from(number)
            {
                composites.pop();
                composites.push((-i64::from(sources[source].recv().unwrap()), source));
                is_prime = false;
            }
            if is_prime {
                primes.push(number);
                if primes.len() == 30 {
                    break;
                }
                let source = multiples_of(number);
                composites.push((-i64::from(source.recv().unwrap()), sources.len()));
                sources.push(source);
            }
        }
        assert_eq!(primes[..10], [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert_eq!(primes[29], 113);
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

/// Many wait for the same channel, and each leaves it from the middle.
#[test]
fn leaving_a_crowded_channel_takes_no_longer() {
    /// How long it takes when all wait for one channel, or each for a channel of its own.
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
        sinew::wait_until(|| members.iter().all(waits), None);
        let start = Instant::now();
        for turn in 0..4 * COUNT {
            // In an order that has nothing to do with where in the list each one is.
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
        // Who looked at half of the others would take several times as long. One try without
        // disturbance is enough.
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

#[test]
fn merged_filtered_and_owned() {
    everywhere(|team| {
        let numbers = |range: std::ops::Range<u32>| {
            let (sender, receiver) = channel::bounded(0);
            team.start(move || range.take_while(|&n| sender.send(n).is_ok()).for_each(drop));
            receiver
        };
        // Merged: each side in order, to the end of both.
        let (one, two) = (numbers(0..20), numbers(100..130));
        let (out, merged) = channel::bounded(0);
        team.start(move || {
            let (_unused, never) = channel::bounded(0);
            let mut open = [Some(one), Some(two)];
            while open.iter().any(Option::is_some) {
                let from = |n: usize| open[n].as_ref().unwrap_or(&never);
                let (side, message) = select! {
                    recv(from(0)) -> message => (0, message),
                    recv(from(1)) -> message => (1, message),
                };
                match message {
                    Ok(number) => out.send(number).unwrap(),
                    Err(RecvError) => open[side] = None,
                }
            }
        });
        let (small, large): (Vec<_>, Vec<_>) = merged.iter().partition(|&number| number < 100);
        assert!(small.into_iter().eq(0..20) && large.into_iter().eq(100..130));
        // Filtered, by a stage that ends when its reader does.
        let (out, even) = channel::bounded(0);
        let source = numbers(0..1000);
        let stage = team.start(move || {
            source.iter().filter(|n| n % 2 == 0).take_while(|&n| out.send(n).is_ok()).count()
        });
        assert!(even.iter().take(5).eq([0, 2, 4, 6, 8]));
        drop(even);
        assert_eq!(stage.end(), 5);
        // A value that one has at a time.
        let (release, acquire) = channel::bounded(1);
        release.send(0).unwrap();
        let members: Vec<_> = (0..4)
            .map(|_| {
                let (release, acquire) = (release.clone(), acquire.clone());
                team.start(move || {
                    for _ in 0..50 {
                        let value = acquire.recv().unwrap();
                        assert_eq!(acquire.try_recv(), Err(TryRecvError::Empty));
                        release.send(value + 1).unwrap();
                    }
                })
            })
            .collect();
        members.into_iter().for_each(Member::end);
        assert_eq!(acquire.try_recv(), Ok(200));
    });
}

#[test]
fn a_busy_mutex_is_had_in_time() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(()), AtomicUsize::new(0)));
        let (begin, begun) = channel::bounded(0);
        let busy = {
            let shared = shared.clone();
            team.start(move || {
                let (mutex, done) = &*shared;
                let mut begin = Some(begin);
                while done.load(Ordering::Relaxed) == 0 {
                    let _held = mutex.lock();
                    if let Some(begin) = begin.take() {
                        begin.send(()).unwrap();
                    }
                    // Held nearly always, and let go only to be locked again.
                    sinew::sleep(Duration::from_micros(100));
                }
            })
        };
        begun.recv().unwrap();
        for _ in 0..10 {
            sinew::sleep(Duration::from_micros(100));
            drop(shared.0.try_lock_for(Duration::from_secs(10)).expect("its turn has to come"));
        }
        shared.1.store(1, Ordering::Relaxed);
        busy.end();
    });
}

#[test]
fn a_notification_is_for_those_who_wait() {
    everywhere(|team| {
        let shared = Arc::new((Mutex::new(()), Condvar::new()));
        let (awake, woken) = channel::unbounded();
        for generation in 0..30 {
            let (begin, begun) = channel::bounded(1);
            let (theirs, awake) = (shared.clone(), awake.clone());
            team.start(move || {
                let mut guard = theirs.0.lock();
                begin.send(()).unwrap();
                theirs.1.wait(&mut guard);
                awake.send(generation).unwrap();
            });
            if generation > 0 {
                assert_eq!(woken.recv(), Ok(generation - 1), "notified before this one came");
            }
            begun.recv().unwrap();
            let _guard = shared.0.lock();
            assert!(shared.1.notify_one());
        }
        assert_eq!(woken.recv(), Ok(29));
    });
}

#[test]
fn a_latecomer_takes_no_notification() {
    everywhere(|team| {
        for _ in 0..30 {
            let shared = Arc::new((Mutex::new(false), Condvar::new()));
            let (tell, told) = channel::bounded(0);
            let first = {
                let shared = shared.clone();
                team.start(move || {
                    let mut guard = shared.0.lock();
                    tell.send(()).unwrap();
                    shared.1.wait(&mut guard);
                })
            };
            told.recv().unwrap();
            // It has unlocked, and so waits.
            drop(shared.0.lock());
            let notifier = {
                let shared = shared.clone();
                team.start(move || assert!(shared.1.notify_all() >= 1))
            };
            let second = {
                let shared = shared.clone();
                team.start(move || shared.1.wait_while(&mut shared.0.lock(), |done| !*done))
            };
            first.end();
            notifier.end();
            *shared.0.lock() = true;
            shared.1.notify_all();
            second.end();
        }
    });
}

#[test]
fn a_wait_group_is_not_left_early() {
    everywhere(|team| {
        for _ in 0..50 {
            let (group, done) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
            for _ in 0..2 {
                let (part, done) = (group.clone(), done.clone());
                team.start(move || {
                    sinew::yield_now();
                    done.fetch_add(1, Ordering::Relaxed);
                    drop(part);
                });
            }
            group.wait();
            assert_eq!(done.load(Ordering::Relaxed), 2);
        }
    });
}

/// A fraction in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ratio(i128, i128);

impl Ratio {
    fn new(above: i128, below: i128) -> Ratio {
        let (mut a, mut b) = (above.abs(), below.abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let divisor = a.max(1) * below.signum();
        Ratio(above / divisor, below / divisor)
    }

    fn plus(self, other: Ratio) -> Ratio {
        Ratio::new(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
    }

    fn times(self, other: Ratio) -> Ratio {
        Ratio::new(self.0 * other.0, self.1 * other.1)
    }
}

/// A power series: whoever asks for the next coefficient is given it. It ends with its reader.
struct Series {
    ask: Sender<()>,
    answer: Receiver<Ratio>,
}

impl Series {
    /// One whose coefficients `next` makes, on demand.
    fn new(team: Team, mut next: impl FnMut() -> Option<Ratio> + Send + 'static) -> Series {
        let (ask, asked) = channel::bounded(0);
        let (sender, answer) = channel::bounded(0);
        team.start(move || {
            while asked.recv().is_ok() {
                let Some(coefficient) = next() else { return };
                if sender.send(coefficient).is_err() {
                    return;
                }
            }
        });
        Series { ask, answer }
    }

    fn next(&self) -> Option<Ratio> {
        self.ask.send(()).ok()?;
        self.answer.recv().ok()
    }

    fn first(self, count: usize) -> Vec<Ratio> {
        (0..count).map(|_| self.next().unwrap()).collect()
    }

    fn constant(team: Team, number: i128) -> Series {
        Series::new(team, move || Some(Ratio(number, 1)))
    }

    fn plus(self, team: Team, other: Series) -> Series {
        Series::new(team, move || Some(self.next()?.plus(other.next()?)))
    }

    fn scaled(self, team: Team, factor: Ratio) -> Series {
        Series::new(team, move || Some(self.next()?.times(factor)))
    }

    fn times(self, team: Team, other: Series) -> Series {
        let (mut mine, mut theirs) = (Vec::new(), VecDeque::new());
        Series::new(team, move || {
            mine.push(self.next()?);
            theirs.push_front(other.next()?);
            let products = mine.iter().zip(&theirs).map(|(one, two)| one.times(*two));
            Some(products.fold(Ratio(0, 1), Ratio::plus))
        })
    }

    fn derivative(self, team: Team) -> Series {
        let mut power = 0;
        Series::new(team, move || {
            if power == 0 {
                self.next()?;
            }
            power += 1;
            Some(self.next()?.times(Ratio(power, 1)))
        })
    }

    fn integral(self, team: Team, constant: Ratio) -> Series {
        let mut power = 0;
        Series::new(team, move || {
            power += 1;
            if power == 1 { Some(constant) } else { Some(self.next()?.times(Ratio(1, power - 1))) }
        })
    }

    /// With `factor` times the square of the variable in its place.
    fn of_square(self, team: Team, factor: Ratio) -> Series {
        let (mut turn, mut scale) = (0, Ratio(1, 1));
        Series::new(team, move || {
            turn += 1;
            if turn % 2 == 0 {
                return Some(Ratio(0, 1));
            }
            let coefficient = self.next()?.times(scale);
            scale = scale.times(factor);
            Some(coefficient)
        })
    }

    /// Two readers for one series. It goes on serving one while it waits for what the other wants,
    /// and ends with either.
    fn split(self, team: Team) -> [Series; 2] {
        let (asks, asked): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::bounded(0)).unzip();
        let (senders, answers): (Vec<_>, Vec<_>) = (0..2).map(|_| channel::bounded(0)).unzip();
        team.start(move || {
            let (_unused, nobody) = channel::bounded(0);
            let (_also_unused, nothing) = channel::bounded(0);
            let mut queues = [VecDeque::new(), VecDeque::new()];
            let mut wanting = [false; 2];
            let mut awaited = false;
            loop {
                for n in 0..2 {
                    if !wanting[n] {
                        continue;
                    }
                    if let Some(coefficient) = queues[n].pop_front() {
                        wanting[n] = false;
                        if senders[n].send(coefficient).is_err() {
                            return;
                        }
                    } else if !awaited {
                        awaited = true;
                        if self.ask.send(()).is_err() {
                            return;
                        }
                    }
                }
                let open = |n: usize| if wanting[n] { &nobody } else { &asked[n] };
                let source = if awaited { &self.answer } else { &nothing };
                select! {
                    recv(open(0)) -> asked => match asked {
                        Ok(()) => wanting[0] = true,
                        Err(RecvError) => return,
                    },
                    recv(open(1)) -> asked => match asked {
                        Ok(()) => wanting[1] = true,
                        Err(RecvError) => return,
                    },
                    recv(source) -> coefficient => {
                        let Ok(coefficient) = coefficient else { return };
                        awaited = false;
                        queues.iter_mut().for_each(|queue| queue.push_back(coefficient));
                    }
                }
            }
        });
        let mut ends = asks.into_iter().zip(answers).map(|(ask, answer)| Series { ask, answer });
        [ends.next().unwrap(), ends.next().unwrap()]
    }

    /// The exponential of a series without a constant term: it is the integral of itself times the
    /// derivative of the series, and so is fed with its own coefficients.
    fn exp(self, team: Team) -> Series {
        let (ask, asked) = channel::bounded(0);
        let (sender, answer) = channel::bounded(0);
        let back = Series { ask, answer };
        let product = self.derivative(team).times(team, back);
        let [out, own] = product.integral(team, Ratio(1, 1)).split(team);
        team.start(move || {
            while asked.recv().is_ok() {
                let Some(coefficient) = own.next() else { return };
                if sender.send(coefficient).is_err() {
                    return;
                }
            }
        });
        out
    }
}

#[test]
fn power_series() {
    everywhere(|team| {
        const COUNT: usize = 10;
        let ones = || Series::constant(team, 1);
        let whole = |numbers: std::ops::RangeInclusive<i128>| numbers.map(|n| Ratio(n, 1));
        assert!(ones().first(5) == [Ratio(1, 1); 5]);
        assert!(ones().plus(team, Series::constant(team, 2)).first(COUNT) == [Ratio(3, 1); COUNT]);
        assert!(ones().scaled(team, Ratio(-2, 3)).first(COUNT) == [Ratio(-2, 3); COUNT]);
        assert!(ones().derivative(team).first(COUNT).into_iter().eq(whole(1..=10)));
        assert!(ones().times(team, ones()).first(COUNT).into_iter().eq(whole(1..=10)));
        let [one, two] = ones().derivative(team).split(team);
        assert!(one.plus(team, two).first(3) == [Ratio(2, 1), Ratio(4, 1), Ratio(6, 1)]);
        // 1 + x² + …, negated in turn, is the derivative of the arc tangent.
        let arctan = ones().of_square(team, Ratio(-1, 1)).integral(team, Ratio(0, 1));
        let signs = [0, 1, 0, -1, 0, 1, 0, -1, 0, 1];
        let expected = (1..).zip(signs).map(|(n, sign)| Ratio::new(sign, i128::max(n - 1, 1)));
        assert!(arctan.first(COUNT).into_iter().eq(expected));
        // The exponential by its recurrence: n·eₙ is the sum of k·uₖ·eₙ₋ₖ.
        let mut expected = vec![Ratio(1, 1)];
        for n in 1..COUNT as i128 {
            let terms = (1..=n).map(|k| Ratio(k, 1).times(expected[(n - k) as usize]));
            expected.push(terms.fold(Ratio(0, 1), Ratio::plus).times(Ratio(1, n)));
        }
        assert_eq!(expected[4], Ratio(73, 24));
        assert_eq!(ones().exp(team).first(COUNT), expected);
    });
}
