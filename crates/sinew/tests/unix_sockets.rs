//! Unix sockets: streams, passed descriptors, datagrams, and busy listeners.

use crate::backends::{as_fiber_and_thread, on_each, until_it_waits};
use sinew::Runtime;
use sinew::net::Shutdown;
use sinew::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use sinew_testkit::child::child;
use sinew_testkit::processor_time;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

mod backends;

/// A path for a socket. Its file is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sinew-unix-sockets-{}-{count}", std::process::id());
        Place(std::env::temp_dir().join(name))
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_pair_is_connected_in_both_directions() {
    as_fiber_and_thread(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let mut buffer = [0; 4];
        one.write_all(b"ping").unwrap();
        other.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"ping");
        other.write_all(b"pong").unwrap();
        one.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"pong");
        assert_eq!(one.read(&mut []).unwrap(), 0);
        assert_eq!(one.read_vectored(&mut []).unwrap(), 0);
    });
}

#[test]
fn vectors_are_read_and_written_in_order() {
    as_fiber_and_thread(|| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let count = one.write_vectored(&[IoSlice::new(b"hel"), IoSlice::new(b"lo")]).unwrap();
        assert_eq!(count, 5);
        let (mut first, mut second) = ([0; 2], [0; 8]);
        let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(other.read_vectored(&mut buffers).unwrap(), 5);
        assert_eq!((&first, &second[..3]), (b"he", &b"llo"[..]));
    });
}

#[test]
fn connections_are_accepted() {
    on_each(|runtime| {
        let place = Place::new();
        let listener = UnixListener::bind(&place).unwrap();
        assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(place.as_ref()));
        let server = runtime.spawn(move || {
            for stream in listener.incoming().take(20) {
                let mut stream = stream.unwrap();
                sinew::spawn(move || {
                    let mut text = Vec::new();
                    stream.read_to_end(&mut text).unwrap();
                    stream.write_all(&text).unwrap();
                });
            }
        });
        let client = |path: PathBuf| {
            move || {
                let mut stream = UnixStream::connect(&path).unwrap();
                assert_eq!(stream.peer_addr().unwrap().as_pathname(), Some(&*path));
                stream.write_all(b"hello").unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                assert_eq!(text, "hello");
            }
        };
        let fibers: Vec<_> = (0..10).map(|_| runtime.spawn(client(place.0.clone()))).collect();
        let threads: Vec<_> = (0..10).map(|_| thread::spawn(client(place.0.clone()))).collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        server.join().unwrap();
    });
}

#[test]
fn a_listener_is_iterated_over_by_reference() {
    as_fiber_and_thread(|| {
        let place = Place::new();
        let listener = UnixListener::bind(&place).unwrap();
        let mut clients = [0; 2].map(|_| UnixStream::connect(&place).unwrap());
        let mut accepted = 0;
        for stream in &listener {
            stream.unwrap().write_all(b"x").unwrap();
            accepted += 1;
            if accepted == clients.len() {
                break;
            }
        }
        for client in &mut clients {
            assert_eq!(client.read(&mut [0; 8]).unwrap(), 1);
        }
    });
}

#[test]
fn a_client_is_known_by_its_address() {
    as_fiber_and_thread(|| {
        let (place, other) = (Place::new(), Place::new());
        let listener =
            UnixListener::bind_addr(&SocketAddr::from_pathname(&place).unwrap()).unwrap();
        let client =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        client.bind(&socket2::SockAddr::unix(&other).unwrap()).unwrap();
        client.connect(&socket2::SockAddr::unix(&place).unwrap()).unwrap();
        let (stream, address) = listener.accept().unwrap();
        assert_eq!(address.as_pathname(), Some(other.as_ref()));
        assert_eq!(stream.peer_addr().unwrap().as_pathname(), Some(other.as_ref()));
    });
}

#[test]
#[cfg(target_os = "linux")]
fn an_abstract_name_needs_no_file() {
    use std::os::linux::net::SocketAddrExt;

    as_fiber_and_thread(|| {
        let name = format!("sinew {:?} {:?}", Instant::now(), thread::current().id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let stream = UnixStream::connect_addr(&address).unwrap();
        let peer = stream.peer_addr().unwrap();
        assert_eq!(peer.as_abstract_name(), Some(name.as_bytes()));
        assert!(listener.accept().unwrap().1.is_unnamed());
    });
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    on_each(|runtime| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let reader = runtime.spawn(move || {
            let mut text = String::new();
            other.read_to_string(&mut text).unwrap();
            other.write_all(b"answer").unwrap();
            text
        });
        until_it_waits(&reader);
        one.write_all(b"question").unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(one.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut text = String::new();
        one.read_to_string(&mut text).unwrap();
        assert_eq!((reader.join().unwrap().as_str(), text.as_str()), ("question", "answer"));
    });
}

#[test]
fn a_peer_that_is_gone_is_noticed() {
    on_each(|runtime| {
        let (one, other) = UnixStream::pair().unwrap();
        let reader = runtime.spawn(move || {
            let count = (&one).read(&mut [0; 8]).unwrap();
            (count, (&one).write(b"x").unwrap_err().kind())
        });
        until_it_waits(&reader);
        drop(other);
        assert_eq!(reader.join().unwrap(), (0, ErrorKind::BrokenPipe));

        let (one, other) = UnixStream::pair().unwrap();
        let writer = runtime.spawn(move || (&one).write_all(&[7; 1 << 22]).unwrap_err().kind());
        until_it_waits(&writer);
        drop(other);
        assert_eq!(writer.join().unwrap(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_writer_waits_for_room() {
    on_each(|runtime| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let data: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8).collect();
        let writer = runtime.spawn({
            let data = data.clone();
            move || one.write_all(&data).unwrap()
        });
        until_it_waits(&writer);
        let mut received = Vec::new();
        other.read_to_end(&mut received).unwrap();
        assert!(received == data);
        writer.join().unwrap();
    });
}

/// Room for one descriptor next to the data.
#[repr(align(8))]
struct Control {
    _bytes: [u8; 64],
}

/// Sends a byte together with a descriptor.
fn pass(socket: BorrowedFd<'_>, byte: u8, fd: BorrowedFd<'_>) {
    let mut control = Control { _bytes: [0; 64] };
    let mut data = libc::iovec { iov_base: (&raw const byte).cast_mut().cast(), iov_len: 1 };
    // SAFETY: an all-zero header is valid. Its parts outlive the call, and the control message
    // fits.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut data;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        libc::CMSG_DATA(message).cast::<i32>().write_unaligned(fd.as_raw_fd());
        assert_eq!(libc::sendmsg(socket.as_raw_fd(), &raw const header, 0), 1);
    }
}

/// Receives a byte, and the descriptor that was sent together with it.
fn receive(socket: BorrowedFd<'_>) -> std::io::Result<(u8, OwnedFd)> {
    let (mut byte, mut control) = (0_u8, Control { _bytes: [0; 64] });
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: an all-zero header is valid, and its parts outlive the call. The descriptor is new.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut data;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<Control>() as _;
        if libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        assert!(!message.is_null() && (*message).cmsg_type == libc::SCM_RIGHTS);
        let fd = libc::CMSG_DATA(message).cast::<i32>().read_unaligned();
        Ok((byte, OwnedFd::from_raw_fd(fd)))
    }
}

/// A read stops where a descriptor was passed, although more bytes are there. So a short read does
/// not mean that nothing is left, and the kernel does not report the rest a second time.
#[test]
fn reads_go_on_behind_a_descriptor_that_was_passed() {
    fn send(mut one: &UnixStream) {
        let (reader, _writer) = std::io::pipe().unwrap();
        one.write_all(b"abc").unwrap();
        pass(one.as_fd(), b'd', reader.as_fd());
        one.write_all(b"efg").unwrap();
        pass(one.as_fd(), b'h', reader.as_fd());
        one.write_all(b"i").unwrap();
    }
    fn read(mut other: &UnixStream) -> Vec<u8> {
        let mut received = Vec::new();
        while received.len() < 9 {
            let mut buffer = [0; 64];
            let count = other.read(&mut buffer).unwrap();
            received.extend_from_slice(&buffer[..count]);
        }
        received
    }
    on_each(|runtime| {
        let (one, other) = UnixStream::pair().unwrap();
        let other = Arc::new(other);
        let read = |other: Arc<UnixStream>| move || read(&other);
        // The first time the reader waits; the second time all bytes are there when it begins.
        let reader = runtime.spawn(read(other.clone()));
        until_it_waits(&reader);
        send(&one);
        assert_eq!(reader.join().unwrap(), b"abcdefghi");
        send(&one);
        assert_eq!(runtime.run(read(other.clone())), b"abcdefghi");
        send(&one);
        assert_eq!(thread::spawn(read(other)).join().unwrap(), b"abcdefghi");
    });
}

#[test]
fn a_descriptor_arrives_between_plain_bytes() {
    fn check(mut other: &UnixStream) {
        let mut buffer = [0; 3];
        other.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"abc");
        let (byte, fd) = loop {
            sinew::io::wait_readable(other, None).unwrap();
            match receive(other.as_fd()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                received => break received.unwrap(),
            }
        };
        assert_eq!(byte, b'd');
        std::io::PipeWriter::from(fd).write_all(b"through the descriptor").unwrap();
        other.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"efg");
    }
    on_each(|runtime| {
        let (one, other) = UnixStream::pair().unwrap();
        let fiber = runtime.spawn(move || check(&other));
        until_it_waits(&fiber);
        let (mut reader, writer) = std::io::pipe().unwrap();
        (&one).write_all(b"abc").unwrap();
        pass(one.as_fd(), b'd', writer.as_fd());
        (&one).write_all(b"efg").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through the descriptor");
        fiber.join().unwrap();
    });
}

/// Returns a listener with a short, full queue, and the sockets that fill it.
fn busy(place: &Place) -> (UnixListener, Vec<socket2::Socket>) {
    let address = socket2::SockAddr::unix(place).unwrap();
    let stream =
        || socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    let listener = stream();
    listener.bind(&address).unwrap();
    listener.listen(1).unwrap();
    let mut queue = Vec::new();
    loop {
        let client = stream();
        client.set_nonblocking(true).unwrap();
        match client.connect(&address) {
            Ok(()) => queue.push(client),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return (UnixListener::from(OwnedFd::from(listener)), queue);
            }
        }
    }
}

/// On other systems a full queue refuses clients, even blocking ones.
#[test]
#[cfg(target_os = "linux")]
fn a_connect_waits_while_the_queue_of_the_listener_is_full() {
    on_each(|runtime| {
        let place = Place::new();
        let (listener, queue) = busy(&place);
        let connect = |path: PathBuf| {
            move || {
                let mut stream = UnixStream::connect(path).unwrap();
                stream.write_all(b"x").unwrap();
            }
        };
        let fibers = [0; 3].map(|_| runtime.spawn(connect(place.0.clone())));
        fibers.iter().for_each(until_it_waits);
        let thread = thread::spawn(connect(place.0.clone()));
        for _ in &queue {
            listener.accept().unwrap();
        }
        for _ in 0..4 {
            let (mut stream, _) = listener.accept().unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 1);
        }
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        thread.join().unwrap();
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_connect_that_waits_can_be_cancelled() {
    on_each(|runtime| {
        let place = Place::new();
        let (_listener, _queue) = busy(&place);
        let path = place.0.clone();
        let fiber = runtime.spawn(move || UnixStream::connect(path).map(drop));
        until_it_waits(&fiber);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));

        let path = place.0.clone();
        let elapsed = runtime.run(|| {
            let connect = || UnixStream::connect(path).map(drop);
            sinew::timeout(Duration::from_millis(3), connect).is_err()
        });
        assert!(elapsed);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_connect_that_waits_is_refused_when_the_listener_goes() {
    on_each(|runtime| {
        let place = Place::new();
        let (listener, _queue) = busy(&place);
        let path = place.0.clone();
        let fiber = runtime.spawn(move || UnixStream::connect(path).unwrap_err().kind());
        until_it_waits(&fiber);
        drop(listener);
        assert_eq!(fiber.join().unwrap(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_connect_without_a_listener_fails_as_in_the_standard_library() {
    as_fiber_and_thread(|| {
        let place = Place::new();
        let connect = || UnixStream::connect(&place).unwrap_err().kind();
        assert_eq!(connect(), ErrorKind::NotFound);
        drop(UnixListener::bind(&place).unwrap());
        assert_eq!(connect(), ErrorKind::ConnectionRefused);
        let kind = |path: &Path| UnixStream::connect(path).unwrap_err().kind();
        assert_eq!(kind(Path::new("a\0b")), ErrorKind::InvalidInput);
        assert_eq!(kind(&PathBuf::from("a".repeat(200))), ErrorKind::InvalidInput);
        let unnamed = SocketAddr::from_pathname("").unwrap();
        assert_eq!(
            UnixStream::connect_addr(&unnamed).unwrap_err().kind(),
            std::os::unix::net::UnixStream::connect_addr(&unnamed).unwrap_err().kind()
        );
    });
}

#[test]
fn a_cancelled_fiber_leaves_its_wait_and_later_data() {
    on_each(|runtime| {
        let (mut one, other) = UnixStream::pair().unwrap();
        let other = Arc::new(other);
        let read = |other: Arc<UnixStream>| move || (&*other).read_exact(&mut [0; 3]).unwrap();
        let fiber = runtime.spawn(read(other.clone()));
        until_it_waits(&fiber);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        one.write_all(b"abc").unwrap();
        runtime.run(read(other));

        let place = Place::new();
        let listener = Arc::new(UnixListener::bind(&place).unwrap());
        let accept = |listener: Arc<UnixListener>| move || listener.accept().map(drop).unwrap();
        let fiber = runtime.spawn(accept(listener.clone()));
        until_it_waits(&fiber);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        let _client = UnixStream::connect(&place).unwrap();
        runtime.run(accept(listener));
    });
}

#[test]
fn waits_end_at_their_timeout() {
    as_fiber_and_thread(|| {
        let timeout = Some(Duration::from_millis(3));
        let (mut one, _other) = UnixStream::pair().unwrap();
        one.set_read_timeout(timeout).unwrap();
        one.set_write_timeout(timeout).unwrap();
        assert_eq!(one.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(one.write_all(&[0; 1 << 22]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let std = std::os::unix::net::UnixStream::from(one);
        assert_eq!((&std).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(std.read_timeout().unwrap().is_some());
    });
}

#[test]
fn closing_ends_waits_of_fibers_and_threads() {
    on_each(|runtime| {
        let (one, _other) = UnixStream::pair().unwrap();
        let one = Arc::new(one);
        let read = |one: Arc<UnixStream>| move || (&*one).read(&mut [0]).unwrap_err().kind();
        let fiber = runtime.spawn(read(one.clone()));
        let thread = thread::spawn(read(one.clone()));
        until_it_waits(&fiber);
        one.close().unwrap();
        assert_eq!(fiber.join().unwrap(), ErrorKind::NotConnected);
        assert_eq!(thread.join().unwrap(), ErrorKind::NotConnected);

        let place = Place::new();
        let listener = Arc::new(UnixListener::bind(&place).unwrap());
        let accept = |listener: Arc<UnixListener>| move || listener.accept().unwrap_err().kind();
        let fiber = runtime.spawn(accept(listener.clone()));
        let thread = thread::spawn(accept(listener.clone()));
        until_it_waits(&fiber);
        listener.close().unwrap();
        assert_eq!(fiber.join().unwrap(), ErrorKind::NotConnected);
        assert_eq!(thread.join().unwrap(), ErrorKind::NotConnected);
    });
}

/// On a listener that was shut down, Linux returns "would block" to a non-blocking accept.
#[test]
#[cfg(target_os = "linux")]
fn copies_of_a_listener_that_is_closed_fail() {
    on_each(|runtime| {
        let place = Place::new();
        let listener = UnixListener::bind(&place).unwrap();
        let copy = Arc::new(listener.try_clone().unwrap());
        let accept = |copy: Arc<UnixListener>| move || copy.accept().unwrap_err().kind();
        let fiber = runtime.spawn(accept(copy.clone()));
        until_it_waits(&fiber);
        let thread = thread::spawn(accept(copy.clone()));
        listener.close().unwrap();
        assert_eq!(fiber.join().unwrap(), ErrorKind::InvalidInput);
        assert_eq!(thread.join().unwrap(), ErrorKind::InvalidInput);
        assert_eq!(runtime.run(accept(copy)), ErrorKind::InvalidInput);
    });
}

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

/// Sends until there is no room. Returns how many datagrams were sent.
fn fill(mut send: impl FnMut(&[u8]) -> std::io::Result<usize>) -> usize {
    for count in 0.. {
        match send(b"x") {
            Ok(sent) => assert_eq!(sent, 1),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return count;
            }
        }
    }
    unreachable!("memory is finite")
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
#[cfg(target_os = "linux")]
fn waits_for_peers_use_no_processor() {
    let outcome = child("waits_for_peers_use_no_processor", || {
        on_each(|runtime| {
            let (listening, receiving) = (Place::new(), Place::new());
            let (listener, queue) = busy(&listening);
            let receiver = UnixDatagram::bind(&receiving).unwrap();
            let sender = Arc::new(UnixDatagram::unbound().unwrap());
            sender.set_nonblocking(true).unwrap();
            let filled = fill(|data| sender.send_to(data, &receiving));
            sender.set_nonblocking(false).unwrap();

            let path = listening.0.clone();
            let connecting = runtime.spawn(move || UnixStream::connect(path).map(drop).unwrap());
            let send = || {
                let (sender, path) = (sender.clone(), receiving.0.clone());
                move || sender.send_to(b"x", path).unwrap()
            };
            let sending = runtime.spawn(send());
            let thread = thread::spawn(send());
            until_it_waits(&connecting);
            until_it_waits(&sending);
            let before = processor_time();
            thread::sleep(Duration::from_millis(500));
            let used = processor_time() - before;
            assert!(used < Duration::from_millis(50), "{used:?}");

            queue.iter().for_each(|_| drop(listener.accept().unwrap()));
            (0..filled + 2).for_each(|_| assert_eq!(receiver.recv(&mut [0]).unwrap(), 1));
            connecting.join().unwrap();
            sending.join().unwrap();
            thread.join().unwrap();
        });
    });
    outcome.assert_success();
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
