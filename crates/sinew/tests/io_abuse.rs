//! What safe code can do to descriptors that it should not: the runtime bears it.

use crate::backends::{connected, on_each, until_it_waits};
use sinew::Runtime;
use sinew::io::PipeWriter;
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

mod backends;

/// The processor time that this process has used.
fn processor_time() -> Duration {
    // SAFETY: zeroed is a valid value to write over.
    let usage = unsafe {
        let mut usage = core::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    [usage.ru_utime, usage.ru_stime]
        .iter()
        .map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000))
        .sum()
}

#[test]
fn two_who_watch_one_descriptor_do_not_keep_the_kernel_busy() {
    // Alone in its process, whose processor time is measured.
    let name = "two_who_watch_one_descriptor_do_not_keep_the_kernel_busy";
    child(name, || on_each(are_quiet)).assert_success();
}

fn are_quiet(runtime: &Runtime) {
    let (reader, mut writer) = sinew::io::pipe().unwrap();
    let reader = Arc::new(reader);
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let reader = reader.clone();
            runtime.spawn(move || sinew::io::wait_readable(&*reader, None))
        })
        .collect();
    waiters.iter().for_each(until_it_waits);
    let before = processor_time();
    thread::sleep(Duration::from_millis(200));
    let used = processor_time() - before;
    writer.write_all(b"x").unwrap();
    for waiter in waiters {
        assert!(waiter.join().unwrap().unwrap());
    }
    assert!(
        used < Duration::from_millis(100),
        "used {used:?} while nothing happened on {runtime:?}"
    );
}

#[test]
fn sockets_outlive_the_runtimes_that_watched_them() {
    let _watch = watch::a_minute();
    for backend in backends::all() {
        for round in 0..50 {
            let runtime = Runtime::builder().carriers(2).backend(backend).build().unwrap();
            let pairs: Vec<_> = (0..8).map(|_| connected()).collect();
            let fibers: Vec<_> = pairs
                .into_iter()
                .map(|(client, server)| {
                    let server = Arc::new(server);
                    let theirs = server.clone();
                    let fiber = runtime.spawn(move || (&*theirs).read(&mut [0]).is_ok());
                    (client, server, fiber)
                })
                .collect();
            fibers.iter().for_each(|(_, _, fiber)| until_it_waits(fiber));
            let threads: Vec<_> = fibers
                .into_iter()
                .map(|(client, server, fiber)| {
                    thread::spawn(move || {
                        if round % 2 == 0 {
                            drop(client);
                        }
                        let _ = server.close();
                        drop(server);
                        let _ = fiber.join();
                    })
                })
                .collect();
            drop(runtime);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    }
}
#[test]
fn packets_of_a_pipe_that_became_one_of_packets_are_all_read() {
    on_each(|runtime| {
        let (mut reader, mut writer) = sinew::io::pipe().unwrap();
        // SAFETY: a valid descriptor.
        unsafe {
            let flags = libc::fcntl(writer.as_raw_fd(), libc::F_GETFL);
            assert_eq!(libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT), 0);
        }
        let fiber = runtime.spawn(move || {
            let mut buffer = [0; 16];
            let first = reader.read(&mut buffer).unwrap();
            (reader, first)
        });
        until_it_waits(&fiber);
        writer.write_all(b"a").unwrap();
        let (mut reader, _) = fiber.join().unwrap();
        writer.write_all(b"bc").unwrap();
        writer.write_all(b"def").unwrap();
        thread::sleep(Duration::from_millis(20));
        let fiber = runtime.spawn(move || {
            let mut buffer = [0; 16];
            [reader.read(&mut buffer).unwrap(), reader.read(&mut buffer).unwrap()]
        });
        assert_eq!(fiber.join().unwrap(), [2, 3]);
        drop(writer);
    });
}

#[test]
fn a_runtime_that_was_given_up_does_not_keep_the_events_of_another() {
    for backend in backends::all() {
        let _watch = watch::a_minute();
        let one = Runtime::builder().carriers(1).backend(backend).build().unwrap();
        let other = Runtime::builder().carriers(1).backend(backend).build().unwrap();
        let (mut client, server) = connected();
        let server = Arc::new(server);
        let theirs = server.clone();
        // Watched by the first runtime from now on.
        let first = one.spawn(move || (&*theirs).read(&mut [0]).unwrap());
        until_it_waits(&first);
        let theirs = server.clone();
        let second = other.spawn(move || (&*theirs).read(&mut [0]).unwrap());
        until_it_waits(&second);
        let (stuck, is_stuck) = mpsc::channel();
        one.spawn(move || {
            stuck.send(()).unwrap();
            loop {
                thread::sleep(Duration::from_secs(1));
            }
        });
        is_stuck.recv().unwrap();
        one.shutdown_timeout(Duration::from_millis(20)).unwrap_err();
        client.write_all(b"x").unwrap();
        assert_eq!(second.join().unwrap(), 1);
    }
}

#[test]
fn messages_of_a_socket_that_was_taken_for_a_stream_are_all_read() {
    use sinew::net::TcpStream;
    use std::os::fd::OwnedFd;
    on_each(|runtime| {
        let (one, other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let mut reader = TcpStream::from(OwnedFd::from(one));
        let fiber = runtime.spawn(move || {
            let mut buffer = [0; 16];
            let first = reader.read(&mut buffer).unwrap();
            (reader, first)
        });
        until_it_waits(&fiber);
        other.send(b"a").unwrap();
        let (mut reader, _) = fiber.join().unwrap();
        other.send(b"bc").unwrap();
        other.send(b"def").unwrap();
        // Both are seen before the first is read.
        thread::sleep(Duration::from_millis(20));
        let fiber = runtime.spawn(move || {
            let mut buffer = [0; 16];
            [reader.read(&mut buffer).unwrap(), reader.read(&mut buffer).unwrap()]
        });
        assert_eq!(fiber.join().unwrap(), [2, 3]);
    });
}

#[test]
fn a_report_hook_that_waits_disturbs_no_wait() {
    let name = "a_report_hook_that_waits_disturbs_no_wait";
    let outcome = child(name, || {
        let _watch = watch::a_minute();
        for backend in backends::all() {
            let runtime = Runtime::builder().carriers(1).backend(backend).build().unwrap();
            let (mut reader, mut writer) = sinew::io::pipe().unwrap();
            let (one, other) = (sinew::sync::Mutex::new(()), sinew::io::pipe().unwrap());
            sinew::set_report_hook(move |_| {
                let _held = one.lock();
                sinew::yield_now();
                let _ = (&other.0).read(&mut [0]);
            });
            // From now on there is no descriptor for a poller.
            let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
            let none = libc::rlimit { rlim_cur: next as u64, rlim_max: 1024 };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
            let others: Vec<_> = (0..4).map(|_| runtime.spawn(sinew::yield_now)).collect();
            let fiber = runtime.spawn(move || reader.read(&mut [0]).unwrap());
            until_it_waits(&fiber);
            writer.write_all(b"x").unwrap();
            assert_eq!(fiber.join().unwrap(), 1);
            others.into_iter().for_each(|other| other.join().unwrap());
            let some = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &some) }, 0);
        }
    });
    outcome.assert_success();
}

#[test]
fn a_carrier_that_idles_in_a_hook_has_told_the_kernel_what_it_waits_for() {
    let _watch = watch::a_minute();
    for backend in backends::all() {
        let runtime = Runtime::builder()
            .carriers(1)
            .backend(backend)
            .idle_hook(|idle| {
                let timeout = idle.timeout().map_or(-1, |timeout| timeout.as_millis() as i32 + 1);
                let events = libc::POLLIN;
                let mut fd = libc::pollfd { fd: idle.as_fd().as_raw_fd(), events, revents: 0 };
                // SAFETY: one valid entry.
                unsafe { libc::poll(&raw mut fd, 1, timeout) };
            })
            .build()
            .unwrap();
        let (writers, ends) = mpsc::channel::<PipeWriter>();
        let fiber = runtime.spawn(move || {
            for _ in 0..200 {
                // Made beforehand: the carrier has just looked when the reader begins to wait.
                let (mut first, mut one) = sinew::io::pipe().unwrap();
                let (mut second, other) = sinew::io::pipe().unwrap();
                let writes = sinew::spawn_local(move || one.write_all(b"x").unwrap());
                assert_eq!(first.read(&mut [0]).unwrap(), 1);
                writers.send(other).unwrap();
                assert_eq!(second.read(&mut [0]).unwrap(), 1);
                writes.join().unwrap();
            }
        });
        for mut end in ends {
            thread::sleep(Duration::from_millis(1));
            end.write_all(b"x").unwrap();
        }
        fiber.join().unwrap();
    }
}

#[test]
fn the_state_of_a_context_slot_follows_a_fiber_to_a_thread_and_back() {
    thread_local!(static STATE: Cell<u32> = const { Cell::new(0) });
    static SLOT: sinew::ContextSlot<u32> =
        sinew::ContextSlot::new(|value| *value = STATE.replace(*value));
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    for number in 1..100 {
        // SAFETY: the closure keeps numbers only.
        let builder = unsafe { sinew::Builder::new().migratable() };
        let fiber = builder.runtime(runtime.handle()).spawn(move || {
            let (seen, last) = SLOT.enter(number, || {
                let inside = sinew::on_thread(|| STATE.get());
                let after = STATE.get();
                sinew::yield_now();
                [inside, after, STATE.get()]
            });
            assert_eq!((seen, last), ([number; 3], number));
            // The thread has its own back.
            sinew::on_thread(|| STATE.get())
        });
        assert_eq!(fiber.unwrap().join().unwrap(), 0);
    }
}
