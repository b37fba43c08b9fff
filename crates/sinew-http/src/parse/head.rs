//! The head of a request: its first line and its header fields.

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

/// How long the name of a method may be: twice as long as the longest that is registered.
const METHOD: usize = 34;

/// Room for the fields of most requests; for more, there is a list on the heap.
const FIELDS: usize = 128;

/// A head, and what it says of the message. The bytes are a copy: who received them has the room again.
#[derive(Debug)]
pub(crate) struct Head {
    raw: Vec<u8>,
    outline: Outline,
}

/// What a head says of the message.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    pub(crate) method: Method,
    target: Span,
    pub(crate) form: Form,
    /// Whether it is HTTP/1.0.
    pub(crate) old: bool,
    /// How many fields there are.
    count: u32,
    pub(crate) framing: Framing,
    /// Whether the client wants to use the connection again.
    pub(crate) persists: bool,
    pub(crate) expects_continue: bool,
    pub(crate) upgrades: bool,
    /// Whether a response is what it always is: of HTTP/1.1, with its body, and not the last one.
    pub(crate) is_plain: bool,
}

impl Deref for Head {
    type Target = Outline;

    fn deref(&self) -> &Outline {
        &self.outline
    }
}

/// Where something is in the bytes of a head, which are not many.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Where `part` is in `whole`, of which it is one.
    fn of(whole: &[u8], part: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        // An empty part may be anywhere.
        let start = start.min(whole.len());
        Span { start: start as u32, end: (start + part.len()) as u32 }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// What the bytes that were received so far are.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// The beginning of a head.
    Partial,
    /// A head, and how many bytes it takes.
    Complete(Outline, usize),
}

/// Reads a head from the beginning of what was received.
pub(crate) fn parse(bytes: &[u8], limits: HeadLimits) -> Result<Parsed, Refusal> {
    // How much has come besides makes no difference.
    let bytes = &bytes[..bytes.len().min(limits.bytes)];
    let parsed = parse_known(bytes, limits);
    if let Err(refusal) = &parsed
        && refusal.status == StatusCode::HTTP_VERSION_NOT_SUPPORTED
        && let Some(minor) = later_minor(bytes)
    {
        // A later version with the same major number is to be treated as the latest that is known (RFC 9110,
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
        // The beginning of another version is none of those that are known.
        Err(Error::Version) if !has_first_line(bytes) => return unfinished(bytes, limits),
        Err(error) => return Err(refusal(error, bytes)),
    };
    let raw = &bytes[..len];
    if !ends_parsed_lines_properly(raw, request.headers) {
        return Err(BARE);
    }
    // They are there when the head is complete.
    let path = request.path.unwrap_or_default();
    if path.len() > limits.target {
        return Err(too_long());
    }
    let method = request.method.unwrap_or_default();
    if method.len() > METHOD {
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "no method has such a long name"));
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
        return Err(Refusal::bad("there is no Host"));
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
        // HTTP/1.0 does not know it, and it is nothing to wait for if there is no body.
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

/// The beginning of a head: something, unless it is too large already.
fn unfinished(bytes: &[u8], limits: HeadLimits) -> Result<Parsed, Refusal> {
    if !ends_lines_properly(bytes) {
        return Err(BARE);
    }
    let line = after_empty_lines(bytes);
    // The method is short, as are the spaces and the version.
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

/// What follows the empty lines before a request.
fn after_empty_lines(bytes: &[u8]) -> &[u8] {
    let begin = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
    &bytes[begin.unwrap_or(bytes.len())..]
}

/// The same as [`ends_lines_properly`] for a head that was understood, of which it is known where its lines begin.
fn ends_parsed_lines_properly(raw: &[u8], fields: &[Header<'_>]) -> bool {
    let begins = |part: &str| (part.as_ptr() as usize).wrapping_sub(raw.as_ptr() as usize);
    // The line before each field ends with what is before its name; the last one, and the empty one behind it,
    // with the head.
    let before_fields = fields.iter().all(|field| {
        let end = begins(field.name);
        end >= 2 && raw.get(end - 2) == Some(&b'\r')
    });
    // Empty lines before the first are rare, and looked at one by one.
    let is_plain = !matches!(raw.first(), Some(b'\r' | b'\n'));
    let proper = match is_plain {
        true => before_fields && raw.ends_with(b"\r\n\r\n"),
        false => ends_lines_properly(raw),
    };
    debug_assert_eq!(proper, ends_lines_properly(raw), "{:?}", raw.escape_ascii().to_string());
    proper
}

/// A line feed alone ends a line for some, and not for others.
fn ends_lines_properly(bytes: &[u8]) -> bool {
    // All pairs are looked at, which takes less time than to stop at the first bad one.
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
            "the version of HTTP that is spoken here is 1",
        ),
        _ if !ends_lines_properly(bytes) => BARE,
        Error::HeaderName if has_folded_line(bytes) => {
            Refusal::bad("a header field goes on in the next line, which is obsolete")
        }
        Error::HeaderName => Refusal::bad("the name of a header field is malformed"),
        Error::HeaderValue => Refusal::bad("the value of a header field is malformed"),
        Error::NewLine => BARE,
        _ => Refusal::bad("the first line is malformed"),
    }
}

/// Whether a line begins with a space, as one does that belongs to the field before it.
fn has_folded_line(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair[0] == b'\n' && matches!(pair[1], b' ' | b'\t'))
}

/// The major number of the version that the first line ends with, and where the minor one is, if that is a version of
/// HTTP, spoken here or not.
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

/// Where the minor number of a version is that is later than 1.1 and not 2.
fn later_minor(bytes: &[u8]) -> Option<usize> {
    version(bytes).and_then(|(major, minor)| (major == b'1').then_some(minor))
}

impl Head {
    /// One with these bytes.
    pub(crate) fn new(outline: Outline, raw: &[u8]) -> Head {
        Head { raw: raw.into(), outline }
    }

    /// Becomes another one, in the same memory.
    pub(crate) fn replace(&mut self, outline: Outline, raw: &[u8]) {
        self.raw.clear();
        self.raw.extend_from_slice(raw);
        self.outline = outline;
    }

    /// How much memory its bytes have.
    pub(crate) fn capacity(&self) -> usize {
        self.raw.capacity()
    }

    pub(crate) fn target(&self) -> &str {
        // Checked, and so are the names of fields: their bytes are those of ASCII.
        str::from_utf8(&self.raw[self.target.range()]).unwrap_or_default()
    }

    pub(crate) fn version(&self) -> Version {
        if self.old { Version::HTTP_10 } else { Version::HTTP_11 }
    }

    /// The fields in their order. They are looked for again: many handlers never ask.
    pub(crate) fn fields(&self) -> Vec<(&str, &[u8])> {
        let line = self.target.range().end;
        let after =
            memchr::memchr(b'\n', &self.raw[line..]).map_or(self.raw.len(), |at| line + at + 1);
        let mut room = vec![httparse::EMPTY_HEADER; self.count as usize];
        // It was understood before.
        let fields = match httparse::parse_headers(&self.raw[after..], &mut room) {
            Ok(Status::Complete((_, fields))) => fields,
            Ok(Status::Partial) | Err(_) => &[],
        };
        fields.iter().map(|field| (field.name, field.value)).collect()
    }
}

impl Head {
    /// The path and the query, of whatever form the target is.
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
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
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
    fn it_does_not_matter_how_a_head_is_cut() {
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
            // A refusal may come early, and is the same then; a whole head is one at its end only.
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
