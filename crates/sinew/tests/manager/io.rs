//! Sockets, timers and blocking work, in fibers of a manager.

use crate::kit::{LONG, MS, kept, simple};
use sinew::manager::{EventLoop, manager_for};
use sinew::net::{TcpListener, TcpStream};
use sinew::os::unix::net::UnixStream;
use sinew::runtime::Backend;
use sinew_testkit::child::child_with;
use sinew_testkit::watch;
use std::cell::Cell;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn fibers_echo_to_each_other() {
    let _watch = watch::a_minute();
    const CLIENTS: usize = 10;
    let (manager, controller) = simple();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = kept(Cell::new(0));
    manager.add_task(move || {
        for _ in 0..CLIENTS {
            let (stream, _) = listener.accept().unwrap();
            sinew::manager::add_task(move || {
                sinew::io::copy(&mut &stream, &mut &stream).unwrap();
                served.set(served.get() + 1);
            });
        }
    });
    for client in 0..CLIENTS {
        manager.add_task(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            for round in 0..20 {
                let message = [(client * 20 + round) as u8; 100];
                stream.write_all(&message).unwrap();
                let mut answer = [0; 100];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, message);
            }
        });
    }
    controller.run();
    assert_eq!(served.get(), CLIENTS);
}

#[test]
fn a_fiber_echoes_to_a_thread() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let echo = manager.add_task_future(move || {
        let (stream, _) = listener.accept().unwrap();
        sinew::io::copy(&mut &stream, &mut &stream).unwrap()
    });
    let client = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let message: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        let mut half = stream.try_clone().unwrap();
        let sent = message.clone();
        let writer = std::thread::spawn(move || {
            half.write_all(&sent).unwrap();
            half.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        writer.join().unwrap();
        answer == message
    });
    events.run();
    assert_eq!(echo.get().unwrap(), 200_000);
    assert!(client.join().unwrap());
}

#[test]
fn other_fibers_run_while_one_waits_for_data() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (one, other) = UnixStream::pair().unwrap();
    let turns = kept(Cell::new(0));
    let read = manager.add_task_future(move || {
        let mut byte = [0];
        (&one).read_exact(&mut byte).unwrap();
        (byte[0], turns.get())
    });
    manager.add_task(move || {
        for _ in 0..50 {
            turns.set(turns.get() + 1);
            sinew::yield_now();
        }
        (&other).write_all(&[7]).unwrap();
        // Keep it open until it was read.
        sinew::sleep(MS);
    });
    controller.run();
    assert_eq!(read.get().unwrap(), (7, 50));
}

#[test]
fn data_is_noticed_although_a_fiber_never_rests() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (one, other) = UnixStream::pair().unwrap();
    let stop = kept(Cell::new(false));
    manager.add_task(|| {
        while !stop.get() {
            sinew::yield_now();
        }
    });
    manager.add_task(move || {
        let mut byte = [0];
        (&one).read_exact(&mut byte).unwrap();
        stop.set(true);
    });
    let thread = std::thread::spawn(move || {
        (&other).write_all(&[1]).unwrap();
        other
    });
    controller.run();
    assert!(stop.get());
    drop(thread.join().unwrap());
}

#[test]
fn sleeps_overlap() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let start = Instant::now();
    for _ in 0..100 {
        manager.add_task(move || {
            sinew::sleep(30 * MS);
            assert!(start.elapsed() >= 30 * MS);
        });
    }
    controller.run();
    assert!(start.elapsed() < 100 * 30 * MS);
}

#[test]
fn a_timeout_unwinds_a_wait() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (one, other) = UnixStream::pair().unwrap();
    let results = manager.add_task_future(move || {
        let sleep = sinew::timeout(MS, || sinew::sleep(LONG));
        let read = sinew::timeout(MS, || {
            let mut byte = [0];
            (&one).read_exact(&mut byte)
        });
        let park = sinew::timeout(MS, sinew::park);
        let quick = sinew::timeout(LONG, || 7);
        (sleep.is_err(), read.is_err(), park.is_err(), quick)
    });
    controller.run();
    assert_eq!(results.get().unwrap(), (true, true, true, Ok(7)));
    drop(other);
}

#[test]
fn predicates_are_asked_until_they_are_true() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let count = kept(Cell::new(0));
    let waited = manager.add_task_future(|| {
        sinew::wait_until(|| count.get() >= 5);
        (count.get(), sinew::wait_until_timeout(|| false, 2 * MS))
    });
    manager.add_task(|| {
        for _ in 0..5 {
            count.set(count.get() + 1);
            sinew::sleep(Duration::from_micros(300));
        }
    });
    controller.run();
    assert_eq!(waited.get().unwrap(), (5, false));
}

#[test]
fn work_that_blocks_goes_to_another_thread() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let here = std::thread::current().id();
    let turns = kept(Cell::new(0));
    let done = kept(Cell::new(false));
    let work = manager.add_task_future(move || {
        let there = sinew::blocking(|| {
            std::thread::sleep(5 * MS);
            std::thread::current().id()
        });
        done.set(true);
        there != here
    });
    manager.add_task(|| {
        while !done.get() {
            turns.set(turns.get() + 1);
            sinew::yield_now();
        }
    });
    controller.run();
    assert!(work.get().unwrap());
    assert!(turns.get() > 1);
}

#[test]
fn waits_for_data_and_time_and_tasks_from_afar_share_a_sleep() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (one, other) = UnixStream::pair().unwrap();
    let remote = manager.remote();
    let read = manager.add_task_future(move || {
        let mut bytes = [0; 10];
        (&one).read_exact(&mut bytes).unwrap();
        bytes
    });
    manager.add_task(|| sinew::sleep(LONG.min(10 * MS)));
    let thread = std::thread::spawn(move || {
        for n in 0..10_u8 {
            let seen = remote.add_task_remote_future(move || n).get().unwrap();
            (&other).write_all(&[seen]).unwrap();
        }
        other
    });
    controller.run();
    assert_eq!(read.get().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    drop(thread.join().unwrap());
}

#[test]
fn a_cancelled_read_leaves_the_data() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (one, other) = UnixStream::pair().unwrap();
    let again = one.try_clone().unwrap();
    let first = manager.add_task_future(move || {
        let mut byte = [0];
        (&one).read_exact(&mut byte).unwrap();
    });
    manager.loop_until_no_ready();
    first.cancel();
    manager.loop_until_no_ready();
    assert!(sinew::is_cancel(&*first.get().unwrap_err()));
    (&other).write_all(&[7]).unwrap();
    let second = manager.add_task_future(move || {
        let mut byte = [0];
        (&again).read_exact(&mut byte).unwrap();
        byte[0]
    });
    controller.run();
    assert_eq!(second.get().unwrap(), 7);
}

/// The kernel requests of an eager task are submitted before the loop sleeps, although the task
/// does not run in a turn of the loop.
#[test]
fn an_eager_task_is_woken_by_its_descriptor() {
    for backend in [Backend::Epoll, Backend::Uring, Backend::Poll] {
        if !backend.is_supported() {
            continue;
        }
        let name = "io::an_eager_task_is_woken_by_its_descriptor";
        let variable = format!("{backend:?}").to_lowercase();
        let outcome = child_with(
            name,
            |command| {
                command.env("SINEW_IO", variable);
            },
            reads_eagerly,
        );
        outcome.assert_success();
    }
}

fn reads_eagerly() {
    let _watch = watch::a_minute();
    let event_loop = EventLoop::new().unwrap();
    let manager = manager_for(&event_loop);
    let (ours, theirs) = UnixStream::pair().unwrap();
    // Another fiber waits already, so the backend is in use.
    let (idle, other) = UnixStream::pair().unwrap();
    manager.add_task(move || drop((&idle).read(&mut [0])));
    let handle = manager.clone();
    event_loop.run_after(20 * MS, move || {
        let task = handle.add_task_eager_future(move || (&ours).read_exact(&mut [0]).unwrap());
        // A thread writes when the task waits and the loop has nothing else to do.
        std::thread::spawn(move || {
            while !task.is_ready() && task.fiber().waits_for().is_none() {
                std::thread::yield_now();
            }
            (&theirs).write_all(b"x").unwrap();
            task.wait();
            drop(other);
        });
    });
    event_loop.run();
    assert!(!manager.has_tasks());
}

/// A fiber of `spawn_for_each_arrival` belongs to the manager whose fiber made it.
#[test]
fn a_resting_fiber_goes_on_in_its_manager() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let here = std::thread::current().id();
    let calls = kept(Cell::new(0));
    let (one, other) = UnixStream::pair().unwrap();
    manager.add_task(move || {
        let echo = sinew::spawn_for_each_arrival(other, move |stream| {
            assert_eq!(std::thread::current().id(), here);
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(1) => {
                    sinew::yield_now();
                    stream.write_all(&byte).unwrap();
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(7),
            }
        });
        assert_eq!(echo.join().unwrap(), 7);
    });
    manager.add_task(move || {
        for round in 0..50 {
            (&one).write_all(&[round]).unwrap();
            let mut answer = [0];
            (&one).read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round]);
            calls.set(calls.get() + 1);
        }
    });
    controller.run();
    assert_eq!(calls.get(), 50);
}

/// Dropping a manager ends its resting fibers, before and after they have run.
#[test]
fn a_resting_fiber_ends_with_its_manager() {
    let _watch = watch::a_minute();
    for runs in [false, true] {
        let dropped = Arc::new(AtomicBool::new(false));
        struct Sets(Arc<AtomicBool>);
        impl Drop for Sets {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let (manager, controller) = simple();
        let (one, other) = UnixStream::pair().unwrap();
        let sets = Sets(dropped.clone());
        let calls = kept(Cell::new(0));
        let client = one.try_clone().unwrap();
        manager.add_task(move || {
            let fiber = sinew::spawn_for_each_arrival(other, move |stream| {
                let _kept = &sets;
                match stream.read(&mut [0]).and_then(|_| stream.write(b"y")) {
                    Ok(1) => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            });
            drop(fiber);
            if runs {
                (&client).write_all(b"x").unwrap();
                (&client).read_exact(&mut [0]).unwrap();
            }
            calls.set(1);
        });
        controller.run_until(|| calls.get() == 1);
        assert!(!dropped.load(Ordering::SeqCst));
        drop(manager);
        assert!(dropped.load(Ordering::SeqCst));
        assert_eq!((&one).read(&mut [0]).unwrap(), 0);
    }
}

/// A fiber with a closed source is called again and again. The loop gets its turn in between.
#[test]
fn a_fiber_that_never_rests_does_not_keep_the_loop() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (_one, other) = UnixStream::pair().unwrap();
    let other = Arc::new(other);
    other.close().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let theirs = calls.clone();
    manager.add_task(move || {
        drop(sinew::spawn_for_each_arrival(other, move |_| {
            theirs.fetch_add(1, Ordering::SeqCst);
            ControlFlow::<()>::Continue(())
        }));
    });
    let others = kept(Cell::new(0));
    for _ in 0..100 {
        manager.add_task(move || others.set(others.get() + 1));
        controller.run_once();
    }
    assert_eq!(others.get(), 100);
    assert!(calls.load(Ordering::SeqCst) > 10);
    drop(manager);
}
