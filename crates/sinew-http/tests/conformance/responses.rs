//! The responses that handlers make, as they reach the client.

use crate::client::{Client, Text};
use crate::site::{Site, on_both};
use sinew::sync::Event;
use sinew_http::http::{Method, StatusCode};
use sinew_http::{Handler, Limits, Request, Response, Router};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Sends a request on a connection that stays open.
fn ask(client: &mut Client, line: &str) {
    client.send(format!("{line}\r\nHost: a\r\nConnection: keep-alive\r\n\r\n"));
}

/// Checks that the connection can be used again.
#[track_caller]
fn assert_goes_on(client: &mut Client) {
    ask(client, "GET /next HTTP/1.1");
    assert_eq!(client.answer().text(), "next");
}

/// The responses of the site. `/next` is an ordinary one.
fn give(request: Request) -> Response {
    let stream = |pieces: &'static [&str]| {
        Response::stream(move |out| {
            pieces.iter().try_for_each(|piece| out.write_all(piece.as_bytes()))
        })
    };
    match request.path() {
        "/next" => Response::text("next"),
        "/empty" => Response::text(""),
        "/large" => Response::new(vec![b'x'; 1 << 20]),
        "/large-stream" => {
            Response::stream(|out| (0..1024).try_for_each(|_| out.write_all(&[b'x'; 1024])))
        }
        "/stream" => stream(&["hello", "", " ", "world"]),
        "/nothing" => stream(&[]),
        "/stream-of-5" => stream(&["he", "llo"]).with_header("content-length", "5"),
        "/stream-short" => stream(&["hel"]).with_header("content-length", "5"),
        "/stream-long" => stream(&["hello", " world"]).with_header("content-length", "5"),
        "/reader" => Response::reader(&b"hello"[..], None),
        "/reader-of-5" => Response::reader(&b"hello"[..], Some(5)),
        "/reader-short" => Response::reader(&b"hel"[..], Some(5)),
        "/reader-long" => Response::reader(&b"hello world"[..], Some(5)),
        "/reader-fails" => Response::reader((&b"hello"[..]).chain(Failing), None),
        "/stream-fails" => Response::stream(|out| {
            out.write_all(b"hello")?;
            Err(io::Error::other("it fails"))
        }),
        "/stream-panics" => Response::stream(|out| {
            out.write_all(b"hello")?;
            panic!("the body of a test panics");
        }),
        "/panics" => panic!("the handler of a test panics"),
        "/wrong-length" => Response::text("hello").with_header("content-length", "50"),
        "/wrong-coding" => Response::text("hello").with_header("transfer-encoding", "gzip"),
        "/told-length" => Response::empty(StatusCode::OK).with_header("content-length", "50"),
        "/no-length" => Response::empty(StatusCode::OK).with_header("content-length", "many"),
        "/own-date" => Response::text("").with_header("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        "/204" => Response::text("hello").with_status(StatusCode::NO_CONTENT),
        "/204-stream" => stream(&["hello"]).with_status(StatusCode::NO_CONTENT),
        "/205" => Response::text("hello").with_status(StatusCode::RESET_CONTENT),
        "/205-stream" => stream(&["hello"]).with_status(StatusCode::RESET_CONTENT),
        "/205-told" => {
            Response::empty(StatusCode::RESET_CONTENT).with_header("content-length", "50")
        }
        "/304" => Response::text("hello").with_status(StatusCode::NOT_MODIFIED),
        "/304-stream" => stream(&["hello"]).with_status(StatusCode::NOT_MODIFIED),
        "/100" => Response::empty(StatusCode::CONTINUE),
        "/103" => Response::text("hello").with_status(StatusCode::from_u16(103).unwrap()),
        "/101" => Response::empty(StatusCode::SWITCHING_PROTOCOLS),
        "/299" => Response::text("hello").with_status(StatusCode::from_u16(299).unwrap()),
        "/999" => Response::text("hello").with_status(StatusCode::from_u16(999).unwrap()),
        path => panic!("there is no {path}"),
    }
}

struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("it fails"))
    }
}

fn on_site(test: impl Fn(&mut Client) + Sync) {
    on_both(Limits::default(), give, |site| test(&mut site.connect()));
}

#[test]
fn bodies_arrive_as_they_are() {
    on_site(|client| {
        for (path, body, length) in [
            ("/next", "next", Some("4")),
            ("/empty", "", Some("0")),
            ("/stream", "hello world", None),
            ("/nothing", "", None),
            ("/stream-of-5", "hello", Some("5")),
            ("/reader", "hello", None),
            ("/reader-of-5", "hello", Some("5")),
            ("/reader-long", "hello", Some("5")),
            ("/wrong-length", "hello", Some("5")),
            ("/wrong-coding", "hello", Some("5")),
        ] {
            ask(client, &format!("GET {path} HTTP/1.1"));
            let answer = client.answer();
            assert_eq!((answer.status, answer.text()), (200, body), "{path}");
            assert_eq!(answer.value("content-length"), length, "{path}");
            let coding = length.is_none().then_some("chunked");
            assert_eq!(answer.value("transfer-encoding"), coding, "{path}");
            assert_goes_on(client);
        }
    });
}

#[test]
fn large_bodies_arrive_whole() {
    on_site(|client| {
        for path in ["/large", "/large-stream"] {
            ask(client, &format!("GET {path} HTTP/1.1"));
            assert!(client.answer().body == vec![b'x'; 1 << 20], "{path}");
            assert_goes_on(client);
        }
    });
}

#[test]
fn a_head_request_gets_the_head_of_a_get() {
    on_site(|client| {
        for (path, length) in [
            ("/next", Some("4")),
            ("/empty", Some("0")),
            ("/large", Some("1048576")),
            ("/stream-of-5", Some("5")),
            ("/reader-of-5", Some("5")),
            ("/wrong-length", Some("5")),
            ("/told-length", Some("50")),
            ("/stream", None),
            ("/reader", None),
            ("/stream-fails", None),
            ("/stream-panics", None),
        ] {
            ask(client, &format!("HEAD {path} HTTP/1.1"));
            let answer = client.bare_answer();
            assert_eq!(answer.status, 200, "{path}");
            assert_eq!(answer.value("content-length"), length, "{path}");
            assert_goes_on(client);
        }
    });
}

#[test]
fn a_205_has_no_content_and_says_so() {
    on_site(|client| {
        for path in ["/205", "/205-stream", "/205-told"] {
            for (method, version) in
                [("GET", "1.1"), ("HEAD", "1.1"), ("GET", "1.0"), ("HEAD", "1.0")]
            {
                ask(client, &format!("{method} {path} HTTP/{version}"));
                let answer = client.bare_answer();
                assert_eq!(answer.status, 205, "{method} {path}");
                assert_eq!(answer.value("content-length"), Some("0"), "{method} {path}");
                assert_eq!(answer.value("transfer-encoding"), None, "{method} {path}");
                assert_goes_on(client);
            }
        }
    });
}

#[test]
fn the_options_of_a_server_are_told() {
    let router = || {
        Router::new()
            .get("/a", |_: Request| "a")
            .post("/b", |_: Request| "b")
            .fallback(|_: Request| "fallback")
    };
    let files = || sinew_http::Files::new(env!("CARGO_MANIFEST_DIR")).unwrap();
    let own = || Router::new().route(Method::OPTIONS, "*", |_: Request| "own");
    fn answering(handler: impl Handler) -> impl Fn(Request) -> Response {
        move |request| handler.handle(request)
    }
    for deferred in [true, false] {
        let site = Site::start(Limits::default(), deferred, answering(router()));
        assert_eq!(options(&site), (204, Some("GET, HEAD, OPTIONS, POST".into()), String::new()));
        let site = Site::start(Limits::default(), deferred, answering(files()));
        assert_eq!(options(&site), (204, Some("GET, HEAD, OPTIONS".into()), String::new()));
        let site = Site::start(Limits::default(), deferred, answering(own()));
        assert_eq!(options(&site), (200, None, "own".into()));
    }
}

/// Status, allowed methods and body of the answer to `OPTIONS *`.
fn options(site: &Site) -> (u16, Option<String>, String) {
    let mut client = site.connect();
    ask(&mut client, "OPTIONS * HTTP/1.1");
    let answer = client.answer();
    (answer.status, answer.value("allow").map(Into::into), answer.text().into())
}

#[test]
fn a_length_that_is_told_to_a_head_request_is_a_number() {
    on_site(|client| {
        ask(client, "HEAD /no-length HTTP/1.1");
        let answer = client.bare_answer();
        assert!(matches!(answer.value("content-length"), None | Some("0")), "{answer:?}");
        assert_goes_on(client);
    });
}

#[test]
fn some_statuses_have_no_body() {
    on_site(|client| {
        for (path, status) in
            [("/204", 204), ("/204-stream", 204), ("/304", 304), ("/304-stream", 304)]
        {
            for method in ["GET", "HEAD", "POST"] {
                ask(client, &format!("{method} {path} HTTP/1.1"));
                let answer = client.bare_answer();
                assert_eq!(answer.status, status, "{method} {path}");
                assert_eq!(answer.value("transfer-encoding"), None, "{method} {path}");
                if status == 204 {
                    assert_eq!(answer.value("content-length"), None, "{method} {path}");
                }
                assert_goes_on(client);
            }
        }
    });
}

#[test]
fn a_status_that_is_not_final_is_no_answer() {
    on_site(|client| {
        for path in ["/100", "/103"] {
            ask(client, &format!("GET {path} HTTP/1.1"));
            assert_eq!(client.answer().status, 500, "{path}");
            assert_goes_on(client);
        }
        ask(client, "GET /101 HTTP/1.1");
        assert_eq!(client.answer().status, 400);
        assert_goes_on(client);
    });
}

#[test]
fn an_unknown_status_is_passed_on() {
    on_site(|client| {
        for status in [299, 999] {
            ask(client, &format!("GET /{status} HTTP/1.1"));
            let answer = client.answer();
            assert_eq!((answer.status, answer.text()), (status, "hello"));
            assert_goes_on(client);
        }
    });
}

#[test]
fn every_answer_has_one_date() {
    on_site(|client| {
        ask(client, "GET /own-date HTTP/1.1");
        assert_eq!(client.answer().value("date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        for path in ["/next", "/204", "/304", "/stream"] {
            ask(client, &format!("GET {path} HTTP/1.1"));
            let answer = client.answer();
            let date = answer.value("date").unwrap();
            assert_eq!((date.len(), &date[25..]), (29, " GMT"), "{path}: {date}");
        }
        client.send("x\r\n\r\n");
        assert_eq!(client.answer().values("date").len(), 1);
    });
}

#[test]
fn http_1_0_gets_no_chunks() {
    on_both(Limits::default(), give, |site| {
        for path in ["/stream", "/reader", "/nothing"] {
            for connection in ["close", "keep-alive"] {
                let mut client = site.connect();
                client.send(format!("GET {path} HTTP/1.0\r\nConnection: {connection}\r\n\r\n"));
                let answer = client.answer();
                assert_eq!(answer.value("transfer-encoding"), None, "{path}");
                assert_eq!(answer.value("content-length"), None, "{path}");
                assert!(answer.is_last && answer.says_close(), "{path} {connection}");
                let body = match path {
                    "/stream" => "hello world",
                    "/reader" => "hello",
                    _ => "",
                };
                assert_eq!(answer.text(), body, "{path} {connection}");
                client.end();
            }
        }
    });
}

#[test]
fn http_1_0_is_kept_alive_if_the_length_is_known() {
    on_site(|client| {
        for path in ["/next", "/stream-of-5", "/reader-of-5", "/204", "/304"] {
            client.send(format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
            assert_eq!(client.answer().value("connection"), Some("keep-alive"), "{path}");
        }
        assert_goes_on(client);
    });
}

#[test]
fn a_body_that_is_not_whole_cannot_be_taken_for_a_whole_one() {
    on_both(Limits::default(), give, |site| {
        for path in [
            "/stream-short",
            "/stream-long",
            "/reader-short",
            "/reader-fails",
            "/stream-fails",
            "/stream-panics",
        ] {
            let mut client = site.connect();
            ask(&mut client, &format!("GET {path} HTTP/1.1"));
            ask(&mut client, "GET /next HTTP/1.1");
            let begun = client.rest();
            let text = Text(&begun).to_string();
            // The part before the failure reaches the client, and the client can see that more was
            // to come.
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{path}: {text}");
            let body = if path.ends_with("short") { "hel" } else { "hello" };
            assert!(text.contains(&format!("\\r\\n{body}")), "{path}: {text}");
            if text.contains("transfer-encoding") {
                assert!(!text.contains("0\\r\\n\\r\\n"), "{path}: {text}");
            }
            assert!(!text.contains("world"), "{path}: {text}");
            assert_eq!(text.matches("HTTP/1.1").count(), 1, "{path}: {text}");
            assert_eq!(site.calls_of(client.local_addr()).len(), 1, "{path}");
        }
    });
}

#[test]
fn answers_before_one_that_fails_arrive() {
    on_both(Limits::default(), give, |site| {
        for path in ["/stream-fails", "/stream-panics", "/reader-fails", "/stream-short"] {
            let mut client = site.connect();
            client.send(format!(
                "GET /next HTTP/1.1\r\nHost: a\r\n\r\nGET {path} HTTP/1.1\r\nHost: a\r\n\r\n"
            ));
            let answer = client.try_answer(false);
            assert_eq!(answer.as_ref().map(|answer| answer.text()), Ok("next"), "{path}");
            client.rest();
        }
    });
}

#[test]
fn a_panic_is_answered_with_500_and_ends_one_connection() {
    on_both(Limits::default(), give, |site| {
        let (mut one, mut other) = (site.connect(), site.connect());
        assert_goes_on(&mut other);
        one.send(
            "GET /next HTTP/1.1\r\nHost: a\r\n\r\nGET /panics HTTP/1.1\r\nHost: a\r\n\r\n\
             GET /next HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        assert_eq!(one.answer().text(), "next");
        let answer = one.answer();
        assert_eq!((answer.status, answer.says_close()), (500, true));
        one.end();
        assert_eq!(site.calls_of(one.local_addr()), ["GET /next", "GET /panics"]);
        assert_goes_on(&mut other);
        assert_goes_on(&mut site.connect());
    });
}

#[test]
fn a_panic_within_a_body_is_answered_with_500() {
    on_both(Limits::default(), give, |site| {
        for length in ["Content-Length: 5", "Content-Length: 50000", "Transfer-Encoding: chunked"] {
            let mut client = site.connect();
            client.send(format!("POST /panics HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\nGET"));
            let answer = client.answer();
            assert_eq!((answer.status, answer.says_close()), (500, true), "{length}");
            client.send(" /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
            client.end();
            assert_eq!(site.calls_of(client.local_addr()), ["POST /panics"], "{length}");
        }
    });
}

#[test]
fn a_head_request_that_is_refused_gets_no_body() {
    on_both(Limits::default(), give, |site| {
        for rest in [
            "\r\n",
            "Host: a\r\nHost: a\r\n\r\n",
            "Host: a\r\nX y: z\r\n\r\n",
            "Host: a\r\nExpect: x\r\n\r\n",
        ] {
            let mut client = site.connect();
            client.send(format!("HEAD / HTTP/1.1\r\n{rest}"));
            assert!(client.bare_answer().says_close(), "{rest:?}");
            client.end();
        }
    });
}

#[test]
fn streams_are_answered_in_their_order() {
    let handler = |request: Request| {
        let path = request.path().to_owned();
        Response::stream(move |out| out.write_all(path.as_bytes()))
    };
    on_both(Limits::default(), handler, |site| {
        let mut client = site.connect();
        let asked: String =
            (0..50).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
        client.send(asked);
        for n in 0..50 {
            assert_eq!(client.answer().text(), format!("/{n}"));
        }
    });
}

#[test]
fn flushed_bytes_are_sent_before_the_rest_is_made() {
    let _watch = sinew_testkit::watch::a_minute();
    for deferred in [true, false] {
        let go = Arc::new(Event::new());
        let may_go = go.clone();
        let handler = move |_: Request| {
            let may_go = may_go.clone();
            Response::stream(move |out| {
                out.write_all(b"begun")?;
                out.flush()?;
                may_go.wait();
                out.write_all(b" done")
            })
        };
        let site = Site::start(Limits::default(), deferred, handler);
        let mut client = site.connect();
        ask(&mut client, "GET / HTTP/1.1");
        let mut seen = String::new();
        while !seen.ends_with("begun\r\n") {
            seen += &Text(&client.bytes(1)).to_string().replace("\\r", "\r").replace("\\n", "\n");
        }
        go.set();
        assert_eq!(client.bytes(15), b"5\r\n done\r\n0\r\n\r\n");
    }
}
