//! Backtraces: where a fiber is that waits, that runs, or that answers the request.

use crate::{get, runtime, spawn, start, wait_suspended, waits_for_the_tide};
use serde_json::Value;
use sinew::FiberState;
use sinew_http::debug::Access;
use sinew_http::{Router, Server};
use sinew_testkit::watch::a_minute;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn a_parked_fiber_is_in_its_function() {
    let _watchdog = a_minute();
    let runtime = runtime("parked");
    let server = start(&runtime, Access::Loopback);
    let fiber = spawn(&runtime, "tide", waits_for_the_tide);
    wait_suspended(&fiber.fiber());
    let target = format!("/debug/fibers/{}/backtrace", fiber.fiber().id());
    let answer = get(&server, &target);
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: text/plain"), "{}", answer.head);
    assert!(answer.head.contains("cache-control: no-store"), "{}", answer.head);
    let first = answer.body.lines().next().unwrap();
    assert!(first.contains("\"tide\", suspended: park for "), "{first}");
    if cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        assert!(answer.body.contains("waits_for_the_tide"), "{}", answer.body);
        let full = get(&server, &format!("{target}?full=1"));
        assert!(full.body.lines().count() > answer.body.lines().count());
    }
    let dump = get(&server, "/debug/dump");
    assert!(dump.body.contains("fiber \"tide\""), "{}", dump.body);
}

#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn a_fiber_that_runs_is_in_its_function() {
    #[inline(never)]
    fn turns_round(done: &AtomicBool) {
        while !done.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
    let _watchdog = a_minute();
    let (busy, served) = (runtime("busy"), runtime("served"));
    let server = start(&served, Access::Loopback);
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let fiber = spawn(&busy, "turns", move || turns_round(&seen));
    assert!(sinew::wait_until_timeout(
        || fiber.fiber().state() == FiberState::Running,
        Duration::from_secs(20)
    ));
    let answer = get(&server, &format!("/debug/fibers/{}/backtrace", fiber.fiber().id()));
    done.store(true, Ordering::Relaxed);
    assert!(answer.body.contains("\"turns\", running"), "{}", answer.body);
    assert!(answer.body.contains("turns_round"), "{}", answer.body);
}

#[test]
fn a_fiber_that_is_not_there_is_not_found() {
    let _watchdog = a_minute();
    let runtime = runtime("missing");
    let server = start(&runtime, Access::Loopback);
    let ended = spawn(&runtime, "ended", || ());
    let id = ended.fiber().id().to_string();
    ended.join().unwrap();
    for id in [&*id, "18446744073709551615", "99999999999999999999", "seven", "-1"] {
        let answer = get(&server, &format!("/debug/fibers/{id}/backtrace"));
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains(&format!("no fiber {id}")), "{}", answer.body);
    }
}

#[test]
fn the_fiber_that_answers_says_so() {
    let _watchdog = a_minute();
    let runtime = runtime("answers");
    let server = start(&runtime, Access::Loopback);
    // Only one connection, which keeps its stack, so that one fiber answers both requests.
    let router = Router::new().debug(Access::Loopback);
    let kept = Server::bind("127.0.0.1:0")
        .runtime(runtime.handle())
        .kept_stacks(usize::MAX)
        .start(router)
        .unwrap();
    let mut stream = TcpStream::connect(kept.local_addr()).unwrap();
    let mut ask = |target: &str| {
        write!(stream, "GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        read_one(&mut stream)
    };
    let view: Value = serde_json::from_str(&ask("/debug/fibers.json?limit=0")).unwrap();
    let target = format!("/debug/fibers/{}/backtrace", view["answered_by"]);
    let text = ask(&target);
    assert!(text.contains("this is the fiber that answers this request"), "{text}");
    assert!(!get(&server, &target).body.contains("this is the fiber"));
}

/// Reads the body of one response of known length.
fn read_one(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let head = String::from_utf8(text).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}
