//! Methods, targets and versions.

use crate::table::{Case, check, last, refused, served};
use sinew_http::Limits;

/// A request with this first line and an otherwise valid head.
fn with_line(line: &str) -> String {
    format!("{line}|Host: a||")
}

fn target(claim: &str, sent: &str, seen: &str) -> Case {
    served(claim, with_line(&format!("GET {sent} HTTP/1.1")), &[&format!("GET {seen} []")])
}

fn bad(claim: &str, line: &str) -> Case {
    refused(claim, 400, with_line(line))
}

fn bad_target(claim: &str, target: &str) -> Case {
    bad(claim, &format!("GET {target} HTTP/1.1"))
}

fn bad_authority(claim: &str, target: &str) -> Case {
    bad(claim, &format!("CONNECT {target} HTTP/1.1"))
}

fn bad_version(claim: &str, version: &str) -> Case {
    bad(claim, &format!("GET / {version}"))
}

fn other_version(version: &str) -> Case {
    let claim = format!("{version} is answered with 505");
    refused(&claim, 505, with_line(&format!("GET / {version}")))
}

fn later_version(version: &str) -> Case {
    let claim = format!("{version} is served as HTTP/1.1");
    served(&claim, with_line(&format!("GET /a {version}")), &["GET /a []"])
}

#[test]
fn targets_are_understood() {
    check(
        Limits::default(),
        &[
            target("a path is passed on", "/a", "/a"),
            target("a query is passed on", "/a?b=c&d", "/a?b=c&d"),
            target("an empty query is one", "/a?", "/a?"),
            target("a question mark belongs to a query", "/a?b?c", "/a?b?c"),
            target("escapes are passed on as they are", "/%20%2F%00", "/%20%2F%00"),
            target("what is no escape is the handler's in a query", "/a?100%&%zz", "/a?100%&%zz"),
            target("empty segments are passed on", "//a//b/", "//a//b/"),
            target("dots are passed on", "/../a/./b", "/../a/./b"),
            target("punctuation is passed on", "/!$&'()*+,;=:@-._~", "/!$&'()*+,;=:@-._~"),
            target("a target may be absolute", "http://a/b?c", "/b?c"),
            target("an absolute target without a path is the root", "http://a", "/"),
            target("an absolute target may have a query only", "http://a?b", "/?b"),
            target("a scheme may be in upper case", "HTTP://a/b", "/b"),
            target("a scheme may be https", "https://a/b", "/b"),
            target("an absolute target may have a port", "http://a:8080/b", "/b"),
            target("an absolute target may have an address", "http://[::1]:80/b", "/b"),
            target("an absolute target is stronger than a Host", "http://other/b", "/b"),
            served(
                "options of the server are asked for with an asterisk",
                "OPTIONS * HTTP/1.1|Host: a||",
                &["OPTIONS * []"],
            ),
            served(
                "options of a path are asked for",
                "OPTIONS /a HTTP/1.1|Host: a||",
                &["OPTIONS /a []"],
            ),
        ],
    );
}

#[test]
fn methods_are_passed_on() {
    check(
        Limits::default(),
        &[
            served(
                "a method nobody knows is the handler's business",
                "BREW /pot HTTP/1.1|Host: a||",
                &["BREW /pot []"],
            ),
            served(
                "a method is a token",
                "a!#$%&'*+-.^_`~9 / HTTP/1.1|Host: a||",
                &["a!#$%&'*+-.^_`~9 / []"],
            ),
            served("a method has a case", "get / HTTP/1.1|Host: a||", &["get / []"]),
            served("DELETE is passed on", "DELETE /a HTTP/1.1|Host: a||", &["DELETE /a []"]),
            served("TRACE is passed on", "TRACE /a HTTP/1.1|Host: a||", &["TRACE /a []"]),
        ],
    );
}

#[test]
fn empty_lines_before_a_request_are_skipped() {
    check(
        Limits::default(),
        &[
            served("an empty line is skipped", "|GET / HTTP/1.1|Host: a||", &["GET / []"]),
            served("three empty lines are skipped", "|||GET / HTTP/1.1|Host: a||", &["GET / []"]),
            served(
                "an empty line between requests is skipped",
                "POST /a HTTP/1.1|Host: a|Content-Length: 2||hi|GET /b HTTP/1.1|Host: a||",
                &["POST /a [hi]", "GET /b []"],
            ),
            refused("a line feed before a request is refused", 400, "\nGET / HTTP/1.1|Host: a||"),
            refused("a CR before a request is refused", 400, "\rGET / HTTP/1.1|Host: a||"),
            refused("two CRs before a request are refused", 400, "\r|GET / HTTP/1.1|Host: a||"),
        ],
    );
}

#[test]
fn malformed_first_lines_are_refused() {
    check(
        Limits::default(),
        &[
            bad("HTTP/0.9 is refused", "GET /"),
            bad("a line without a target is refused", "GET HTTP/1.1"),
            bad("a line of one word is refused", "GET"),
            bad("a line with nothing for a target is refused", "GET  HTTP/1.1"),
            bad("a line with nothing for a version is refused", "GET / "),
            bad("two spaces after the method are refused", "GET  / HTTP/1.1"),
            bad("two spaces before the version are refused", "GET /  HTTP/1.1"),
            bad("a space before the method is refused", " GET / HTTP/1.1"),
            bad("a space after the version is refused", "GET / HTTP/1.1 "),
            bad("a tab after the method is refused", "GET\t/ HTTP/1.1"),
            bad("a tab before the version is refused", "GET /\tHTTP/1.1"),
            bad("a fourth word is refused", "GET / HTTP/1.1 HTTP/1.1"),
            bad("a CR within the line is refused", "GET /\ra HTTP/1.1"),
            bad("a CR before the end of the line is refused", "GET / HTTP/1.1\r"),
            bad("a NUL in the line is refused", "GET /\0 HTTP/1.1"),
            refused("a line that ends with LF is refused", 400, "GET / HTTP/1.1\nHost: a||"),
            refused("a line that ends with CR is refused", 400, "GET / HTTP/1.1\rHost: a||"),
            refused("a greeting of TLS is refused", 400, b"\x16\x03\x01\x02\x00\x01\x00\x01"),
            refused("what is no line is refused", 400, b"\xff\xff\xff\xff\r\n\r\n"),
            bad("parentheses in a method are refused", "GE(T / HTTP/1.1"),
            bad("a colon in a method is refused", "GET: / HTTP/1.1"),
            bad("a NUL in a method is refused", "G\0T / HTTP/1.1"),
            bad("a method that is not ASCII is refused", "G\u{c4}T / HTTP/1.1"),
            refused(
                "a method that is longer than any is answered with 501",
                501,
                with_line(&format!("{} / HTTP/1.1", "G".repeat(60))),
            ),
        ],
    );
}

#[test]
fn malformed_targets_are_refused() {
    check(
        Limits::default(),
        &[
            bad_target("a path without a slash is refused", "a"),
            bad_target("an escape without digits is refused", "/a%"),
            bad_target("an escape with one digit is refused", "/a%6/"),
            bad_target("an escape of an escape is refused", "/a%%32f"),
            bad_target("an escape within an escape is refused", "/a%2%66"),
            bad_target("an escape that ends with the path is refused", "/a%6?b"),
            bad_target("an asterisk is for OPTIONS only", "*"),
            bad_target("an authority is for CONNECT only", "a:80"),
            bad_target("an asterisk is all of a target", "*a"),
            bad_target("another scheme is refused", "ftp://a/"),
            bad_target("a scheme without an authority is refused", "http:/a"),
            bad_target("an absolute target without a host is refused", "http://"),
            bad_target("an absolute target with an empty host is refused", "http:///a"),
            bad_target("a port without a host is refused", "http://:80/a"),
            bad_target("a port that is no number is refused", "http://a:b/"),
            bad_target("a user in a target is refused", "http://user@a/"),
            bad_target("an address that is not closed is refused", "http://[::1/"),
            bad_target("a fragment is refused", "/a#b"),
            bad_target("a fragment of an absolute target is refused", "http://a/#b"),
            bad_target("an angle bracket in a path is refused", "/a<b"),
            bad_target("a DEL in a path is refused", "/a\x7f"),
            bad_target("a control character in a path is refused", "/a\x01"),
            bad_target("a path that is not ASCII is refused", "/\u{e4}"),
            bad_target("a query that is not ASCII is refused", "/?\u{e4}"),
            bad_target("an absolute path that is not ASCII is refused", "http://a/\u{e4}"),
            bad_target("an absolute query that is not ASCII is refused", "http://a/?\u{e4}"),
            bad_target("a host that is not ASCII is refused", "http://\u{e4}/"),
            bad_target("an angle bracket in an absolute path is refused", "http://a/<"),
            refused(
                "bytes that are no text are refused",
                400,
                b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
            ),
            bad_authority("CONNECT to a path is refused", "/"),
            bad_authority("CONNECT without a port is refused", "a"),
            bad_authority("CONNECT with an empty port is refused", "a:"),
            bad_authority("CONNECT to a port that is no number is refused", "a:x"),
            bad_authority("CONNECT to a port that is too large is refused", "a:65536"),
            bad_authority("CONNECT to an empty host is refused", ":80"),
            bad_authority("CONNECT to an absolute target is refused", "http://a:80/"),
            bad_authority("CONNECT with a path is refused", "a:80/"),
            bad_authority("CONNECT with a user is refused", "u@a:80"),
            bad_authority("CONNECT to an asterisk is refused", "*"),
        ],
    );
}

#[test]
fn versions_are_told_apart() {
    check(
        Limits::default(),
        &[
            last("HTTP/1.0 is spoken", "GET / HTTP/1.0||", &["GET / []"]),
            other_version("HTTP/0.9"),
            later_version("HTTP/1.2"),
            later_version("HTTP/1.9"),
            refused("HTTP/1.2 needs a Host, as 1.1 does", 400, "GET / HTTP/1.2||"),
            served(
                "HTTP/1.2 has chunks, as 1.1 has",
                "POST / HTTP/1.2|Host: a|Transfer-Encoding: chunked||2|hi|0||",
                &["POST / [hi]"],
            ),
            other_version("HTTP/2.0"),
            other_version("HTTP/3.0"),
            other_version("HTTP/9.9"),
            refused("the preface of HTTP/2 is answered with 505", 505, "PRI * HTTP/2.0||SM||"),
            bad_version("a version in lower case is refused", "http/1.1"),
            bad_version("a version without a minor one is refused", "HTTP/1"),
            bad_version("a version with an empty minor one is refused", "HTTP/1."),
            bad_version("a version without a dot is refused", "HTTP/11"),
            bad_version("a version of three numbers is refused", "HTTP/1.1.1"),
            bad_version("a version of three digits is refused", "HTTP/1.10"),
            bad_version("a version with zeros before it is refused", "HTTP/01.1"),
            bad_version("a version with a sign is refused", "HTTP/+1.1"),
            bad_version("a version with letters is refused", "HTTP/a.b"),
            bad_version("a version with a comma is refused", "HTTP/1,1"),
            bad_version("a version without a slash is refused", "HTTP1.1"),
            bad_version("another protocol is refused", "HTTPS/1.1"),
            bad_version("a third protocol is refused", "ICAP/1.0"),
        ],
    );
}
