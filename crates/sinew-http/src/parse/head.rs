//! Parses the head of a request: its first line and its header fields.

use super::Refusal;
use super::fields::{Framing, Gathered};
use super::target::{self, Form};
use core::mem::MaybeUninit;
use core::ops::{Deref, Range};
use http::{Method, StatusCode, Version};
use httparse::{Error, Header, ParserConfig, Status};

/// How large a head may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeadLimits {
    pub(crate) bytes: usize,
    pub(crate) fields: usize,
    pub(crate) target: usize,
}

/// How long the name of a method may be: twice the longest registered one.
const METHOD: usize = 34;

/// How many fields fit on the stack. A higher limit uses a list on the heap.
const FIELDS: usize = 128;

/// A head and its outline. The bytes are a copy, so that the read buffer is free again.
#[derive(Debug)]
pub(crate) struct Head {
    raw: Vec<u8>,
    outline: Outline,
}

/// The parsed facts of a head.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    pub(crate) method: Method,
    target: Span,
    pub(crate) form: Form,
    /// Whether the request is HTTP/1.0.
    pub(crate) old: bool,
    /// The number of fields.
    count: u32,
    pub(crate) framing: Framing,
    /// Whether the client wants to use the connection again.
    pub(crate) persists: bool,
    pub(crate) expects_continue: bool,
    pub(crate) upgrades: bool,
    /// Whether the response needs no special case: HTTP/1.1, keep-alive, and neither `HEAD` nor
    /// `CONNECT`.
    pub(crate) is_plain: bool,
}

impl Deref for Head {
    type Target = Outline;

    fn deref(&self) -> &Outline {
        &self.outline
    }
}

/// A range of the bytes of a head. Heads are at most 1 MiB, so `u32` suffices.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The range of `part`, which is a subslice of `whole`.
    fn of(whole: &[u8], part: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        // An empty part may point anywhere.
        let start = start.min(whole.len());
        Span { start: start as u32, end: (start + part.len()) as u32 }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The result of parsing the bytes received so far.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// The beginning of a head.
    Partial,
    /// A head, and how many bytes it takes.
    Complete(Outline, usize),
}

/// Parses a head at the beginning of the received bytes.
pub(crate) fn parse(bytes: &[u8], limits: HeadLimits) -> Result<Parsed, Refusal> {
    // The result must not depend on how many bytes have come beyond the limit.
    let bytes = &bytes[..bytes.len().min(limits.bytes)];
    let parsed = parse_known(bytes, limits);
    if let Err(refusal) = &parsed
        && refusal.status == StatusCode::HTTP_VERSION_NOT_SUPPORTED
        && let Some(minor) = later_minor(bytes)
    {
        // A later version with the same major number is treated as the latest known one (RFC 9110,
        // section 2.5). Clients hardly ever send one, so a copy will do.
        let mut as_known = bytes.to_vec();
        as_known[minor] = b'1';
        return parse_known(&as_known, limits);
    }
    parsed
}

fn parse_known(bytes: &[u8], limits: HeadLimits) -> Result<Parsed, Refusal> {
    if limits.fields <= FIELDS {
        let mut room = [const { MaybeUninit::uninit() }; FIELDS];
        parse_into(bytes, limits, &mut room[..limits.fields])
    } else {
        let mut room = vec![MaybeUninit::uninit(); limits.fields];
        parse_into(bytes, limits, &mut room)
    }
}

fn parse_into<'bytes>(
    bytes: &'bytes [u8],
    limits: HeadLimits,
    room: &mut [MaybeUninit<Header<'bytes>>],
) -> Result<Parsed, Refusal> {
    let mut request = httparse::Request::new(&mut []);
    let result =
        ParserConfig::default().parse_request_with_uninit_headers(&mut request, bytes, room);
    let len = match result {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) => return unfinished(bytes, limits),
        // The parser also reports this error for a version that has come only in part. Wait for the
        // rest of the line.
        Err(Error::Version) if !has_first_line(bytes) => return unfinished(bytes, limits),
        Err(error) => return Err(refusal(error, bytes)),
    };
    let raw = &bytes[..len];
    if !ends_parsed_lines_properly(raw, request.headers) {
        return Err(BARE);
    }
    // A complete head always has a path and a method.
    let path = request.path.unwrap_or_default();
    if path.len() > limits.target {
        return Err(too_long());
    }
    let method = request.method.unwrap_or_default();
    if method.len() > METHOD {
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "the method has too long a name"));
    }
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|_| Refusal::bad("the method is malformed"))?;
    let form = target::check(&method, path.as_bytes())?;
    let old = request.version == Some(0);
    let mut gathered = Gathered::default();
    for field in request.headers.iter() {
        gathered.take(field.name, field.value)?;
    }
    if !old && !gathered.has_host() {
        return Err(Refusal::bad("the request has no Host"));
    }
    let framing = gathered.framing(old)?;
    let persists = !gathered.closes && (!old || gathered.keeps_alive);
    let outline = Outline {
        target: Span::of(raw, path.as_bytes()),
        is_plain: persists && !old && method != Method::HEAD && method != Method::CONNECT,
        method,
        form,
        old,
        count: request.headers.len() as u32,
        framing,
        persists,
        // HTTP/1.0 does not know `100-continue`, and without a body there is nothing to wait for.
        expects_continue: gathered.expects_continue && !old && framing != Framing::Length(0),
        upgrades: gathered.wants_upgrade && gathered.names_upgrade && !old,
    };
    Ok(Parsed::Complete(outline, len))
}

const BARE: Refusal = Refusal::bad("a line does not end with CR and LF");

fn too_large() -> Refusal {
    Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the header fields are too large")
}

fn too_long() -> Refusal {
    Refusal::new(StatusCode::URI_TOO_LONG, "the request target is too long")
}

/// Handles a head that is not complete: an error if it is malformed or too large already.
fn unfinished(bytes: &[u8], limits: HeadLimits) -> Result<Parsed, Refusal> {
    if !ends_lines_properly(bytes) {
        return Err(BARE);
    }
    let line = after_empty_lines(bytes);
    // The method is short, and so are the spaces and the version.
    let is_long = line.len() > limits.target.saturating_add(METHOD + b"  HTTP/1.1\r".len());
    if is_long && !has_first_line(bytes) {
        return Err(too_long());
    }
    if bytes.len() >= limits.bytes {
        return Err(too_large());
    }
    Ok(Parsed::Partial)
}

/// Whether the first line that is not empty has ended.
fn has_first_line(bytes: &[u8]) -> bool {
    memchr::memchr(b'\n', after_empty_lines(bytes)).is_some()
}

/// The bytes after the empty lines before a request.
fn after_empty_lines(bytes: &[u8]) -> &[u8] {
    let begin = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
    &bytes[begin.unwrap_or(bytes.len())..]
}

/// Checks a parsed head like [`ends_lines_properly`], but faster: the parser knows where its lines
/// begin.
fn ends_parsed_lines_properly(raw: &[u8], fields: &[Header<'_>]) -> bool {
    let begins = |part: &str| (part.as_ptr() as usize).wrapping_sub(raw.as_ptr() as usize);
    // The line before a field ends right before the field's name. The last field's line and the
    // empty line end with the head.
    let before_fields = fields.iter().all(|field| {
        let end = begins(field.name);
        end >= 2 && raw.get(end - 2) == Some(&b'\r')
    });
    // Empty lines before the first line are rare; then every byte is checked.
    let is_plain = !matches!(raw.first(), Some(b'\r' | b'\n'));
    let proper = match is_plain {
        true => before_fields && raw.ends_with(b"\r\n\r\n"),
        false => ends_lines_properly(raw),
    };
    debug_assert_eq!(proper, ends_lines_properly(raw), "{:?}", raw.escape_ascii().to_string());
    proper
}

/// Whether every line feed follows a carriage return. Some readers take a bare line feed for a line
/// end, and others do not.
fn ends_lines_properly(bytes: &[u8]) -> bool {
    // Looking at all pairs takes less time than stopping at the first bad one.
    let bare = bytes
        .iter()
        .zip(bytes.iter().skip(1))
        .fold(false, |bare, (&one, &next)| bare | ((one != b'\r') & (next == b'\n')));
    !bare && bytes.first() != Some(&b'\n')
}

fn refusal(error: Error, bytes: &[u8]) -> Refusal {
    match error {
        Error::TooManyHeaders => Refusal::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "there are too many header fields",
        ),
        Error::Version if version(bytes).is_some() => Refusal::new(
            StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            "this server speaks HTTP/1.0 and HTTP/1.1 only",
        ),
        _ if !ends_lines_properly(bytes) => BARE,
        Error::HeaderName if has_folded_line(bytes) => {
            Refusal::bad("a header field continues on the next line, which is obsolete")
        }
        Error::HeaderName => Refusal::bad("the name of a header field is malformed"),
        Error::HeaderValue => Refusal::bad("the value of a header field is malformed"),
        Error::NewLine => BARE,
        _ => Refusal::bad("the first line is malformed"),
    }
}

/// Whether a line begins with a space, which would continue the field before it.
fn has_folded_line(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair[0] == b'\n' && matches!(pair[1], b' ' | b'\t'))
}

/// The major number of the HTTP version in the first line, and the position of the minor number.
/// `None` if the line does not end with an HTTP version.
fn version(bytes: &[u8]) -> Option<(u8, usize)> {
    let line = after_empty_lines(bytes);
    let begin = bytes.len() - line.len();
    let line = &line[..memchr::memchr(b'\r', line).unwrap_or(line.len())];
    let mut words = line.split(|&byte| byte == b' ');
    let digits = words.nth(2)?.strip_prefix(b"HTTP/")?;
    let [major, b'.', minor] = digits else { return None };
    let is_version = major.is_ascii_digit() && minor.is_ascii_digit() && words.next().is_none();
    is_version.then_some((*major, begin + line.len() - 1))
}

/// The position of the minor number if the major number is 1. The caller knows that the version is
/// neither 1.0 nor 1.1.
fn later_minor(bytes: &[u8]) -> Option<usize> {
    version(bytes).and_then(|(major, minor)| (major == b'1').then_some(minor))
}

impl Head {
    /// Makes a head from its bytes.
    pub(crate) fn new(outline: Outline, raw: &[u8]) -> Head {
        Head { raw: raw.into(), outline }
    }

    /// Replaces the head by another one, in the same memory.
    pub(crate) fn replace(&mut self, outline: Outline, raw: &[u8]) {
        self.raw.clear();
        self.raw.extend_from_slice(raw);
        self.outline = outline;
    }

    /// The capacity of the byte buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.raw.capacity()
    }

    pub(crate) fn target(&self) -> &str {
        // The parser has checked targets and field names: they are ASCII.
        str::from_utf8(&self.raw[self.target.range()]).unwrap_or_default()
    }

    pub(crate) fn version(&self) -> Version {
        if self.old { Version::HTTP_10 } else { Version::HTTP_11 }
    }

    /// The fields in their order. Parses them again, because many handlers never ask.
    pub(crate) fn fields(&self) -> Vec<(&str, &[u8])> {
        let line = self.target.range().end;
        let after =
            memchr::memchr(b'\n', &self.raw[line..]).map_or(self.raw.len(), |at| line + at + 1);
        let mut room = vec![httparse::EMPTY_HEADER; self.count as usize];
        // The parser has accepted these bytes before.
        let fields = match httparse::parse_headers(&self.raw[after..], &mut room) {
            Ok(Status::Complete((_, fields))) => fields,
            Ok(Status::Partial) | Err(_) => &[],
        };
        fields.iter().map(|field| (field.name, field.value)).collect()
    }
}

impl Head {
    /// The path and the query, for any form of the target.
    pub(crate) fn path_and_query(&self) -> (&str, Option<&str>) {
        let target = self.target();
        let target = match self.form {
            Form::Origin | Form::Authority | Form::Asterisk => target,
            Form::Absolute => {
                let authority = target.find("://").map_or(0, |at| at + 3);
                let end =
                    target[authority..].find(['/', '?']).map_or(target.len(), |at| authority + at);
                &target[end..]
            }
        };
        let (path, query) = match memchr::memchr(b'?', target.as_bytes()) {
            Some(at) => (&target[..at], Some(&target[at + 1..])),
            None => (target, None),
        };
        (if path.is_empty() { "/" } else { path }, query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes: 128, fields: 3, target: 16 };

    #[test]
    fn a_head_is_understood_however_it_is_cut() {
        for (head, status) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", None),
            ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", None),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Some(505)),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(505)),
            ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", None),
            ("\r\nGET / HTTP/1.9\r\nHost: a\r\n\r\n", None),
            ("GET / HTTP/1.2\r\n\r\n", Some(400)),
            ("GET / HTTP/1.2\r\nx y: z\r\n\r\n", Some(400)),
            ("GET / HTTP/x\r\n\r\n", Some(400)),
            ("GET /\r\n\r\n", Some(400)),
            ("GET / HTTP/1.1\nHost: a\r\n\r\n", Some(400)),
            ("GET / HTTP/1.1\r\nHost: a\r\nx y: z\r\n\r\n", Some(400)),
            ("GET / HTTP/1.1\r\nHost: a\r\nx: y\rz\r\n\r\n", Some(400)),
            ("GET / HTTP/1.1\r\na: b\r\nc: d\r\ne: f\r\ng: h\r\n\r\n", Some(431)),
            ("GET /aaaaaaaaaaaaaaaa HTTP/1.1\r\nHost: a\r\n\r\n", Some(414)),
        ] {
            let body = "b".repeat(LIMITS.bytes);
            let bytes = [head, &body].concat();
            // A refusal may come early, with an equal status. A head is complete only at its end.
            let refused =
                |bytes: &[u8]| parse(bytes, LIMITS).err().map(|found| found.status.as_u16());
            assert_eq!(refused(bytes.as_bytes()), status, "{head:?}");
            for end in 0..head.len() {
                let early = refused(&bytes.as_bytes()[..end]);
                assert!(early.is_none() || early == status, "{:?}: {early:?}", &head[..end]);
            }
            let whole = parse(bytes.as_bytes(), LIMITS);
            assert!(!matches!(whole, Ok(Parsed::Partial)), "{head:?}");
            if let Ok(Parsed::Complete(_, len)) = whole {
                assert_eq!(len, head.len(), "{head:?}");
            }
        }
    }
}
