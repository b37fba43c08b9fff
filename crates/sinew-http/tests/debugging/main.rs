//! The debug routes: their content, and which clients may see them.

mod access;
mod admin;
mod backtraces;
mod crowds;
mod fibers;
mod metrics;

use serde_json::Value;
use sinew::{Fiber, FiberBuilder, FiberState, JoinHandle, Runtime};
use sinew_http::debug::Access;
use sinew_http::{Request, Router, Server, ServerHandle};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        assert!(self.head.contains("content-type: application/json"), "{}", self.head);
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Sends a request with these header fields, and asks to close the connection.
fn ask(address: SocketAddr, method: &str, target: &str, fields: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("{method} {target} HTTP/1.1\r\n{fields}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.into() }
}

fn get(server: &ServerHandle, target: &str) -> Answer {
    ask(server.local_addr(), "GET", target, "host: localhost\r\n")
}

fn start(runtime: &Runtime, access: Access) -> ServerHandle {
    let router = Router::new().get("/", |_: Request| "hello\n").debug(access);
    Server::bind("127.0.0.1:0").runtime(runtime.handle()).start(router).unwrap()
}

fn runtime(name: &str) -> Runtime {
    Runtime::builder().name(name).carriers(2).build().unwrap()
}

fn spawn(runtime: &Runtime, name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    FiberBuilder::new().runtime(runtime.handle()).name(name).spawn(f).unwrap()
}

fn wait_suspended(fiber: &Fiber) {
    assert!(sinew::wait_until_timeout(
        || fiber.state() == FiberState::Suspended,
        Duration::from_secs(20)
    ));
}

#[inline(never)]
fn waits_for_the_tide() {
    sinew::park();
}
