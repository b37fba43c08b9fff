//! Parses hosts and ports, as they occur in targets and in the field `Host`.

use super::is_escape;
use core::net::Ipv6Addr;

/// A host, and a port if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Authority<'a> {
    /// May be empty.
    pub(crate) host: &'a [u8],
    /// `None` also for `a:`.
    pub(crate) port: Option<u16>,
}

/// Parses an authority (RFC 3986, section 3.2) without user information.
///
/// Anything else is refused: a proxy in front of the server may see another host in it than the
/// server does.
pub(crate) fn parse(bytes: &[u8]) -> Option<Authority<'_>> {
    let end = match bytes {
        [b'[', rest @ ..] => {
            let end = memchr::memchr(b']', rest)?;
            str::from_utf8(&rest[..end]).ok()?.parse::<Ipv6Addr>().ok()?;
            end + 2
        }
        _ => {
            let is_other = |&byte: &u8| !IN_NAME[byte as usize];
            match bytes.iter().position(is_other) {
                None => bytes.len(),
                Some(end) if bytes[end] == b':' => end,
                Some(_) => end_of_encoded_name(bytes)?,
            }
        }
    };
    let (host, rest) = bytes.split_at(end);
    let port = match rest {
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(port(digits)?),
        _ => return None,
    };
    Some(Authority { host, port })
}

fn port(digits: &[u8]) -> Option<u16> {
    // Up to five digits cannot overflow a `u32`.
    if digits.len() > 5 {
        return u16::try_from(super::fields::decimal(digits)?).ok();
    }
    let number = digits.iter().try_fold(0_u32, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then_some(10 * number + u32::from(digit))
    })?;
    u16::try_from(number).ok()
}

/// Returns the end of a name that contains percent signs, each with two digits behind it.
fn end_of_encoded_name(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() && bytes[at] != b':' {
        match &bytes[at..] {
            escape if is_escape(escape) => at += 3,
            [byte, ..] if IN_NAME[*byte as usize] => at += 1,
            _ => return None,
        }
    }
    Some(at)
}

/// The bytes of a name, except the percent sign.
static IN_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(
            byte as u8,
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' | b'!' | b'$'
                | b'&'..=b',' | b';' | b'='
        );
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_apart() {
        for (text, host, port) in [
            ("a", "a", None),
            ("a:", "a", None),
            ("a:80", "a", Some(80)),
            ("127.0.0.1:65535", "127.0.0.1", Some(65535)),
            ("[::1]", "[::1]", None),
            ("[::1]:80", "[::1]", Some(80)),
            ("", "", None),
            (":80", "", Some(80)),
            ("a%2Db", "a%2Db", None),
        ] {
            let expected = Authority { host: host.as_bytes(), port };
            assert_eq!(parse(text.as_bytes()), Some(expected), "{text}");
        }
    }

    #[test]
    fn malformed_authorities_are_refused() {
        for text in [
            "a:b", "a:+1", "a:65536", "a:1:1", "::1", "[::1", "::1]", "[]", "[a]", "[::1]a", "a@b",
            "a/b", "a b", "a%2", "a%zz", "a\\b", "\u{e4}",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
