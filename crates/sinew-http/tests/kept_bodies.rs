//! Bodies that a handler keeps after its request was answered.

use crate::client::{Client, serve, serve_with};
use sinew_http::http::StatusCode;
use sinew_http::{Limits, Request};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::io::{ErrorKind, Read};
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod client;

const LONG: Duration = Duration::from_secs(20);

/// The server skips the rest of a body to keep the connection. The kept body must not report its
/// end.
#[test]
fn a_body_of_which_the_rest_was_skipped_does_not_look_whole() {
    let _watch = watch::a_minute();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let server = serve(move |request: Request| {
        let mut body = request.into_body();
        body.read_exact(&mut [0; 10]).unwrap();
        keep.lock().unwrap().push(body);
        StatusCode::ACCEPTED
    });
    let body = "x".repeat(30_000);
    for message in [
        format!("Content-Length: 30000\r\n\r\n{body}"),
        format!("Transfer-Encoding: chunked\r\n\r\n7530\r\n{body}\r\n0\r\n\r\n"),
    ] {
        let mut client = Client::new(server.local_addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{message}").as_bytes());
        assert_eq!(client.answer("POST").status, 202);
        // The connection goes on: the server skips the rest of the body before the next answer.
        assert_eq!(client.post("/", b"ten bytes.").status, 202);
        let mut kept = kept.lock().unwrap();
        assert_eq!(kept.len(), 2);
        assert_eq!(kept[0].read_all().unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(kept[1].read_all().unwrap(), "");
        kept.clear();
    }
    server.shutdown(LONG).unwrap();
}

/// Kept bodies take no descriptors, however many there are.
#[test]
fn a_body_that_is_kept_keeps_no_descriptor() {
    const NAME: &str = "a_body_that_is_kept_keeps_no_descriptor";
    let _watch = watch::a_minute();
    let outcome = child(NAME, || {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = kept.clone();
        let server = serve_with(
            |server| server.limits(Limits::default().connections(2)),
            move |request: Request| {
                keep.lock().unwrap().push(request.into_body());
                "kept"
            },
        );
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let ask = || {
            let mut client = Client::new(server.local_addr());
            client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nsome");
            assert_eq!(client.answer("POST").body, b"kept");
            assert!(client.is_closed());
        };
        ask();
        sinew::wait_until(|| server.connections() == 0);
        let before = descriptors();
        (0..20).for_each(|_| ask());
        sinew::wait_until(|| server.connections() == 0);
        assert_eq!(kept.lock().unwrap().len(), 21);
        assert!(descriptors() <= before + 2, "{} and {before} before", descriptors());
        let error = kept.lock().unwrap()[7].read_all().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    });
    outcome.assert_success();
}
