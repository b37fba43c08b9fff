//! Timeouts of clients that are slow.

use crate::client::Client;
use crate::site::{Site, echo, on_both};
use sinew_http::{Limits, Request, Response};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Long enough for bytes that are sent at once, on a busy machine.
const SHORT: Duration = Duration::from_millis(200);
/// Far longer than any test takes.
const LONG: Duration = Duration::from_secs(50);

/// Limits without short timeouts, which tests then set one by one.
fn patient() -> Limits {
    Limits::default().head_timeout(LONG).body_timeout(LONG).idle_timeout(LONG).write_timeout(LONG)
}

/// Sends a piece again and again, faster than any timeout, until `test` returns.
fn while_trickling<R>(client: &mut Client, piece: &[u8], test: impl FnOnce(&mut Client) -> R) -> R {
    let done = AtomicBool::new(false);
    let mut stream = client.stream().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) && stream.write_all(piece).is_ok() {
                std::thread::sleep(SHORT / 10);
            }
        });
        let result = catch_unwind(AssertUnwindSafe(|| test(client)));
        done.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Connects clients that each send something, so that all of them wait at the same time.
fn all_sent<S: AsRef<[u8]>, const N: usize>(site: &Site, sent: [S; N]) -> [(Client, S); N] {
    sent.map(|sent| {
        let mut client = site.connect();
        client.send(&sent);
        (client, sent)
    })
}

/// Waits until all connections are closed.
fn wait_for_nobody(site: &Site) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while site.server().connections() > 0 {
        assert!(Instant::now() < deadline, "a connection is still open");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_head_that_does_not_end_is_answered_with_408() {
    on_both(patient().head_timeout(SHORT), echo, |site| {
        let sent = ["G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\n", "\r"];
        for (mut client, sent) in all_sent(site, sent) {
            let answer = client.answer();
            assert_eq!((answer.status, answer.says_close()), (408, true), "{sent:?}");
            client.end();
            assert_eq!(site.calls_of(client.local_addr()), [""; 0], "{sent:?}");
        }
    });
}

#[test]
fn a_second_head_that_does_not_end_is_answered_with_408() {
    on_both(patient().head_timeout(SHORT), echo, |site| {
        let mut client = site.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\n");
        assert_eq!(client.answer().text(), "GET / []");
        assert_eq!(client.answer().status, 408);
        client.end();
    });
}

#[test]
fn a_head_that_trickles_is_answered_with_408() {
    on_both(patient().head_timeout(SHORT), echo, |site| {
        for (first, piece) in [("G", &b"E"[..]), ("GET / HTTP/1.1\r\nHost: a\r\n", b"X: y\r\n")] {
            let mut client = site.connect();
            client.send(first);
            let begin = Instant::now();
            let answer = while_trickling(&mut client, piece, Client::answer);
            assert_eq!(answer.status, 408, "{first:?}");
            assert!(begin.elapsed() < 20 * SHORT, "it took {:?}", begin.elapsed());
            client.end();
        }
    });
}

#[test]
fn empty_lines_do_not_keep_a_connection() {
    on_both(patient().head_timeout(SHORT).idle_timeout(SHORT), echo, |site| {
        for asks in [false, true] {
            let mut client = site.connect();
            if asks {
                client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                assert_eq!(client.answer().text(), "GET / []");
            }
            let begin = Instant::now();
            // The content of the answer does not matter.
            while_trickling(&mut client, b"\r\n", Client::rest);
            assert!(begin.elapsed() < 20 * SHORT, "it took {:?}", begin.elapsed());
        }
    });
}

#[test]
fn an_empty_line_after_a_request_is_not_a_late_request() {
    on_both(patient().head_timeout(SHORT).idle_timeout(3 * SHORT), echo, |site| {
        let mut client = site.connect();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi\r\n");
        assert_eq!(client.answer().text(), "POST / [hi]");
        client.end();
    });
}

#[test]
fn a_connection_that_asks_for_nothing_is_closed_silently() {
    on_both(patient().head_timeout(SHORT), echo, |site| {
        site.connect().end();
    });
}

#[test]
fn a_connection_that_is_idle_is_closed_silently() {
    on_both(patient().idle_timeout(SHORT), echo, |site| {
        let mut client = site.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(!client.answer().says_close());
        client.end();
    });
}

#[test]
fn a_handler_is_not_idle() {
    let handler = |_: Request| {
        sinew::sleep(4 * SHORT);
        Response::text("done")
    };
    on_both(patient().idle_timeout(SHORT).head_timeout(SHORT), handler, |site| {
        let mut client = site.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().text(), "done");
    });
}

#[test]
fn a_body_that_does_not_come_is_answered_with_408() {
    on_both(patient().body_timeout(SHORT), echo, |site| {
        let bodies = [
            "Content-Length: 5\r\n\r\n",
            "Content-Length: 5\r\n\r\nhell",
            "Transfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        ];
        let sent = bodies.map(|body| format!("POST / HTTP/1.1\r\nHost: a\r\n{body}"));
        for (mut client, body) in all_sent(site, sent) {
            let answer = client.answer();
            assert_eq!((answer.status, answer.says_close()), (408, true), "{body:?}");
            client.end();
        }
    });
}

#[test]
fn an_unread_body_is_not_waited_for_long() {
    on_both(patient(), echo, |site| {
        for length in ["Content-Length: 60000", "Transfer-Encoding: chunked"] {
            let mut client = site.connect();
            client.send(format!("POST /unread HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\n"));
            assert_eq!(client.answer().text(), "POST /unread", "{length}");
            let begin = Instant::now();
            while_trickling(&mut client, b"1\r\n1\r\n", Client::end);
            let took = begin.elapsed();
            assert!(took < Duration::from_secs(8), "{length} took {took:?}");
        }
    });
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let handler = |_: Request| {
        Response::stream(|out| {
            loop {
                out.write_all(&[b'x'; 4096])?;
            }
        })
    };
    on_both(patient().write_timeout(SHORT), handler, |site| {
        let mut client = site.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        // Some bytes have come, and many more will.
        client.bytes(1);
        wait_for_nobody(site);
    });
}

#[test]
fn a_client_that_asks_and_does_not_read_is_cut_off() {
    let handler = |_: Request| Response::new(vec![b'x'; 100_000]);
    on_both(patient().write_timeout(SHORT), handler, |site| {
        let mut client = site.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000));
        client.bytes(1);
        wait_for_nobody(site);
    });
}
