//! The bodies and header fields of files.

use crate::site::Site;
use sinew_testkit::watch::a_minute;
use std::fs::{self, File};
use std::io::{Read, Write};

#[test]
fn a_file_is_sent_with_its_metadata() {
    let _watchdog = a_minute();
    let site = Site::new();
    site.write("hello.txt", "hello\n");
    let reply = site.get("/files/hello.txt");
    assert_eq!((reply.status, reply.text()), (200, "hello\n"));
    for (name, value) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("content-length", "6"),
        ("accept-ranges", "bytes"),
        ("x-content-type-options", "nosniff"),
        ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        assert_eq!(reply.field(name), Some(value), "{name}");
    }
    let etag = reply.field("etag").unwrap();
    assert!(etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    assert_eq!(reply.field("content-range"), None);
    assert_eq!(reply.field("transfer-encoding"), None);
}

#[test]
fn head_is_answered_as_get_without_the_body() {
    let _watchdog = a_minute();
    let site = Site::new();
    site.write("hello.txt", "hello\n");
    let (head, get) = (site.ask("HEAD /files/hello.txt", &[]), site.get("/files/hello.txt"));
    assert_eq!(head.status, 200);
    for name in ["content-type", "content-length", "accept-ranges", "last-modified", "etag"] {
        assert_eq!(head.field(name), get.field(name), "{name}");
    }
    assert_eq!(site.ask("HEAD /files/nothing", &[]).status, 404);
}

#[test]
fn other_methods_are_refused() {
    let _watchdog = a_minute();
    let site = Site::made(|files| files);
    site.write("hello.txt", "hello\n");
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let reply = site.ask(&format!("{method} /hello.txt"), &[("content-length", "0")]);
        assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    assert_eq!(fs::read(site.inside("hello.txt")).unwrap(), b"hello\n");
}

#[test]
fn an_empty_file_has_an_empty_body() {
    let _watchdog = a_minute();
    let site = Site::new();
    site.write("empty.css", "");
    let reply = site.get("/files/empty.css");
    assert_eq!((reply.status, reply.field("content-length")), (200, Some("0")));
    assert_eq!(reply.field("content-type"), Some("text/css; charset=utf-8"));
    let head = site.ask("HEAD /files/empty.css", &[]);
    assert_eq!((head.status, head.field("content-length")), (200, Some("0")));
}

#[test]
fn a_large_file_arrives_as_it_is() {
    let _watchdog = a_minute();
    let site = Site::new();
    // Every place in the file looks different, and its length is no multiple of a buffer's.
    let mut state = 1_u64;
    let content: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take((5 << 20) + 13)
    .collect();
    site.write("large", &content);
    let reply = site.get("/files/large");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.field("content-type"), Some("application/octet-stream"));
    // Not `assert_eq`, which would print all of it.
    assert!(reply.body == content);
    let part = site.get_with("/files/large", "range", "bytes=1000003-4000007");
    assert_eq!(part.status, 206);
    assert!(part.body == content[1_000_003..=4_000_007]);
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (site, content) = (&site, &content);
            scope.spawn(move || {
                let range = format!("bytes={first}-");
                let rest = site.get_with("/files/large", "range", &range);
                assert!(rest.body == content[first..]);
            });
        }
    });
}

/// More bytes than fit between the two ends of a connection.
const MORE_THAN_IS_SENT_AHEAD: u64 = 64 << 20;

/// Requests a file of that size, and stops in the middle of the response.
fn begin(site: &Site) -> (std::net::TcpStream, File) {
    let file = File::create(site.inside("changing")).unwrap();
    file.set_len(MORE_THAN_IS_SENT_AHEAD).unwrap();
    let mut stream = site.send("GET /files/changing", &[]);
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    (stream, file)
}

/// The number of bytes until the connection ends, including the head.
fn drain(mut stream: std::net::TcpStream) -> u64 {
    std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection() {
    let _watchdog = a_minute();
    let site = Site::new();
    site.write("hello.txt", "hello\n");
    let (stream, file) = begin(&site);
    file.set_len(10).unwrap();
    let received = drain(stream);
    assert!(received < MORE_THAN_IS_SENT_AHEAD, "{received}");
    assert_eq!(site.get("/files/hello.txt").status, 200);
}

#[test]
fn a_file_that_grows_while_it_is_sent_keeps_its_announced_length() {
    let _watchdog = a_minute();
    let site = Site::new();
    let (mut stream, mut file) = begin(&site);
    file.set_len(2 * MORE_THAN_IS_SENT_AHEAD).unwrap();
    file.write_all(b"and more").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert_eq!(drain(stream), MORE_THAN_IS_SENT_AHEAD);
}

#[test]
fn a_file_that_is_replaced_is_served_anew() {
    let _watchdog = a_minute();
    let site = Site::new();
    site.write("page.html", "old");
    let before = site.get("/files/page.html");
    let new = site.outside("new");
    fs::write(&new, "newer").unwrap();
    fs::rename(&new, site.inside("page.html")).unwrap();
    let after = site.get("/files/page.html");
    assert_eq!((before.text(), after.text()), ("old", "newer"));
    assert_ne!(before.field("etag"), after.field("etag"));
    fs::remove_file(site.inside("page.html")).unwrap();
    assert_eq!(site.get("/files/page.html").status, 404);
}
