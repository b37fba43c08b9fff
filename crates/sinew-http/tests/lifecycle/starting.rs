//! The start of a server: its addresses, its listeners and its carriers.

use crate::LONG;
use crate::client::{Client, serve_with};
use sinew_http::{Request, Server};
use sinew_testkit::watch;
use std::io::ErrorKind;

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::bind(address).start(|_: Request| "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("cannot listen at {address}: ")), "{error}");
}

#[test]
fn bad_settings_fail_the_start() {
    assert!(Server::bind("no such address").start(|_: Request| "").is_err());
    let server = Server::bind("127.0.0.1:0").stack_size(7);
    let error = server.start(|_: Request| "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[test]
fn a_socket_that_listens_already_will_do() {
    let _watch = watch::a_minute();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::from_listener(listener).start(|_: Request| "hello").unwrap();
    assert_eq!(server.local_addr(), address);
    assert_eq!(Client::new(address).get("/").body, b"hello");
    server.shutdown(LONG).unwrap();
}

#[test]
fn a_server_has_as_many_carriers_as_it_is_told() {
    let _watch = watch::a_minute();
    let server = serve_with(
        |server| server.carriers(3),
        |_: Request| sinew::RuntimeHandle::current().carriers().to_string(),
    );
    assert_eq!(Client::new(server.local_addr()).get("/").body, b"3");
    server.shutdown(LONG).unwrap();
    let runtime = sinew::Runtime::builder().carriers(1).name("mine").build().unwrap();
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle());
    let server =
        server.start(|_: Request| sinew::RuntimeHandle::current().name().to_owned()).unwrap();
    assert_eq!(Client::new(server.local_addr()).get("/").body, b"mine");
    server.shutdown(LONG).unwrap();
}

#[test]
fn several_sockets_listen_at_one_address() {
    let _watch = watch::a_minute();
    let server = serve_with(|server| server.listeners(3), |_: Request| "hello");
    for _ in 0..50 {
        assert_eq!(Client::new(server.local_addr()).get("/").body, b"hello");
    }
    server.shutdown(LONG).unwrap();
}
