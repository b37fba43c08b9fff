//! The fate of a connection after a request.

use crate::site::{Site, echo, on_both};
use crate::table::{Case, check, last, refused, refused_within, served};
use sinew::sync::Event;
use sinew_http::{Limits, Request, Response};
use std::sync::Arc;

/// A request that closes the connection. The request after it is never served.
fn closes(claim: &str, connection: &str) -> Case {
    let sent = format!("GET / HTTP/1.1|Host: a|{connection}||GET /smuggled HTTP/1.1|Host: a||");
    last(claim, sent, &["GET / []"])
}

fn stays(claim: &str, connection: &str) -> Case {
    served(claim, format!("GET / HTTP/1.1|Host: a|{connection}||"), &["GET / []"])
}

#[test]
fn requests_follow_one_another() {
    let ten: String = (0..10).map(|n| format!("GET /{n} HTTP/1.1|Host: a||")).collect();
    let ten_answers: Vec<String> = (0..10).map(|n| format!("GET /{n} []")).collect();
    let ten_answers: Vec<&str> = ten_answers.iter().map(String::as_str).collect();
    let large = format!("POST / HTTP/1.1|Host: a|Content-Length: 20000||{}", "x".repeat(20_000));
    check(
        Limits::default(),
        &[
            served("ten requests are answered in their order", ten, &ten_answers),
            served(
                "a request after a body is served",
                "POST / HTTP/1.1|Host: a|Content-Length: 2||hiPUT /b HTTP/1.1|Host: a|Content-Length: 1||x",
                &["POST / [hi]", "PUT /b [x]"],
            ),
            served(
                "bodies of both kinds follow one another",
                "POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||2|hi|0||\
                 POST /b HTTP/1.1|Host: a|Content-Length: 2||hi\
                 POST /c HTTP/1.1|Host: a|Transfer-Encoding: chunked||0||",
                &["POST / [hi]", "POST /b [hi]", "POST /c []"],
            ),
            served(
                "a body that is larger than a buffer is whole",
                large.as_str(),
                &[&format!("POST / [{}]", "x".repeat(20_000))],
            ),
            served(
                "a body that nobody reads is skipped",
                "POST /unread HTTP/1.1|Host: a|Content-Length: 5||helloGET /b HTTP/1.1|Host: a||",
                &["POST /unread", "GET /b []"],
            ),
            served(
                "a body that nobody reads and is larger than a buffer is skipped",
                large.replace("POST /", "POST /unread").as_str(),
                &["POST /unread"],
            ),
            served(
                "a HEAD is answered without a body",
                "HEAD / HTTP/1.1|Host: a||GET /b HTTP/1.1|Host: a||",
                &["", "GET /b []"],
            )
            .bare(),
            refused("a request that is refused is the last one", 400, "GET / HTTP/1.1||")
                .after(&[]),
            refused(
                "what came before a request that is refused is answered",
                400,
                "GET / HTTP/1.1|Host: a||GET /b HTTP/1.1|Host: a||GET /c||GET /smuggled HTTP/1.1|Host: a||",
            )
            .after(&["GET / []", "GET /b []"]),
            refused_within(
                "what came before a body that is refused is answered",
                400,
                "GET / HTTP/1.1|Host: a||POST /b HTTP/1.1|Host: a|Transfer-Encoding: chunked||x||\
                 GET /smuggled HTTP/1.1|Host: a||",
            )
            .after(&["GET / []"]),
        ],
    );
}

#[test]
fn either_side_may_close_the_connection() {
    check(
        Limits::default(),
        &[
            stays("a connection stays open", "Accept: */*"),
            stays("a connection that is kept alive stays open", "Connection: keep-alive"),
            stays("an empty list of options keeps it open", "Connection:"),
            stays("an option that nobody knows keeps it open", "Connection: closed, x-close"),
            stays("close as a value of something else is none", "Keep-Alive: close"),
            closes("close ends it", "Connection: close"),
            closes("close has no case", "cONNECTION: cLOSE"),
            closes("close may be one of several", "Connection: x, close ,y"),
            closes("close may be in a second field", "Connection: x|Connection: close"),
            closes("close is stronger than keep-alive", "Connection: close, keep-alive"),
            closes(
                "close after keep-alive is stronger",
                "Connection: keep-alive|Connection: close",
            ),
            last(
                "a handler may end it",
                "GET /last HTTP/1.1|Host: a||GET /smuggled HTTP/1.1|Host: a||",
                &["GET /last []"],
            ),
            last(
                "close ends it after a body",
                "POST / HTTP/1.1|Host: a|Connection: close|Content-Length: 5||hello\
                 GET /smuggled HTTP/1.1|Host: a||",
                &["POST / [hello]"],
            ),
            last(
                "close ends it after chunks",
                "POST / HTTP/1.1|Host: a|Connection: close|Transfer-Encoding: chunked||5|hello|0||\
                 GET /smuggled HTTP/1.1|Host: a||",
                &["POST / [hello]"],
            ),
            last(
                "close ends it within a body that nobody reads",
                "POST /unread HTTP/1.1|Host: a|Connection: close|Transfer-Encoding: chunked||\
                 5|hello|0||GET /smuggled HTTP/1.1|Host: a||",
                &["POST /unread"],
            ),
        ],
    );
}

#[test]
fn http_1_0_is_closed_unless_it_is_kept_alive() {
    check(
        Limits::default(),
        &[
            last(
                "a request of HTTP/1.0 is the last",
                "GET / HTTP/1.0||GET /smuggled HTTP/1.0||",
                &["GET / []"],
            ),
            last(
                "a body of HTTP/1.0 has a length",
                "POST / HTTP/1.0|Content-Length: 5||helloGET /smuggled HTTP/1.0||",
                &["POST / [hello]"],
            ),
            served(
                "HTTP/1.0 is kept alive",
                "GET / HTTP/1.0|Connection: keep-alive||",
                &["GET / []"],
            ),
            served(
                "keep-alive has no case",
                "GET / HTTP/1.0|Connection: Keep-Alive||",
                &["GET / []"],
            ),
            served(
                "a body of HTTP/1.0 is followed by a request",
                "POST / HTTP/1.0|Connection: keep-alive|Content-Length: 5||hello",
                &["POST / [hello]"],
            ),
            last(
                "close is stronger than keep-alive in HTTP/1.0",
                "GET / HTTP/1.0|Connection: keep-alive, close||GET /smuggled HTTP/1.0||",
                &["GET / []"],
            ),
            last(
                "another option does not keep HTTP/1.0 alive",
                "GET / HTTP/1.0|Connection: x||GET /smuggled HTTP/1.0||",
                &["GET / []"],
            ),
            last(
                "HTTP/1.0 after HTTP/1.1 is the last",
                "GET / HTTP/1.1|Host: a||GET /b HTTP/1.0||GET /smuggled HTTP/1.1|Host: a||",
                &["GET / []", "GET /b []"],
            ),
            last(
                "a HEAD of HTTP/1.0 is the last",
                "HEAD / HTTP/1.0||GET /smuggled HTTP/1.0||",
                &[""],
            )
            .bare(),
        ],
    );
}

#[test]
fn http_1_0_is_told_that_it_is_kept_alive() {
    on_both(Limits::default(), echo, |site| {
        let mut client = site.connect();
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.answer().value("connection"), Some("keep-alive"));
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().value("connection"), None);
    });
}

#[test]
fn a_client_that_sends_nothing_more_is_answered() {
    on_both(Limits::default(), echo, |site| {
        let mut client = site.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n");
        client.finish();
        assert_eq!(client.answer().text(), "GET / []");
        assert_eq!(client.answer().text(), "GET /b []");
        client.end();
    });
}

#[test]
fn a_handler_that_waits_does_not_hold_back_answers_before_it() {
    let _watch = sinew_testkit::watch::a_minute();
    for deferred in [true, false] {
        let go = Arc::new(Event::new());
        let may_go = go.clone();
        let handler = move |request: Request| {
            if request.path() == "/slow" {
                may_go.wait();
            }
            echo(request)
        };
        let site = Site::start(Limits::default(), deferred, handler);
        let mut client = site.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().text(), "GET / []");
        go.set();
        assert_eq!(client.answer().text(), "GET /slow []");
    }
}

#[test]
fn a_client_that_ends_within_a_head_is_not_served() {
    on_both(Limits::default(), echo, |site| {
        for sent in ["", "\r\n", "G", "GET / HTTP/1.1\r\nHost: a\r\n", "GET / HTTP/1.0\r\n"] {
            let mut client = site.connect();
            client.send(sent);
            client.finish();
            client.end();
            assert_eq!(site.calls_of(client.local_addr()), [""; 0], "{sent:?}");
        }
    });
}

#[test]
fn a_body_that_is_cut_off_is_refused() {
    on_both(Limits::default(), echo, |site| {
        for body in [
            "Content-Length: 5\r\n\r\n",
            "Content-Length: 5\r\n\r\nhell",
            "Transfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        ] {
            let mut client = site.connect();
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{body}"));
            client.finish();
            let answer = client.answer();
            assert_eq!((answer.status, answer.says_close()), (400, true), "{body:?}");
            client.end();
        }
    });
}

#[test]
fn a_large_unread_body_ends_the_connection() {
    on_both(
        Limits::default(),
        |_: Request| Response::text("no"),
        |site| {
            for length in ["Content-Length: 5000000", "Transfer-Encoding: chunked"] {
                let mut client = site.connect();
                client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\n"));
                if length.starts_with('T') {
                    client.send("4c4b40\r\n");
                }
                let flood = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000);
                client.send(flood);
                assert_eq!(client.answer().text(), "no", "{length}");
                client.end();
                assert_eq!(site.calls_of(client.local_addr()), ["POST /"], "{length}");
            }
        },
    );
}

#[test]
fn a_client_that_will_be_cut_off_is_told() {
    on_both(
        Limits::default(),
        |_: Request| Response::text("no"),
        |site| {
            let mut client = site.connect();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n");
            assert!(client.answer().says_close());
            client.end();
        },
    );
}
