//! Limits: how many connections a server accepts, and how long it waits for a client.

use crate::LONG;
use crate::client::{Client, serve_with};
use sinew::sync::Semaphore;
use sinew_http::{Limits, Request, Response};
use sinew_testkit::watch;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn there_are_no_more_connections_than_are_allowed() {
    let _watch = watch::a_minute();
    let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let turn = Arc::new(Semaphore::new(0));
    let server = {
        let (most, now, turn) = (most.clone(), now.clone(), turn.clone());
        serve_with(
            |server| server.limits(Limits::default().connections(2)),
            move |_: Request| {
                most.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                turn.acquire().forget();
                now.fetch_sub(1, Ordering::SeqCst);
                Response::text("").with_header("connection", "close")
            },
        )
    };
    let address = server.local_addr();
    let clients: Vec<_> =
        (0..6).map(|_| thread::spawn(move || Client::new(address).get("/").status)).collect();
    sinew::wait_until(|| now.load(Ordering::SeqCst) == 2);
    assert_eq!(server.connections(), 2);
    turn.add(6);
    for client in clients {
        assert_eq!(client.join().unwrap(), 200);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    server.shutdown(LONG).unwrap();
}

#[test]
fn any_number_of_connections_can_be_allowed() {
    let _watch = watch::a_minute();
    for most in [0, 1, usize::MAX] {
        let limits = Limits::default().connections(most);
        let server = serve_with(|server| server.limits(limits), |_: Request| "hello");
        assert_eq!(Client::new(server.local_addr()).get("/").body, b"hello");
        server.shutdown(LONG).unwrap();
    }
}

/// A listener without a waiting connection takes no room from the others.
#[test]
fn every_allowed_connection_has_room_however_many_listeners_there_are() {
    let _watch = watch::a_minute();
    for (listeners, most) in [(2, 1), (4, 4), (8, 3)] {
        let server = serve_with(
            |server| server.listeners(listeners).limits(Limits::default().connections(most)),
            |_: Request| "hello",
        );
        for _ in 0..8 {
            let mut clients = Vec::new();
            for _ in 0..most {
                let mut client = Client::new(server.local_addr());
                assert_eq!(client.get("/").body, b"hello");
                clients.push(client);
            }
        }
        server.shutdown(LONG).unwrap();
    }
}

#[test]
fn only_idle_connections_are_closed() {
    let _watch = watch::a_minute();
    for deferred in [true, false] {
        let limits = Limits::default().idle_timeout(Duration::from_millis(200));
        let server = serve_with(
            |server| server.kept_stacks(if deferred { 0 } else { usize::MAX }).limits(limits),
            |request: Request| {
                if request.path() == "/slow" {
                    sinew::sleep(Duration::from_millis(600));
                }
                "done"
            },
        );
        let mut client = Client::new(server.local_addr());
        assert_eq!(client.get("/slow").body, b"done");
        assert_eq!(client.get("/").body, b"done");
        assert!(client.is_closed());
        server.shutdown(LONG).unwrap();
    }
}

#[test]
fn a_silent_client_is_not_waited_for() {
    let _watch = watch::a_minute();
    let limits = Limits::default().head_timeout(Duration::from_millis(200));
    let server = serve_with(|server| server.limits(limits), |_: Request| "");
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    server.shutdown(LONG).unwrap();
}

/// The head comes byte by byte, each in good time.
#[test]
fn a_client_that_sends_a_head_slowly_gets_408() {
    let _watch = watch::a_minute();
    let limits = Limits::default().head_timeout(Duration::from_millis(300));
    let server = serve_with(|server| server.limits(limits), |_: Request| "");
    let stream = TcpStream::connect(server.local_addr()).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        for byte in b"GET / HTTP/1.1\r\nHost: a\r\nX: ".iter().chain(std::iter::repeat(&b'x')) {
            if writer.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let answer = Client::over(stream).answer("GET");
    assert_eq!(answer.status, 408);
    trickle.join().unwrap();
    server.shutdown(LONG).unwrap();
}

/// Each byte comes in good time, but the whole body would take hours.
#[test]
fn a_client_that_sends_a_body_slowly_gets_408() {
    let _watch = watch::a_minute();
    let limits = Limits::default().body_timeout(Duration::from_millis(300)).body_rate(1 << 20);
    let server = serve_with(
        |server| server.limits(limits),
        |mut request: Request| request.body().read_all().map(Response::new),
    );
    let stream = TcpStream::connect(server.local_addr()).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
        let mut sent = writer.write_all(head);
        while sent.is_ok() {
            sent = writer.write_all(b"x");
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(Client::over(stream).answer("POST").status, 408);
    trickle.join().unwrap();
    server.shutdown(LONG).unwrap();
}
