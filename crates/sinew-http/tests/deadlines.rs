//! Handlers that have deadlines of their own, or are slow.

use crate::client::{Client, serve, serve_with};
use sinew::sync::Event;
use sinew_http::{Limits, Request, Response};
use sinew_testkit::watch;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

mod client;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

/// The client would take the bytes after a partial chunk for the rest of the chunk.
#[test]
fn a_body_that_a_deadline_cuts_off_is_the_last_that_is_sent() {
    let _watch = watch::a_minute();
    for old in [false, true] {
        let over = Arc::new(Event::new());
        let told = over.clone();
        let server = serve(move |request: Request| {
            if request.path() == "/next" {
                return Response::text("next");
            }
            let told = told.clone();
            Response::stream(move |body| {
                body.write_all(b"begun")?;
                // More than the kernel takes for a client that does not read.
                let cut = sinew::timeout(SHORT, || body.write_all(&vec![b'x'; 64 << 20]));
                assert!(cut.is_err());
                told.set();
                Ok(())
            })
        });
        let mut client = Client::new(server.local_addr());
        client.send(match old {
            false => b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n",
            true => b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /next HTTP/1.0\r\n\r\n",
        });
        over.wait();
        let mut all = Vec::new();
        // The connection is closed with unread input, so it may be reset.
        let ended = client.into_inner().read_to_end(&mut all);
        let heads = all.windows(9).filter(|window| window == b"HTTP/1.1 ").count();
        assert_eq!(heads, 1, "{} bytes", all.len());
        assert!(!all.ends_with(b"0\r\n\r\n"));
        if old {
            assert!(ended.is_err(), "the body must not look complete");
        }
        server.shutdown(LONG).unwrap();
    }
}

/// Only the time spent waiting for the client counts.
#[test]
fn the_time_that_a_handler_takes_is_not_the_clients() {
    let _watch = watch::a_minute();
    let limit = Duration::from_millis(50);
    let server = serve_with(
        |server| server.limits(Limits::default().body_timeout(limit).body_rate(1 << 20)),
        move |mut request: Request| {
            let mut total = 0;
            let mut buffer = [0; 1000];
            loop {
                match request.body().read(&mut buffer)? {
                    0 => return Ok::<_, std::io::Error>(total.to_string()),
                    count => total += count,
                }
                sinew::sleep(limit / 2);
            }
        },
    );
    let mut client = Client::new(server.local_addr());
    let body = vec![b'x'; 20_000];
    assert_eq!(client.post("/", &body).body, b"20000");
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunks: Vec<u8> = body
        .chunks(700)
        .flat_map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())
        .collect();
    client.send(&[&chunks[..], b"0\r\n\r\n"].concat());
    assert_eq!(client.answer("POST").body, b"20000");
    server.shutdown(LONG).unwrap();
}

/// The time spent waiting for the client adds up, however often the handler interrupts the wait.
#[test]
fn a_body_that_does_not_come_is_late_whatever_deadlines_there_are() {
    let _watch = watch::a_minute();
    let limits = Limits::default().body_timeout(Duration::from_millis(200));
    let server = serve_with(
        |server| server.limits(limits),
        |mut request: Request| {
            let mut buffer = [0; 100];
            loop {
                if let Ok(read) = sinew::timeout(SHORT, || request.body().read(&mut buffer)) {
                    read?;
                }
            }
            #[expect(unreachable_code, reason = "says what the handler returns")]
            Ok::<Response, std::io::Error>(Response::text(""))
        },
    );
    let mut client = Client::new(server.local_addr());
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nx");
    assert_eq!(client.answer("POST").status, 408);
    server.shutdown(LONG).unwrap();
}

/// The kernel may buffer more for a connection than a slow client reads before the write times out.
#[test]
fn a_client_that_reads_slowly_is_not_given_up() {
    const LEN: usize = 16 << 20;
    let _watch = watch::a_minute();
    let limit = Duration::from_millis(500);
    let server = serve_with(
        |server| server.limits(Limits::default().write_timeout(limit)),
        |_: Request| Response::new(vec![b'x'; LEN]),
    );
    // A receiver reports free room after it has read a good part of its buffer, so the buffer is
    // small.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.connect(&server.local_addr().into()).unwrap();
    let mut stream = std::net::TcpStream::from(socket);
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let (start, mut total, mut buffer) = (std::time::Instant::now(), 0, vec![0; 32 << 10]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        total += count;
        // Slow reading, until the write would have timed out if it counted only the kernel's
        // default steps.
        if start.elapsed() < 4 * limit {
            std::thread::sleep(limit / 10);
        }
    }
    assert!(total > LEN, "{total} bytes came of {LEN} and the head");
    server.shutdown(LONG).unwrap();
}
