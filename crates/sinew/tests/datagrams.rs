//! UDP: datagrams stay whole, and waits for them end as in the standard library.

use crate::backends::{as_fiber_and_thread, on_each, until_it_waits};
use sinew::net::UdpSocket;
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

mod backends;

fn bound() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// Two sockets that are connected to each other.
fn connected() -> (UdpSocket, UdpSocket) {
    let (one, other) = (bound(), bound());
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    (one, other)
}

#[test]
fn bytes_beyond_the_buffer_are_lost() {
    as_fiber_and_thread(|| {
        let (one, other) = connected();
        one.send(b"hello").unwrap();
        one.send(b"next").unwrap();
        let mut buffer = [0; 3];
        assert_eq!(other.recv(&mut buffer).unwrap(), 3);
        assert_eq!(&buffer, b"hel");
        let mut buffer = [0; 8];
        assert_eq!(other.recv_from(&mut buffer).unwrap(), (4, one.local_addr().unwrap()));
        assert_eq!(&buffer[..4], b"next");
    });
}

#[test]
fn datagrams_of_no_bytes_arrive() {
    as_fiber_and_thread(|| {
        let (one, other) = connected();
        assert_eq!(one.send(b"").unwrap(), 0);
        assert_eq!(one.send_to(b"", other.local_addr().unwrap()).unwrap(), 0);
        one.send(b"x").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(other.recv(&mut buffer).unwrap(), 0);
        assert_eq!(other.recv_from(&mut buffer).unwrap(), (0, one.local_addr().unwrap()));
        assert_eq!(other.recv(&mut buffer).unwrap(), 1);
    });
}

#[test]
fn an_empty_buffer_takes_a_datagram() {
    as_fiber_and_thread(|| {
        let (one, other) = connected();
        one.send(b"first").unwrap();
        one.send(b"second").unwrap();
        one.send(b"third").unwrap();
        assert_eq!(other.recv(&mut []).unwrap(), 0);
        assert_eq!(other.recv_from(&mut []).unwrap(), (0, one.local_addr().unwrap()));
        let mut buffer = [0; 8];
        assert_eq!(other.recv(&mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"third");
        other.set_nonblocking(true).unwrap();
        assert_eq!(other.recv(&mut []).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn an_empty_buffer_waits_for_a_datagram() {
    on_each(|runtime| {
        let (one, other) = connected();
        let receiver = runtime.spawn(move || other.recv(&mut []).unwrap());
        until_it_waits(&receiver);
        one.send(b"x").unwrap();
        assert_eq!(receiver.join().unwrap(), 0);
    });
}

#[test]
fn a_peek_takes_nothing() {
    as_fiber_and_thread(|| {
        let (one, other) = connected();
        one.send(b"hello").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(other.peek(&mut buffer[..2]).unwrap(), 2);
        assert_eq!(other.peek_from(&mut buffer).unwrap(), (5, one.local_addr().unwrap()));
        assert_eq!(other.recv(&mut buffer).unwrap(), 5);
        other.set_nonblocking(true).unwrap();
        assert_eq!(other.peek(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_peek_waits() {
    on_each(|runtime| {
        let (one, other) = connected();
        let peeker = runtime.spawn(move || {
            let mut buffer = [0; 8];
            (other.peek(&mut buffer).unwrap(), other.recv(&mut buffer).unwrap())
        });
        until_it_waits(&peeker);
        one.send(b"x").unwrap();
        assert_eq!(peeker.join().unwrap(), (1, 1));
    });
}

#[test]
fn a_connected_socket_receives_only_from_its_peer() {
    as_fiber_and_thread(|| {
        let (one, other) = connected();
        let stranger = bound();
        stranger.send_to(b"strange", other.local_addr().unwrap()).unwrap();
        one.send(b"known").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(other.recv_from(&mut buffer).unwrap(), (5, one.local_addr().unwrap()));
        assert_eq!(other.peer_addr().unwrap(), one.local_addr().unwrap());
        assert!(stranger.send(b"to nobody").is_err());
    });
}

#[test]
fn sending_to_a_closed_socket_is_refused() {
    as_fiber_and_thread(|| {
        let (one, other) = connected();
        drop(other);
        one.send(b"x").unwrap();
        let error = one.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // The error was reported once, and is gone.
        one.set_nonblocking(true).unwrap();
        assert_eq!(one.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_refusal_ends_a_wait() {
    on_each(|runtime| {
        let (one, other) = connected();
        drop(other);
        let one = Arc::new(one);
        let receiver = runtime.spawn({
            let one = one.clone();
            move || one.recv(&mut [0; 8]).unwrap_err().kind()
        });
        until_it_waits(&receiver);
        one.send(b"x").unwrap();
        assert_eq!(receiver.join().unwrap(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_receive_that_takes_too_long_would_block() {
    as_fiber_and_thread(|| {
        let socket = bound();
        let timeout = Duration::from_millis(5);
        socket.set_read_timeout(Some(timeout)).unwrap();
        assert_eq!(socket.read_timeout().unwrap(), Some(timeout));
        let start = Instant::now();
        for _ in 0..2 {
            assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert_eq!(socket.peek_from(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        assert!(start.elapsed() >= timeout * 4);
        let zero = socket.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(zero.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn two_readers_share_the_datagrams() {
    on_each(|runtime| {
        let (one, other) = connected();
        let copy = other.try_clone().unwrap();
        let read = |socket: UdpSocket| {
            move || {
                let mut sum = 0;
                loop {
                    let mut buffer = [0; 8];
                    match socket.recv(&mut buffer).unwrap() {
                        0 => return sum,
                        count => sum += count,
                    }
                }
            }
        };
        let readers = [runtime.spawn(read(other)), runtime.spawn(read(copy))];
        readers.iter().for_each(until_it_waits);
        for _ in 0..100 {
            one.send(b"x").unwrap();
        }
        // One empty datagram ends each reader.
        one.send(b"").unwrap();
        one.send(b"").unwrap();
        let sum: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert_eq!(sum, 100);
    });
}

#[test]
fn a_fiber_and_a_thread_answer_each_other() {
    on_each(|runtime| {
        let (one, other) = connected();
        let echo = |socket: UdpSocket, begins: bool| {
            move || {
                let mut buffer = [0; 8];
                if begins {
                    socket.send(b"x").unwrap();
                }
                for _ in 0..200 {
                    let count = socket.recv(&mut buffer).unwrap();
                    socket.send(&buffer[..count]).unwrap();
                }
                socket
            }
        };
        let fiber = runtime.spawn(echo(one, true));
        let thread = thread::spawn(echo(other, false));
        let (_one, _other) = (fiber.join().unwrap(), thread.join().unwrap());
    });
}

#[test]
fn a_cancelled_fiber_leaves_its_receive_and_the_datagram() {
    on_each(|runtime| {
        let (one, other) = connected();
        let other = Arc::new(other);
        let receiver = runtime.spawn({
            let other = other.clone();
            move || other.recv(&mut [0; 8]).unwrap()
        });
        until_it_waits(&receiver);
        receiver.cancel();
        assert!(sinew::is_cancel(&*receiver.join().unwrap_err()));
        one.send(b"x").unwrap();
        assert_eq!(runtime.run(move || other.recv(&mut [0; 8]).unwrap()), 1);
    });
}

#[test]
fn closing_ends_waits_of_fibers_and_threads() {
    on_each(|runtime| {
        let socket = Arc::new(bound());
        let receive =
            |socket: Arc<UdpSocket>| move || socket.recv_from(&mut [0]).unwrap_err().kind();
        let fiber = runtime.spawn(receive(socket.clone()));
        let thread = thread::spawn(receive(socket.clone()));
        until_it_waits(&fiber);
        socket.close().unwrap();
        assert_eq!(fiber.join().unwrap(), ErrorKind::NotConnected);
        assert_eq!(thread.join().unwrap(), ErrorKind::NotConnected);
        let to = bound().local_addr().unwrap();
        assert_eq!(socket.send_to(b"x", to).unwrap_err().kind(), ErrorKind::NotConnected);
    });
}

/// On a socket that was shut down, Linux returns "would block" to a non-blocking receive.
#[test]
fn a_socket_that_is_shut_down_gives_an_end() {
    on_each(|runtime| {
        let (one, _other) = connected();
        let one = Arc::new(one);
        let receive = |one: Arc<UdpSocket>| {
            move || {
                // The first call may have to wait; the second finds that the end is already
                // reported.
                assert_eq!(one.recv(&mut [0; 8]).unwrap(), 0);
                assert_eq!(one.peek(&mut [0; 8]).unwrap(), 0);
            }
        };
        let fiber = runtime.spawn(receive(one.clone()));
        until_it_waits(&fiber);
        let thread = thread::spawn(receive(one.clone()));
        socket2::SockRef::from(&*one).shutdown(std::net::Shutdown::Read).unwrap();
        fiber.join().unwrap();
        thread.join().unwrap();
        runtime.run(receive(one));
    });
}

#[test]
fn settings_reach_the_system() {
    as_fiber_and_thread(|| {
        let socket = bound();
        let same = socket2::SockRef::from(&socket).try_clone().unwrap();
        socket.set_broadcast(true).unwrap();
        assert!(same.broadcast().unwrap());
        socket.set_ttl(7).unwrap();
        assert_eq!(same.ttl_v4().unwrap(), 7);
        let no_address: &[std::net::SocketAddr] = &[];
        assert_eq!(socket.send_to(b"x", no_address).unwrap_err().kind(), ErrorKind::InvalidInput);
        let std = std::net::UdpSocket::from(socket);
        std.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(std.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let socket = UdpSocket::from(std);
        assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}
