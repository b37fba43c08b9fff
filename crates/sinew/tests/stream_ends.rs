//! The beginnings and ends of streams: half-closed, reset, refused, and timed out.

use crate::backends::{Who, connected, on_each, open_descriptors, write_until_it_fails};
use sinew::net::{Shutdown, TcpListener, TcpStream};
use sinew_testkit::Seed;
use sinew_testkit::child::child;
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod backends;

#[test]
fn each_direction_ends_by_itself() {
    on_each(|runtime| {
        for who in Who::POLITE {
            let (mut one, mut other) = connected();
            let theirs = who.start(runtime, move || {
                let mut request = String::new();
                other.read_to_string(&mut request).unwrap();
                other.write_all(format!("{request}, answered").as_bytes()).unwrap();
                other.shutdown(Shutdown::Write).unwrap();
                other.read(&mut [0]).unwrap()
            });
            let ours = who.start(runtime, move || {
                one.write_all(b"request").unwrap();
                one.shutdown(Shutdown::Write).unwrap();
                assert_eq!(one.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
                let mut answer = String::new();
                one.read_to_string(&mut answer).unwrap();
                assert_eq!(one.read(&mut [0]).unwrap(), 0);
                answer
            });
            assert_eq!(ours.end(), "request, answered");
            assert_eq!(theirs.end(), 0);
        }
    });
}

/// Closes a connection so that the other side gets an error instead of the end.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_reset_wakes_readers_and_writers() {
    on_each(|runtime| {
        for who in Who::POLITE {
            let (one, other) = connected();
            let one = Arc::new(one);
            let stream = one.clone();
            let writer = who.start(runtime, move || write_until_it_fails(&stream));
            writer.until_it_waits();
            let stream = one.clone();
            let reader = who.start(runtime, move || (&*stream).read(&mut [0; 8]));
            reader.until_it_waits();
            reset(other);
            let read = reader.end().map_err(|error| error.kind());
            let wrote = writer.end();
            // The kernel reports the error once; the other call finds a connection that has ended.
            let reset = ErrorKind::ConnectionReset;
            assert!([read, Err(wrote)].contains(&Err(reset)), "{read:?}, {wrote:?}");
            assert!(
                [Err(reset), Ok(0)].contains(&read)
                    && [reset, ErrorKind::BrokenPipe].contains(&wrote)
            );
        }
    });
}

#[test]
fn a_reset_before_the_read_is_found() {
    on_each(|runtime| {
        runtime.run(|| {
            let (mut one, mut other) = connected();
            // Two short reads, after which the next attempt might be skipped.
            for _ in 0..2 {
                other.write_all(b"x").unwrap();
                assert_eq!(one.read(&mut [0; 8]).unwrap(), 1);
            }
            reset(other);
            let kind = one.read(&mut [0; 8]).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::ConnectionReset);
        });
    });
}

#[test]
fn connecting_without_a_listener_is_refused() {
    on_each(|runtime| {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for who in Who::POLITE {
            let kind = who.start(runtime, move || TcpStream::connect(address).unwrap_err().kind());
            assert_eq!(kind.end(), ErrorKind::ConnectionRefused);
            let limit = Duration::from_secs(30);
            let connect = move || TcpStream::connect_timeout(&address, limit).unwrap_err().kind();
            assert_eq!(who.start(runtime, connect).end(), ErrorKind::ConnectionRefused);
        }
    });
}

/// A listener with a full queue: a client that connects gets no answer.
struct Silent {
    listener: Socket,
    _queued: Vec<Socket>,
}

impl Silent {
    fn new() -> Silent {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        // The system accepts the first connection. It drops the requests of the others.
        let queue = |_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&address);
            socket
        };
        let queued = (0..3).map(queue).collect();
        Silent { listener, _queued: queued }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap().as_socket().unwrap()
    }
}

#[test]
fn a_connect_without_an_answer_times_out() {
    on_each(|runtime| {
        let silent = Silent::new();
        let address = silent.address();
        for who in Who::POLITE {
            let limit = Duration::from_millis(30);
            let start = Instant::now();
            let connect = move || TcpStream::connect_timeout(&address, limit).unwrap_err().kind();
            assert_eq!(who.start(runtime, connect).end(), ErrorKind::TimedOut);
            let took = start.elapsed();
            assert!(took >= limit && took < limit * 30, "{took:?}");
        }
        assert!(TcpStream::connect_timeout(&address, Duration::ZERO).is_err());
        // A fiber that is cancelled meanwhile, and a fiber that reaches its timeout.
        let fiber = runtime.spawn(move || TcpStream::connect(address));
        backends::until_it_waits(&fiber);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        let limit = Duration::from_millis(5);
        runtime.run(move || {
            assert!(sinew::timeout(limit, || TcpStream::connect(address)).is_err());
        });
    });
}

#[test]
fn reads_and_writes_that_take_too_long_fail() {
    on_each(|runtime| {
        for who in Who::POLITE {
            let (mut one, other) = connected();
            let check = who.start(runtime, move || {
                let limit = Duration::from_millis(10);
                one.set_read_timeout(Some(limit)).unwrap();
                one.set_write_timeout(Some(limit)).unwrap();
                for _ in 0..2 {
                    let start = Instant::now();
                    assert_eq!(one.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
                    assert_eq!(write_until_it_fails(&one), ErrorKind::WouldBlock);
                    assert!(start.elapsed() >= limit * 2);
                }
                // A copy has the same timeout, and changes it for both.
                let mut copy = one.try_clone().unwrap();
                assert_eq!(copy.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
                copy.set_read_timeout(None).unwrap();
                assert_eq!(one.read_timeout().unwrap(), None);
            });
            check.end();
            drop(other);
        }
    });
}

/// Data comes about when the wait for it ends. It is read then, or by the next read.
#[test]
fn data_that_comes_at_the_deadline_is_not_lost() {
    const BYTES: usize = 300;
    let mut seed = Seed::from_env();
    let seed = std::cell::RefCell::new(&mut seed);
    on_each(|runtime| {
        for scoped in [false, true] {
            let (mut one, mut other) = connected();
            let mut chance = seed.borrow_mut().fork();
            let writer = std::thread::spawn(move || {
                for byte in 0..BYTES {
                    // By the clock, so that tools which slow the code down change little.
                    let pause = Duration::from_nanos(chance.below(60_000) as u64);
                    let start = Instant::now();
                    while start.elapsed() < pause {
                        std::hint::spin_loop();
                    }
                    other.write_all(&[byte as u8]).unwrap();
                }
            });
            let mut chance = seed.borrow_mut().fork();
            let reader = runtime.spawn(move || {
                let mut all = Vec::new();
                let mut late = 0;
                let mut buffer = [0; 8];
                loop {
                    let limit = Duration::from_micros(1 + chance.below(100) as u64);
                    let read = if scoped {
                        sinew::timeout(limit, || one.read(&mut buffer).unwrap()).ok()
                    } else {
                        one.set_read_timeout(Some(limit)).unwrap();
                        match one.read(&mut buffer) {
                            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                            result => Some(result.unwrap()),
                        }
                    };
                    match read {
                        None => late += 1,
                        Some(0) => return (all, late),
                        Some(count) => all.extend_from_slice(&buffer[..count]),
                    }
                }
            });
            writer.join().unwrap();
            let (all, _late) = reader.join().unwrap();
            assert_eq!(all.len(), BYTES);
            assert!(all.iter().enumerate().all(|(index, byte)| index as u8 == *byte));
        }
    });
}

#[test]
fn connections_that_failed_leave_no_descriptors() {
    child("connections_that_failed_leave_no_descriptors", || {
        on_each(|runtime| {
            let silent = Silent::new();
            let (silent_address, nobody) = (silent.address(), {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                listener.local_addr().unwrap()
            });
            let fail = move || {
                runtime.run(move || {
                    let limit = Duration::from_micros(200);
                    assert!(TcpStream::connect(nobody).is_err());
                    assert!(TcpStream::connect_timeout(&silent_address, limit).is_err());
                    assert!(sinew::timeout(limit, || TcpStream::connect(silent_address)).is_err());
                    let (mut one, other) = connected();
                    one.set_read_timeout(Some(limit)).unwrap();
                    assert!(one.read(&mut [0]).is_err());
                    let reader = sinew::spawn(move || (&other).read(&mut [0]).unwrap());
                    backends::until_it_waits(&reader);
                    reader.cancel();
                    assert!(reader.join().is_err());
                });
            };
            fail();
            let before = open_descriptors();
            (0..50).for_each(|_| fail());
            // A carrier that waited for the first time has opened a descriptor of its own.
            let after = open_descriptors();
            assert!(after <= before + runtime.handle().carriers(), "{before}, then {after}");
        });
    })
    .assert_success();
}
