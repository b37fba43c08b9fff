//! Safe code misuses descriptors, and the runtime copes with it.

use crate::backends::{connected, on_each, until_it_waits};
use sinew::io::{Async, PipeWriter};
use sinew::net::{Shutdown, TcpStream};
use sinew::runtime::PinnedWait;
use sinew::{FiberBuilder, Runtime, wait_until};
use sinew_testkit::child::child;
use sinew_testkit::processor_time;
use sinew_testkit::{Seed, watch};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

mod backends;

#[test]
fn several_waits_for_one_descriptor_use_no_processor() {
    // In a separate process, because its processor time is measured.
    let name = "several_waits_for_one_descriptor_use_no_processor";
    child(name, || on_each(are_quiet)).assert_success();
}

fn are_quiet(runtime: &Runtime) {
    let (reader, mut writer) = sinew::io::pipe().unwrap();
    let reader = Arc::new(reader);
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let reader = reader.clone();
            runtime.spawn(move || sinew::io::wait_readable(&*reader))
        })
        .collect();
    waiters.iter().for_each(until_it_waits);
    let before = processor_time();
    thread::sleep(Duration::from_millis(200));
    let used = processor_time() - before;
    writer.write_all(b"x").unwrap();
    for waiter in waiters {
        waiter.join().unwrap().unwrap();
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
fn a_pipe_in_packet_mode_loses_no_packet() {
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
        // The first runtime watches the socket from here on.
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
fn a_datagram_socket_used_as_a_stream_loses_no_message() {
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
        // The runtime sees both messages before it reads the first.
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
            // From here on there is no descriptor for a poller.
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
fn a_carrier_registers_its_waits_before_the_idle_hook() {
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
                // Make both pipes first: then the carrier has just polled when the reader begins to
                // wait.
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
        // SAFETY: the closure keeps only numbers.
        let builder = unsafe { FiberBuilder::new().migratable() };
        let fiber = builder.runtime(runtime.handle()).spawn(move || {
            let (seen, last) = SLOT.enter(number, || {
                let inside = sinew::on_thread(|| STATE.get());
                let after = STATE.get();
                sinew::yield_now();
                [inside, after, STATE.get()]
            });
            assert_eq!((seen, last), ([number; 3], number));
            // The thread has its own state back.
            sinew::on_thread(|| STATE.get())
        });
        assert_eq!(fiber.unwrap().join().unwrap(), 0);
    }
}

/// A source that counts its drops, and waits, yields or panics in its destructor.
struct Noisy {
    reader: io::PipeReader,
    dropped: Arc<AtomicUsize>,
    manner: usize,
}

impl AsFd for Noisy {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Drop for Noisy {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        match self.manner {
            0 => sinew::sleep(Duration::from_micros(10)),
            1 if sinew::can_yield() => sinew::yield_now(),
            2 if !thread::panicking() => resume_unwind(Box::new("a bad destructor")),
            _ => {}
        }
    }
}

#[test]
fn sources_of_unstarted_fibers_are_dropped_once_whatever_ends_them() {
    let mut seed = Seed::from_env();
    for round in 0..10 {
        for backend in backends::all() {
            let _watch = watch::a_minute();
            let runtime = Runtime::builder().carriers(2).backend(backend).build().unwrap();
            let dropped = Arc::new(AtomicUsize::new(0));
            let (mut handles, mut threads) = (Vec::new(), Vec::new());
            for _ in 0..24 {
                let (reader, mut writer) = io::pipe().unwrap();
                let (dropped, manner) = (dropped.clone(), seed.below(4));
                let source = Async::new(Noisy { reader, dropped, manner }).unwrap();
                let mut builder = FiberBuilder::new().runtime(runtime.handle());
                if seed.below(3) == 0 {
                    builder = builder.carrier(seed.below(2));
                }
                // Too large for the control block.
                let large = [1_u8; 500];
                let handle = builder
                    .spawn_when_readable(source, move |source| {
                        (&source.get_ref().reader).read(&mut [0]).map(|_| large.len())
                    })
                    .unwrap();
                let (fiber, what) = (handle.fiber(), seed.below(6));
                threads.push(thread::spawn(move || {
                    if what < 3 {
                        fiber.cancel();
                    }
                    if what % 2 == 0 {
                        writer.write_all(b"x").unwrap_or(());
                    }
                    if what == 2 {
                        fiber.cancel();
                    }
                }));
                if seed.below(3) > 0 {
                    handles.push(handle);
                }
            }
            if round % 2 == 0 {
                runtime.shutdown_timeout(Duration::from_secs(30)).unwrap();
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            handles.into_iter().for_each(|handle| drop(handle.join()));
            wait_until(|| dropped.load(Ordering::Relaxed) == 24);
        }
    }
}

#[test]
fn no_byte_is_lost_when_runtimes_that_share_a_socket_come_and_go() {
    let _watch = watch::a_minute();
    for backend in backends::all() {
        let stays = Runtime::builder().carriers(1).backend(backend).build().unwrap();
        let (client, server) = connected();
        let (server, got) = (Arc::new(server), Arc::new(AtomicUsize::new(0)));
        let reader = |server: &Arc<TcpStream>| {
            let (server, got) = (server.clone(), got.clone());
            move || loop {
                match (&*server).read(&mut [0; 3]).unwrap() {
                    0 => break,
                    count => got.fetch_add(count, Ordering::Relaxed),
                };
            }
        };
        let last = stays.spawn(reader(&server));
        let writer = thread::spawn(move || {
            for _ in 0..1000 {
                (&client).write_all(b"x").unwrap();
                thread::yield_now();
            }
            client
        });
        while !writer.is_finished() {
            let goes = Runtime::builder().carriers(2).backend(backend).build().unwrap();
            (0..4).for_each(|_| drop(goes.spawn(reader(&server))));
            thread::sleep(Duration::from_micros(300));
        }
        writer.join().unwrap().shutdown(Shutdown::Write).unwrap();
        last.join().unwrap();
        assert_eq!(got.load(Ordering::Relaxed), 1000);
    }
}

#[test]
fn fibers_go_to_threads_and_back_while_others_unwind() {
    /// Moves to a thread in its destructor, perhaps while its fiber is unwound.
    struct Leaves(Arc<AtomicUsize>);
    impl Drop for Leaves {
        fn drop(&mut self) {
            sinew::on_thread(thread::yield_now);
            sinew::blocking(thread::yield_now);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let _watch = watch::a_minute();
    let left = Arc::new(AtomicUsize::new(0));
    for round in 0..10 {
        let runtime = Runtime::builder().carriers(2).pinned_wait(PinnedWait::Silent);
        let runtime = runtime.build().unwrap();
        let fibers: Vec<_> = (0..40)
            .map(|index| {
                let leaves = Leaves(left.clone());
                // SAFETY: the closure keeps nothing that belongs to the thread across a wait.
                let builder = unsafe { FiberBuilder::new().migratable() };
                let fiber = builder.runtime(runtime.handle()).spawn(move || {
                    let _leaves = leaves;
                    for step in 0..10 {
                        let blocks = || {
                            sinew::on_thread(thread::yield_now);
                            sinew::sleep(Duration::from_micros(5));
                        };
                        let _ = sinew::timeout(Duration::from_micros(20), || {
                            sinew::on_thread(blocks);
                        });
                        sinew::yield_now();
                        if (index + step) % 17 == 0 {
                            resume_unwind(Box::new("unwound"));
                        }
                    }
                });
                fiber.unwrap()
            })
            .collect();
        match round % 3 {
            0 => fibers.iter().for_each(sinew::JoinHandle::cancel),
            1 => runtime.shutdown_timeout(Duration::from_secs(30)).unwrap(),
            _ => {}
        }
        fibers.into_iter().for_each(|fiber| drop(fiber.join()));
    }
    assert_eq!(left.load(Ordering::Relaxed), 400);
}

/// The types are unwind-safe, as in the standard library.
#[test]
fn sockets_and_files_are_unwind_safe() {
    fn passes<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    passes::<TcpStream>();
    passes::<sinew::net::TcpListener>();
    passes::<sinew::net::UdpSocket>();
    passes::<sinew::os::unix::net::UnixStream>();
    passes::<sinew::os::unix::net::UnixListener>();
    passes::<sinew::os::unix::net::UnixDatagram>();
    passes::<Async<std::fs::File>>();
    passes::<PipeWriter>();
    passes::<sinew::io::PipeReader>();
    passes::<sinew::fs::File>();
    passes::<sinew::fs::ReadDir>();
    passes::<sinew::process::Child>();
}

/// The error names the value and the allowed values.
#[test]
fn an_unknown_backend_is_an_error() {
    let name = "an_unknown_backend_is_an_error";
    for value in ["bogus", "kqueue", "", "poll"] {
        let prepare = |command: &mut std::process::Command| {
            command.env("SINEW_IO", value);
        };
        sinew_testkit::child::child_with(name, prepare, || {
            let error = Runtime::new().err().map(|error| error.to_string());
            let reason = match std::env::var("SINEW_IO").unwrap().as_str() {
                "bogus" => "which is no way to wait for descriptors; use one of",
                "kqueue" if cfg!(target_os = "linux") => "which this system does not have; use",
                _ => return assert_eq!(error, None),
            };
            let error = error.unwrap();
            assert!(error.starts_with("SINEW_IO is \"") && error.contains(reason), "{error}");
        })
        .assert_success();
    }
}
