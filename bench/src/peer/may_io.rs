//! may's sockets, and pipes in may's wrapper for descriptors.

use super::may::{join, timed};
use crate::client::{ROOM, compute_if_asked};
use crate::measure::{Lap, Timed};
use crate::server::listen;
use may::go;
use may::io::CoIo;
use may::net::{TcpListener, TcpStream};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::{FromRawFd, IntoRawFd};

pub(crate) const SERVER: &str =
    "0.3.51, set_workers(2), set_worker_pin(false), 32 KiB stacks, a coroutine per connection";
pub(crate) const PIPES: &str = "0.3.51, set_workers(1), CoIo around each end";

pub(crate) fn serve() -> u16 {
    serve_by(echo)
}

/// Serves each connection by calling `hold` in a coroutine.
pub(crate) fn serve_by(hold: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    configure();
    let (listener, port) = listen();
    drop(go!(move || {
        // SAFETY: the descriptor belongs to a listener, which gives up its ownership here.
        let listener = unsafe { TcpListener::from_raw_fd(listener.into_raw_fd()) };
        loop {
            let (stream, _) = listener.accept().expect("a connection can be accepted");
            stream.set_nodelay(true).expect("it is a TCP socket");
            let hold = hold.clone();
            drop(go!(move || hold(stream)));
        }
    }));
    port
}

/// Configures may for a server.
pub(crate) fn configure() {
    // The pool keeps its default size. may fills it at the start, and a large one would count as
    // memory of connections that are not open.
    may::config().set_workers(2);
    // A pinned worker would share its processor with the client for good.
    may::config().set_worker_pin(false);
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; ROOM];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        compute_if_asked(&buffer);
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// Sends a byte to another coroutine and back.
pub(crate) fn pipes() -> Timed {
    timed(1, |count| {
        let (mut there, mut to) = wrapped();
        let (mut back, mut from) = wrapped();
        let other = go!(move || {
            let mut byte = [0];
            while there.read_exact(&mut byte).is_ok() {
                from.write_all(&byte).expect("it is open");
            }
        });
        let mut byte = [0];
        let lap = Lap::run(count, || {
            for _ in 0..count {
                to.write_all(&byte).expect("it is open");
                back.read_exact(&mut byte).expect("it is open");
            }
        });
        drop(to);
        join(other);
        lap
    })
}

fn wrapped() -> (CoIo<PipeReader>, CoIo<PipeWriter>) {
    let (reader, writer) = pipe().expect("there is a pipe");
    (CoIo::new(reader).expect("it can be polled"), CoIo::new(writer).expect("it can be polled"))
}
