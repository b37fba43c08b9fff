//! Handlers, bodies and logs that fail: each failure ends one connection at most.

use crate::LONG;
use crate::client::{Client, serve, serve_with};
use sinew_http::{Problem, Request, Response};
use sinew_testkit::watch;
use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Mutex};

#[test]
fn a_panic_closes_its_connection_and_no_other() {
    let _watch = watch::a_minute();
    let problems = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let problems = problems.clone();
        serve_with(
            move |server| {
                server.problem_log(move |problem| {
                    if let Problem::Panic(..) = problem {
                        problems.lock().unwrap().push(problem.to_string());
                    }
                })
            },
            |request: Request| {
                assert_ne!(request.path(), "/bad", "this is a test");
                "fine"
            },
        )
    };
    let mut other = Client::new(server.local_addr());
    assert_eq!(other.get("/").body, b"fine");
    let mut client = Client::new(server.local_addr());
    let answer = client.get("/bad");
    assert_eq!((answer.status, answer.header("connection")), (500, Some("close")));
    assert!(client.is_closed());
    assert_eq!(other.get("/").body, b"fine");
    let problems = problems.lock().unwrap();
    assert!(problems.len() == 1 && problems[0].contains("/bad"), "{problems:?}");
    server.shutdown(LONG).unwrap();
}

/// A log that panics ends neither the connection nor the server.
#[test]
fn a_log_that_panics_ends_nothing() {
    let _watch = watch::a_minute();
    let server = serve_with(
        |server| {
            let server = server.access_log(|_| panic!("this is a test"));
            server.problem_log(|_| panic!("this is a test"))
        },
        |_: Request| "fine",
    );
    for _ in 0..3 {
        let mut client = Client::new(server.local_addr());
        assert_eq!(client.get("/").body, b"fine");
        assert_eq!(client.get("/").body, b"fine");
        client.send(b"nonsense\r\n\r\n");
        assert_eq!(client.answer("GET").status, 400);
    }
    server.shutdown(LONG).unwrap();
}

#[test]
fn the_owner_is_told_why_a_handler_failed_and_the_client_is_not() {
    let _watch = watch::a_minute();
    let problems = Arc::new(Mutex::new(Vec::new()));
    let told = problems.clone();
    let server = serve_with(
        move |server| {
            server.problem_log(move |problem| told.lock().unwrap().push(problem.to_string()))
        },
        |_: Request| -> std::io::Result<Response> {
            Err(std::io::Error::new(ErrorKind::NotFound, "the database has gone"))
        },
    );
    let answer = Client::new(server.local_addr()).get("/why");
    assert_eq!(answer.status, 500);
    assert!(!String::from_utf8_lossy(&answer.body).contains("database"));
    let problems = problems.lock().unwrap();
    assert!(problems.len() == 1 && problems[0].contains("database has gone"), "{problems:?}");
    assert!(problems[0].contains("/why"), "{problems:?}");
    server.shutdown(LONG).unwrap();
}

/// The handler passes on the cancellation of another fiber; it is not cancelled itself.
#[test]
fn the_cancellation_of_another_fiber_is_a_panic_like_others() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| {
        let child = sinew::spawn(sinew::park);
        child.fiber().cancel();
        if let Err(payload) = child.join() {
            std::panic::resume_unwind(payload);
        }
        "not cancelled"
    });
    assert_eq!(Client::new(server.local_addr()).get("/").status, 500);
    server.shutdown(LONG).unwrap();
}

/// A kept body does not keep the client waiting.
#[test]
fn a_body_that_went_elsewhere_does_not_keep_a_connection_that_failed() {
    let _watch = watch::a_minute();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let server = serve(move |request: Request| {
        keep.lock().unwrap().push(request.into_body());
        Response::stream(|_| Err(std::io::Error::other("this is a test")))
    });
    let mut client = Client::new(server.local_addr());
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nsome");
    let mut stream = client.into_inner();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.starts_with(b"HTTP/1.1 200 ") && !rest.ends_with(b"0\r\n\r\n"));
    assert_eq!(kept.lock().unwrap().len(), 1);
    sinew::wait_until(|| server.connections() == 0);
    let body = &mut kept.lock().unwrap()[0];
    assert!(body.read_to_end(&mut Vec::new()).is_err());
    server.shutdown(LONG).unwrap();
}

/// Without a reset, the client would take the end of the connection for the end of the body.
#[test]
fn a_body_of_the_old_protocol_that_is_cut_off_ends_with_a_reset() {
    let _watch = watch::a_minute();
    for flushes in [true, false] {
        let server = serve(move |_: Request| {
            Response::stream(move |body| {
                body.write_all(b"hello")?;
                if flushes {
                    body.flush()?;
                }
                Err(std::io::Error::other("this is a test"))
            })
        });
        let mut client = Client::new(server.local_addr());
        client.send(b"GET / HTTP/1.0\r\n\r\n");
        let error = client.into_inner().read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        server.shutdown(LONG).unwrap();
    }
}
