//! Channels.

use crate::team::{Member, Team, everywhere};
use crate::{LONG, MS};
use sinew::sync::channel::{
    self, Receiver, RecvError, RecvTimeoutError, SendTimeoutError, Sender, TryRecvError,
    TrySendError,
};
use sinew::{Runtime, WaitKind};
use sinew_testkit::watch;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kinds of channels: bounded with this capacity, or unbounded.
const KINDS: [Option<usize>; 4] = [Some(0), Some(1), Some(10), None];

fn open<T>(kind: Option<usize>) -> (Sender<T>, Receiver<T>) {
    kind.map_or_else(channel::unbounded, channel::bounded)
}

#[test]
fn messages_between_fibers_and_threads() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let start = |team: Team, work: Box<dyn FnOnce() -> i32 + Send>| match team {
        Team::Fibers => Member::Fiber(runtime.spawn(work)),
        Team::Threads => Member::Thread(std::thread::spawn(work)),
    };
    for kind in KINDS {
        for sends in [Team::Fibers, Team::Threads] {
            for receives in [Team::Fibers, Team::Threads] {
                let (sender, receiver) = open(kind);
                let (back, answer) = open(kind);
                let clone = sender.clone();
                drop(sender);
                let one = start(
                    sends,
                    Box::new(move || {
                        (1..=40).for_each(|number| clone.send(number).unwrap());
                        answer.recv().unwrap()
                    }),
                );
                let other = start(
                    receives,
                    Box::new(move || {
                        let sum = receiver.iter().take(40).sum();
                        back.send(sum).unwrap();
                        receiver.iter().count() as i32
                    }),
                );
                assert_eq!((one.end(), other.end()), (820, 0));
            }
        }
    }
    // The channel also works within one fiber.
    let (sender, receiver) = open(None);
    sender.clone().send(1).unwrap();
    assert_eq!(receiver.recv(), Ok(1));
}

#[test]
fn unreceived_messages_are_dropped() {
    let token = Rc::new(());
    for kind in [Some(1), Some(10), None] {
        for sender_first in [true, false] {
            let (sender, receiver) = open(kind);
            drop((sender.clone(), sender.clone(), receiver.clone()));
            sender.send(token.clone()).unwrap();
            if sender_first {
                drop(sender);
                assert_eq!(Rc::strong_count(&token), 2, "it can still be received");
                drop(receiver);
            } else {
                drop(receiver);
                assert_eq!(Rc::strong_count(&token), 1, "nobody can receive it");
                drop(sender);
            }
            assert_eq!(Rc::strong_count(&token), 1);
        }
    }
}

#[test]
fn no_receiver_is_left() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            drop(receiver);
            assert_eq!(sender.send(1).unwrap_err().0, 1);
            assert_eq!(sender.send(2).unwrap_err().0, 2, "and again");
            let clone = sender.clone();
            drop(sender);
            assert_eq!(clone.send(3).unwrap_err().0, 3, "also by a clone");
        }
        // Senders that wait for room, and senders that come too late.
        for room in [0, 1] {
            let (sender, receiver) = open(Some(room));
            (0..room).for_each(|_| sender.send(0).unwrap());
            let members: Vec<_> = (1..=2)
                .map(|number| {
                    let sender = sender.clone();
                    team.start(move || sender.send(number).unwrap_err().0)
                })
                .collect();
            members[0].waits(WaitKind::Send);
            drop(receiver);
            assert_eq!(members.into_iter().map(Member::end).sum::<i32>(), 3);
        }
    });
}

#[test]
fn senders_notice_that_the_receiver_went() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let members: Vec<_> = (0..2)
                .map(|_| {
                    let sender = sender.clone();
                    team.start(move || {
                        while sender.send(1).is_ok() {
                            sinew::yield_now();
                        }
                    })
                })
                .collect();
            assert_eq!(receiver.recv(), Ok(1));
            drop(receiver);
            members.into_iter().for_each(Member::end);
        }
    });
}

#[test]
fn no_sender_is_left() {
    for kind in KINDS {
        let (sender, receiver) = open::<i32>(kind);
        drop(sender.clone());
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty), "one is left");
        drop(sender);
        for _ in 0..2 {
            assert_eq!(receiver.recv(), Err(RecvError));
        }
    }
}

#[test]
fn receivers_notice_that_the_sender_went() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let member = team.start(move || {
                sender.send(1).unwrap();
                let clone = sender.clone();
                drop(sender);
                clone.send(2).unwrap();
            });
            assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2]);
            assert_eq!(receiver.recv(), Err(RecvError));
            member.end();
        }
    });
}

#[test]
fn receivers_that_are_cloned() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let clone = receiver.clone();
            drop(receiver);
            let member = {
                let sender = sender.clone();
                team.start(move || sender.send(1).unwrap())
            };
            let other = clone.clone();
            assert_eq!(other.recv(), Ok(1));
            member.end();
            drop((clone, other));
            assert!(sender.send(2).is_err());
        }
    });
}

#[test]
fn many_messages_of_many_senders() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let members: Vec<_> = (0..8)
                .map(|_| {
                    let sender = sender.clone();
                    team.start(move || (0..100).for_each(|_| sender.send(1).unwrap()))
                })
                .collect();
            drop(sender);
            assert_eq!(receiver.iter().sum::<i32>(), 800);
            members.into_iter().for_each(Member::end);
        }
    });
}

#[test]
fn ends_go_in_any_order() {
    for kind in KINDS {
        let (sender, receiver) = open::<Box<i32>>(kind);
        drop(receiver);
        assert!(sender.is_disconnected());
        drop(sender);
        let (sender, receiver) = open::<Box<i32>>(kind);
        drop(sender);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    }
}

#[test]
fn trying_says_why_not() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            for _ in 0..2 {
                assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            }
            if kind == Some(0) {
                assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)));
            } else {
                assert_eq!(sender.try_send(1), Ok(()));
                assert_eq!(sender.try_send(2).is_ok(), kind != Some(1));
                assert_eq!(receiver.try_recv(), Ok(1));
                receiver.try_iter().for_each(drop);
            }
            // The results change as the other side proceeds.
            let (step, next) = channel::bounded(0);
            let member = team.start(move || {
                next.recv().unwrap();
                sender.send(3).unwrap();
                next.recv().unwrap();
                drop(sender);
                next.recv().unwrap();
            });
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            step.send(()).unwrap();
            sinew::wait_until(|| receiver.try_recv() == Ok(3));
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            step.send(()).unwrap();
            step.send(()).unwrap();
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
            member.end();

            let (sender, receiver) = open(kind);
            let left = usize::from(sender.try_send(4).is_ok());
            drop(sender);
            assert_eq!(receiver.try_iter().count(), left, "what was sent is still there");
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));

            let (sender, receiver) = open(kind);
            let _ = sender.try_send(5);
            drop(receiver);
            assert_eq!(sender.try_send(6), Err(TrySendError::Disconnected(6)));
        }
    });
}

#[test]
fn a_waiting_receiver_gets_a_message_or_an_error() {
    everywhere(|team| {
        for kind in KINDS {
            for close in [false, true] {
                let (sender, receiver) = open(kind);
                let member = team.start(move || receiver.recv());
                member.waits(WaitKind::Receive);
                if close {
                    drop(sender);
                    assert_eq!(member.end(), Err(RecvError));
                } else {
                    sender.send(Box::new(10)).unwrap();
                    assert_eq!(member.end(), Ok(Box::new(10)));
                }
            }
        }
    });
}

/// Every message is received, given back or dropped exactly once.
#[test]
fn sending_receiving_and_leaving_at_once() {
    everywhere(|team| {
        for kind in KINDS {
            for round in 0..20 {
                let token = Arc::new(());
                let (sender, receiver) = open(kind);
                let message = token.clone();
                let one = team.start(move || match round % 4 {
                    0 | 1 => sender.send(message).is_ok(),
                    _ => {
                        drop((sender, message));
                        false
                    }
                });
                let other = team.start(move || match round % 4 {
                    0 | 2 => receiver.recv().is_ok(),
                    _ => {
                        drop(receiver);
                        false
                    }
                });
                let (sent, received) = (one.end(), other.end());
                match round % 4 {
                    0 => assert!(sent && received),
                    1 => assert!(!sent || kind != Some(0), "nobody took it"),
                    2 => assert!(!received),
                    _ => {}
                }
                assert_eq!(Arc::strong_count(&token), 1);
            }
        }
    });
}

#[test]
fn ends_are_passed_on() {
    fn send(team: Team, sender: Sender<Box<i32>>, number: i32) {
        if number < 10 {
            team.start(move || {
                sender.send(Box::new(number)).unwrap();
                send(team, sender, number + 1);
            });
        }
    }
    fn receive(team: Team, receiver: Receiver<Box<i32>>, number: i32, end: Sender<i32>) {
        team.start(move || match receiver.recv() {
            Ok(message) => {
                assert_eq!(*message, number);
                receive(team, receiver, number + 1, end);
            }
            Err(RecvError) => end.send(number).unwrap(),
        });
    }
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let (end, result) = channel::bounded(1);
            send(team, sender, 0);
            receive(team, receiver, 0, end);
            assert_eq!(result.recv(), Ok(10));
        }
    });
}

#[test]
fn timeouts_of_shared_channels() {
    everywhere(|_| {
        for kind in [Some(1), None] {
            let (sender, receiver) = open(kind);
            let _clones = (sender.clone(), receiver.clone());
            let start = Instant::now();
            assert_eq!(receiver.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
            assert!(start.elapsed() >= 2 * MS);
            sender.send_timeout(1, MS).unwrap();
            let full = sender.send_timeout(2, MS);
            assert_eq!(full.is_err(), kind == Some(1));
            if let Err(error) = full {
                assert_eq!(error, SendTimeoutError::Timeout(2));
            }
            assert_eq!(receiver.recv_timeout(MS), Ok(1));
        }
    });
}

#[test]
fn short_timeouts_miss_nothing() {
    everywhere(|team| {
        for kind in [Some(0), Some(1), None] {
            let (sender, receiver) = open(kind);
            let count = 60;
            let members: Vec<_> = (0..3)
                .map(|n| {
                    let sender = sender.clone();
                    team.start(move || {
                        for number in 0..count / 3 {
                            if (number + n) % 5 == 0 {
                                // Long enough for the other side to time out in between.
                                sinew::sleep(Duration::from_micros(150));
                            }
                            sender.send(()).unwrap();
                        }
                    })
                })
                .collect();
            drop(sender);
            let mut received = 0;
            loop {
                match receiver.recv_timeout(Duration::from_micros(50)) {
                    Ok(()) => received += 1,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            assert_eq!(received, count);
            members.into_iter().for_each(Member::end);
        }
    });
}

#[test]
fn timeouts_beyond_all_clocks() {
    everywhere(|team| {
        for timeout in [Duration::from_secs(u64::MAX), Duration::MAX] {
            let (sender, receiver) = open(None);
            let member = team.start(move || {
                let first = receiver.recv_timeout(timeout);
                (first, receiver.recv_timeout(timeout))
            });
            member.waits(WaitKind::Receive);
            sender.send(7).unwrap();
            drop(sender);
            assert_eq!(member.end(), (Ok(7), Err(RecvTimeoutError::Disconnected)));
        }
    });
}

#[test]
fn a_lot_on_the_way() {
    const COUNT: usize = 10_000;
    for kind in [Some(COUNT), None] {
        let (sender, receiver) = open(kind);
        (0..COUNT).for_each(|number| sender.send(number).unwrap());
        assert_eq!(receiver.len(), COUNT);
        for expected in 0..COUNT {
            assert_eq!(receiver.recv(), Ok(expected));
        }
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    }
}

#[test]
fn loops_over_messages() {
    everywhere(|team| {
        for kind in KINDS {
            let (sender, receiver) = open(kind);
            let (total, result) = open(kind);
            let summing = team.start(move || total.send(receiver.iter().sum::<i32>()).unwrap());
            [3, 1, 2].into_iter().for_each(|number| sender.send(number).unwrap());
            drop(sender);
            assert_eq!(result.recv(), Ok(6));
            summing.end();

            let (sender, receiver) = open(kind);
            let counting = team.start(move || {
                let mut count = 0;
                for number in &receiver {
                    if number >= 3 {
                        break;
                    }
                    count += number;
                }
                // The loop took no message beyond those it saw.
                (count, receiver.recv(), receiver.into_iter().collect::<Vec<_>>())
            });
            [2, 2, 2, 9, 4, 5, 6].into_iter().for_each(|number| sender.send(number).unwrap());
            drop(sender);
            assert_eq!(counting.end(), (6, Ok(4), vec![5, 6]));
        }
        // Take the messages that are there, then request more.
        let (request, requests) = channel::bounded(0);
        let (response, responses) = channel::unbounded();
        let serving = team.start(move || {
            for _ in &requests {
                if response.send(2).is_err() {
                    return;
                }
            }
        });
        let mut sum = 0;
        while sum < 10 {
            request.send(()).unwrap();
            sinew::wait_until(|| !responses.is_empty());
            sum += responses.try_iter().sum::<i32>();
        }
        drop(request);
        serving.end();
        assert_eq!((sum, responses.try_iter().count()), (10, 0));
    });
}

#[test]
fn clones_that_come_late() {
    everywhere(|team| {
        for kind in KINDS {
            // The receiver is dropped while a clone that was made meanwhile still exists.
            let (sender, receiver) = open(kind);
            let (tell, told) = channel::bounded(0);
            let member = team.start(move || {
                receiver.recv().unwrap();
                drop(receiver);
                tell.send(()).unwrap();
            });
            member.waits(WaitKind::Receive);
            let clone = sender.clone();
            drop(sender);
            clone.send(()).unwrap();
            told.recv().unwrap();
            assert!(clone.is_disconnected());
            member.end();
            // A clone that is made and dropped wakes no waiter, and closes nothing.
            let (sender, receiver) = open::<()>(kind);
            let member = team.start(move || {
                drop(sender.clone());
                sender
            });
            assert_eq!(receiver.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
            let sender = member.end();
            assert_eq!(receiver.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
            drop(sender);
            assert_eq!(receiver.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        }
        // Two members answer each other, many times with new channels.
        for _ in 0..50 {
            let ((to, from), (back, answer)) = (channel::bounded(3), channel::bounded(3));
            let member = team.start(move || {
                let () = from.recv().unwrap();
                back.try_send(()).unwrap();
            });
            to.try_send(()).unwrap();
            answer.recv().unwrap();
            member.end();
        }
    });
}
