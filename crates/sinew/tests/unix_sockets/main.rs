//! Unix sockets: streams, passed descriptors, datagrams, and busy listeners.

#[path = "../backends/mod.rs"]
mod backends;

mod connecting;
mod datagrams;
mod descriptors;
mod streams;
mod waits;

use sinew::os::unix::net::UnixListener;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

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
