//! Which clients may see the debug routes.

use crate::{ask, get, runtime, start};
use sinew_http::debug::Access;
use sinew_http::{Request, Router, Server};
use sinew_testkit::watch::a_minute;

const TARGETS: [&str; 5] =
    ["/debug/fibers", "/debug/fibers.json", "/debug/fibers/1/backtrace", "/debug/dump", "/metrics"];

#[test]
fn foreign_hosts_and_forwarded_requests_are_refused() {
    let _watchdog = a_minute();
    let runtime = runtime("refused");
    let server = start(&runtime, Access::Loopback);
    let address = server.local_addr();
    for target in TARGETS {
        for fields in [
            "host: example.org\r\n",
            "host: localhost.example.org\r\n",
            "host: 192.0.2.1\r\n",
            "host: localhost\r\nx-forwarded-for: 192.0.2.1\r\n",
            "host: localhost\r\nforwarded: for=192.0.2.1\r\n",
        ] {
            let refused = ask(address, "GET", target, fields);
            assert_eq!(refused.status, 403, "{target} {fields}");
            assert!(refused.body.ends_with('\n') && refused.body.len() < 200, "{}", refused.body);
        }
        let absolute = format!("http://example.org{target}");
        assert_eq!(ask(address, "GET", &absolute, "host: localhost\r\n").status, 403);
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", &address.to_string()] {
        let answer = ask(address, "GET", "/metrics", &format!("host: {host}\r\n"));
        assert_eq!(answer.status, 200, "{host}");
    }
    // Other routes are not concerned.
    assert_eq!(ask(address, "GET", "/", "host: example.org\r\n").status, 200);
}

#[test]
fn other_machines_are_refused_unless_anyone_may_see() {
    let _watchdog = a_minute();
    let Some(here) = address_of_this_machine() else { return };
    let runtime = runtime("elsewhere");
    for (access, status) in [(Access::Loopback, 403), (Access::Anyone, 200)] {
        let router = Router::new().debug(access);
        let server = Server::bind((here, 0)).runtime(runtime.handle()).start(router).unwrap();
        let address = server.local_addr();
        let answer = ask(address, "GET", "/metrics", &format!("host: {address}\r\n"));
        assert_eq!(answer.status, status, "{access:?}");
        let answer = ask(address, "GET", "/debug/fibers", "host: example.org\r\n");
        assert_eq!(answer.status, status, "{access:?}");
    }
}

/// An address of this machine that is no loopback address, if there is one. Sends nothing.
fn address_of_this_machine() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[test]
fn a_plain_router_has_no_debug_routes() {
    let _watchdog = a_minute();
    let runtime = runtime("nothing");
    let router = Router::new().get("/", |_: Request| "hello\n");
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle()).start(router).unwrap();
    for target in TARGETS {
        assert_eq!(get(&server, target).status, 404, "{target}");
    }
}
