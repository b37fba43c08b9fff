//! A server on bare epoll, with one or two threads that have an epoll each. It echoes, or answers
//! HTTP.
//!
//! One more thread accepts the connections and deals them out in turn, so that all threads have
//! equally many. `SO_REUSEPORT` would deal them out by a hash, and not evenly.

use crate::client::compute_if_asked;
use crate::server::listen;
use std::io::{ErrorKind, Read, Write};
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{FromRawFd, IntoRawFd, RawFd};
use std::thread;

pub(crate) const TWO: &str =
    "2 threads with an epoll each, edge-triggered; connections dealt out in turn";
pub(crate) const ONE: &str = "1 thread with an epoll, edge-triggered";

/// The most events that one `epoll_wait` takes.
const EVENTS: usize = 512;

/// Echoes with two threads.
pub(crate) fn serve() -> u16 {
    serve_echo::<2>()
}

/// Echoes with one thread.
pub(crate) fn serve_alone() -> u16 {
    serve_echo::<1>()
}

fn serve_echo<const THREADS: usize>() -> u16 {
    serve_by::<THREADS, _>(|| {
        let mut buffer = [0; 4096];
        move |stream: &TcpStream| echo(stream, &mut buffer)
    })
}

/// Starts the threads. Each makes a handler with `make` and calls it with each connection that can
/// be read. The thread closes the connection if the handler returns false.
pub(crate) fn serve_by<const THREADS: usize, F: FnMut(&TcpStream) -> bool>(
    make: impl Fn() -> F + Copy + Send + 'static,
) -> u16 {
    let (listener, port) = listen();
    let epolls: [RawFd; THREADS] = std::array::from_fn(|_| {
        // SAFETY: no preconditions. The descriptor is never closed.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0, "there is no epoll");
        thread::spawn(move || serve_all(epoll, make()));
        epoll
    });
    thread::spawn(move || {
        for epoll in epolls.into_iter().cycle() {
            let (stream, _) = listener.accept().expect("a connection can be accepted");
            stream.set_nodelay(true).expect("it is a TCP socket");
            stream.set_nonblocking(true).expect("it is a socket");
            watch(epoll, stream);
        }
    });
    port
}

/// Gives a connection to the thread that waits on `epoll`.
fn watch(epoll: RawFd, stream: TcpStream) {
    let socket = stream.into_raw_fd();
    let mut event =
        libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: socket as u64 };
    // SAFETY: both descriptors are open, and the event is valid.
    unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, socket, &mut event) };
}

fn serve_all(epoll: RawFd, mut serve: impl FnMut(&TcpStream) -> bool) {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    loop {
        // SAFETY: the descriptor stays open, and `events` has room for `EVENTS` events.
        let count =
            unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), EVENTS as i32, -1) }.max(0);
        for event in &events[..count as usize] {
            // SAFETY: `watch` left the descriptor open for this thread alone. The code below closes
            // it at most once, because a closed descriptor has no more events.
            let stream = unsafe { TcpStream::from_raw_fd(event.u64 as RawFd) };
            let stream = ManuallyDrop::new(stream);
            if !serve(&stream) {
                drop(ManuallyDrop::into_inner(stream));
            }
        }
    }
}

/// Echoes all bytes that have come. Returns false if the connection is to be closed: the client has
/// closed it, or does not take its answers.
fn echo(mut stream: &TcpStream, buffer: &mut [u8]) -> bool {
    loop {
        match stream.read(buffer) {
            Ok(0) => return false,
            Ok(count) => {
                compute_if_asked(buffer);
                if stream.write_all(&buffer[..count]).is_err() {
                    return false;
                }
                // A read that does not fill the buffer has taken everything. Later bytes cause
                // another event.
                if count < buffer.len() {
                    return true;
                }
            }
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}
