//! Handlers: which one serves a request, and what a handler knows about its request.

use crate::LONG;
use crate::client::{Client, serve, serve_with};
use sinew_http::http::StatusCode;
use sinew_http::{Request, RequestContext, Response};
use sinew_testkit::watch;
use std::thread;

/// A route that guards a path guards every spelling of it.
#[test]
fn a_path_that_is_encoded_leads_to_the_same_handler() {
    let _watch = watch::a_minute();
    let router = sinew_http::Router::new()
        .get("/admin/{*rest}", |_: Request| StatusCode::FORBIDDEN)
        .any("/{*rest}", |request: Request| request.param("rest").unwrap_or_default().to_owned());
    let server = serve(router);
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.get("/admin/secret").status, 403);
    assert_eq!(client.get("/%61dmin/%73ecret").status, 403);
    assert_eq!(client.get("/%2561dmin/secret").body, b"%61dmin/secret");
    // An escape that appears only after other escapes are decoded is malformed.
    for path in ["/%%361dmin/secret", "/%6%31dmin/secret", "/admin%%32fsecret"] {
        assert_eq!(Client::new(server.local_addr()).get(path).status, 400, "{path}");
    }
    server.shutdown(LONG).unwrap();
}

/// Parameters have their values in plain paths, in encoded ones, in absolute targets, beside a query,
/// and if there are many of them.
#[test]
fn parameters_are_the_parts_of_the_path() {
    let _watch = watch::a_minute();
    let names = ["a", "b", "c", "d", "e", "missing"];
    let show = move |request: Request| {
        let value = |name: &&str| request.param(name).map(|value| format!("{name}={value}"));
        names.iter().filter_map(value).collect::<Vec<_>>().join(" ")
    };
    let router = sinew_http::Router::new()
        .get("/none", show)
        .get("/one/{a}", show)
        .get("/two/{a}/of/{b}.txt", show)
        .get("/four/{a}/{b}/{c}/{d}", show)
        .get("/five/{a}/{b}/{c}/{d}/{e}", show)
        .get("/rest/{a}/{*b}", show);
    let server = serve(router);
    let mut client = Client::new(server.local_addr());
    for (target, expected) in [
        ("/none", ""),
        ("/one/1", "a=1"),
        ("/one/1?a=2", "a=1"),
        ("/one/%C3%A4%20b", "a=\u{e4} b"),
        ("/one/%61b", "a=ab"),
        ("http://localhost/one/1?x=/one/2", "a=1"),
        ("/two/x/of/y.txt", "a=x b=y"),
        ("/two/%2F/of/%25.txt", "a=/ b=%"),
        ("/four/1/22/333/4444", "a=1 b=22 c=333 d=4444"),
        ("/five/1/22/333/4444/55555", "a=1 b=22 c=333 d=4444 e=55555"),
        ("/five/1/22/3%203/4444/55555", "a=1 b=22 c=3 3 d=4444 e=55555"),
        ("/rest/1/2/3/4", "a=1 b=2/3/4"),
    ] {
        let answer = client.get(target);
        assert_eq!(String::from_utf8(answer.body).unwrap(), expected, "{target}");
    }
    assert_eq!(client.get("/one/%FF").status, 400);
    server.shutdown(LONG).unwrap();
}

#[test]
fn fibers_are_named_after_both_ends() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| sinew::current().name().unwrap_or_default().to_owned());
    let address = server.local_addr();
    let mut client = Client::new(address);
    let expected = format!("http {address} <- {}", client.local_addr());
    assert_eq!(client.get("/").body, expected.as_bytes());
    assert!(sinew::fibers().iter().any(|info| info.name() == Some(&expected)));
    let accepts = format!("http {address} accept");
    assert!(sinew::fibers().iter().any(|info| info.name() == Some(&accepts)));
    server.shutdown(LONG).unwrap();
}

#[test]
fn code_far_from_the_handler_knows_the_request() {
    let _watch = watch::a_minute();
    fn far() -> String {
        let context = RequestContext::current().unwrap();
        format!("{} {} {}", context.number(), context.method(), context.target())
    }
    let server = serve(|_: Request| {
        let context = RequestContext::current().unwrap();
        let near = far();
        // A fiber that works for the request has no context until it enters one.
        let child = sinew::spawn(move || {
            assert!(RequestContext::current().is_none());
            context.enter(far)
        });
        assert_eq!(child.join().unwrap(), near);
        near
    });
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.get("/a?b").body, b"1 GET /a?b");
    assert_eq!(client.get("/c").body, b"2 GET /c");
    server.shutdown(LONG).unwrap();
}

/// Many fibers serve many connections, which come and go.
#[test]
fn nothing_is_lost_among_many() {
    let _watch = watch::a_minute();
    for deferred in [true, false] {
        let server = serve_with(
            |server| server.carriers(2).kept_stacks(if deferred { 0 } else { usize::MAX }),
            |mut request: Request| -> std::io::Result<Response> {
                let body = request.body().read_all()?;
                sinew::yield_now();
                Ok(Response::new(body))
            },
        );
        let address = server.local_addr();
        let clients: Vec<_> = (0..8)
            .map(|number| {
                thread::spawn(move || {
                    for round in 0..20 {
                        let mut client = Client::new(address);
                        for n in 0..20 {
                            let body = format!("{number} {round} {n}").repeat(1 + n * n);
                            assert_eq!(client.post("/", body.as_bytes()).body, body.as_bytes());
                        }
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        server.shutdown(LONG).unwrap();
        assert_eq!(server.connections(), 0);
    }
}
