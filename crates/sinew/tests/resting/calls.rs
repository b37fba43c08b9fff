//! Calls: what causes one, what it may do, and what remains of a fiber in between.

use crate::backends::{all, connected, on_each};
use crate::{answering, ask, on, until_it_rests};
use sinew::WaitKind::Readable;
use sinew::net::TcpStream;
use sinew::sync::channel::unbounded;
use sinew::{FiberState, Runtime};
use sinew_testkit::watch;
use std::io::{ErrorKind, Read, Write};
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_resting_fiber_keeps_its_identity() {
    on_each(|runtime| {
        for inside in [true, false] {
            let (one, other) = connected();
            let (sender, ids) = unbounded();
            let mut count = 0;
            let answer = move || {
                let me = sinew::current();
                assert_eq!(me.name(), Some("resting"));
                sender.send(me.id()).unwrap();
                count += 1;
                count
            };
            let builder = on(runtime).name("resting");
            let start = move || answering(builder, other, answer);
            let fiber = if inside { runtime.run(start) } else { start() };
            for count in 1..=20 {
                assert_eq!(ask(&one), count);
                assert_eq!(ids.recv().unwrap(), fiber.fiber().id());
            }
            drop(one);
            fiber.join().unwrap().unwrap();
        }
    });
}

/// There is one stack, which all these fibers and another one use one after the other.
#[test]
fn no_stack_is_needed_while_a_fiber_rests() {
    let _watch = watch::a_minute();
    for backend in all() {
        let builder = Runtime::builder().carriers(1).max_stacks(1).backend(backend);
        let runtime = builder.build().unwrap();
        let (clients, fibers): (Vec<_>, Vec<_>) = (0..20)
            .map(|index| {
                let (one, other) = connected();
                (one, answering(on(&runtime), other, move || index))
            })
            .unzip();
        for _ in 0..10 {
            for (index, client) in clients.iter().enumerate() {
                assert_eq!(usize::from(ask(client)), index);
            }
            // A fiber still uses its stack when its answer arrives.
            fibers.iter().for_each(until_it_rests);
            runtime.run(|| sinew::sleep(Duration::from_micros(10)));
        }
        drop(clients);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap().unwrap());
    }
}

#[test]
fn unread_bytes_cause_the_next_call() {
    on_each(|runtime| {
        let (mut one, other) = connected();
        one.write_all(b"all of this").unwrap();
        let mut text = Vec::new();
        let read = move |stream: &mut TcpStream| {
            let mut byte = [0];
            match stream.read(&mut byte).unwrap() {
                0 => Break(std::mem::take(&mut text)),
                _ => {
                    text.push(byte[0]);
                    Continue(())
                }
            }
        };
        let fiber = on(runtime).spawn_for_each_arrival(other, read).unwrap();
        one.write_all(b" and that").unwrap();
        drop(one);
        assert_eq!(fiber.join().unwrap(), b"all of this and that");
    });
}

/// Each call also waits for other events.
#[test]
fn a_call_may_wait() {
    on_each(|runtime| {
        let (one, other) = connected();
        let (requests, asked) = unbounded();
        let (answers, told) = unbounded();
        let answer = move || {
            requests.send(()).unwrap();
            sinew::sleep(Duration::from_micros(10));
            told.recv().unwrap()
        };
        let fiber = answering(on(runtime), other, answer);
        let helper = runtime.spawn(move || {
            for number in 0..10 {
                asked.recv().unwrap();
                answers.send(number).unwrap();
            }
        });
        for number in 0..10 {
            assert_eq!(ask(&one), number);
        }
        helper.join().unwrap();
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}

/// The next call gets the source with which the previous call replaced the first.
#[test]
fn a_source_may_be_replaced() {
    on_each(|runtime| {
        let ((mut one, other), (mut another, next)) = (connected(), connected());
        let mut next = Some(next);
        let serve = move |stream: &mut TcpStream| match next.take() {
            Some(next) => {
                *stream = next;
                Continue(())
            }
            None => Break(stream.read(&mut [0; 8]).unwrap()),
        };
        let fiber = on(runtime).spawn_for_each_arrival(other, serve).unwrap();
        one.write_all(b"x").unwrap();
        assert_eq!(one.read(&mut [0]).map_err(|error| error.kind()).unwrap_or(0), 0);
        another.write_all(b"hello").unwrap();
        assert_eq!(fiber.join().unwrap(), 5);
    });
}

#[test]
fn closing_the_source_calls_a_resting_fiber() {
    on_each(|runtime| {
        let (_one, other) = connected();
        let other = Arc::new(other);
        let serve = |stream: &mut Arc<TcpStream>| match (&**stream).read(&mut [0]) {
            Ok(1) => Continue(()),
            result => Break(result.map_err(|error| error.kind())),
        };
        let fiber = on(runtime).spawn_for_each_arrival(other.clone(), serve).unwrap();
        other.close().unwrap();
        assert_eq!(fiber.join().unwrap(), Err(ErrorKind::NotConnected));
        let fiber = on(runtime).spawn_for_each_arrival(other, serve).unwrap();
        assert_eq!(fiber.join().unwrap(), Err(ErrorKind::NotConnected));
    });
}

#[test]
fn a_snapshot_shows_a_resting_fiber() {
    on_each(|runtime| {
        let (one, other) = connected();
        let fiber = answering(on(runtime).name("seen"), other, || 1);
        ask(&one);
        until_it_rests(&fiber);
        let info =
            sinew::inspect::fibers().into_iter().find(|info| info.id() == fiber.fiber().id());
        let info = info.expect("it is among all");
        assert_eq!((info.name(), info.state), (Some("seen"), FiberState::Suspended));
        let wait = info.wait.as_ref().expect("it says what it waits for");
        assert_eq!((wait.kind, fiber.fiber().waits_for()), (Readable, Some(Readable)));
        assert_eq!(fiber.fiber().backtrace().unwrap().to_string(), "");
        drop(one);
        fiber.join().unwrap().unwrap();
    });
}
