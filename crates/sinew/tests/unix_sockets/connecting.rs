//! Listeners and their clients: addresses, and waits while the queue of a listener is full.

use crate::backends::{as_fiber_and_thread, on_each, until_it_waits};
use crate::{Place, busy};
use sinew::net::Shutdown;
use sinew::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

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
