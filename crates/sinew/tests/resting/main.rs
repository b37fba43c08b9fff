//! Fibers of `spawn_for_each_arrival`, which run whenever their source is readable and rest in
//! between.

#[path = "../backends/mod.rs"]
mod backends;

mod calls;
mod carriers;
mod ends;
mod locals;
mod together;

use sinew::net::TcpStream;
use sinew::{FiberBuilder, JoinHandle, Runtime};
use sinew_testkit::Log;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::ops::ControlFlow::{self, Break, Continue};
use std::rc::Rc;
use std::thread::ThreadId;

fn on(runtime: &Runtime) -> FiberBuilder {
    FiberBuilder::new().runtime(runtime.handle())
}

/// One call of a fiber that reads the available bytes.
fn read_some(stream: &mut TcpStream) -> ControlFlow<std::io::Result<()>, Vec<u8>> {
    let mut buffer = [0; 16];
    match stream.read(&mut buffer) {
        Ok(0) => Break(Ok(())),
        Ok(count) => Continue(buffer[..count].to_vec()),
        Err(error) => Break(Err(error)),
    }
}

/// Starts a fiber that answers each byte with `answer`, and ends with the connection.
fn answering(
    builder: FiberBuilder,
    stream: TcpStream,
    mut answer: impl FnMut() -> u8 + Send + 'static,
) -> JoinHandle<std::io::Result<()>> {
    let serve = move |stream: &mut TcpStream| {
        let read = read_some(stream)?;
        for _ in read {
            stream.write_all(&[answer()]).unwrap();
        }
        Continue(())
    };
    builder.spawn_for_each_arrival(stream, serve).unwrap()
}

/// Sends a byte, and returns the answer.
fn ask(mut client: &TcpStream) -> u8 {
    client.write_all(b"?").unwrap();
    let mut answer = [0];
    client.read_exact(&mut answer).unwrap();
    answer[0]
}

fn until_it_rests<T>(fiber: &JoinHandle<T>) {
    backends::until_it_waits(fiber);
}

thread_local!(static NAMES: RefCell<Vec<Rc<ThreadId>>> = const { RefCell::new(Vec::new()) });

/// A value that checks that it does not change threads.
struct Bound(Rc<ThreadId>, Log);

impl Bound {
    fn new(log: Log) -> Bound {
        let id = Rc::new(std::thread::current().id());
        NAMES.with_borrow_mut(|names| names.push(id.clone()));
        Bound(id, log)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        assert_eq!(*self.0, std::thread::current().id());
        self.1.line("dropped");
        // The destructor of a local may take its time.
        sinew::yield_now();
    }
}

sinew::fiber_local!(static BOUND: RefCell<Option<Bound>> = RefCell::new(None));
