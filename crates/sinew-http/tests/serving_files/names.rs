//! Names that have to be encoded.

use crate::directories::references;
use crate::site::{Site, encoded};
use sinew_testkit::watch::a_minute;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

const ODD: &[&str] = &[
    "a b.txt",
    " leading and trailing ",
    "é.txt",
    "日本語",
    "😀",
    "100%",
    "%41",
    "%2e%2e",
    "..%2f",
    "quote\"s'.txt",
    "a+b",
    "a&b;c",
    "a#b",
    "a?b",
    "scheme:name",
    "javascript:alert(1)",
    "back\\slash",
    "..\\up",
    "new\nline",
    "tab\t",
    "[brackets]{braces}|^`",
    "~tilde",
    "...",
    "..a",
    "-",
    "*",
];

#[test]
fn every_name_can_be_asked_for() {
    let _watchdog = a_minute();
    let routed = Site::new();
    let whole = Site::made(|files| files);
    for name in ODD {
        for (site, prefix) in [(&routed, "/files/"), (&whole, "/")] {
            site.write(name, name);
            let reply = site.get(&format!("{prefix}{}", encoded(name.as_bytes())));
            assert_eq!((reply.status, reply.text()), (200, *name), "{name}");
        }
    }
}

#[test]
fn every_name_in_a_list_leads_to_its_file() {
    let _watchdog = a_minute();
    let site = Site::listing();
    for name in ODD {
        site.write(&format!("odd/{name}"), name);
        site.write(&format!("odd/in {name}/file"), name);
    }
    let page = site.get("/files/odd/");
    let mut found = Vec::new();
    for reference in references(page.text()).into_iter().filter(|&reference| reference != "../") {
        let name = reference.strip_prefix("./").unwrap();
        let path = format!("/files/odd/{name}");
        let path = if name.ends_with('/') { path + "file" } else { path };
        let reply = site.get(&path);
        assert_eq!(reply.status, 200, "{reference}");
        found.push(reply.text().to_owned());
    }
    found.sort_unstable();
    // Names that begin with a dot are not listed.
    let listed = ODD.iter().filter(|name| !name.starts_with('.'));
    let mut expected: Vec<&str> = ODD.iter().chain(listed).copied().collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn a_name_need_not_be_text_without_a_router() {
    let _watchdog = a_minute();
    let site = Site::made(|files| files.listing(true));
    let name = b"latin-\xe9";
    if fs::write(site.inside("").join(OsStr::from_bytes(name)), "odd").is_err() {
        // Some file systems have no such names.
        return;
    }
    assert_eq!(site.get("/latin-%E9").text(), "odd");
    assert_eq!(references(site.get("/").text()), ["./latin-%E9"]);
}

#[test]
fn a_path_that_is_too_long_is_not_found() {
    let _watchdog = a_minute();
    let site = Site::new();
    assert_eq!(site.get(&format!("/files/{}", "a".repeat(300))).status, 404);
    assert_eq!(site.get(&format!("/files/{}", "a/".repeat(3000))).status, 404);
}

#[test]
fn a_query_is_no_part_of_the_name() {
    let _watchdog = a_minute();
    let site = Site::new();
    site.write("page.txt", "page");
    assert_eq!(site.get("/files/page.txt?v=1").text(), "page");
    assert_eq!(site.get("/files/page.txt?/../..").text(), "page");
    assert_eq!(site.get("/files/page.txt%3Fv=1").status, 404);
}
