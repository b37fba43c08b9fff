//! Closing a socket that other fibers and threads use. They learn that it was closed, and see
//! nothing else.

use crate::backends::{
    Who, all, connected, on_each, on_each_with, until_it_waits, write_until_it_fails,
};
use sinew::io::{Async, Interest, PollFd};
use sinew::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use sinew::{FiberBuilder, Runtime};
use sinew_testkit::Seed;
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::io::{ErrorKind, Read, Write};
use std::net;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

mod backends;

const ROUNDS: usize = 200;

type Answer = Result<usize, ErrorKind>;

fn read(stream: &TcpStream) -> Answer {
    (&*stream).read(&mut [0; 16]).map_err(|error| error.kind())
}

fn write(stream: &TcpStream) -> Answer {
    Err(write_until_it_fails(stream))
}

fn accept(listener: &TcpListener) -> Answer {
    listener.accept().map(|_| 0).map_err(|error| error.kind())
}

/// Lets fibers, threads and a pinned fiber wait in `wait`, closes the socket, and checks their
/// results.
fn all_are_woken<S: Send + Sync + 'static>(
    runtime: &Runtime,
    socket: S,
    wait: fn(&S) -> Answer,
    close: fn(&S),
) {
    let socket = Arc::new(socket);
    let start = |who: Who| {
        let socket = socket.clone();
        who.start(runtime, move || wait(&socket))
    };
    let waiting = [Who::Fiber, Who::Fiber, Who::Migratable, Who::Thread].map(start);
    let mut waiting = Vec::from(waiting);
    waiting.iter().for_each(|member| member.until_it_waits());
    waiting.push(start(Who::Pinned));
    let closer = socket.clone();
    Who::Thread.start(runtime, move || close(&closer)).end();
    for member in waiting {
        assert_eq!(member.end(), Err(ErrorKind::NotConnected));
    }
    assert_eq!(wait(&socket), Err(ErrorKind::NotConnected), "also for who comes later");
    close(&socket);
    assert_eq!(wait(&socket), Err(ErrorKind::NotConnected), "also when it is closed again");
}

#[test]
fn closing_wakes_all_readers() {
    on_each(|runtime| {
        let (one, _other) = connected();
        all_are_woken(runtime, one, read, |stream| stream.close().unwrap());
    });
}

#[test]
fn closing_wakes_all_writers() {
    on_each(|runtime| {
        let (one, _other) = connected();
        all_are_woken(runtime, one, write, |stream| stream.close().unwrap());
    });
}

#[test]
fn closing_wakes_all_accepting_fibers_and_threads() {
    on_each(|runtime| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        all_are_woken(runtime, listener, accept, |listener| listener.close().unwrap());
    });
}

#[test]
fn closing_wakes_fibers_of_the_same_carrier_and_of_others() {
    on_each_with(2, |runtime| {
        for (theirs, ours) in [(0, 0), (0, 1), (1, 0)] {
            let on = |carrier| FiberBuilder::new().runtime(runtime.handle()).carrier(carrier);
            let (one, _other) = connected();
            let one = Arc::new(one);
            let stream = one.clone();
            let reader = on(theirs).spawn(move || read(&stream)).unwrap();
            until_it_waits(&reader);
            on(ours).spawn(move || one.close().unwrap()).unwrap().join().unwrap();
            assert_eq!(reader.join().unwrap(), Err(ErrorKind::NotConnected));
        }
    });
}

#[test]
fn shutting_down_wakes_readers_with_the_end_and_writers_with_an_error() {
    on_each(|runtime| {
        for who in Who::POLITE {
            let (one, mut other) = connected();
            let one = Arc::new(one);
            let start = |work: fn(&TcpStream) -> Answer| {
                let stream = one.clone();
                who.start(runtime, move || work(&stream))
            };
            let (reader, writer) = (start(read), start(write));
            reader.until_it_waits();
            writer.until_it_waits();
            one.shutdown(Shutdown::Read).unwrap();
            assert_eq!(reader.end(), Ok(0));
            one.shutdown(Shutdown::Write).unwrap();
            assert_eq!(writer.end(), Err(ErrorKind::BrokenPipe));
            // The bytes that were sent before arrive, and then the end.
            let rest = Who::Thread.start(runtime, move || other.read_to_end(&mut Vec::new()));
            rest.end().unwrap();
        }
    });
}

#[test]
fn a_copy_of_a_closed_socket_is_open_and_sees_the_end_of_the_connection() {
    on_each(|runtime| {
        runtime.run(|| {
            let (one, mut other) = connected();
            let copy = one.try_clone().unwrap();
            let reader = sinew::spawn(move || (read(&copy), write(&copy), copy));
            until_it_waits(&reader);
            one.close().unwrap();
            let (read, wrote, copy) = reader.join().unwrap();
            assert_eq!((read, wrote), (Ok(0), Err(ErrorKind::BrokenPipe)));
            assert!(copy.local_addr().is_ok() && one.local_addr().is_err());
            assert_eq!(other.read(&mut [0]).unwrap(), 0);
        });
    });
}

#[test]
fn the_peer_sees_the_end_when_the_last_reference_goes() {
    on_each(|runtime| {
        let (one, mut other) = connected();
        let one = Arc::new(one);
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let one = one.clone();
                runtime.spawn(move || read(&one))
            })
            .collect();
        drop(one);
        readers.iter().for_each(until_it_waits);
        for reader in readers {
            other.set_nonblocking(true).unwrap();
            assert_eq!(other.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            other.set_nonblocking(false).unwrap();
            reader.cancel();
            assert!(sinew::is_cancel(&*reader.join().unwrap_err()));
        }
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn without_descriptors_closing_fails_and_wakes_all_the_same() {
    child("without_descriptors_closing_fails_and_wakes_all_the_same", || {
        on_each(|runtime| {
            let (one, mut other) = connected();
            let one = Arc::new(one);
            let stream = one.clone();
            let reader = runtime.spawn(move || read(&stream));
            until_it_waits(&reader);
            // Use up the rest of the limit.
            let mut all = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                all.push(file);
            }
            assert!(one.close().is_err());
            assert_eq!(reader.join().unwrap(), Err(ErrorKind::NotConnected));
            assert_eq!(read(&one), Err(ErrorKind::NotConnected));
            assert_eq!(other.read(&mut [0]).unwrap(), 0, "the peer sees the end");
        });
    })
    .assert_success();
}

#[test]
fn a_reader_never_takes_the_closing_for_the_end() {
    on_each(|runtime| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for _ in 0..ROUNDS {
            let stream = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let _other = listener.accept().unwrap();
            let start = Arc::new(Barrier::new(2));
            let fiber = runtime.spawn({
                let stream = stream.clone();
                move || read(&stream)
            });
            let thread = thread::spawn({
                let (start, stream) = (start.clone(), stream.clone());
                move || {
                    start.wait();
                    read(&stream)
                }
            });
            start.wait();
            stream.close().unwrap();
            assert_eq!(fiber.join().unwrap(), Err(ErrorKind::NotConnected));
            assert_eq!(thread.join().unwrap(), Err(ErrorKind::NotConnected));
        }
    });
}

#[test]
fn a_receiver_never_takes_the_closing_for_a_datagram() {
    on_each(|runtime| {
        for _ in 0..ROUNDS {
            let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
            let start = Arc::new(Barrier::new(2));
            let receive = |socket: Arc<UdpSocket>| {
                move || socket.recv(&mut [0]).map_err(|error| error.kind())
            };
            let fiber = runtime.spawn(receive(socket.clone()));
            let thread = thread::spawn({
                let (start, receive) = (start.clone(), receive(socket.clone()));
                move || {
                    start.wait();
                    receive()
                }
            });
            start.wait();
            socket.close().unwrap();
            assert_eq!(fiber.join().unwrap(), Err(ErrorKind::NotConnected));
            assert_eq!(thread.join().unwrap(), Err(ErrorKind::NotConnected));
        }
    });
}

/// A new descriptor reuses a number that was just closed with pending events. Its waiter waits for
/// its own events.
#[test]
fn a_number_that_is_reused_at_once_wakes_its_new_owner_only() {
    let mut seed = Seed::from_env();
    let seed = std::cell::RefCell::new(&mut seed);
    on_each(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        // These members leave behind numbers with events that were not harvested.
        let churn: Vec<_> = [Who::Fiber, Who::Thread]
            .map(|who| {
                let stop = stop.clone();
                who.start(runtime, move || {
                    let mut rounds = 0;
                    while !stop.load(Ordering::Relaxed) {
                        churn_once();
                        rounds += 1;
                        sinew::yield_now();
                    }
                    rounds
                })
            })
            .into();
        let waiters: Vec<_> = (0..6)
            .map(|index| {
                let mut seed = seed.borrow_mut().fork();
                Who::POLITE[index % 3].start(runtime, move || {
                    for round in 0..ROUNDS {
                        wait_for_own(&mut seed, round as u8);
                    }
                })
            })
            .collect();
        waiters.into_iter().for_each(|waiter| waiter.end());
        stop.store(true, Ordering::Relaxed);
        assert!(churn.into_iter().all(|member| member.end() > 0));
    });
}

/// Opens two ends, has them watched, makes both ready, and closes them.
fn churn_once() {
    let (one, other) = UnixStream::pair().unwrap();
    let (one, other) = (Async::new(one).unwrap(), Async::new(other).unwrap());
    let _ = one.wait_readable_timeout(Duration::from_nanos(1)).unwrap();
    let _ = other.wait_readable_timeout(Duration::from_nanos(1)).unwrap();
    (&one).write_all(b"not for you").unwrap();
    (&other).write_all(b"nor this").unwrap();
}

/// Waits for a late byte, in one of three ways. Nothing else ends the wait.
fn wait_for_own(seed: &mut Seed, byte: u8) {
    let (one, other) = UnixStream::pair().unwrap();
    let late = write_later(other, byte);
    let mut buffer = [0; 8];
    match seed.below(3) {
        0 => {
            sinew::io::wait_readable(&one).unwrap();
            assert_eq!((&one).read(&mut buffer).unwrap(), 1);
        }
        1 => {
            let mut entries = [PollFd::new(&one, Interest::Readable)];
            assert_eq!(sinew::io::poll(&mut entries, None).unwrap(), 1);
            assert!(entries[0].is_readable());
            assert_eq!((&one).read(&mut buffer).unwrap(), 1);
        }
        _ => {
            let one = Async::new(one).unwrap();
            assert_eq!((&one).read(&mut buffer).unwrap(), 1);
        }
    }
    assert_eq!(buffer[0], byte);
    late();
}

/// Lets a fiber write `byte` after other fibers had a chance to run. Returns a closure that waits
/// for its end.
fn write_later(other: UnixStream, byte: u8) -> impl FnOnce() {
    let late = sinew::spawn(move || {
        sinew::yield_now();
        (&other).write_all(&[byte]).unwrap();
        other
    });
    move || drop(late.join().unwrap())
}

/// A number that sinew watches is closed without telling sinew, and reused for another socket.
#[test]
fn a_number_that_was_closed_unnoticed_serves_its_next_owner() {
    child("a_number_that_was_closed_unnoticed_serves_its_next_owner", || {
        on_each(take_over_numbers);
    })
    .assert_success();
}

fn take_over_numbers(runtime: &Runtime) {
    for ready_before in [false, true] {
        let (one, other) = UnixStream::pair().unwrap();
        let number = one.as_raw_fd();
        let watched = runtime.run(move || {
            let watched = Async::new(one).unwrap();
            assert!(!watched.wait_readable_timeout(Duration::from_millis(1)).unwrap());
            watched
        });
        // The slot still claims that the number is watched.
        std::mem::forget(watched);
        if ready_before {
            (&other).write_all(b"old").unwrap();
        }
        let (new, peer) = UnixStream::pair().unwrap();
        // SAFETY: the forgotten value owned the number. From now on the new socket owns it.
        let new = unsafe {
            assert_eq!(libc::dup2(new.as_raw_fd(), number), number);
            UnixStream::from_raw_fd(number)
        };
        let reader = runtime.spawn(move || {
            sinew::io::wait_readable(&new).unwrap();
            let mut buffer = [0; 8];
            (&new).read(&mut buffer).map(|count| buffer[..count].to_vec()).unwrap()
        });
        until_it_waits(&reader);
        (&peer).write_all(b"new").unwrap();
        assert_eq!(reader.join().unwrap(), b"new");
    }
}

/// A registration that was forgotten with all its entries does not outlive the number.
#[test]
fn a_forgotten_registration_does_not_keep_a_number_closed() {
    child("a_forgotten_registration_does_not_keep_a_number_closed", || {
        on_each(|runtime| {
            let number = runtime.run(|| {
                let (one, _other) = UnixStream::pair().unwrap();
                let watched = Async::new(&one).unwrap();
                assert!(!watched.wait_readable_timeout(Duration::from_millis(1)).unwrap());
                std::mem::forget(watched);
                one.as_raw_fd()
            });
            for _ in 0..2 {
                let (one, mut other) = connected_at(number);
                let one = Arc::new(one);
                let stream = one.clone();
                let reader = runtime.spawn(move || read(&stream));
                until_it_waits(&reader);
                other.write_all(b"x").unwrap();
                assert_eq!(reader.join().unwrap(), Ok(1));
                one.close().unwrap();
                assert_eq!(read(&one), Err(ErrorKind::NotConnected));
            }
        });
    })
    .assert_success();
}

/// Returns two ends of a connection. The first has the number `number`, which is free or about to
/// be: threads of the runtime open files for a moment, and free numbers below it shift ours.
fn connected_at(number: RawFd) -> (TcpStream, TcpStream) {
    let (one, other) = connected();
    if other.as_raw_fd() == number {
        return (other, one);
    }
    let mut one = OwnedFd::from(one);
    while one.as_raw_fd() != number {
        // SAFETY: the copy is new and only ours, whatever its number.
        let copy = unsafe {
            let copy = libc::fcntl(one.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number);
            assert!(copy >= 0, "{}", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(copy)
        };
        if copy.as_raw_fd() == number {
            one = copy;
        }
    }
    (one.into(), other)
}

/// The owner of the socket reads. Other fibers wait for its number for a while.
#[test]
fn a_short_wait_does_not_end_the_watch_of_the_owner() {
    on_each(|runtime| {
        let (one, mut other) = connected();
        let one = Arc::new(one);
        let count = Arc::new(AtomicUsize::new(0));
        let reader = {
            let (one, count) = (one.clone(), count.clone());
            runtime.spawn(move || {
                let mut buffer = [0];
                while (&*one).read(&mut buffer).unwrap() > 0 {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        until_it_waits(&reader);
        for round in 0..20 {
            let stream = one.clone();
            let brief = runtime.spawn(move || {
                sinew::io::wait_readable_timeout(&*stream, Duration::from_micros(100)).unwrap()
            });
            brief.join().unwrap();
            other.write_all(b"x").unwrap();
            sinew::wait_until(|| count.load(Ordering::SeqCst) == round + 1);
        }
        drop(other);
        reader.join().unwrap();
    });
}

fn blocks(socket: &impl AsFd) -> bool {
    // SAFETY: a valid descriptor.
    let flags = unsafe { libc::fcntl(socket.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK == 0
}

#[test]
fn a_socket_returned_to_the_standard_library_has_its_settings() {
    on_each(|runtime| {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (short, long) = (Duration::from_millis(40), Duration::from_secs(3));
        client.set_read_timeout(Some(short)).unwrap();
        client.set_write_timeout(Some(long)).unwrap();
        let listener = TcpListener::from(listener);
        let stream = TcpStream::from(client);
        let (listener, stream, mut accepted) = runtime.run(move || {
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(stream.read_timeout().unwrap(), Some(short));
            assert_eq!(stream.write_timeout().unwrap(), Some(long));
            assert_eq!(read(&stream), Err(ErrorKind::WouldBlock));
            assert!(!blocks(&stream) && !blocks(&accepted) && !blocks(&listener));
            (listener, stream, accepted)
        });
        accepted.set_read_timeout(Some(long)).unwrap();
        let mut stream = net::TcpStream::from(stream);
        assert!(blocks(&stream) && blocks(&net::TcpListener::from(listener)));
        assert_eq!(stream.read_timeout().unwrap(), Some(short));
        assert_eq!(stream.write_timeout().unwrap(), Some(long));
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        accepted.write_all(b"x").unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 1);
        let accepted = net::TcpStream::from(accepted);
        assert_eq!(accepted.read_timeout().unwrap(), Some(long));
        // The socket still serves fibers, and a socket set to not block does not block.
        let stream = TcpStream::from(stream);
        stream.set_nonblocking(true).unwrap();
        assert!(!blocks(&net::TcpStream::from(stream)));
        // A bare descriptor, which a child process may inherit, blocks again too.
        assert!(blocks(&OwnedFd::from(TcpStream::from(accepted))));
    });
}

#[test]
fn a_socket_that_was_converted_is_not_watched() {
    on_each(|runtime| {
        for _ in 0..20 {
            let (one, mut other) = connected();
            let one = runtime.run(move || {
                one.set_read_timeout(Some(Duration::from_micros(1))).unwrap();
                assert_eq!(read(&one), Err(ErrorKind::WouldBlock));
                one.set_read_timeout(None).unwrap();
                net::TcpStream::from(one)
            });
            let number: RawFd = one.as_raw_fd();
            let again = runtime.run(move || {
                let one = TcpStream::from(one);
                assert_eq!(one.as_raw_fd(), number);
                let reader = sinew::spawn(move || read(&one));
                until_it_waits(&reader);
                reader
            });
            other.write_all(b"x").unwrap();
            assert_eq!(again.join().unwrap(), Ok(1));
        }
    });
}

/// Two runtimes share a socket. The runtime that has the kernel watch the socket ends first.
#[test]
fn a_wait_survives_the_end_of_the_runtime_that_watched() {
    let _watch = watch::a_minute();
    for (one, other) in
        all().into_iter().flat_map(|one| all().into_iter().map(move |two| (one, two)))
    {
        let [first, second] = [one, other]
            .map(|backend| Runtime::builder().carriers(2).backend(backend).build().unwrap());
        let (stream, mut peer) = connected();
        let stream = Arc::new(stream);
        let start = |runtime: &Runtime| {
            let stream = stream.clone();
            runtime.spawn(move || read(&stream))
        };
        let watched = start(&first);
        until_it_waits(&watched);
        let (copy, mut copy_peer) = connected();
        let waits = start(&second);
        let armed = FiberBuilder::new().runtime(second.handle());
        let armed = armed.spawn_when_readable(copy, |copy| read(&copy)).unwrap();
        until_it_waits(&waits);
        first.shutdown_timeout(Duration::from_secs(20)).unwrap();
        assert!(sinew::is_cancel(&*watched.join().unwrap_err()));
        peer.write_all(b"x").unwrap();
        copy_peer.write_all(b"x").unwrap();
        assert_eq!(waits.join().unwrap(), Ok(1));
        assert_eq!(armed.join().unwrap(), Ok(1));
    }
}

/// Changing carriers, runtimes and threads wait for one descriptor.
#[test]
fn a_socket_that_wanders_is_watched_wherever_it_is() {
    on_each(|runtime| {
        let elsewhere = Runtime::builder().carriers(1).build().unwrap();
        let (one, mut other) = connected();
        let one = Arc::new(one);
        for round in 0..60 {
            let stream = one.clone();
            let runtime = if round % 5 == 0 { &elsewhere } else { runtime };
            let reader = Who::POLITE[round % 3].start(runtime, move || read(&stream));
            reader.until_it_waits();
            other.write_all(b"x").unwrap();
            assert_eq!(reader.end(), Ok(1));
        }
    });
}

/// The kernel interrupts a thread that has opened or entered a ring when the ring is closed. This
/// must not hit a thread of the user's, because its system calls would fail.
#[test]
fn threads_are_not_interrupted_by_runtimes_that_end() {
    let _watch = watch::a_minute();
    let (mut one, _other) = UnixStream::pair().unwrap();
    one.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
    for backend in all() {
        for _ in 0..20 {
            let runtime = Runtime::builder().carriers(1).backend(backend).build().unwrap();
            let (reader, mut writer) = sinew::io::pipe().unwrap();
            let reader = runtime.spawn(move || (&reader).read(&mut [0]).unwrap());
            until_it_waits(&reader);
            writer.write_all(b"x").unwrap();
            reader.join().unwrap();
            drop(runtime);
            let error = one.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{backend:?}");
        }
    }
}
