//! The admin listener: its routes, its start and its end.

use crate::metrics::parse;
use crate::{ask, get, runtime, spawn};
use sinew::Runtime;
use sinew_http::{Request, Router, Server, ServerHandle};
use sinew_testkit::watch::a_minute;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

fn with_admin(runtime: &Runtime, admin: &str) -> std::io::Result<ServerHandle> {
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle()).admin(admin);
    server.start(Router::new().get("/", |_: Request| "hello\n"))
}

#[test]
fn an_admin_listener_has_the_routes_and_the_server_has_not() {
    let _watchdog = a_minute();
    let runtime = runtime("admin");
    let server = with_admin(&runtime, "127.0.0.1:0").unwrap();
    let admin = server.admin_addr().unwrap();
    let host = "host: localhost\r\n";
    for target in ["/debug/fibers", "/debug/fibers.json", "/debug/dump", "/metrics"] {
        assert_eq!(ask(admin, "GET", target, host).status, 200, "{target}");
        assert_eq!(get(&server, target).status, 404, "{target}");
    }
    assert_eq!(get(&server, "/").status, 200);
    assert_eq!(ask(admin, "GET", "/", host).status, 404);
    // A foreign page may have given its own name the address of this machine.
    assert_eq!(ask(admin, "GET", "/metrics", "host: example.org\r\n").status, 403);
    let metrics = parse(&ask(admin, "GET", "/metrics", host).body);
    let served = &metrics["sinew_http_requests_total"];
    for address in [admin, server.local_addr()] {
        let address = address.to_string();
        assert!(served.iter().any(|sample| sample.labels["server"] == address), "{address}");
    }
}

/// The admin listener can show the requests that delay a shutdown.
#[test]
fn an_admin_listener_answers_until_the_last_request_is_done() {
    let _watchdog = a_minute();
    let runtime = runtime("until");
    let release = Arc::new(sinew::sync::Event::new());
    let released = release.clone();
    let (entered, enters) = sinew::sync::channel::bounded(1);
    let handler = move |_: Request| {
        entered.send(()).unwrap();
        released.wait();
        "done\n"
    };
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle()).admin("127.0.0.1:0");
    let server = server.start(handler).unwrap();
    let (local, admin) = (server.local_addr(), server.admin_addr().unwrap());
    std::thread::scope(|s| {
        let asks = s.spawn(move || ask(local, "GET", "/", "host: a\r\n").status);
        enters.recv().unwrap();
        let shuts = s.spawn(|| server.shutdown(Duration::from_secs(40)));
        // Once the shutdown has begun, the server accepts nothing more.
        let begun = || TcpStream::connect(local).is_err();
        assert!(sinew::wait_until_timeout(begun, Duration::from_secs(20)));
        let view = ask(admin, "GET", "/debug/fibers.json", "host: localhost\r\n").json();
        assert!(view["totals"]["states"]["suspended"].as_u64().unwrap() >= 1, "{view}");
        release.set();
        assert_eq!(asks.join().unwrap(), 200);
        shuts.join().unwrap().unwrap();
    });
    assert!(TcpStream::connect(admin).is_err());
}

#[test]
fn an_admin_address_that_is_taken_fails_the_start_and_leaves_nothing() {
    let _watchdog = a_minute();
    let runtime = runtime("taken");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = with_admin(&runtime, &address).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&address), "{error}");
    let left = sinew::fibers();
    assert!(left.iter().all(|fiber| fiber.runtime.as_deref() != Some("taken")), "{left:?}");
    // A listening socket works, too.
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle()).admin_listener(taken);
    let server = server.start(|_: Request| "hello\n").unwrap();
    assert_eq!(server.admin_addr().unwrap().to_string(), address);
    drop(server);
}

#[test]
fn a_cancelled_shutdown_ends_the_admin_listener_too() {
    let _watchdog = a_minute();
    let runtime = runtime("cancelled");
    let server = Arc::new(
        Server::bind("127.0.0.1:0")
            .runtime(runtime.handle())
            .admin("127.0.0.1:0")
            .start(|_: Request| {
                sinew::park();
                "never\n"
            })
            .unwrap(),
    );
    let admin = server.admin_addr().unwrap();
    let mut client = TcpStream::connect(server.local_addr()).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let busy = || server.metrics().requests_total == 1;
    assert!(sinew::wait_until_timeout(busy, Duration::from_secs(20)));
    let shuts = server.clone();
    let shutting = spawn(&runtime, "shuts down", move || {
        let _ = shuts.shutdown(Duration::from_secs(50));
    });
    let local = server.local_addr();
    let begun = || TcpStream::connect(local).is_err();
    assert!(sinew::wait_until_timeout(begun, Duration::from_secs(20)));
    shutting.fiber().cancel();
    server.wait();
    let gone = || TcpStream::connect(admin).is_err();
    assert!(sinew::wait_until_timeout(gone, Duration::from_secs(20)));
}
