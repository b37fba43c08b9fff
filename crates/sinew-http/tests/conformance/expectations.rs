//! `Expect: 100-continue`, and other expectations.

use crate::client::Client;
use crate::site::{Site, echo, on_both};
use crate::table::{Case, check, last, refused, served};
use sinew::sync::Event;
use sinew_http::{Limits, Request, Response};
use std::io::{self, Read, Write};
use std::sync::Arc;

fn refused_expectation(claim: &str, value: &str) -> Case {
    let sent = format!("POST / HTTP/1.1|Host: a|Expect:{value}|Content-Length: 5||hello");
    refused(claim, 417, sent)
}

#[test]
fn other_expectations_are_refused() {
    check(
        Limits::default(),
        &[
            refused_expectation("another expectation is answered with 417", " 200-ok"),
            refused_expectation("two expectations are answered with 417", " 100-continue, x"),
            refused_expectation("an empty list of expectations is answered with 417", " ,"),
            refused_expectation("an empty expectation is answered with 417", ""),
            refused_expectation("a parameter is answered with 417", " 100-continue;a=b"),
            refused(
                "another expectation without a body is answered with 417",
                417,
                "GET / HTTP/1.1|Host: a|Expect: x||",
            ),
            refused(
                "a second expectation is answered with 417",
                417,
                "POST / HTTP/1.1|Host: a|Expect: 100-continue|Expect: x|Content-Length: 5||hello",
            ),
        ],
    );
}

#[test]
fn an_expectation_that_comes_twice_is_one() {
    on_both(Limits::default(), echo, |site| {
        for expectation in [
            "Expect: 100-continue\r\nExpect: 100-continue",
            "Expect: 100-continue, 100-Continue",
            "Expect: , 100-continue ,",
        ] {
            let mut client = site.connect();
            client.send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\n{expectation}\r\nContent-Length: 5\r\n\r\n"
            ));
            assert_eq!(client.answer().status, 100, "{expectation}");
            client.send("hello");
            assert_eq!(client.answer().text(), "POST / [hello]", "{expectation}");
        }
    });
}

#[test]
fn no_client_is_invited_without_need() {
    check(
        Limits::default(),
        &[
            served(
                "a client without a body is not invited",
                "GET / HTTP/1.1|Host: a|Expect: 100-continue||",
                &["GET / []"],
            ),
            served(
                "a client with an empty body is not invited",
                "POST / HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 0||",
                &["POST / []"],
            ),
            last(
                "a client of HTTP/1.0 is not invited",
                "POST / HTTP/1.0|Expect: 100-continue|Content-Length: 5||hello",
                &["POST / [hello]"],
            ),
        ],
    );
}

/// Sends a head that expects `100 Continue`.
fn expecting(client: &mut Client, path: &str, length: &str) {
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n{length}\r\n\r\n"
    ));
}

/// The body `hello` in both framings, and the field that announces it.
const BODIES: [(&str, &str); 2] = [
    ("Content-Length: 5", "hello"),
    ("Transfer-Encoding: chunked", "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
];

#[test]
fn a_client_is_invited_when_its_body_is_read() {
    on_both(Limits::default(), echo, |site| {
        for (length, body) in BODIES {
            let mut client = site.connect();
            for _ in 0..2 {
                expecting(&mut client, "/", length);
                assert_eq!(client.answer().status, 100, "{length}");
                client.send(body);
                assert_eq!(client.answer().text(), "POST / [hello]", "{length}");
            }
        }
    });
}

#[test]
fn a_client_is_not_invited_before_its_body_is_read() {
    let _watch = sinew_testkit::watch::a_minute();
    for deferred in [true, false] {
        let [entered, go] = [(); 2].map(|()| Arc::new(Event::new()));
        let (has_entered, may_go) = (entered.clone(), go.clone());
        let handler = move |request: Request| {
            has_entered.set();
            may_go.wait();
            echo(request)
        };
        let site = Site::start(Limits::default(), deferred, handler);
        let mut client = site.connect();
        expecting(&mut client, "/", "Content-Length: 5");
        entered.wait();
        client.stream().set_nonblocking(true).unwrap();
        let early = client.stream().peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(early, Err(io::ErrorKind::WouldBlock));
        client.stream().set_nonblocking(false).unwrap();
        go.set();
        assert_eq!(client.answer().status, 100);
        client.send("hello");
        assert_eq!(client.answer().text(), "POST / [hello]");
    }
}

#[test]
fn a_client_that_does_not_wait_is_served() {
    on_both(Limits::default(), echo, |site| {
        for (length, body) in BODIES {
            let mut client = site.connect();
            expecting(&mut client, "/", length);
            client.send(body);
            client.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
            // `100 Continue` is sent or not, depending on how much has come when the body is read.
            let mut answer = client.answer();
            if answer.status == 100 {
                answer = client.answer();
            }
            assert_eq!(answer.text(), "POST / [hello]", "{length}");
            assert_eq!(client.answer().text(), "GET /b []", "{length}");
        }
    });
}

#[test]
fn a_client_that_is_not_invited_is_cut_off() {
    on_both(Limits::default(), echo, |site| {
        for (length, _) in BODIES {
            let mut client = site.connect();
            expecting(&mut client, "/unread", length);
            let answer = client.answer();
            assert_eq!((answer.text(), answer.says_close()), ("POST /unread", true), "{length}");
            // The server cannot know whether this is a body or a request.
            client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
            client.end();
            assert_eq!(site.calls_of(client.local_addr()), ["POST /unread"], "{length}");
        }
    });
}

#[test]
fn a_body_that_is_sent_back_is_invited_before_the_response() {
    on_both(
        Limits::default(),
        |request: Request| Response::from(request.into_body()),
        |site| {
            for (length, body) in BODIES {
                let mut client = site.connect();
                for _ in 0..2 {
                    expecting(&mut client, "/", length);
                    assert_eq!(client.answer().status, 100, "{length}");
                    client.send(body);
                    assert_eq!(client.answer().text(), "hello", "{length}");
                }
            }
        },
    );
}

#[test]
fn an_invitation_is_no_part_of_a_response() {
    let handler = |request: Request| {
        let mut body = request.into_body();
        Response::stream(move |out| {
            out.write_all(b"begun ")?;
            out.flush()?;
            let mut text = String::new();
            body.read_to_string(&mut text)?;
            out.write_all(text.as_bytes())
        })
    };
    on_both(Limits::default(), handler, |site| {
        for (length, body) in BODIES {
            let mut client = site.connect();
            expecting(&mut client, "/", length);
            assert_eq!(client.answer().status, 100, "{length}");
            client.send(body);
            assert_eq!(client.answer().text(), "begun hello", "{length}");
        }
    });
}
