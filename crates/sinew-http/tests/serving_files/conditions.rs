//! Conditional requests.

use crate::site::Site;
use sinew_testkit::watch::a_minute;
use std::fs;

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sunday, 06-Nov-94 08:49:38 GMT";

/// A site with a page, and the page's tag.
fn with_page() -> (Site, String) {
    let site = Site::new();
    site.write("page.html", "page");
    let etag = site.get("/files/page.html").field("etag").unwrap().to_owned();
    (site, etag)
}

#[test]
fn a_file_that_the_client_has_is_not_sent_again() {
    let _watchdog = a_minute();
    let (site, etag) = with_page();
    for (name, value) in [
        ("if-none-match", &*etag),
        ("if-none-match", &format!("W/{etag}")),
        ("if-none-match", &format!("\"other\", {etag}")),
        ("if-none-match", "*"),
        ("if-modified-since", DATE),
        ("if-modified-since", AFTER),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = site.ask(&format!("{method} /files/page.html"), &[(name, value)]);
            assert_eq!(reply.status, 304, "{method} {name}: {value}");
            assert_eq!(reply.field("etag"), Some(&*etag));
            assert_eq!(reply.field("last-modified"), Some(DATE));
            assert_eq!(reply.field("content-type"), None);
        }
    }
}

#[test]
fn a_file_that_the_client_does_not_have_is_sent() {
    let _watchdog = a_minute();
    let (site, _) = with_page();
    for (name, value) in [
        ("if-none-match", "\"other\""),
        ("if-none-match", "malformed"),
        ("if-modified-since", BEFORE),
        ("if-modified-since", "no date"),
    ] {
        let reply = site.get_with("/files/page.html", name, value);
        assert_eq!((reply.status, reply.text()), (200, "page"), "{name}: {value}");
    }
    let both = [("if-none-match", "\"other\""), ("if-modified-since", AFTER)];
    assert_eq!(site.ask("GET /files/page.html", &both).status, 200);
}

#[test]
fn a_condition_that_does_not_hold_fails() {
    let _watchdog = a_minute();
    let (site, etag) = with_page();
    for (name, value, status) in [
        ("if-match", &*etag, 200),
        ("if-match", "*", 200),
        ("if-match", &format!("\"other\",{etag}"), 200),
        ("if-match", &format!("W/{etag}"), 412),
        ("if-match", "\"other\"", 412),
        ("if-unmodified-since", DATE, 200),
        ("if-unmodified-since", AFTER, 200),
        ("if-unmodified-since", "no date", 200),
        ("if-unmodified-since", BEFORE, 412),
    ] {
        let reply = site.get_with("/files/page.html", name, value);
        assert_eq!(reply.status, status, "{name}: {value}");
        assert_eq!(site.get_with("/files/nothing", name, value).status, 404);
    }
}

/// RFC 9110, sections 13.1.3 and 13.1.4: such a field has one date.
#[test]
fn a_date_that_comes_more_than_once_is_ignored() {
    let _watchdog = a_minute();
    let (site, _) = with_page();
    for (name, dates) in [
        ("if-modified-since", [AFTER, AFTER]),
        ("if-modified-since", [AFTER, BEFORE]),
        ("if-unmodified-since", [BEFORE, BEFORE]),
        ("if-unmodified-since", [BEFORE, AFTER]),
    ] {
        let reply = site.ask("GET /files/page.html", &dates.map(|date| (name, date)));
        assert_eq!((reply.status, reply.text()), (200, "page"), "{name}: {dates:?}");
        let joined = dates.join(", ");
        let reply = site.ask("GET /files/page.html", &[(name, &*joined)]);
        assert_eq!((reply.status, reply.text()), (200, "page"), "{name}: {joined}");
    }
    // The server cannot tell which state the client has a part of, so it sends the whole file.
    let ranges = [("range", "bytes=1-2"), ("if-range", DATE), ("if-range", DATE)];
    assert_eq!(site.ask("GET /files/page.html", &ranges[..2]).status, 206);
    assert_eq!(site.ask("GET /files/page.html", &ranges).status, 200);
}

#[test]
fn conditions_come_before_ranges() {
    let _watchdog = a_minute();
    let (site, etag) = with_page();
    let status = |name, value| {
        site.ask("GET /files/page.html", &[(name, value), ("range", "bytes=0-1")]).status
    };
    assert_eq!(status("if-none-match", &etag), 304);
    assert_eq!(status("if-match", "\"other\""), 412);
    assert_eq!(status("if-match", &etag), 206);
}

#[test]
fn a_change_changes_the_tag() {
    let _watchdog = a_minute();
    let (site, etag) = with_page();
    // The new content is as long as the old one.
    fs::write(site.inside("page.html"), "egap").unwrap();
    let reply = site.get_with("/files/page.html", "if-none-match", &etag);
    assert_eq!((reply.status, reply.text()), (200, "egap"));
    // The file might change again before the file system's clock ticks.
    let fresh = reply.field("etag").unwrap();
    assert!(fresh.starts_with("W/\""), "{fresh}");
    assert_eq!(site.get_with("/files/page.html", "if-none-match", fresh).status, 304);
}

#[test]
fn times_that_no_date_can_tell_do_no_harm() {
    let _watchdog = a_minute();
    let (site, _) = with_page();
    let change = |time| {
        let file = fs::File::options().write(true).open(site.inside("page.html")).unwrap();
        // Not every file system has such times.
        file.set_modified(time).is_ok()
    };
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    if change(epoch - std::time::Duration::from_secs(1000)) {
        let reply = site.get_with("/files/page.html", "if-modified-since", DATE);
        assert_eq!((reply.status, reply.field("last-modified")), (200, None));
    }
    if change(epoch + std::time::Duration::from_secs(8_000_000_000)) {
        let reply = site.get("/files/page.html");
        assert_eq!((reply.status, reply.field("last-modified")), (200, reply.field("date")));
    }
}
