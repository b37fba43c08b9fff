//! Converts the path of a request to the path of a file, and back.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The requested file, relative to the root.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Has only normal components; empty if the root itself is wanted.
    pub(super) path: PathBuf,
    /// Whether the path ends with a slash, which marks a directory.
    pub(super) is_directory: bool,
}

impl Wanted {
    /// Decodes a request path as it was sent, without `prefix`.
    pub(super) fn of_request(path: &str, prefix: &str) -> Option<Wanted> {
        let rest = path.strip_prefix(prefix)?;
        if rest.is_empty() {
            return Wanted::decoded(b"");
        }
        let encoded = rest.strip_prefix('/')?;
        // Decode once only: escapes that remain belong to the name.
        Wanted::decoded(&Cow::from(percent_decode_str(encoded)))
    }

    /// Checks a decoded path; `None` if no file can have it.
    ///
    /// The segments `.` and `..` are refused although the kernel would not let them lead out: a
    /// file should have only one name.
    pub(super) fn decoded(path: &[u8]) -> Option<Wanted> {
        if path.is_empty() {
            return Some(Wanted { path: PathBuf::new(), is_directory: true });
        }
        let (path, is_directory) = match path.strip_suffix(b"/") {
            Some(path) => (path, true),
            None => (path, false),
        };
        // A path that begins with a slash has an empty first segment.
        let is_name = |segment: &[u8]| !matches!(segment, b"" | b"." | b"..");
        if path.contains(&0) || !path.split(|&byte| byte == b'/').all(is_name) {
            return None;
        }
        Some(Wanted { path: OsStr::from_bytes(path).into(), is_directory })
    }
}

/// The characters that have to be encoded in a segment of a path (RFC 3986, section 3.3), except
/// the percent sign. Browsers take a backslash for a slash.
const NOT_IN_SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The characters that have to be encoded in a file name. Quotes are harmless in a path, but not in
/// every place that a path is written to.
const NOT_IN_NAME: &AsciiSet = &NOT_IN_SEGMENT.add(b'%').add(b'&').add(b'\'');

/// A reference to a file in the directory of the page.
///
/// It begins with `./`, because a browser would take the part before a colon for a scheme.
pub(super) fn reference(name: &[u8]) -> String {
    format!("./{}", percent_encode(name, NOT_IN_NAME))
}

/// The location of a redirect that adds a slash to the end of a request's path.
///
/// The location is relative, because an absolute path that begins with two slashes would name
/// another host.
pub(super) fn with_slash(path: &str, query: Option<&str>) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let last = percent_encode(last.as_bytes(), NOT_IN_SEGMENT);
    match query {
        Some(query) => format!("./{last}/?{query}"),
        None => format!("./{last}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str) -> Option<(String, bool)> {
        let wanted = Wanted::of_request(path, "")?;
        Some((wanted.path.to_string_lossy().into_owned(), wanted.is_directory))
    }

    #[test]
    fn paths_are_decoded_once() {
        for (path, name, is_directory) in [
            ("/", "", true),
            ("/a", "a", false),
            ("/a/", "a", true),
            ("/a/b.txt", "a/b.txt", false),
            ("/a%20b", "a b", false),
            ("/%C3%A9", "é", false),
            ("/100%25", "100%", false),
            ("/%252e%252e", "%2e%2e", false),
            ("/%252fetc", "%2fetc", false),
            ("/a%2Fb", "a/b", false),
            ("/50%", "50%", false),
            ("/%zz", "%zz", false),
            ("/..a", "..a", false),
            ("/a..", "a..", false),
            ("/...", "...", false),
            ("/..\\a", "..\\a", false),
        ] {
            assert_eq!(found(path), Some((name.into(), is_directory)), "{path}");
        }
    }

    #[test]
    fn paths_that_could_lead_elsewhere_are_refused() {
        for path in [
            "/..",
            "/../",
            "/../a",
            "/a/..",
            "/a/../b",
            "/%2e%2e/a",
            "/%2E%2e/a",
            "/.%2e/a",
            "/..%2fa",
            "/a%2f..%2fb",
            "/a/..%2f",
            "/.",
            "/./a",
            "/a/./b",
            "//",
            "//a",
            "/%2fetc",
            "/a//b",
            "/a//",
            "/a%00",
            "/%00",
            "/a%00/../b",
        ] {
            assert_eq!(found(path), None, "{path}");
        }
    }

    #[test]
    fn a_parameter_is_not_decoded_again() {
        let wanted = Wanted::decoded(b"%2e%2e/a").map(|wanted| wanted.path);
        assert_eq!(wanted, Some("%2e%2e/a".into()));
        assert_eq!(Wanted::decoded(b"/etc/passwd"), None);
    }

    #[test]
    fn a_prefix_ends_where_a_segment_does() {
        let found = |path| Wanted::of_request(path, "/files").map(|wanted| wanted.path);
        assert_eq!(found("/files"), Some("".into()));
        assert_eq!(found("/files/"), Some("".into()));
        assert_eq!(found("/files/a"), Some("a".into()));
        assert_eq!(found("/filesystem"), None);
        assert_eq!(found("/files//a"), None);
        assert_eq!(found("/other"), None);
    }

    #[test]
    fn names_survive_the_way_to_a_client_and_back() {
        let all: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
        let there = reference(&all);
        let back = Wanted::of_request(&there[1..], "").map(|wanted| wanted.path);
        assert_eq!(back, Some(OsStr::from_bytes(&all).into()));
        assert!(!there.contains(['"', '\'', '<', '>', '&', ' ', '#', '?']), "{there}");
    }

    #[test]
    fn a_redirect_names_no_host() {
        assert_eq!(with_slash("/a/b", None), "./b/");
        assert_eq!(with_slash("/a/b", Some("c=/d")), "./b/?c=/d");
        assert_eq!(with_slash("//evil.example", None), "./evil.example/");
        assert_eq!(with_slash("/\\evil.example", None), "./%5Cevil.example/");
        assert_eq!(with_slash("/javascript:x", None), "./javascript:x/");
        assert_eq!(with_slash("/a%20b%2f", None), "./a%20b%2f/");
    }
}
