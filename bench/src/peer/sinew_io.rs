//! sinew's contenders in the suite `io`.

use super::sinew_runtime::{join, timed};
use crate::client::{ROOM, compute_if_asked};
use crate::file::{BLOCK, Offsets, file};
use crate::measure::{Lap, Timed};
use crate::server::listen;
use sinew::fs::File;
use sinew::io::{PipeReader, PipeWriter, pipe};
use sinew::net::{TcpListener, TcpStream};
use sinew::{FiberBuilder, Runtime, spawn, spawn_when_readable};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Instant;

pub(crate) const SERVER: &str = "2 carriers, epoll, spawn_when_readable for each connection";
pub(crate) const STARTED: &str = "2 carriers, epoll, spawn for each connection";
pub(crate) const MIGRATABLE: &str = "2 carriers, epoll, a migratable fiber for each connection";
pub(crate) const DIRECT: &str = "1 carrier, File::read_at";

/// Serves each connection by calling `begin` with it.
fn serve_by(begin: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let (listener, port) = listen();
    let runtime = Runtime::builder().carriers(2).build().expect("a runtime can be made");
    runtime.spawn(move || {
        let listener = TcpListener::from(listener);
        loop {
            let (stream, _) = listener.accept().expect("a connection can be accepted");
            stream.set_nodelay(true).expect("it is a TCP socket");
            begin(stream);
        }
    });
    std::mem::forget(runtime);
    port
}

/// Serves each connection in a fiber that starts with the first byte.
pub(crate) fn serve() -> u16 {
    serve_by(|stream| drop(spawn_when_readable(stream, echo)))
}

/// Serves each connection in a fiber that starts at once and waits for the first byte.
pub(crate) fn serve_started() -> u16 {
    serve_by(|stream| drop(spawn(move || echo(stream))))
}

/// Serves each connection in a fiber that may move to an idle carrier.
pub(crate) fn serve_migratable() -> u16 {
    serve_by(|stream| {
        // SAFETY: `echo` holds a socket and an array across its waits, and calls nothing that keeps
        // a reference to a thread-local.
        let builder = unsafe { FiberBuilder::new().migratable() };
        drop(builder.spawn(move || echo(stream)).expect("a fiber can be made"));
    })
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

/// Sends a byte to another fiber and back.
pub(crate) fn pipes() -> Timed {
    timed(1, |count| {
        let (there, mut to) = pipe().expect("there is a pipe");
        let (mut back, from) = pipe().expect("there is a pipe");
        let other = spawn(move || pass(there, from));
        let mut byte = [0];
        let start = Instant::now();
        for _ in 0..count {
            to.write_all(&byte).expect("it is open");
            back.read_exact(&mut byte).expect("it is open");
        }
        let lap = Lap::new(start.elapsed(), count);
        drop(to);
        join(other);
        lap
    })
}

fn pass(mut from: PipeReader, mut to: PipeWriter) {
    let mut byte = [0];
    while from.read_exact(&mut byte).is_ok() {
        to.write_all(&byte).expect("it is open");
    }
}

/// Lets `fibers` fibers read blocks of the file.
pub(crate) fn read(fibers: u64) -> Timed {
    timed(1, move |count| {
        let each = count.div_ceil(fibers);
        let copy = file().try_clone().expect("there are descriptors left");
        let file = Arc::new(File::from(copy));
        let start = Instant::now();
        let all: Vec<_> = (0..fibers)
            .map(|number| {
                let file = file.clone();
                spawn(move || read_blocks(&file, number, each))
            })
            .collect();
        all.into_iter().for_each(join);
        Lap::new(start.elapsed(), each * fibers)
    })
}

fn read_blocks(file: &File, seed: u64, count: u64) {
    let mut offsets = Offsets::new(seed);
    let mut block = vec![0; BLOCK];
    for _ in 0..count {
        let read = file.read_at(&mut block, offsets.next()).expect("it can be read");
        assert_eq!(read, BLOCK, "the file is that large");
    }
}
