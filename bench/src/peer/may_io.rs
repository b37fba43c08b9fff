//! may's sockets, and pipes in its wrapper.

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

/// Serves each connection in a coroutine by what `hold` does with it.
pub(crate) fn serve_by(hold: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    configure();
    let (listener, port) = listen();
    drop(go!(move || {
        // SAFETY: the descriptor is that of a listener, which is given away.
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

/// The settings of a server.
pub(crate) fn configure() {
    // The pool stays small: it is filled at the start, and would count for connections that are not
    // there.
    may::config().set_workers(2);
    // One of two workers that cannot move would share its processor with the client for good.
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

/// A byte goes to another coroutine and comes back.
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
