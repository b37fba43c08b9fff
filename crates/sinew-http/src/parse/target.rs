//! Checks the request target, the second word of the first line.

use super::{Refusal, authority, is_escape};
use http::{Method, Uri};

/// The forms of a request target (RFC 9112, section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, for `CONNECT` only
    Authority,
    /// `*`, for `OPTIONS` only
    Asterisk,
}

/// Returns the form of a target. A target that passes is also a valid [`Uri`].
pub(crate) fn check(method: &Method, target: &[u8]) -> Result<Form, Refusal> {
    const BAD: Refusal = Refusal::bad("the request target is malformed");
    if method == Method::CONNECT {
        let whole = authority::parse(target).ok_or(BAD)?;
        let is_whole = !whole.host.is_empty() && whole.port.is_some();
        return if is_whole && is_uri(target) { Ok(Form::Authority) } else { Err(BAD) };
    }
    match target {
        [b'/', rest @ ..] if is_path_and_query(rest) => Ok(Form::Origin),
        b"*" if method == Method::OPTIONS => Ok(Form::Asterisk),
        [b'/', ..] | [] => Err(BAD),
        _ => {
            let rest = without_scheme(target).ok_or(BAD)?;
            let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
            let (authority, rest) = rest.split_at(end);
            let has_host = authority::parse(authority).is_some_and(|found| !found.host.is_empty());
            let is_whole = has_host && is_path_and_query(rest);
            if is_whole && is_uri(target) { Ok(Form::Absolute) } else { Err(BAD) }
        }
    }
}

/// The bytes after the scheme, if the scheme is `http` or `https`.
fn without_scheme(target: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = target.split_at(memchr::memchr(b':', target)?);
    let is_ours = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
    if is_ours { rest.strip_prefix(b"://") } else { None }
}

fn is_uri(target: &[u8]) -> bool {
    Uri::try_from(target).is_ok()
}

/// Whether the bytes may be a path and a query: the characters of RFC 3986, and a few others that
/// clients are known to send unencoded.
///
/// A percent sign in a path must have two digits behind it. Otherwise code that decodes a part of a
/// path and code that decodes the rest could disagree: `%%32f` first becomes `%2f`, and then a
/// slash. The handler decodes the query.
fn is_path_and_query(bytes: &[u8]) -> bool {
    let mut allowed: u8 = IN_PATH;
    for (at, &byte) in bytes.iter().enumerate() {
        if ALLOWED[byte as usize] & allowed == 0 {
            match byte {
                b'?' => allowed = IN_QUERY,
                b'%' if is_escape(&bytes[at..]) => {}
                _ => return false,
            }
        }
    }
    true
}

const IN_PATH: u8 = 1;
const IN_QUERY: u8 = 2;

static ALLOWED: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let path = matches!(
            byte as u8,
            b'!' | b'"' | b'$' | b'&'..=b';' | b'=' | b'@'..=b'_' | b'a'..=b'~'
        );
        let query = matches!(byte as u8, b'!' | b'$'..=b';' | b'=' | b'?'..=b'~');
        table[byte] = (path as u8 * IN_PATH) | (query as u8 * IN_QUERY);
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_that_passes_is_one_of_a_uri() {
        for (prefix, suffix) in [("/", ""), ("/", "20"), ("/a?b=", "")] {
            for byte in 0..=255_u8 {
                let mut target = prefix.as_bytes().to_vec();
                target.push(byte);
                target.extend_from_slice(suffix.as_bytes());
                if check(&Method::GET, &target).is_ok() {
                    let uri = Uri::try_from(&target[..]).unwrap_or_else(|_| panic!("{byte:#x}"));
                    assert_eq!(uri.to_string().as_bytes(), &target[..], "{byte:#x}");
                }
            }
        }
    }

    #[test]
    fn escapes_in_paths_are_whole() {
        let passes = |target: &str| check(&Method::GET, target.as_bytes()).is_ok();
        for target in
            ["/%2f", "/%2F/a", "/a%25", "/%2532f", "/?%", "/?%zz", "/%61?%6", "http://a/%61"]
        {
            assert!(passes(target), "{target}");
        }
        for target in ["/%", "/%6", "/%zz", "/%+6", "/%%32f", "/%2%66", "/a%?%61", "http://a/%2"] {
            assert!(!passes(target), "{target}");
        }
    }

    #[test]
    fn forms_are_told_apart() {
        let form = |method: Method, target: &str| check(&method, target.as_bytes()).ok();
        assert_eq!(form(Method::GET, "/"), Some(Form::Origin));
        assert_eq!(form(Method::GET, "//a?b?c"), Some(Form::Origin));
        assert_eq!(form(Method::GET, "http://a/b"), Some(Form::Absolute));
        assert_eq!(form(Method::GET, "HTTP://a/b"), Some(Form::Absolute));
        assert_eq!(form(Method::OPTIONS, "*"), Some(Form::Asterisk));
        assert_eq!(form(Method::CONNECT, "a:80"), Some(Form::Authority));
        for (method, target) in [
            (Method::GET, "*"),
            (Method::GET, "a:80"),
            (Method::GET, "a"),
            (Method::GET, "ftp://a/"),
            (Method::GET, "http://"),
            (Method::GET, "http://user@a/"),
            (Method::GET, "http://:80/"),
            (Method::GET, "http://a:b/"),
            (Method::GET, "http://a/\u{e4}"),
            (Method::CONNECT, ":80"),
            (Method::CONNECT, "user@a:80"),
            (Method::GET, "/a#b"),
            (Method::GET, "http://a/#b"),
            (Method::GET, "/a b"),
            (Method::CONNECT, "/"),
            (Method::CONNECT, "a"),
            (Method::CONNECT, "http://a:80/"),
        ] {
            assert_eq!(form(method, target), None, "{target}");
        }
    }
}
