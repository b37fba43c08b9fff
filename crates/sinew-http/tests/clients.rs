//! Common clients against the server: `curl`, `ab`, `wrk`, `h2load`. A client that is not installed
//! is skipped, with a note.

use crate::client::{serve, serve_with};
use sinew_http::{Request, Response, Server};
use sinew_testkit::watch;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

mod client;

const LONG: Duration = Duration::from_secs(20);

/// Runs a program; `None` if it is not installed.
fn run(program: &str, arguments: &[&str], input: &[u8]) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        let _ = writeln!(std::io::stderr(), "skipped: {program} is not installed");
        return None;
    };
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    Some(output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn echo(mut request: Request) -> std::io::Result<Response> {
    Ok(Response::new(request.body().read_all()?))
}

#[test]
fn curl_sends_and_receives() {
    let _watch = watch::a_minute();
    let server = serve(echo);
    let url = format!("http://{}/", server.local_addr());
    let large = vec![b'x'; 3_000_000];
    for (name, arguments) in [
        ("a length", vec!["-sS", "--data-binary", "@-"]),
        ("chunks", vec!["-sS", "-T", "-", "-X", "POST"]),
        ("an expectation", vec!["-sS", "-H", "Expect: 100-continue", "--data-binary", "@-"]),
        ("HTTP/1.0", vec!["-sS", "-0", "--data-binary", "@-"]),
    ] {
        for body in [&b"hello"[..], &large] {
            let arguments = [&arguments[..], &["--max-time", "30", &url]].concat();
            let Some(output) = run("curl", &arguments, body) else { return };
            assert!(output.stdout == body, "{name}: {} bytes", output.stdout.len());
        }
    }
    let head = run("curl", &["-sSI", "--max-time", "30", &url], b"").unwrap();
    assert!(text(&head).starts_with("HTTP/1.1 200 OK\r\n"), "{head:?}");
    server.shutdown(LONG).unwrap();
}

#[test]
fn curl_uses_a_connection_again() {
    let _watch = watch::a_minute();
    let server = serve(|request: Request| format!("{}\n", request.peer_addr().port()));
    let url = format!("http://{}/", server.local_addr());
    let Some(output) = run("curl", &["-sS", "--max-time", "30", &url, &url, &url], b"") else {
        return;
    };
    let ports = text(&output);
    let mut ports = ports.lines();
    let first = ports.next();
    assert!(first.is_some() && ports.all(|port| Some(port) == first), "{output:?}");
    server.shutdown(LONG).unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn curl_speaks_tls() {
    let _watch = watch::a_minute();
    let tls = sinew_http::Tls::self_signed(["localhost"]).unwrap();
    let server = Server::bind("127.0.0.1:0").tls(tls).start(echo).unwrap();
    let url = format!("https://localhost:{}/", server.local_addr().port());
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        let body = vec![b'y'; 1_000_000];
        let arguments = ["-sSk", version, "--max-time", "30", "--data-binary", "@-", &url];
        let Some(output) = run("curl", &arguments, &body) else { return };
        assert!(output.stdout == body, "{version}");
    }
    server.shutdown(LONG).unwrap();
}

#[test]
fn ab_finds_no_failure() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| "hello");
    let url = format!("http://{}/", server.local_addr());
    for keeps in [true, false] {
        let mut arguments = vec!["-q", "-n", "2000", "-c", "50"];
        arguments.extend(keeps.then_some("-k"));
        arguments.push(&url);
        let Some(output) = run("ab", &arguments, b"") else { return };
        let report = text(&output);
        assert!(report.contains("Complete requests:      2000"), "{report}");
        assert!(report.contains("Failed requests:        0"), "{report}");
        assert!(!report.contains("Non-2xx"), "{report}");
        assert!(!keeps || report.contains("Keep-Alive requests:    2000"), "{report}");
    }
    server.shutdown(LONG).unwrap();
}

#[test]
fn wrk_finds_no_error() {
    let _watch = watch::a_minute();
    for kept in [0, usize::MAX] {
        let server = serve_with(|server| server.kept_stacks(kept), |_: Request| "hello");
        let url = format!("http://{}/", server.local_addr());
        let Some(output) = run("wrk", &["-t1", "-c50", "-d1s", &url], b"") else { return };
        let report = text(&output);
        assert!(report.contains("Requests/sec"), "{report}");
        assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{report}");
        server.shutdown(LONG).unwrap();
    }
}

#[test]
fn h2load_speaks_the_old_protocol_with_it() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| "hello");
    let url = format!("http://{}/", server.local_addr());
    // Several requests are under way on each connection.
    let arguments = ["--h1", "-n", "2000", "-c", "20", "-m", "4", &url];
    let Some(output) = run("h2load", &arguments, b"") else { return };
    let report = text(&output);
    assert!(report.contains("2000 succeeded, 0 failed, 0 errored"), "{report}");
    server.shutdown(LONG).unwrap();
}
