//! Header fields, and `Host` among them.

use crate::table::{Case, check, last, refused, served};
use sinew_http::Limits;

/// A request with this field is served. The handler sees these values of `x`.
fn field(claim: &str, sent: &str, seen: &str) -> Case {
    served(claim, format!("GET / HTTP/1.1|Host: a|{sent}|B: c||"), &[&format!("GET / []{seen}")])
}

fn bad(claim: &str, sent: &str) -> Case {
    refused(claim, 400, format!("GET / HTTP/1.1|Host: a|{sent}|B: c||"))
}

fn host(claim: &str, host: &str) -> Case {
    served(claim, format!("GET / HTTP/1.1|Host: {host}||"), &["GET / []"])
}

fn bad_host(claim: &str, host: &str) -> Case {
    refused(claim, 400, format!("GET / HTTP/1.1|Host: {host}||"))
}

#[test]
fn values_are_passed_on() {
    check(
        Limits::default(),
        &[
            field("a value is passed on", "x: y", " x=y"),
            field("no space is needed after a colon", "x:y", " x=y"),
            field("space around a value is no part of it", "x: \t y \t ", " x=y"),
            field("space within a value is a part of it", "x: y \t z", " x=y \\t z"),
            field("a value may be empty", "x:", " x="),
            field("a value may be nothing but space", "x:  \t", " x="),
            field("a value may have colons", "x: y: z", " x=y: z"),
            field("a value may have characters beyond ASCII", "x: \u{e4}", " x=\\xc3\\xa4"),
            field("names have no case", "X: y", " x=y"),
            field("several values are passed on in order", "x: y|X: z|x: y", " x=y x=z x=y"),
            field("a name is a token", "!#$%&'*+-.^_`~9aZ: y", ""),
            field(
                "punctuation is no matter for a value",
                "x: (),/:;<=>?@[]{}\\\"",
                " x=(),/:;<=>?@[]{}\\\\\\\"",
            ),
            served(
                "bytes that are no text are passed on",
                b"GET / HTTP/1.1\r\nHost: a\r\nx: \xff\x80\r\n\r\n",
                &["GET / [] x=\\xff\\x80"],
            ),
        ],
    );
}

#[test]
fn malformed_fields_are_refused() {
    check(
        Limits::default(),
        &[
            bad("a line that goes on after a space is refused", "x: y| z"),
            bad("a line that goes on after a tab is refused", "x: y|\tz"),
            bad("a line of space only is refused", "x: y| "),
            refused("a first field after a space is refused", 400, "GET / HTTP/1.1| Host: a||"),
            bad("a space before a colon is refused", "x : y"),
            bad("a tab before a colon is refused", "x\t: y"),
            bad("a name without a colon is refused", "x"),
            bad("an empty name is refused", ": y"),
            bad("a space in a name is refused", "x z: y"),
            bad("a slash in a name is refused", "x/z: y"),
            bad("a parenthesis in a name is refused", "x(z): y"),
            bad("a quote in a name is refused", "\"x\": y"),
            bad("a semicolon in a name is refused", "x;z: y"),
            bad("a bracket in a name is refused", "x[0]: y"),
            bad("a NUL in a name is refused", "x\0: y"),
            bad("a control character in a name is refused", "x\x1f: y"),
            bad("a DEL in a name is refused", "x\x7f: y"),
            bad("a name that is not ASCII is refused", "\u{e4}: y"),
            bad("a NUL in a value is refused", "x: y\0z"),
            bad("a NUL at the end of a value is refused", "x: y\0"),
            bad("a bell in a value is refused", "x: y\x07z"),
            bad("a vertical tab in a value is refused", "x: y\x0bz"),
            bad("a form feed in a value is refused", "x: y\x0cz"),
            bad("an escape in a value is refused", "x: y\x1bz"),
            bad("a DEL in a value is refused", "x: y\x7fz"),
            bad("a CR in a value is refused", "x: y\rz"),
            bad("a CR before the end of a line is refused", "x: y\r"),
            bad("a CR at the beginning of a value is refused", "x:\ry"),
            bad("a line feed in a value is refused", "x: y\nz: a"),
            bad("a line that ends with LF is refused", "x: y\nz: a|c: d"),
            refused("a head that ends with LF is refused", 400, "GET / HTTP/1.1|Host: a|\n"),
            refused("a head that ends with two LFs is refused", 400, "GET / HTTP/1.1|Host: a\n\n"),
            refused(
                "a head that ends with LF and CRLF is refused",
                400,
                "GET / HTTP/1.1|Host: a\n|",
            ),
            refused("a head that ends with CR is refused", 400, "GET / HTTP/1.1|Host: a|\r\r\n"),
        ],
    );
}

#[test]
fn hosts_are_checked() {
    check(
        Limits::default(),
        &[
            host("a host may be a name", "example.com"),
            host("a host may have a port", "a:80"),
            host("a port may be empty", "a:"),
            host("a host may be an address", "127.0.0.1:80"),
            host("a host may be a long address", "[::1]:80"),
            host("a host may be empty", ""),
            host("a host may have escapes", "a%2db"),
            host("a host may have punctuation", "a-b_c~d!$&'()*+,;=."),
            refused("a request without a Host is refused", 400, "GET / HTTP/1.1||"),
            refused(
                "an absolute target does not replace the Host",
                400,
                "GET http://a/ HTTP/1.1||",
            ),
            refused("two Hosts are refused", 400, "GET / HTTP/1.1|Host: a|Host: b||"),
            refused("two equal Hosts are refused", 400, "GET / HTTP/1.1|Host: a|hOST: a||"),
            refused("two Hosts of HTTP/1.0 are refused", 400, "GET / HTTP/1.0|Host: a|Host: a||"),
            refused("a malformed Host of HTTP/1.0 is refused", 400, "GET / HTTP/1.0|Host: a b||"),
            last("HTTP/1.0 needs no Host", "GET / HTTP/1.0||", &["GET / []"]),
            bad_host("a list of hosts is refused", "a, b"),
            bad_host("a host with a user is refused", "user@a"),
            bad_host("a host with a path is refused", "a/b"),
            bad_host("a host with a query is refused", "a?b"),
            bad_host("a host with a scheme is refused", "http://a"),
            bad_host("a host with a space is refused", "a b"),
            bad_host("a host with a tab is refused", "a\tb"),
            bad_host("a host that is not ASCII is refused", "\u{e4}"),
            bad_host("an address without brackets is refused", "::1"),
            bad_host("an address that is not closed is refused", "[::1"),
            bad_host("an address that is not opened is refused", "::1]"),
            bad_host("something after an address is refused", "[::1]a"),
            bad_host("an address that is none is refused", "[a/b]"),
            bad_host("an empty address is refused", "[]"),
            bad_host("a port that is no number is refused", "a:b"),
            bad_host("a port with a sign is refused", "a:+80"),
            bad_host("two ports are refused", "a:80:80"),
            bad_host("an escape of one digit is refused", "a%2"),
            bad_host("an escape that is none is refused", "a%zz"),
            bad_host("a backslash in a host is refused", "a\\b"),
            bad_host("an angle bracket in a host is refused", "<a>"),
        ],
    );
}
