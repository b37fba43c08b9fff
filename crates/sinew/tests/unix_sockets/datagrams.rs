//! Datagrams, and senders that wait for room.

use crate::backends::{as_fiber_and_thread, on_each, until_it_waits};
use crate::{Place, fill};
use sinew::Runtime;
use sinew::net::Shutdown;
use sinew::os::unix::net::UnixDatagram;
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn datagrams_stay_whole() {
    as_fiber_and_thread(|| {
        let (one, other) = UnixDatagram::pair().unwrap();
        one.send(b"hello").unwrap();
        one.send(b"").unwrap();
        one.send(b"lost").unwrap();
        one.send(b"last").unwrap();
        let mut buffer = [0; 3];
        assert_eq!(other.recv(&mut buffer).unwrap(), 3);
        assert_eq!(&buffer, b"hel");
        assert_eq!(other.recv(&mut buffer).unwrap(), 0);
        assert_eq!(other.recv(&mut []).unwrap(), 0);
        let mut buffer = [0; 8];
        let (count, from) = other.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"last");
        assert!(from.is_unnamed());
    });
}

#[test]
fn datagrams_go_to_addresses() {
    as_fiber_and_thread(|| {
        let (here, there) = (Place::new(), Place::new());
        let (one, other) =
            (UnixDatagram::bind(&here).unwrap(), UnixDatagram::bind(&there).unwrap());
        one.send_to(b"a", &there).unwrap();
        one.send_to_addr(b"b", &other.local_addr().unwrap()).unwrap();
        one.connect_addr(&other.local_addr().unwrap()).unwrap();
        one.send(b"c").unwrap();
        for expected in *b"abc" {
            let mut buffer = [0; 8];
            let (count, from) = other.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], [expected]);
            assert_eq!(from.as_pathname(), Some(here.as_ref()));
        }
        let unbound = UnixDatagram::unbound().unwrap();
        assert_eq!(unbound.send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
        let missing = unbound.send_to(b"x", Place::new()).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

/// Lets `send` wait for room, and receives everything.
fn drain(
    runtime: &Runtime,
    socket: UnixDatagram,
    receiver: &UnixDatagram,
    send: impl Fn(&UnixDatagram) -> std::io::Result<usize> + Send + Sync + 'static,
) {
    socket.set_nonblocking(true).unwrap();
    let filled = fill(|_| send(&socket));
    socket.set_nonblocking(false).unwrap();
    let (socket, send) = (Arc::new(socket), Arc::new(send));
    let some = |socket: Arc<UnixDatagram>| {
        let send = send.clone();
        move || (0..20).for_each(|_| assert_eq!(send(&socket).unwrap(), 1))
    };
    let fiber = runtime.spawn(some(socket.clone()));
    until_it_waits(&fiber);
    let thread = thread::spawn(some(socket));
    for _ in 0..filled + 40 {
        assert_eq!(receiver.recv(&mut [0; 8]).unwrap(), 1);
    }
    fiber.join().unwrap();
    thread.join().unwrap();
}

#[test]
fn a_sender_waits_for_room() {
    on_each(|runtime| {
        let (one, other) = UnixDatagram::pair().unwrap();
        drain(runtime, one, &other, |socket| socket.send(b"x"));

        let place = Place::new();
        let (one, other) = (UnixDatagram::unbound().unwrap(), UnixDatagram::bind(&place).unwrap());
        one.connect(&place).unwrap();
        drain(runtime, one, &other, |socket| socket.send(b"x"));
    });
}

/// On Linux, room in the queue of a socket to which the sender is not connected makes nothing
/// ready.
#[test]
fn a_sender_to_an_address_waits_for_room() {
    on_each(|runtime| {
        let place = Place::new();
        let (one, other) = (UnixDatagram::unbound().unwrap(), UnixDatagram::bind(&place).unwrap());
        let path = place.0.clone();
        drain(runtime, one, &other, move |socket| socket.send_to(b"x", &path));

        let (one, address) = (UnixDatagram::unbound().unwrap(), other.local_addr().unwrap());
        drain(runtime, one, &other, move |socket| socket.send_to_addr(b"x", &address));

        // The sender's own buffers are full, with datagrams for a socket that receives only from
        // its peer.
        let back = Place::new();
        let one = UnixDatagram::bind(&back).unwrap();
        other.connect(&back).unwrap();
        let path = place.0.clone();
        drain(runtime, one, &other, move |socket| socket.send_to(b"x", &path));
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_wait_for_room_at_an_address_ends_in_every_way() {
    on_each(|runtime| {
        let place = Place::new();
        let other = UnixDatagram::bind(&place).unwrap();
        let one = Arc::new(UnixDatagram::unbound().unwrap());
        one.set_nonblocking(true).unwrap();
        fill(|data| one.send_to(data, &place));
        one.set_nonblocking(false).unwrap();
        let send = || {
            let (one, path) = (one.clone(), place.0.clone());
            move || one.send_to(b"x", path).unwrap_err().kind()
        };

        let fiber = runtime.spawn(send());
        until_it_waits(&fiber);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));

        one.set_write_timeout(Some(Duration::from_millis(3))).unwrap();
        assert_eq!(runtime.run(send()), ErrorKind::WouldBlock);
        assert_eq!(thread::spawn(send()).join().unwrap(), ErrorKind::WouldBlock);
        one.set_write_timeout(None).unwrap();

        let copy = Arc::new(one.try_clone().unwrap());
        let fiber = runtime.spawn({
            let (copy, path) = (copy.clone(), place.0.clone());
            move || copy.send_to(b"x", path).unwrap_err().kind()
        });
        until_it_waits(&fiber);
        copy.close().unwrap();
        assert_eq!(fiber.join().unwrap(), ErrorKind::NotConnected);

        let one = UnixDatagram::unbound().unwrap();
        let path = place.0.clone();
        let fiber = runtime.spawn(move || one.send_to(b"x", path).unwrap_err().kind());
        until_it_waits(&fiber);
        drop(other);
        assert_eq!(fiber.join().unwrap(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_waiting_sender_notices_that_the_receiver_is_gone() {
    on_each(|runtime| {
        let place = Place::new();
        let (one, other) = (UnixDatagram::unbound().unwrap(), UnixDatagram::bind(&place).unwrap());
        one.connect(&place).unwrap();
        let fiber = runtime.spawn(move || {
            loop {
                if let Err(error) = one.send(b"x") {
                    return error.kind();
                }
            }
        });
        until_it_waits(&fiber);
        drop(other);
        assert_eq!(fiber.join().unwrap(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_datagram_socket_that_is_shut_down_gives_an_end() {
    on_each(|runtime| {
        let (one, other) = UnixDatagram::pair().unwrap();
        let one = Arc::new(one);
        let receive = |one: Arc<UnixDatagram>| {
            move || {
                // The first call may have to wait; the second finds that the end is already
                // reported.
                assert_eq!(one.recv(&mut [0; 8]).unwrap(), 0);
                let (count, from) = one.recv_from(&mut [0; 8]).unwrap();
                assert!(count == 0 && from.is_unnamed());
            }
        };
        let fiber = runtime.spawn(receive(one.clone()));
        until_it_waits(&fiber);
        let thread = thread::spawn(receive(one.clone()));
        one.shutdown(Shutdown::Read).unwrap();
        fiber.join().unwrap();
        thread.join().unwrap();
        runtime.run(receive(one.clone()));
        assert_eq!(other.send(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}
