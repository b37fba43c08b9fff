//! Directories: their index, their list, and the slash at the end.

use crate::site::Site;
use sinew_http::{Files, Router};
use sinew_testkit::watch::a_minute;
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn the_index_stands_for_its_directory() {
    let _watchdog = a_minute();
    for site in [Site::new(), Site::listing()] {
        site.write("index.html", "top");
        site.write("inner/index.html", "inner");
        for (path, text) in [("/files/", "top"), ("/files/inner/", "inner")] {
            let reply = site.get(path);
            assert_eq!((reply.status, reply.text()), (200, text), "{path}");
            assert_eq!(reply.field("content-type"), Some("text/html; charset=utf-8"));
            let etag = reply.field("etag").unwrap();
            assert_eq!(site.get_with(path, "if-none-match", etag).status, 304);
        }
    }
}

#[test]
fn a_directory_without_an_index_is_not_found() {
    let _watchdog = a_minute();
    let site = Site::new();
    site.write("inner/page.txt", "page");
    fs::create_dir(site.inside("inner/index.html")).unwrap();
    assert_eq!(site.get("/files/").status, 404);
    assert_eq!(site.get("/files/inner/").status, 404);
}

#[test]
fn a_directory_is_asked_for_with_a_slash() {
    let _watchdog = a_minute();
    let site = Site::new();
    site.write("inner/deep/index.html", "deep");
    site.write("a b:c/index.html", "odd");
    for (path, location) in [
        ("/files", "./files/"),
        ("/files/inner", "./inner/"),
        ("/files/inner/deep", "./deep/"),
        ("/files/inner?a=b/c&d", "./inner/?a=b/c&d"),
        ("/files/a%20b:c", "./a%20b:c/"),
    ] {
        let reply = site.get(path);
        assert_eq!((reply.status, reply.field("location")), (301, Some(location)), "{path}");
        let head = site.ask(&format!("HEAD {path}"), &[]);
        assert_eq!((head.status, head.field("location")), (301, Some(location)), "{path}");
    }
    // Neither the client nor a route that guards a path takes an encoded slash for a slash.
    for path in ["/files/inner%2Fdeep", "/files/inner%2fdeep/", "/files/inner/deep%2F"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
}

#[test]
fn a_redirect_leads_to_no_other_host() {
    let _watchdog = a_minute();
    let site = Site::made(|files| files);
    for name in ["evil.example", "\\evil.example", "https:evil.example"] {
        fs::create_dir(site.inside(name)).unwrap();
    }
    for path in ["/evil.example", "/%5Cevil.example", "/\\evil.example", "/https:evil.example"] {
        let reply = site.get(path);
        let location = reply.field("location").unwrap();
        assert_eq!(reply.status, 301, "{path}");
        // Relative, within one segment.
        let rest = location.strip_prefix("./").and_then(|rest| rest.strip_suffix('/'));
        assert!(rest.is_some_and(|rest| !rest.contains(['/', '\\'])), "{path}: {location}");
    }
    for path in ["//evil.example", "//evil.example/", "///evil.example", "/%2fevil.example"] {
        let reply = site.get(path);
        assert_eq!((reply.status, reply.field("location")), (404, None), "{path}");
    }
}

#[test]
fn a_file_has_no_slash_at_its_end() {
    let _watchdog = a_minute();
    for site in [Site::new(), Site::listing()] {
        site.write("page.txt", "page");
        for path in ["page.txt/", "page.txt/x", "page.txt%2F", "page.txt/index.html"] {
            assert_eq!(site.get(&format!("/files/{path}")).status, 404, "{path}");
        }
    }
}

#[test]
fn a_list_has_the_files_that_can_be_requested() {
    let _watchdog = a_minute();
    let site = Site::listing();
    site.write("inner/page.txt", "page");
    site.write("b.txt", "b");
    site.write("a.txt", "a");
    site.write(".hidden", "hidden");
    symlink("a.txt", site.inside("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(site.inside("socket")).unwrap();
    let reply = site.get("/files/");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(reply.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(references(reply.text()), ["./inner/", "./a.txt", "./b.txt", "./link"]);
    let inner = site.get("/files/inner/");
    assert_eq!(references(inner.text()), ["../", "./page.txt"]);
    let head = site.ask("HEAD /files/", &[]);
    assert_eq!(head.field("content-length"), reply.field("content-length"));
    // A file that is not listed is served all the same.
    assert_eq!(site.get("/files/.hidden").text(), "hidden");
}

#[test]
fn a_list_escapes_names() {
    let _watchdog = a_minute();
    let site = Site::listing();
    let name = "<script>alert('x')<\\script>&amp;\" onclick=\"x";
    site.write(&format!("{name}/{name}"), "odd");
    for path in ["/files/".to_owned(), format!("/files/{}/", crate::site::encoded(name.as_bytes()))]
    {
        let reply = site.get(&path);
        assert_eq!(reply.status, 200);
        let text = reply.text();
        assert!(!text.contains("<script") && !text.contains("\" onclick"), "{text}");
        assert!(text.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;"), "{text}");
        assert!(text.contains("&amp;amp;&quot; onclick"), "{text}");
    }
}

/// The targets of a page's links.
pub(crate) fn references(page: &str) -> Vec<&str> {
    page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn a_parameter_of_any_name_has_the_path() {
    let _watchdog = a_minute();
    let site = Site::made(|files| {
        let named = files.clone().param("name");
        Router::new().get("/one/{name}/raw", named.clone()).get("/all/{*name}", named)
    });
    site.write("a.txt", "a");
    site.write("inner/b.txt", "b");
    assert_eq!(site.get("/one/a.txt/raw").text(), "a");
    assert_eq!(site.get("/one/inner%2Fb.txt/raw").status, 404);
    assert_eq!(site.get("/one/..%2F..%2Fa.txt/raw").status, 404);
    assert_eq!(site.get("/all/inner/b.txt").text(), "b");
    assert_eq!(site.get("/all/inner").status, 301);
}

#[test]
fn the_error_names_a_root_that_is_no_directory() {
    let _watchdog = a_minute();
    let site = Site::new();
    let file = site.write("page.txt", "page");
    for path in [file, site.inside("nothing")] {
        let error = Files::new(&path).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
    let error = Files::new(site.inside("nothing")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_root_that_is_a_link_is_the_directory_it_leads_to() {
    let _watchdog = a_minute();
    let site = Site::at(|root| {
        let link = root.with_file_name("link");
        symlink("root", &link).unwrap();
        Files::new(link).unwrap()
    });
    site.write("page.txt", "page");
    assert_eq!(site.get("/page.txt").text(), "page");
}
