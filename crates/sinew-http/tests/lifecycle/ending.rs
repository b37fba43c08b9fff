//! The end of a server: a shutdown lets requests finish, and closes all connections.

use crate::LONG;
use crate::client::{Client, serve, serve_with};
use sinew::sync::Event;
use sinew_http::{Limits, Request, Server};
use sinew_testkit::watch;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn a_server_that_is_shut_down_cannot_be_reached() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| "hello");
    let address = server.local_addr();
    assert_eq!(Client::new(address).get("/").body, b"hello");
    server.shutdown(LONG).unwrap();
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // A second shutdown succeeds, and another server can take the address.
    server.shutdown(LONG).unwrap();
    server.wait();
    let again = Server::bind(address).start(|_: Request| "again").unwrap();
    assert_eq!(Client::new(address).get("/").body, b"again");
    again.shutdown(LONG).unwrap();
}

#[test]
fn a_shutdown_wakes_the_waiter() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| "");
    sinew::scope(|s| {
        let waiter = s.spawn(|| server.wait());
        server.shutdown(LONG).unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn requests_in_flight_are_finished_and_idle_connections_closed() {
    let _watch = watch::a_minute();
    for deferred in [true, false] {
        let (begun, go_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let server = {
            let (begun, go_on) = (begun.clone(), go_on.clone());
            serve_with(
                |server| server.kept_stacks(if deferred { 0 } else { usize::MAX }),
                move |request: Request| {
                    if request.path() == "/slow" {
                        begun.set();
                        go_on.wait();
                    }
                    "done"
                },
            )
        };
        let address = server.local_addr();
        let mut idle = Client::new(address);
        let mut silent = TcpStream::connect(address).unwrap();
        assert_eq!(idle.get("/").body, b"done");
        let slow = thread::spawn(move || Client::new(address).get("/slow"));
        begun.wait();
        thread::scope(|s| {
            let shutdown = s.spawn(|| server.shutdown(LONG));
            // Idle connections are closed while the other request goes on.
            assert!(idle.is_closed());
            assert_eq!(silent.read(&mut [0]).unwrap(), 0);
            assert!(!shutdown.is_finished());
            go_on.set();
            shutdown.join().unwrap().unwrap();
        });
        let answer = slow.join().unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"done"[..]));
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(server.connections(), 0);
    }
}

/// A connection on which one request was answered, and the beginning of the next has been received.
fn with_half_a_head(address: std::net::SocketAddr) -> Client<TcpStream> {
    let mut client = Client::new(address);
    // The beginning comes with the request before it, so the connection is never idle in between.
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /half HTTP/1.1\r\nHo");
    assert_eq!(client.answer("GET").status, 200);
    client
}

#[test]
fn half_a_head_does_not_hold_up_a_shutdown() {
    let _watch = watch::a_minute();
    for deferred in [true, false] {
        let server = serve_with(
            |server| {
                let limits = Limits::default().head_timeout(Duration::from_secs(50));
                server.kept_stacks(if deferred { 0 } else { usize::MAX }).limits(limits)
            },
            |_: Request| "done",
        );
        let mut client = with_half_a_head(server.local_addr());
        let begun = Instant::now();
        server.shutdown(Duration::from_secs(50)).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
        // Not by force: the client gets an answer.
        assert_eq!(client.answer("GET").status, 408);
        assert!(client.is_closed());
    }
}

/// The client has a second for the rest. On a busy machine this thread may be too late to send it,
/// so it tries several times.
#[test]
fn the_rest_of_a_head_is_waited_for_a_little_when_a_server_ends() {
    let _watch = watch::a_minute();
    let is_served = || {
        let server = serve(|_: Request| "done");
        let address = server.local_addr();
        let mut client = with_half_a_head(address);
        thread::scope(|s| {
            let shutdown = s.spawn(|| server.shutdown(LONG));
            // Once the shutdown has begun, the server accepts nothing more.
            while TcpStream::connect(address).is_ok() {}
            client.send(b"st: a\r\n\r\n");
            let answer = client.answer("GET");
            shutdown.join().unwrap().unwrap();
            assert_eq!(answer.header("connection"), Some("close"));
            answer.status == 200
        })
    };
    assert!((0..10).any(|_| is_served()));
}

#[test]
fn requests_that_take_too_long_are_cancelled() {
    let _watch = watch::a_minute();
    let unwound = Arc::new(AtomicUsize::new(0));
    let (begun, count) = (Arc::new(Event::new()), unwound.clone());
    let server = {
        let begun = begun.clone();
        serve(move |_: Request| {
            struct Count(Arc<AtomicUsize>);
            impl Drop for Count {
                fn drop(&mut self) {
                    self.0.fetch_add(1, Ordering::SeqCst);
                }
            }
            let _count = Count(count.clone());
            begun.set();
            sinew::park();
            ""
        })
    };
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    begun.wait();
    let error = server.shutdown(Duration::from_millis(10)).unwrap_err();
    assert_eq!(error.unfinished, 1);
    assert_eq!(unwound.load(Ordering::SeqCst), 1);
    assert_eq!(server.connections(), 0);
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn a_handler_may_shut_the_server_down() {
    let _watch = watch::a_minute();
    let handle = Arc::new(std::sync::OnceLock::<sinew_http::ServerHandle>::new());
    let theirs = handle.clone();
    let server = serve(move |_: Request| match theirs.get().unwrap().shutdown(LONG) {
        Ok(()) => "done".to_owned(),
        Err(error) => error.to_string(),
    });
    let address = server.local_addr();
    let _ = handle.set(server);
    let server = handle.get().unwrap();
    let client = thread::spawn(move || Client::new(address).get("/quit").body);
    server.wait();
    assert_eq!(client.join().unwrap(), b"done");
    server.shutdown(LONG).unwrap();
    assert_eq!(server.connections(), 0);
}

/// A request that is answered during a shutdown gets the current date.
#[test]
fn time_goes_on_while_a_server_ends() {
    let _watch = watch::a_minute();
    let (begun, go_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let server = {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        serve(move |_: Request| {
            begun.set();
            go_on.wait();
            "done"
        })
    };
    let mut client = Client::new(server.local_addr());
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    begun.wait();
    let early = httpdate::parse_http_date(&httpdate::fmt_http_date(SystemTime::now())).unwrap();
    sinew::scope(|s| {
        let ending = s.spawn(|| server.shutdown(LONG));
        // The clock of a server is right within a second.
        sinew::wait_until(|| early.elapsed().unwrap_or_default() >= Duration::from_secs(3));
        go_on.set();
        ending.join().unwrap().unwrap();
    });
    let answer = client.answer("GET");
    let date = httpdate::parse_http_date(answer.header("date").unwrap()).unwrap();
    assert!(date > early, "{date:?} is not after {early:?}");
}

/// When a runtime ends, its connections end, and their descriptors are closed.
#[test]
fn a_runtime_that_goes_takes_its_server_along() {
    let _watch = watch::a_minute();
    let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle());
    let server = server.start(|_: Request| "hello").unwrap();
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.get("/").body, b"hello");
    drop(runtime);
    assert!(client.is_closed());
    assert_eq!(server.connections(), 0);
}
