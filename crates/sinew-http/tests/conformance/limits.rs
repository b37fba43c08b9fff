//! Limits on requests and connections.

use crate::site::{echo, on_both};
use crate::table::{check, refused, refused_within, served};
use sinew_http::Limits;
use std::io;
use std::time::Duration;

fn small() -> Limits {
    Limits::default().head_size(256).header_count(5).target_size(32).body_size(10)
}

/// A head of this many bytes.
fn head_of(bytes: usize) -> String {
    let rest = "GET / HTTP/1.1\r\nHost: a\r\nx: \r\n\r\n".len();
    format!("GET / HTTP/1.1|Host: a|y: {}||", "b".repeat(bytes - rest))
}

fn target_of(bytes: usize) -> String {
    format!("GET /{} HTTP/1.1|Host: a||", "a".repeat(bytes - 1))
}

fn fields(count: usize) -> String {
    format!("GET / HTTP/1.1|Host: a|{}|", "b: c|".repeat(count - 1))
}

fn body_of(bytes: usize) -> String {
    format!("POST / HTTP/1.1|Host: a|Content-Length: {bytes}||{}", "b".repeat(bytes))
}

fn chunked(body: &str) -> String {
    format!("POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||{body}")
}

#[test]
fn heads_have_limits() {
    check(
        small(),
        &[
            served("a head may be as large as was said", head_of(256), &["GET / []"]),
            refused("a head that is one byte larger is answered with 431", 431, head_of(257)),
            refused("a head that is much larger is answered with 431", 431, head_of(30_000)),
            refused(
                "many heads in one are answered with 431",
                431,
                format!("GET / HTTP/1.1|X: {}", "b".repeat(9000)),
            ),
            refused(
                "a name that does not end is answered with 431",
                431,
                format!("GET / HTTP/1.1|{}", "b".repeat(9000)),
            ),
            served("there may be as many fields as was said", fields(5), &["GET / []"]),
            refused("one field more is answered with 431", 431, fields(6)),
            refused("many fields more are answered with 431", 431, fields(30)),
            served(
                "a target may be as long as was said",
                target_of(32),
                &[&format!("GET /{} []", "a".repeat(31))],
            ),
            refused("a target that is one byte longer is answered with 414", 414, target_of(33)),
            refused("a target that is much longer is answered with 414", 414, target_of(200)),
            refused(
                "a target that is longer than a head is answered with 414",
                414,
                target_of(9000),
            ),
            refused(
                "a target that is longer than a buffer is answered with 414",
                414,
                target_of(30_000),
            ),
            refused(
                "an absolute target that is too long is answered with 414",
                414,
                format!("GET http://a/{} HTTP/1.1|Host: a||", "a".repeat(40)),
            ),
            refused(
                "what is malformed is that, however much comes after it",
                400,
                format!("GET / HTTP/1.1|Host: a|x y: z||{}", "b".repeat(2000)),
            ),
            refused(
                "a first line that is malformed is that, however much comes after it",
                400,
                format!("GET /||{}", "b".repeat(2000)),
            ),
        ],
    );
}

#[test]
fn extreme_limits_are_no_trap() {
    check(
        Limits::default().target_size(usize::MAX).body_size(u64::MAX).header_count(0),
        &[
            refused("no fields at all are allowed", 431, "GET / HTTP/1.0|X: y||"),
            refused("a head is limited still", 431, format!("GET /{}", "a".repeat(20_000))),
        ],
    );
    let long = Limits::default().target_size(usize::MAX).head_size(usize::MAX);
    let target = |bytes: usize| format!("GET /{} HTTP/1.1|Host: a||", "a".repeat(bytes - 1));
    check(
        long,
        &[
            served(
                "a target may be as long as a URI can be",
                target(65534),
                &[&format!("GET /{} []", "a".repeat(65533))],
            ),
            refused("a target that is longer than a URI is answered with 414", 414, target(65535)),
        ],
    );
}

#[test]
fn extreme_timeouts_are_no_trap() {
    let all = |timeout| {
        let limits = Limits::default().head_timeout(timeout).body_timeout(timeout);
        limits.idle_timeout(timeout).write_timeout(timeout)
    };
    check(
        all(Duration::MAX),
        &[
            served("a head may take for ever", "GET / HTTP/1.1|Host: a||", &["GET / []"]),
            served(
                "a body may take for ever",
                "POST / HTTP/1.1|Host: a|Content-Length: 5||hello",
                &["POST / [hello]"],
            ),
            served(
                "a body that nobody reads may take for ever",
                "POST /unread HTTP/1.1|Host: a|Transfer-Encoding: chunked||5|hello|0||",
                &["POST /unread"],
            ),
        ],
    );
    on_both(all(Duration::ZERO).head_timeout(Duration::MAX), echo, |site| {
        let mut client = site.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().text(), "GET / []");
    });
}

#[test]
fn bodies_have_limits() {
    check(
        small(),
        &[
            served("a body may be as large as was said", body_of(10), &["POST / [bbbbbbbbbb]"]),
            refused("a body that is one byte larger is answered with 413", 413, body_of(11)),
            refused("a body that is much larger is answered with 413", 413, body_of(20_000)),
            refused(
                "a body that is too large and not wanted is answered with 413",
                413,
                "POST /unread HTTP/1.1|Host: a|Content-Length: 11||hello worldGET /smuggled HTTP/1.1|Host: a||",
            ),
            refused(
                "a body that is expected to be too large is answered with 413",
                413,
                "POST / HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 11||",
            ),
            refused(
                "a HEAD whose body is too large is answered without one",
                413,
                "HEAD / HTTP/1.1|Host: a|Content-Length: 11||hello world",
            )
            .bare(),
            served(
                "a chunk may be as large as was said",
                chunked("a|bbbbbbbbbb|0||"),
                &["POST / [bbbbbbbbbb]"],
            ),
            served(
                "chunks may be as large together as was said",
                chunked("4|bbbb|6|bbbbbb|0||"),
                &["POST / [bbbbbbbbbb]"],
            ),
            refused_within(
                "a chunk that is one byte larger is answered with 413",
                413,
                chunked("b|bbbbbbbbbbb|0||"),
            ),
            refused_within(
                "chunks that are one byte larger together are answered with 413",
                413,
                chunked("a|bbbbbbbbbb|1|b|0||"),
            ),
            refused_within(
                "many chunks are answered with 413",
                413,
                chunked(&format!("{}0||", "1|b|".repeat(1000))),
            ),
        ],
    );
}

#[test]
fn connections_beyond_the_limit_wait() {
    on_both(Limits::default().connections(1), echo, |site| {
        let mut first = site.connect();
        first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(first.answer().text(), "GET /first []");
        let mut second = site.connect();
        second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
        for _ in 0..50 {
            first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(first.answer().text(), "GET /first []");
        }
        assert_eq!(site.server().connections(), 1);
        second.stream().set_nonblocking(true).unwrap();
        let early = second.stream().peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(early, Err(io::ErrorKind::WouldBlock));
        second.stream().set_nonblocking(false).unwrap();
        drop(first);
        assert_eq!(second.answer().text(), "GET /second []");
    });
}
