//! Decodes chunked bodies: each chunk tells its own length.
//!
//! The decoder looks at the received bytes, and says how many of them are framing, and how many
//! after those are data. It keeps no bytes.

use super::Refusal;

/// The decoder of one body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chunked {
    state: State,
    /// How many bytes of extensions and trailers have come.
    extra: usize,
}

/// The position in the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The line with the size of a chunk is next.
    Size,
    /// This many bytes of a chunk are still to come.
    Data(u64),
    /// The line end after a chunk is next.
    DataEnd,
    /// A trailer field is next, or the empty line that ends the body.
    Trailer,
    /// The body has ended.
    Ended,
}

/// How long the size line of a chunk may be, with its extensions.
const LINE: usize = 256;

/// How many bytes of extensions and trailers a body may have in total.
const EXTRA: usize = 16 * 1024;

/// The meaning of the next bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// More bytes are needed.
    More,
    /// This many bytes are framing, to be skipped.
    Skip(usize),
    /// At most this many bytes are data.
    Data(u64),
    /// The body has ended.
    End,
}

impl Chunked {
    pub(crate) fn new() -> Chunked {
        Chunked { state: State::Size, extra: 0 }
    }

    /// Classifies the next bytes, and advances over framing.
    pub(crate) fn step(&mut self, bytes: &[u8]) -> Result<Step, Refusal> {
        match self.state {
            State::Ended => Ok(Step::End),
            State::Data(left) => Ok(Step::Data(left)),
            State::Size => self.size(bytes),
            State::DataEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.state = State::Size;
                    Ok(Step::Skip(2))
                }
                [] | [b'\r'] => Ok(Step::More),
                _ => Err(Refusal::bad("a chunk is longer than its size says")),
            },
            State::Trailer => self.trailer(bytes),
        }
    }

    /// Counts data that was taken.
    pub(crate) fn take(&mut self, count: u64) {
        if let State::Data(left) = self.state {
            self.state = if left == count { State::DataEnd } else { State::Data(left - count) };
        }
    }

    fn size(&mut self, bytes: &[u8]) -> Result<Step, Refusal> {
        let Some(line) = line(bytes, LINE)? else { return Ok(Step::More) };
        let (size, digits) = size(line).ok_or(Refusal::bad("the size of a chunk is malformed"))?;
        // Digits beyond the eighth, such as leading zeros, count as extra bytes, too.
        self.count(line.len() - digits + digits.saturating_sub(8))?;
        self.state = if size == 0 { State::Trailer } else { State::Data(size) };
        Ok(Step::Skip(line.len() + 2))
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<Step, Refusal> {
        let Some(line) = line(bytes, EXTRA - self.extra)? else { return Ok(Step::More) };
        let is_end = line.is_empty();
        if !is_end && !is_field(line) {
            return Err(Refusal::bad("a trailer field is malformed"));
        }
        if is_end {
            self.state = State::Ended;
        } else {
            self.count(line.len() + 2)?;
        }
        Ok(Step::Skip(line.len() + 2))
    }

    /// Counts bytes that are neither data nor needed to tell the length of the data.
    fn count(&mut self, extra: usize) -> Result<(), Refusal> {
        self.extra += extra;
        if self.extra > EXTRA { Err(TOO_LARGE) } else { Ok(()) }
    }
}

const TOO_LARGE: Refusal =
    Refusal::bad("the extensions or trailers of a chunked body are too large");

/// The first line without its end, if all of it has come. Fails if it is longer than `limit`.
fn line(bytes: &[u8], limit: usize) -> Result<Option<&[u8]>, Refusal> {
    match memchr::memchr2(b'\r', b'\n', bytes) {
        None if bytes.len() > limit => Err(TOO_LARGE),
        Some(at) if at > limit => Err(TOO_LARGE),
        None => Ok(None),
        Some(at) => match &bytes[at..] {
            [b'\r', b'\n', ..] => Ok(Some(&bytes[..at])),
            [b'\r'] => Ok(None),
            _ => Err(Refusal::bad("a line of a chunked body does not end with CR and LF")),
        },
    }
}

/// The number at the beginning of a size line, and how many digits it has. Extensions may follow
/// it.
fn size(line: &[u8]) -> Option<(u64, usize)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 || digits > 16 {
        return None;
    }
    let text = str::from_utf8(&line[..digits]).ok()?;
    let size = u64::from_str_radix(text, 16).ok()?;
    are_extensions(&line[digits..]).then_some((size, digits))
}

/// Whether `rest`, the part of the line after the size, consists of extensions (RFC 9112, section
/// 7.1.1). There may be none.
///
/// The server ignores extensions, but checks them. Known attacks hide bytes in them, so that two
/// readers see different ends of one chunk.
fn are_extensions(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        // Whitespace around the parts is tolerated, but not after the last part.
        let Some(name) = without_space(rest).strip_prefix(b";") else { return false };
        let Some(after) = without_token(without_space(name)) else { return false };
        rest = match without_space(after).strip_prefix(b"=") {
            None => after,
            Some(value) => match without_value(without_space(value)) {
                Some(after) => after,
                None => return false,
            },
        };
    }
    true
}

fn without_space(bytes: &[u8]) -> &[u8] {
    let count = bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &bytes[count..]
}

/// The bytes after the token at the beginning, if there is one.
fn without_token(bytes: &[u8]) -> Option<&[u8]> {
    let count = bytes.iter().take_while(|byte| is_of_token(byte)).count();
    if count > 0 { Some(&bytes[count..]) } else { None }
}

/// The bytes after the token or the quoted string at the beginning, if there is one.
fn without_value(bytes: &[u8]) -> Option<&[u8]> {
    let Some(mut rest) = bytes.strip_prefix(b"\"") else { return without_token(bytes) };
    loop {
        rest = match rest {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] if is_text(byte) => rest,
            _ => return None,
        };
    }
}

/// Whether a line has the form of a header field.
fn is_field(line: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', line) else { return false };
    let (name, value) = line.split_at(colon);
    !name.is_empty() && name.iter().all(is_of_token) && value.iter().all(is_text)
}

fn is_of_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

fn is_text(byte: &u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes all of `bytes`, receiving `at_once` of them at a time.
    fn decode(bytes: &[u8], at_once: usize) -> Result<(Vec<u8>, usize), Refusal> {
        let (mut state, mut data) = (Chunked::new(), Vec::new());
        let (mut at, mut received) = (0, 0);
        loop {
            match state.step(&bytes[at..received])? {
                Step::End => return Ok((data, at)),
                Step::Skip(count) => at += count,
                Step::Data(left) if at < received => {
                    let count = (received - at).min(left as usize);
                    data.extend_from_slice(&bytes[at..at + count]);
                    state.take(count as u64);
                    at += count;
                }
                Step::More | Step::Data(_) => {
                    assert!(received < bytes.len(), "it wants more of {state:?}");
                    received = bytes.len().min(received + at_once);
                }
            }
        }
    }

    #[test]
    fn a_body_is_understood_however_it_is_cut() {
        let body = b"5;a=b;d=\"\\\"\"\r\nhello\r\n0001 ;c\r\n!\r\n0\r\nA: b\r\n\r\nnext";
        for at_once in 1..body.len() {
            let decoded = decode(body, at_once).unwrap();
            assert_eq!(decoded, (b"hello!".to_vec(), body.len() - 4), "{at_once}");
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for body in [
            "g\r\n",
            "\r\n",
            " 5\r\nhello\r\n",
            "5 \r\n",
            "0x5\r\n",
            "+5\r\n",
            "-1\r\n",
            "5\nhello\r\n",
            "5\rhello",
            "5\r\nhello!\r\n",
            "5\r\nhello\n",
            "5,\r\n",
            "5 a\r\n",
            "11111111111111111\r\n",
            "5;\u{1}\r\n",
            "5\u{c};a\r\n",
            "5;\r\n",
            "5;=b\r\n",
            "5;a=\r\n",
            "5;a \r\n",
            "5;a=\"b\r\n",
            "5;a=\"b\\\r\n",
            "5;a=\"b\"c\r\n",
            "0\r\nA\r\n\r\n",
            "0\r\n: a\r\n\r\n",
            "0\r\n A: b\r\n\r\n",
            "0\r\nA: b\n\r\n",
            "0\r\nA: \u{0}\r\n\r\n",
        ] {
            assert!(decode(body.as_bytes(), body.len()).is_err(), "{body:?}");
        }
    }

    #[test]
    fn lines_and_trailers_are_not_long() {
        let long = format!("5;{}\r\n", "a".repeat(LINE));
        assert!(decode(long.as_bytes(), 1).is_err());
        let many =
            format!("0\r\n{}\r\n", "A: bbbbbbbbbbbbbbbbbbbbbbbbb\r\n".repeat(EXTRA / 29 + 1));
        assert!(decode(many.as_bytes(), many.len()).is_err());
        let small = "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nb\r\n".repeat(EXTRA / 40);
        assert!(decode(small.as_bytes(), small.len()).is_err());
    }
}
