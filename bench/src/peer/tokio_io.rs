//! tokio's sockets, pipes and files.

use super::tokio::timed;
use crate::client::{ROOM, compute_if_asked};
use crate::file::{BLOCK, Offsets, file};
use crate::measure::{Lap, Timed};
use crate::server::listen;
use std::os::unix::fs::FileExt;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender, pipe};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::spawn;
use tokio::task::spawn_blocking;

pub(crate) const SERVER: &str = "1.54.1, multi_thread, 2 workers, a task per connection";
pub(crate) const BLOCKING: &str =
    "1.54.1, current_thread, spawn_blocking of pread, as tokio::fs does";

fn current() -> Runtime {
    Builder::new_current_thread().enable_io().build().expect("a runtime can be made")
}

pub(crate) fn serve() -> u16 {
    serve_by(echo)
}

/// Serves each connection by running the future of `hold` in a task.
pub(crate) fn serve_by<F>(hold: impl Fn(TcpStream) -> F + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let (listener, port) = listen();
    listener.set_nonblocking(true).expect("it is a socket");
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_io().build().expect("a runtime can be made");
    runtime.spawn(async move {
        let listener = TcpListener::from_std(listener).expect("it is a listener");
        loop {
            let (stream, _) = listener.accept().await.expect("a connection can be accepted");
            stream.set_nodelay(true).expect("it is a TCP socket");
            spawn(hold(stream));
        }
    });
    std::mem::forget(runtime);
    port
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; ROOM];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        compute_if_asked(&buffer);
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Sends a byte to another task and back.
pub(crate) fn pipes() -> Timed {
    timed(current(), |count| async move {
        let (mut to, there) = pipe().expect("there is a pipe");
        let (from, mut back) = pipe().expect("there is a pipe");
        let other = spawn(pass(there, from));
        let mut byte = [0];
        let start = Instant::now();
        for _ in 0..count {
            to.write_all(&byte).await.expect("it is open");
            back.read_exact(&mut byte).await.expect("it is open");
        }
        let lap = Lap::new(start.elapsed(), count);
        drop(to);
        other.await.expect("it does not panic");
        lap
    })
}

async fn pass(mut from: Receiver, mut to: Sender) {
    let mut byte = [0];
    while from.read_exact(&mut byte).await.is_ok() {
        to.write_all(&byte).await.expect("it is open");
    }
}

/// Lets `tasks` tasks read blocks of the file.
pub(crate) fn read(tasks: u64) -> Timed {
    timed(current(), move |count| async move {
        let each = count.div_ceil(tasks);
        let start = Instant::now();
        let all: Vec<_> = (0..tasks).map(|number| spawn(read_blocks(number, each))).collect();
        for task in all {
            task.await.expect("it does not panic");
        }
        Lap::new(start.elapsed(), each * tasks)
    })
}

async fn read_blocks(seed: u64, count: u64) {
    let mut offsets = Offsets::new(seed);
    let mut block = vec![0; BLOCK];
    for _ in 0..count {
        let offset = offsets.next();
        let read = spawn_blocking(move || {
            file().read_exact_at(&mut block, offset).expect("the file is that large");
            block
        });
        block = read.await.expect("it does not panic");
    }
}
