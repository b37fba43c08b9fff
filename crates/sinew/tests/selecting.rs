//! `select!`: the behaviours that the tests of Go's `select` and of crossbeam check.

use sinew::select;
use sinew::sync::channel::{self, RecvError};
use sinew::sync::{self, Arm, Patience, Semaphore};
use sinew::{Runtime, WaitKind};
use sinew_testkit::{Seed, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn waits(fiber: &sinew::Fiber) {
    sinew::wait_until(|| fiber.waits_for() == Some(WaitKind::Select));
}

/// `select!` completes a ready arm; if none is ready, it takes the default.
#[test]
fn ready_arms_and_defaults() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::bounded(1);
    let turn = || {
        select! {
            recv(receiver) -> message => message.unwrap(),
            default => 0,
        }
    };
    assert_eq!(turn(), 0);
    sender.send(7).unwrap();
    assert_eq!(turn(), 7);
    let sent = select! {
        send(sender, 8) -> sent => sent.is_ok(),
        default => false,
    };
    assert!(sent);
    let full = select! {
        send(sender, 9) -> _ => false,
        default => true,
    };
    assert!(full);
    assert_eq!(receiver.recv(), Ok(8));
    let start = Instant::now();
    select! {
        recv(receiver) -> _ => unreachable!(),
        default(3 * MS) => assert!(start.elapsed() >= 3 * MS),
    }
}

/// Both sides, sending and receiving, wake an arm that waits.
#[test]
fn waiting_arms_are_woken() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        for which in 0..4 {
            let ((to, receiver), (sender, from)) = (channel::bounded(0), channel::bounded(0));
            let fiber = runtime.spawn(move || {
                select! {
                    recv(receiver) -> message => message.map_or(-1, |n: i32| n),
                    send(sender, 5) -> sent => if sent.is_ok() { 50 } else { -2 },
                }
            });
            waits(&fiber.fiber());
            let expected = match which {
                0 => {
                    to.send(7).unwrap();
                    7
                }
                1 => {
                    assert_eq!(from.recv(), Ok(5));
                    50
                }
                2 => {
                    drop(to);
                    -1
                }
                _ => {
                    drop(from);
                    -2
                }
            };
            assert_eq!(fiber.join().unwrap(), expected);
        }
    }
}

/// Disconnected arms complete at once, with an error.
#[test]
fn disconnected_arms() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::unbounded::<u32>();
    drop(sender);
    let (other, _kept) = channel::bounded::<u32>(0);
    let result = select! {
        recv(receiver) -> message => message,
        send(other, 1) -> _ => unreachable!(),
    };
    assert_eq!(result, Err(RecvError));
}

/// Each of several ready arms is chosen sometimes.
#[test]
fn the_choice_is_fair() {
    let _watch = watch::a_minute();
    let channels: Vec<_> = (0..3).map(|_| channel::unbounded()).collect();
    for _ in 0..3000 {
        channels.iter().for_each(|(sender, _)| sender.send(()).unwrap());
    }
    let mut counts = [0; 3];
    for _ in 0..3000 {
        let chosen = select! {
            recv(channels[0].1) -> _ => 0,
            recv(channels[1].1) -> _ => 1,
            recv(channels[2].1) -> _ => 2,
        };
        counts[chosen] += 1;
    }
    assert!(counts.iter().all(|&count| count > 800), "{counts:?}");
}

/// Bodies may leave the loop and the function that contain them.
#[test]
fn bodies_are_ordinary_code() {
    fn first(receiver: &channel::Receiver<u32>) -> Result<u32, RecvError> {
        let mut sum = 0;
        loop {
            select! {
                recv(receiver) -> message => {
                    let message = message?;
                    if message == 0 {
                        continue;
                    }
                    sum += message;
                    if message == 9 {
                        break;
                    }
                }
                default(Duration::from_secs(60)) => return Ok(0),
            }
        }
        Ok(sum)
    }
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::unbounded();
    for n in [1, 0, 2, 9, 4] {
        sender.send(n).unwrap();
    }
    assert_eq!(first(&receiver), Ok(12));
    drop(sender);
    assert_eq!(first(&receiver), Err(RecvError));
}

/// One channel in several arms, even both ends of it.
#[test]
fn one_channel_in_several_arms() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::bounded(0);
    let fiber = {
        let (sender, receiver) = (sender.clone(), receiver.clone());
        sinew::spawn(move || {
            select! {
                recv(receiver) -> message => message.unwrap(),
                recv(receiver) -> message => message.unwrap() + 100,
                send(sender, 1) -> _ => 1000,
            }
        })
    };
    // The select does not send to itself.
    waits(&fiber.fiber());
    assert!(!fiber.is_finished());
    sender.send(7).unwrap();
    assert!([7, 107].contains(&fiber.join().unwrap()));
}

/// Selects meet selects: no message is lost or doubled, even if one side gives up.
#[test]
fn selects_against_selects() {
    let _watch = watch::a_minute();
    let mut seed = Seed::from_env();
    for carriers in [1, 2, 4] {
        for capacity in [0, 1, 4] {
            let runtime = Runtime::builder().carriers(carriers).build().unwrap();
            let channels: Arc<Vec<_>> =
                Arc::new((0..3).map(|_| channel::bounded(capacity)).collect());
            let (sent, received) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let token = Arc::new(());
            let fibers: Vec<_> = (0..24)
                .map(|id| {
                    let (channels, sent, received) =
                        (channels.clone(), sent.clone(), received.clone());
                    let token = token.clone();
                    let mut seed = seed.fork();
                    runtime.spawn(move || {
                        for _ in 0..60 {
                            let (a, b) = (&channels[seed.below(3)], &channels[seed.below(3)]);
                            let timeout = Duration::from_micros(seed.below(100) as u64);
                            match (id + seed.below(2)) % 4 {
                                0 => select! {
                                    send(a.0, token.clone()) -> done => {
                                        sent.fetch_add(usize::from(done.is_ok()), Ordering::Relaxed);
                                    }
                                    recv(b.1) -> message => {
                                        let got = usize::from(message.is_ok());
                                        received.fetch_add(got, Ordering::Relaxed);
                                    }
                                    default(timeout) => {}
                                },
                                1 => select! {
                                    recv(a.1) -> message => {
                                        let got = usize::from(message.is_ok());
                                        received.fetch_add(got, Ordering::Relaxed);
                                    }
                                    recv(b.1) -> message => {
                                        let got = usize::from(message.is_ok());
                                        received.fetch_add(got, Ordering::Relaxed);
                                    }
                                    default(timeout) => {}
                                },
                                2 => {
                                    if a.0.send_timeout(token.clone(), timeout).is_ok() {
                                        sent.fetch_add(1, Ordering::Relaxed);
                                    }
                                }
                                _ => {
                                    if a.1.recv_timeout(timeout).is_ok() {
                                        received.fetch_add(1, Ordering::Relaxed);
                                    }
                                }
                            }
                        }
                    })
                })
                .collect();
            for (n, fiber) in fibers.into_iter().enumerate() {
                if n % 6 == 0 {
                    fiber.cancel();
                    let _ = fiber.join();
                } else {
                    fiber.join().unwrap();
                }
            }
            let left: usize =
                channels.iter().map(|(_, receiver)| receiver.try_iter().count()).sum();
            let (sent, received) = (sent.load(Ordering::Relaxed), received.load(Ordering::Relaxed));
            assert_eq!(sent, received + left);
            assert_eq!(Arc::strong_count(&token), 1);
        }
    }
}

/// A cancelled select has completed no arm.
#[test]
fn a_cancelled_select() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::bounded(0);
    let fiber = {
        let (sender, receiver) = (sender.clone(), receiver.clone());
        sinew::spawn(move || {
            select! {
                recv(receiver) -> _ => (),
                send(sender, 1) -> _ => (),
            }
        })
    };
    waits(&fiber.fiber());
    fiber.cancel();
    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    assert!(sender.try_send(2).is_err());
    assert!(receiver.try_recv().is_err());
}

/// `select!` works on a plain thread.
#[test]
fn threads_select() {
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::bounded(0);
    let (quit, end) = channel::bounded::<()>(0);
    let thread = std::thread::spawn(move || {
        let mut sum = 0;
        loop {
            select! {
                recv(receiver) -> n => sum += n.unwrap_or(0),
                recv(end) -> _ => return sum,
            }
        }
    });
    let fibers: Vec<_> = (0..10)
        .map(|n| {
            let sender = sender.clone();
            sinew::spawn(move || sender.send(n).unwrap())
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    quit.send(()).unwrap();
    assert_eq!(thread.join().unwrap(), 45);
    drop(sender);
}

/// An arm that was selected and not taken still has its message, and receives no other.
#[test]
fn an_arm_that_was_not_taken_keeps_its_message() {
    use sinew::sync::{Patience, select as wait};
    let _watch = watch::a_minute();
    let (sender, receiver) = channel::unbounded();
    sender.send(1).unwrap();
    let mut arm = receiver.arm();
    assert_eq!(wait(&mut [&mut arm], Patience::Forever), Some(0));
    sender.send(2).unwrap();
    assert_eq!(wait(&mut [&mut arm], Patience::Forever), Some(0));
    assert_eq!(arm.take(), Ok(1));
    assert_eq!(receiver.recv(), Ok(2));
}

#[test]
fn joins_and_moments_are_arms() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        runtime.run(|| {
            let (sender, receiver) = channel::unbounded();
            let mut fibers: Vec<_> = (0..10)
                .map(|n| {
                    let receiver = receiver.clone();
                    sinew::spawn(move || (n, receiver.recv().unwrap()))
                })
                .collect();
            // No fiber has ended.
            let mut arms: Vec<_> = fibers.iter_mut().map(|fiber| fiber.arm()).collect();
            let mut borrowed: Vec<_> = arms.iter_mut().map(|arm| arm as &mut dyn Arm).collect();
            let soon = Patience::For(Duration::from_millis(1));
            assert_eq!(sync::select(&mut borrowed, Patience::None), None);
            assert_eq!(sync::select(&mut borrowed, soon), None);
            for message in 0..10 {
                sender.send(message).unwrap();
                let mut arms: Vec<_> = fibers.iter_mut().map(|fiber| fiber.arm()).collect();
                let mut borrowed: Vec<_> = arms.iter_mut().map(|arm| arm as &mut dyn Arm).collect();
                let index = sync::select(&mut borrowed, Patience::Forever).unwrap();
                let (_, received) = arms[index].take().unwrap();
                assert_eq!(received, message);
                drop(fibers.remove(index));
            }
            // A panic and a cancellation are results.
            let mut unlucky = sinew::spawn(|| panic!("no luck"));
            let mut cancelled = sinew::spawn(sinew::park);
            cancelled.cancel();
            for _ in 0..2 {
                select! {
                    join(unlucky) -> result => {
                        assert!(!sinew::is_cancel(&*result.unwrap_err()));
                        unlucky = sinew::spawn(sinew::park);
                    }
                    join(cancelled) -> result => {
                        assert!(sinew::is_cancel(&*result.unwrap_err()));
                        cancelled = sinew::spawn(sinew::park);
                    }
                }
            }
            let first = select! {
                join(unlucky) -> _ => "a fiber",
                after(Duration::from_millis(3)) => "later",
                at(Instant::now() + Duration::from_millis(1)) => "soon",
                after(Duration::MAX) => { "never" }
                join(cancelled) -> _ => "another",
            };
            assert!(["soon", "later"].contains(&first), "{first}");
            unlucky.cancel();
            cancelled.cancel();
        });
    }
}

#[test]
fn a_join_that_was_selected_is_used_up() {
    let mut fiber = sinew::spawn(|| 7);
    assert_eq!(select! { join(fiber) -> result => result.unwrap() }, 7);
    let again = catch_unwind(AssertUnwindSafe(|| fiber.join()));
    let text = *again.unwrap_err().downcast::<&str>().unwrap();
    assert!(text.contains("given its result"), "{text}");
    // A fiber cannot wait for itself in this way either.
    sinew::run(|| {
        let (sender, receiver) = channel::bounded::<sinew::JoinHandle<()>>(1);
        let fiber = sinew::spawn(move || {
            let mut me = receiver.recv().unwrap();
            select! { join(me) -> _ => {} }
        });
        let handle = fiber.fiber();
        sender.send(fiber).unwrap();
        handle.wait_finished();
        assert!(handle.panicked());
    });
}

/// A scope does not raise the panic of a child again if an arm has received it.
#[test]
fn children_of_a_scope_are_arms() {
    sinew::scope(|s| {
        let mut child = s.spawn(|| -> u32 { panic!("no luck") });
        let mut other = s.spawn(|| 7);
        select! {
            join(child) -> result => assert!(result.is_err()),
            after(Duration::MAX) => unreachable!(),
        }
        select! {
            join(other) -> result => assert_eq!(result.unwrap(), 7),
            after(Duration::MAX) => unreachable!(),
        }
    });
}

/// Permits that are selected, released with their arm, timed out or cancelled are conserved.
#[test]
fn permits_are_arms() {
    let _watch = watch::a_minute();
    let mut seeds = Seed::from_env();
    for carriers in [1, 2, 4] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let permits = Arc::new(Semaphore::new(3));
        let (most, inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let fibers: Vec<_> = (0..16)
            .map(|_| {
                let (permits, mut seed) = (permits.clone(), seeds.fork());
                let (most, inside) = (most.clone(), inside.clone());
                runtime.spawn(move || {
                    struct Leave<'a>(&'a AtomicUsize, usize);
                    impl Drop for Leave<'_> {
                        fn drop(&mut self) {
                            self.0.fetch_sub(self.1, Ordering::Relaxed);
                        }
                    }
                    for _ in 0..200 {
                        let count = 1 + seed.below(2);
                        let mut arm = permits.arm_many(count);
                        let mut soon = sync::after(Duration::from_micros(seed.below(50) as u64));
                        let chosen = match seed.below(3) {
                            0 => sync::select(&mut [&mut arm], Patience::None),
                            1 => sync::select(&mut [&mut soon, &mut arm], Patience::Forever)
                                .map(|index| 1 - index),
                            _ => {
                                sync::select(&mut [&mut arm, &mut permits.arm()], Patience::Forever)
                            }
                        };
                        if chosen == Some(0) && seed.below(4) > 0 {
                            let _permits = arm.take();
                            let now = inside.fetch_add(count, Ordering::Relaxed) + count;
                            let _leave = Leave(&inside, count);
                            most.fetch_max(now, Ordering::Relaxed);
                            sinew::yield_now();
                        }
                    }
                })
            })
            .collect();
        for fiber in fibers.iter().step_by(4) {
            fiber.cancel();
        }
        for (n, fiber) in fibers.into_iter().enumerate() {
            let result = fiber.join();
            assert!(result.is_ok() || n % 4 == 0 && sinew::is_cancel(&*result.unwrap_err()));
        }
        assert_eq!(permits.available(), 3);
        assert!(most.load(Ordering::Relaxed) <= 3);
        assert!(permits.try_acquire_many(3).is_some());
    }
}
