//! The access log and the metrics of a server.

use crate::LONG;
use crate::client::{Client, serve_with};
use sinew::sync::Semaphore;
use sinew_http::http::StatusCode;
use sinew_http::{Request, Response};
use sinew_testkit::watch;
use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[test]
fn each_request_is_logged() {
    let _watch = watch::a_minute();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let lines = lines.clone();
        serve_with(
            move |server| {
                server.access_log(move |entry| lines.lock().unwrap().push(entry.to_string()))
            },
            |request: Request| (StatusCode::IM_A_TEAPOT, request.path().to_owned()),
        )
    };
    let mut client = Client::new(server.local_addr());
    client.get("/one");
    client.get("/two?x");
    client.send(b"nonsense\r\n\r\n");
    assert_eq!(client.answer("GET").status, 400);
    server.shutdown(LONG).unwrap();
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("\"GET /one HTTP/1.1\" 418 4 "), "{lines:?}");
    assert!(lines[1].contains("\"GET /two?x HTTP/1.1\" 418 4 "), "{lines:?}");
    assert!(lines[2].contains("\"- - HTTP/1.1\" 400 "), "{lines:?}");
}

/// Unfinished requests are logged, too, with the number of bytes sent.
#[test]
fn requests_that_are_cut_off_are_logged() {
    let _watch = watch::a_minute();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let begun = Arc::new(Semaphore::new(0));
    let server = {
        let (lines, begun) = (lines.clone(), begun.clone());
        serve_with(
            move |server| {
                server.access_log(move |entry| {
                    lines.lock().unwrap().push(entry.to_string());
                    panic!("a log that panics ends nothing");
                })
            },
            move |request: Request| {
                if request.path() == "/waits" {
                    begun.add(1);
                    sinew::park();
                }
                let begun = begun.clone();
                Response::stream(move |body| {
                    body.write_all(b"hello")?;
                    begun.add(1);
                    sinew::park();
                    Ok(())
                })
            },
        )
    };
    let mut clients: Vec<_> =
        (0..2).map(|_| TcpStream::connect(server.local_addr()).unwrap()).collect();
    clients[0].write_all(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    clients[1].write_all(b"GET /streams HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    drop(begun.acquire_many(2));
    assert_eq!(server.shutdown(Duration::ZERO).unwrap_err().unfinished, 2);
    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
    lines.sort_by_key(|line: &String| line.contains("/waits"));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("\"GET /streams HTTP/1.1\" 200 5 "), "{lines:?}");
    assert!(lines[1].contains("\"GET /waits HTTP/1.1\" 503 0 "), "{lines:?}");
    assert!(lines.iter().all(|line| line.ends_with(" cut off")), "{lines:?}");
}

#[test]
fn connections_requests_and_responses_are_counted() {
    let _watch = watch::a_minute();
    for kept in [0, usize::MAX] {
        let server = serve_with(
            |server| server.kept_stacks(kept),
            |request: Request| match request.path() {
                "/panics" => panic!("this is a test"),
                "/moved" => Response::redirect("/"),
                path => Response::text(path.to_owned()),
            },
        );
        let mut clients: Vec<_> = (0..3).map(|_| Client::new(server.local_addr())).collect();
        for client in &mut clients {
            client.get("/");
            client.get("/moved");
        }
        // Two requests at once, a malformed one, and one that ends its connection.
        clients[0].send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!([clients[0].answer("GET").status, clients[0].answer("GET").status], [200; 2]);
        clients[1].send(b"nonsense\r\n\r\n");
        assert_eq!(clients[1].answer("GET").status, 400);
        assert_eq!(clients[2].get("/panics").status, 500);
        clients.truncate(1);
        // The counts of closed connections remain.
        sinew::wait_until(|| server.connections() == 1);
        let metrics = server.metrics();
        assert_eq!((metrics.connections, metrics.connections_total), (1, 3));
        assert_eq!(metrics.requests_total, 9);
        assert_eq!(metrics.responses_total, [0, 5, 3, 1, 1]);
        server.shutdown(LONG).unwrap();
        assert_eq!(server.metrics().requests_total, 9);
    }
}
