//! The entry point of the fuzzer in `fuzz/`, which sends bytes through the parsers without a
//! connection.

use crate::message::body::Body;
use crate::message::case::{Case, Origin};
use crate::message::request::Request;
use crate::parse::chunked::{Chunked, Step};
use crate::parse::fields::Framing;
use crate::parse::head::{Head, HeadLimits, Parsed, parse};
use bytes::Bytes;
use core::mem;
use std::sync::Arc;

/// One result of parsing a stream of bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[doc(hidden)] // for the fuzzer
pub enum Event {
    /// A head, as the parser understood it.
    Head(String),
    /// The number of bytes of a body, and their checksum.
    Body(usize, u64),
    /// The end of a body.
    End,
    /// A refusal. The bytes after it are not parsed.
    Refused,
    /// The stream ended within a head or a body.
    Partial,
}

const LIMITS: HeadLimits = HeadLimits { bytes: 2048, fields: 20, target: 512 };

/// Parses requests from bytes that arrive in pieces, and returns the events in order. `cuts` gives
/// the sizes of the pieces.
#[doc(hidden)] // for the fuzzer
pub fn requests(bytes: &[u8], cuts: &mut dyn Iterator<Item = usize>) -> Vec<Event> {
    let mut stream = Stream { bytes, at: 0, received: 0, may_skip_line: false, cuts };
    let mut events = Vec::new();
    loop {
        let head = match stream.head() {
            Ok(Some(head)) => head,
            Ok(None) => {
                events.push(Event::Partial);
                return events;
            }
            Err(()) => {
                events.push(Event::Refused);
                return events;
            }
        };
        let framing = head.framing;
        stream.may_skip_line = true;
        events.push(Event::Head(describe(head)));
        let end = match framing {
            Framing::Length(length) => stream.body(length),
            Framing::Chunked => stream.chunks(),
        };
        let (count, sum, end) = end;
        events.push(Event::Body(count, sum));
        events.push(end.clone());
        if end != Event::End {
            return events;
        }
    }
}

/// Describes everything that handlers can see of a head.
fn describe(head: Head) -> String {
    assert!(!(head.old && head.framing == Framing::Chunked), "only HTTP/1.1 has chunks");
    let fields = head.fields().into_iter();
    let fields: Vec<_> = fields.map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    let lengths =
        fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).count();
    let codings =
        fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("transfer-encoding")).count();
    assert!(lengths <= 1 && (lengths == 0 || codings == 0), "a request has at most one length");
    assert_eq!(codings > 0, head.framing == Framing::Chunked, "a transfer coding means chunks");
    let target = head.target().to_owned();
    let address = ([127, 0, 0, 1], 80).into();
    let origin = Origin { peer: address, local: address, is_secure: false };
    let case = Case { head, origin, number: 1 };
    let request = Request::new(Arc::new(case), Body::whole(Bytes::new()));
    assert_eq!(request.headers().len(), fields.len(), "`http` accepts all fields");
    assert_eq!(
        request.uri().to_string().trim_end_matches('/'),
        http::Uri::try_from(&*target)
            .expect("a target that passes is a URI")
            .to_string()
            .trim_end_matches('/')
    );
    let pairs: Vec<_> = request.query_pairs().collect();
    let path = request.decoded_path();
    format!("{} {target} {fields:?} {pairs:?} {path:?}", request.method())
}

struct Stream<'a> {
    bytes: &'a [u8],
    at: usize,
    received: usize,
    may_skip_line: bool,
    cuts: &'a mut dyn Iterator<Item = usize>,
}

impl Stream<'_> {
    fn received(&self) -> &[u8] {
        &self.bytes[self.at..self.received]
    }

    /// Receives the next piece. Returns false at the end.
    fn receive(&mut self) -> bool {
        if self.received == self.bytes.len() {
            return false;
        }
        let more = self.cuts.next().unwrap_or(usize::MAX).max(1);
        self.received = self.received.saturating_add(more).min(self.bytes.len());
        true
    }

    /// Parses a head, like `Session::next_case`.
    fn head(&mut self) -> Result<Option<Head>, ()> {
        let mut seen = 0;
        loop {
            if self.received().starts_with(b"\r\n") && mem::take(&mut self.may_skip_line) {
                self.at += 2;
                seen = 0;
            }
            let received = self.received();
            let is_worth_it = received.len() >= LIMITS.bytes
                || seen == 0
                || memchr::memchr(b'\n', &received[seen..]).is_some();
            seen = received.len();
            if seen > 0 && is_worth_it {
                match parse(received, LIMITS) {
                    Ok(Parsed::Complete(outline, len)) => {
                        let head = Head::new(outline, &received[..len]);
                        self.at += len;
                        return Ok(Some(head));
                    }
                    Ok(Parsed::Partial) => {}
                    Err(_) => return Err(()),
                }
            }
            if !self.receive() {
                // Parse once more: a refusal must not depend on where the stream was cut.
                return if seen > 0 && parse(self.received(), LIMITS).is_err() {
                    Err(())
                } else {
                    Ok(None)
                };
            }
        }
    }

    fn take(&mut self, limit: u64, sum: &mut u64) -> usize {
        let count = self.received().len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        for &byte in &self.received()[..count] {
            *sum = sum.wrapping_mul(31).wrapping_add(u64::from(byte));
        }
        self.at += count;
        count
    }

    fn body(&mut self, mut left: u64) -> (usize, u64, Event) {
        let (mut total, mut sum) = (0, 0);
        while left > 0 {
            let count = self.take(left, &mut sum);
            total += count;
            left -= count as u64;
            if count == 0 && !self.receive() {
                return (total, sum, Event::Partial);
            }
        }
        (total, sum, Event::End)
    }

    fn chunks(&mut self) -> (usize, u64, Event) {
        let (mut total, mut sum) = (0, 0);
        let mut chunked = Chunked::new();
        loop {
            match chunked.step(self.received()) {
                Err(_) => return (total, sum, Event::Refused),
                Ok(Step::End) => return (total, sum, Event::End),
                Ok(Step::Skip(count)) => self.at += count,
                Ok(Step::Data(left)) if !self.received().is_empty() => {
                    let count = self.take(left, &mut sum);
                    chunked.take(count as u64);
                    total += count;
                }
                Ok(Step::Data(_) | Step::More) => {
                    if !self.receive() {
                        return (total, sum, Event::Partial);
                    }
                }
            }
        }
    }
}
