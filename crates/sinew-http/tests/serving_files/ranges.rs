//! Ranges of files.

use crate::site::{Reply, Site};
use sinew_testkit::watch::a_minute;

const DIGITS: &str = "0123456789";

fn with_digits() -> Site {
    let site = Site::new();
    site.write("digits.txt", DIGITS);
    site
}

fn ask(site: &Site, range: &str) -> Reply {
    site.get_with("/files/digits.txt", "range", range)
}

#[test]
fn a_range_is_sent_alone() {
    let _watchdog = a_minute();
    let site = with_digits();
    for (range, text, told) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=9-9", "9", "bytes 9-9/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=0-", DIGITS, "bytes 0-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-100", DIGITS, "bytes 0-9/10"),
        ("bytes=5-100", "56789", "bytes 5-9/10"),
        ("bytes=5-99999999999999999999999", "56789", "bytes 5-9/10"),
        ("bytes=-99999999999999999999999", DIGITS, "bytes 0-9/10"),
        ("bytes=5-18446744073709551615", "56789", "bytes 5-9/10"),
    ] {
        let reply = ask(&site, range);
        assert_eq!((reply.status, reply.text()), (206, text), "{range}");
        assert_eq!(reply.field("content-range"), Some(told), "{range}");
        assert_eq!(reply.field("content-type"), Some("text/plain; charset=utf-8"));
        assert!(reply.field("etag").is_some());
    }
}

#[test]
fn a_range_beyond_the_end_is_unsatisfiable() {
    let _watchdog = a_minute();
    let site = with_digits();
    for range in ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=99999999999999999999999-"] {
        let reply = ask(&site, range);
        assert_eq!(reply.status, 416, "{range}");
        assert_eq!(reply.field("content-range"), Some("bytes */10"), "{range}");
    }
}

#[test]
fn a_malformed_range_is_ignored() {
    let _watchdog = a_minute();
    let site = with_digits();
    for range in ["bytes=5-2", "bytes=a-b", "bytes=-", "bytes=", "bytes", "lines=1-2", "0-1"] {
        let reply = ask(&site, range);
        assert_eq!((reply.status, reply.text()), (200, DIGITS), "{range}");
        assert_eq!(reply.field("content-range"), None, "{range}");
    }
}

#[test]
fn several_ranges_get_the_whole() {
    let _watchdog = a_minute();
    let site = with_digits();
    let many = format!("bytes={}", "0-0,".repeat(500) + "1-1");
    for range in ["bytes=0-0,5-6", "bytes=0-0, -1", &many] {
        let reply = ask(&site, range);
        assert_eq!((reply.status, reply.text()), (200, DIGITS), "{range}");
    }
}

#[test]
fn an_empty_file_is_sent_whole() {
    let _watchdog = a_minute();
    let site = Site::new();
    site.write("empty", "");
    for range in ["bytes=0-", "bytes=0-0", "bytes=-5"] {
        assert_eq!(site.get_with("/files/empty", "range", range).status, 200, "{range}");
    }
}

#[test]
fn head_has_no_ranges() {
    let _watchdog = a_minute();
    let site = with_digits();
    let reply = site.ask("HEAD /files/digits.txt", &[("range", "bytes=0-0")]);
    assert_eq!((reply.status, reply.field("content-length")), (200, Some("10")));
}

#[test]
fn a_range_of_another_state_gets_the_whole() {
    let _watchdog = a_minute();
    let site = with_digits();
    let whole = site.get("/files/digits.txt");
    let (etag, date) = (whole.field("etag").unwrap(), whole.field("last-modified").unwrap());
    let weak = format!("W/{etag}");
    for (if_range, status) in [
        (etag, 206),
        (date, 206),
        (&*weak, 200),
        ("\"other\"", 200),
        ("Sun, 06 Nov 1994 08:49:38 GMT", 200),
        ("Sun, 06 Nov 1994 08:49:36 GMT", 200),
    ] {
        let fields = [("range", "bytes=2-4"), ("if-range", if_range)];
        let reply = site.ask("GET /files/digits.txt", &fields);
        let text = if status == 206 { "234" } else { DIGITS };
        assert_eq!((reply.status, reply.text()), (status, text), "{if_range}");
    }
    // A range that cannot be satisfied is ignored, too.
    let fields = [("range", "bytes=20-"), ("if-range", "\"other\"")];
    assert_eq!(site.ask("GET /files/digits.txt", &fields).status, 200);
}

#[test]
fn a_connection_goes_on_after_a_range() {
    use std::io::{Read, Write};
    let _watchdog = a_minute();
    let site = with_digits();
    let mut stream = site.connect();
    let part = "GET /files/digits.txt HTTP/1.1\r\nhost: x\r\nrange: bytes=3-4\r\n\r\n";
    let none = "GET /files/digits.txt HTTP/1.1\r\nhost: x\r\nrange: bytes=30-\r\n\r\n";
    let last = "GET /files/digits.txt HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("{part}{none}{last}").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let statuses: Vec<&str> =
        text.match_indices("HTTP/1.1 ").map(|(at, _)| &text[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["206", "416", "200"]);
    assert!(text.contains("\r\n\r\n34HTTP/1.1") && text.ends_with(DIGITS), "{text}");
}
