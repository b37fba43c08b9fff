//! The address of a server's debug routes, and the query.

use core::fmt;
use std::io;

/// The address of the debug routes of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target {
    /// The URL of the page without a query. The other URLs begin with it.
    page: String,
}

/// Which fibers to show, in which order, and how many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    pub(super) sort: String,
    pub(super) filter: String,
    pub(super) limit: usize,
}

const PAGE: &str = "/debug/fibers";

impl Target {
    /// Parses an address with or without `http://` or `https://`, with or without the path of the
    /// page.
    pub(super) fn parse(url: &str) -> io::Result<Target> {
        let invalid =
            |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{why}: {url:?}")));
        let url_or_host = url.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = match url_or_host.split_once("://") {
            None => ("http", url_or_host),
            Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
            Some(_) => return invalid("the scheme must be http:// or https://"),
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return invalid("the address must look like http://127.0.0.1:8081");
        }
        let path = format!("/{path}");
        let path = path.trim_end_matches('/').trim_end_matches(".json");
        let prefix = path.strip_suffix(PAGE).unwrap_or(path);
        Ok(Target { page: format!("{scheme}://{host}{prefix}{PAGE}") })
    }

    /// The URL of the fibers.
    pub(super) fn fibers(&self, wish: &Wish) -> String {
        let Wish { sort, filter, limit } = wish;
        let (page, filter) = (&self.page, encode(filter));
        format!("{page}.json?limit={limit}&sort={sort}&filter={filter}")
    }

    /// The URL of the backtrace of one fiber.
    pub(super) fn backtrace(&self, id: u64, full: bool) -> String {
        format!("{}/{id}/backtrace{}", self.page, if full { "?full=1" } else { "" })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.page)
    }
}

/// Percent-encodes a value of a query.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_optional() {
        for url in [
            "127.0.0.1:8081",
            "http://127.0.0.1:8081",
            "http://127.0.0.1:8081/",
            "http://127.0.0.1:8081/debug/fibers",
            "http://127.0.0.1:8081/debug/fibers.json?limit=3",
            "http://127.0.0.1:8081/debug/fibers/#sort=id",
        ] {
            let page = Target::parse(url).unwrap().page;
            assert_eq!(page, "http://127.0.0.1:8081/debug/fibers", "{url}");
        }
        assert_eq!(Target::parse("h/app").unwrap().page, "http://h/app/debug/fibers");
        for url in ["", "http://", "ftp://localhost", "local host", "/debug", "a\r\nb"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn the_query_is_encoded() {
        let target = Target::parse("h").unwrap();
        let wish = Wish { sort: "-age".into(), filter: "a b&c".into(), limit: 5 };
        assert_eq!(
            target.fibers(&wish),
            "http://h/debug/fibers.json?limit=5&sort=-age&filter=a%20b%26c"
        );
    }
}
