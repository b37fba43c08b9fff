//! Connections that leave HTTP, and connections that do not.

use crate::client::Client;
use crate::site::on_both;
use sinew_http::http::StatusCode;
use sinew_http::{Limits, Request, Response, Upgraded};
use std::io::{Read, Write};

/// Sends everything back in upper case, after a greeting.
fn shout(mut stream: Upgraded) {
    stream.write_all(b"LOUD: ").unwrap();
    let mut buffer = [0; 64];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        buffer[..count].make_ascii_uppercase();
        stream.write_all(&buffer[..count]).unwrap();
    }
}

/// The responses of the site.
fn give(request: Request) -> Response {
    let upgrade = || Response::upgrade(shout);
    match request.path() {
        "/upgrade" => upgrade(),
        "/named" => upgrade().with_header("upgrade", "loud"),
        "/body" => {
            let mut request = request;
            request.body().read_all().unwrap();
            upgrade()
        }
        "/404" => upgrade().with_status(StatusCode::NOT_FOUND),
        "/503" => upgrade().with_status(StatusCode::SERVICE_UNAVAILABLE),
        "/302" => upgrade().with_status(StatusCode::FOUND),
        "/200" => upgrade().with_status(StatusCode::OK),
        "tunnel:80" => upgrade().with_status(StatusCode::OK),
        "switch:80" => upgrade(),
        "closed:80" => upgrade().with_status(StatusCode::FORBIDDEN),
        "refused:80" => Response::text("no").with_status(StatusCode::METHOD_NOT_ALLOWED),
        "[::1]:80" => Response::text("address").with_status(StatusCode::METHOD_NOT_ALLOWED),
        _ => Response::text("plain"),
    }
}

const ASKING: &str = "Host: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: shouting\r\n";

fn on_site(test: impl Fn(&mut Client) + Sync) {
    on_both(Limits::default(), give, |site| test(&mut site.connect()));
}

#[track_caller]
fn assert_goes_on(client: &mut Client) {
    client.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer().text(), "plain");
}

#[track_caller]
fn assert_shouts(client: &mut Client) {
    client.send("get /smuggled http/1.1\r\n\r\n");
    assert_eq!(client.bytes(32), b"LOUD: GET /SMUGGLED HTTP/1.1\r\n\r\n");
    client.finish();
    client.end();
}

#[test]
fn a_connection_is_upgraded() {
    on_site(|client| {
        client.send(format!("GET /upgrade HTTP/1.1\r\n{ASKING}\r\n"));
        let answer = client.answer();
        assert_eq!(answer.status, 101);
        assert_eq!(answer.value("upgrade"), Some("shouting"));
        assert_eq!(answer.value("connection"), Some("upgrade"));
        assert_eq!(answer.value("content-length"), None);
        assert_eq!(answer.value("transfer-encoding"), None);
        assert_shouts(client);
    });
}

#[test]
fn a_handler_may_name_the_protocol() {
    on_site(|client| {
        client.send(format!("GET /named HTTP/1.1\r\n{ASKING}\r\n"));
        assert_eq!(client.answer().value("upgrade"), Some("loud"));
        assert_shouts(client);
    });
}

#[test]
fn bytes_after_the_request_belong_to_the_other_protocol() {
    on_both(Limits::default(), give, |site| {
        for cut in [0, 1, 10] {
            let mut client = site.connect();
            let (first, second) = "get /smuggled http/1.1\r\n\r\n".split_at(cut);
            client.send(format!("GET /upgrade HTTP/1.1\r\n{ASKING}\r\n{first}"));
            assert_eq!(client.answer().status, 101);
            client.send(second);
            assert_eq!(client.bytes(32), b"LOUD: GET /SMUGGLED HTTP/1.1\r\n\r\n");
            client.finish();
            client.end();
            assert_eq!(site.calls_of(client.local_addr()), ["GET /upgrade"]);
        }
    });
}

#[test]
fn a_body_before_an_upgrade_does_not_reach_the_other_protocol() {
    on_both(Limits::default(), give, |site| {
        for path in ["/upgrade", "/body"] {
            for body in [
                "Content-Length: 5\r\n\r\nhello",
                "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ] {
                let mut client = site.connect();
                client.send(format!("POST {path} HTTP/1.1\r\n{ASKING}{body}"));
                assert_eq!(client.answer().status, 101, "{path} {body:?}");
                assert_shouts(&mut client);
            }
        }
    });
}

#[test]
fn a_client_that_does_not_ask_is_not_upgraded() {
    on_site(|client| {
        for (path, fields, protocol) in [
            ("/named", "Host: a\r\n", "loud"),
            ("/named", "Host: a\r\nUpgrade: shouting\r\n", "loud"),
            ("/upgrade", "Host: a\r\nUpgrade: shouting\r\n", "shouting"),
            ("/named", "Host: a\r\nConnection: upgrade\r\n", "loud"),
            ("/upgrade", "Host: a\r\nConnection: x-upgrade\r\nUpgrade: shouting\r\n", "shouting"),
        ] {
            client.send(format!("GET {path} HTTP/1.1\r\n{fields}\r\n"));
            let answer = client.answer();
            assert_eq!(answer.status, 426, "{fields:?}");
            assert_eq!(answer.value("upgrade"), Some(protocol), "{fields:?}");
            assert_eq!(answer.value("connection"), Some("upgrade"), "{fields:?}");
            assert_goes_on(client);
        }
        // Neither side names a protocol.
        for fields in ["Host: a\r\n", "Host: a\r\nConnection: upgrade\r\n"] {
            client.send(format!("GET /upgrade HTTP/1.1\r\n{fields}\r\n"));
            let answer = client.answer();
            assert_eq!((answer.status, answer.value("upgrade")), (400, None), "{fields:?}");
            assert_goes_on(client);
        }
        client.send(format!("GET /upgrade HTTP/1.0\r\n{ASKING}\r\n"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.value("connection")), (426, Some("upgrade, keep-alive")));
    });
}

#[test]
fn a_client_that_asks_in_vain_is_answered() {
    on_site(|client| {
        client.send(format!("GET /plain HTTP/1.1\r\n{ASKING}\r\n"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (200, "plain"));
        assert_goes_on(client);
    });
}

#[test]
fn another_status_is_no_upgrade() {
    on_site(|client| {
        for status in [200, 302, 404, 503] {
            client.send(format!("GET /{status} HTTP/1.1\r\n{ASKING}\r\n"));
            let answer = client.answer();
            assert_eq!((answer.status, answer.text()), (status, ""));
            assert_goes_on(client);
        }
    });
}

#[test]
fn connect_makes_a_tunnel() {
    on_site(|client| {
        client.send("CONNECT tunnel:80 HTTP/1.1\r\nHost: tunnel:80\r\n\r\n");
        let answer = client.bare_answer();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.value("content-length"), None);
        assert_eq!(answer.value("transfer-encoding"), None);
        assert!(!answer.says_close());
        assert_shouts(client);
    });
}

#[test]
fn connect_that_is_refused_makes_no_tunnel() {
    on_site(|client| {
        for (authority, status, body) in
            [("refused:80", 405, "no"), ("closed:80", 403, ""), ("[::1]:80", 405, "address")]
        {
            client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let answer = client.answer();
            assert_eq!((answer.status, answer.text()), (status, body), "{authority}");
            assert_goes_on(client);
        }
        client.send("CONNECT switch:80 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.answer().status, 400);
        assert_goes_on(client);
    });
}

#[test]
fn connect_without_a_tunnel_ends_the_connection() {
    on_both(Limits::default(), give, |site| {
        let mut client = site.connect();
        // For the client, a tunnel begins after a 200: its next bytes are not a request.
        client.send(
            "CONNECT plain:80 HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        );
        let answer = client.answer();
        assert_eq!((answer.status, answer.text()), (200, "plain"));
        assert_eq!(answer.value("content-length"), None);
        assert_eq!(answer.value("transfer-encoding"), None);
        assert!(answer.is_last);
        client.end();
        assert_eq!(site.calls_of(client.local_addr()), ["CONNECT plain:80"]);
    });
}
