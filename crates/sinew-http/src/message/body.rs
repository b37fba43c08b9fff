//! The body of a request.
//!
//! A short body that came with the head is there at once. Any other is read from the connection while the
//! handler reads it: body and connection share the reader, and whoever serves the connection takes it back
//! when the response was sent. Then the body is at its end for whoever still has it.

use crate::connection::transport::Transport;
use crate::connection::wire::Reader;
use crate::parse::Refusal;
use crate::parse::chunked::{Chunked, Step};
use crate::parse::fields::Framing;
use crate::server::Limits;
use bytes::Bytes;
use core::fmt;
use core::time::Duration;
use http::StatusCode;
use sinew::sync::Mutex;
use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

/// The body of a request, which is read as it comes.
///
/// It may be moved elsewhere, to another fiber or into a [`Response`](crate::Response) that sends it
/// back, and can be read until the response was sent. Reading waits for the client, for as long as
/// [`Limits::body_timeout`](crate::Limits::body_timeout) allows at a time; a cancelled fiber is unwound
/// from there. A client that expects `100 Continue` gets it with the first read.
///
/// Errors of reading that are the client's fault become the right response when a handler returns them:
/// 400, 408 or 413.
///
/// # Examples
/// ```
/// use sinew_http::{Request, Response};
///
/// fn store(request: Request) -> std::io::Result<Response> {
///     let mut file = sinew::fs::File::create("upload")?;
///     let count = std::io::copy(&mut request.into_body(), &mut file)?;
///     Ok(Response::text(format!("{count} bytes\n")))
/// }
/// ```
#[derive(Debug)]
pub struct Body(Kind);

enum Kind {
    /// All of it, less what was read.
    Whole(Bytes),
    Incoming(Arc<Incoming>),
}

impl Body {
    pub(crate) fn whole(bytes: Bytes) -> Body {
        Body(Kind::Whole(bytes))
    }

    pub(crate) fn incoming(incoming: Arc<Incoming>) -> Body {
        Body(Kind::Incoming(incoming))
    }

    /// How many bytes are left to be read, if that is known: it is not if the client sends chunks.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response, http};
    /// fn has_body(request: &mut Request) -> bool {
    ///     request.body().remaining() != Some(0)
    /// }
    /// ```
    pub fn remaining(&self) -> Option<u64> {
        match &self.0 {
            Kind::Whole(bytes) => Some(bytes.len() as u64),
            Kind::Incoming(incoming) => incoming.inner.lock().progress.remaining(),
        }
    }

    /// All that is left of it.
    ///
    /// # Errors
    /// If the client sends something malformed, too much, or nothing for too long.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response, http};
    /// fn len(mut request: Request) -> std::io::Result<Response> {
    ///     Ok(Response::text(request.body().read_all()?.len().to_string()))
    /// }
    /// ```
    pub fn read_all(&mut self) -> io::Result<Bytes> {
        if let Kind::Whole(bytes) = &mut self.0 {
            return Ok(std::mem::take(bytes));
        }
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }
}

impl Read for Body {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Whole(bytes) => {
                let count = out.len().min(bytes.len());
                out[..count].copy_from_slice(&bytes.split_to(count));
                Ok(count)
            }
            Kind::Incoming(incoming) => incoming.read(out),
        }
    }
}

/// A body that has not been received, shared by who reads it and who serves the connection.
pub(crate) struct Incoming {
    inner: Mutex<Inner>,
    /// Where a client that waits to be told that it may send the body is told so; nowhere when it was, or
    /// does not wait. It is not locked while anybody waits for the client to send something.
    invitation: Mutex<Option<Transport>>,
}

struct Inner {
    /// Where it comes from, until the reader is taken back. Whoever keeps a body keeps no connection.
    wire: Option<(Reader, Transport)>,
    progress: Progress,
    pace: Pace,
    /// How many more bytes of a body of unknown length are taken.
    allowance: u64,
    /// Why nothing more can be read.
    failure: Option<BodyError>,
}

/// How slowly a body may come.
struct Pace {
    /// How long a read may wait.
    timeout: Duration,
    /// How many bytes have to come in a second, after that time.
    rate: u64,
    /// For how long the client was waited for. What the handler does in between is not the client's fault.
    waited: Duration,
    taken: u64,
}

impl Pace {
    fn of(limits: &Limits) -> Pace {
        let (timeout, rate) = (limits.body_timeout, limits.body_rate);
        Pace { timeout, rate, waited: Duration::ZERO, taken: 0 }
    }

    /// How long the next read may wait.
    fn limit(&self) -> Result<Duration, BodyError> {
        let Some(earned) = self.taken.checked_div(self.rate) else { return Ok(self.timeout) };
        let allowed = self.timeout.saturating_add(Duration::from_secs(earned));
        match allowed.checked_sub(self.waited) {
            Some(left) if !left.is_zero() => Ok(left.min(self.timeout)),
            _ => Err(BodyError::Late),
        }
    }

    /// Has `receive` wait for the client, for as long as it may.
    fn wait(&mut self, receive: impl FnOnce(Duration) -> io::Result<usize>) -> io::Result<usize> {
        /// Counts the time, also if a deadline of the handler's unwinds the wait.
        struct Waiting<'a>(&'a mut Duration, Instant);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                *self.0 += self.1.elapsed();
            }
        }
        let limit = self.limit()?;
        let _waiting = Waiting(&mut self.waited, Instant::now());
        some(receive(limit))
    }
}

/// How much is still to come.
enum Progress {
    Length(u64),
    Chunked(Chunked),
    Ended,
}

impl Progress {
    fn remaining(&self) -> Option<u64> {
        match self {
            Progress::Length(left) => Some(*left),
            Progress::Chunked(_) => None,
            Progress::Ended => Some(0),
        }
    }

    fn is_at_end(&self) -> bool {
        matches!(self, Progress::Ended | Progress::Length(0))
    }
}

/// What is left when a response was sent.
pub(crate) enum Returned {
    /// The reader, at the end of the body.
    AtEnd(Reader),
    /// The reader, somewhere in the body; or it is unknown where.
    Within(Option<Reader>),
}

impl Incoming {
    pub(crate) fn new(
        (reader, transport): (Reader, &Transport),
        framing: Framing,
        must_invite: bool,
        limits: &Limits,
    ) -> Incoming {
        let progress = match framing {
            Framing::Length(length) => Progress::Length(length),
            Framing::Chunked => Progress::Chunked(Chunked::new()),
        };
        let invitation = Mutex::new(must_invite.then(|| transport.clone()));
        let wire = Some((reader, transport.clone()));
        let (pace, allowance) = (Pace::of(limits), limits.body_size);
        let inner = Mutex::new(Inner { wire, progress, pace, allowance, failure: None });
        Incoming { inner, invitation }
    }

    fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        self.invite()?;
        self.inner.lock().read(out)
    }

    /// Tells a client that waits for it that it may send the body.
    fn invite(&self) -> io::Result<()> {
        let mut invitation = self.invitation.lock();
        match invitation.take() {
            Some(transport) => transport.write_all(b"HTTP/1.1 100 Continue\r\n\r\n"),
            None => Ok(()),
        }
    }

    /// Called before anything of a response is sent, after which there can be no invitation. If somebody
    /// has the body still, who may read it, the client is invited now.
    ///
    /// False if nobody has, and its end is known to be out of reach: more than `skip` bytes away, behind
    /// something malformed, or in the hands of a client that was not invited.
    pub(crate) fn settle(self: &Arc<Incoming>, skip: usize) -> io::Result<bool> {
        if Arc::strong_count(self) > 1 {
            self.invite()?;
            return Ok(true);
        }
        let inner = self.inner.lock();
        let is_far = inner.progress.remaining().is_some_and(|left| left > skip as u64);
        Ok(!(is_far || inner.failure.is_some() || self.invitation.lock().is_some()))
    }

    /// Takes the reader back, after at most `skip` more bytes that nobody has read, for which it waits as
    /// long as `patience`. Who has the body still, and has not read all of it, finds that it is over.
    pub(crate) fn take_back(&self, skip: usize, patience: Duration) -> Returned {
        // A client that was not invited may send the body or not: nobody knows what comes next.
        let is_uninvited = self.invitation.lock().take().is_some();
        let mut inner = self.inner.lock();
        let failure = inner.failure;
        let skipped = match is_uninvited {
            true => 0,
            false => inner.skip(skip, Instant::now() + patience),
        };
        let at_end = inner.progress.is_at_end();
        if skipped > 0 || !at_end {
            inner.failure = failure.or(Some(BodyError::Over));
        }
        match inner.wire.take() {
            Some((reader, _)) if at_end => Returned::AtEnd(reader),
            wire => Returned::Within(wire.map(|(reader, _)| reader)),
        }
    }
}

impl Inner {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        if self.progress.is_at_end() {
            return Ok(0);
        }
        let result = self.receive(out);
        if let Err(error) = &result {
            self.failure = Some(BodyError::of(error));
        }
        result
    }

    fn receive(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = out.len();
        let room = |left: u64| len.min(usize::try_from(left).unwrap_or(usize::MAX));
        let Some((reader, transport)) = &mut self.wire else { return Err(BodyError::Over.into()) };
        let (transport, pace) = (&*transport, &mut self.pace);
        // What was received is there, however long the client has taken.
        let mut read = |reader: &mut Reader, pace: &mut Pace, room: usize| {
            let out = &mut out[..room];
            let count = match reader.take(out) {
                0 => pace.wait(|limit| reader.read(transport, out, limit))?,
                count => count,
            };
            pace.taken += count as u64;
            io::Result::Ok(count)
        };
        // What is between chunks may trickle, and is nothing that was read.
        let mut deadline = None;
        match &mut self.progress {
            Progress::Ended => Ok(0),
            Progress::Length(left) => {
                let count = read(reader, pace, room(*left))?;
                *left -= count as u64;
                Ok(count)
            }
            Progress::Chunked(chunked) => loop {
                match chunked.step(reader.received()).map_err(BodyError::Refused)? {
                    Step::Skip(count) => reader.consume(count),
                    Step::More => {
                        pace.wait(|limit| {
                            let deadline = *deadline.get_or_insert_with(|| Instant::now() + limit);
                            reader.receive(transport, Some(deadline))
                        })?;
                    }
                    Step::End => {
                        self.progress = Progress::Ended;
                        return Ok(0);
                    }
                    Step::Data(left) => {
                        if left > self.allowance {
                            return Err(BodyError::Refused(TOO_LARGE).into());
                        }
                        let count = read(reader, pace, room(left))?;
                        chunked.take(count as u64);
                        self.allowance -= count as u64;
                        return Ok(count);
                    }
                }
            },
        }
    }

    /// Reads up to `limit` bytes that nobody wants, until `deadline`; returns how many there were.
    fn skip(&mut self, limit: usize, deadline: Instant) -> usize {
        let mut skipped = 0;
        if limit == 0 || self.progress.remaining().is_some_and(|left| left > limit as u64) {
            return skipped;
        }
        let mut waste = [0; 1024];
        while skipped <= limit {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.pace.timeout = self.pace.timeout.min(left);
            let Ok(count @ 1..) = self.read(&mut waste) else { break };
            skipped += count;
        }
        skipped
    }
}

pub(crate) const TOO_LARGE: Refusal =
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");

/// The end of a connection is none of a body.
fn some(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Ok(0) => Err(BodyError::CutOff.into()),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(BodyError::Late.into()),
        result => result,
    }
}

/// Why a body cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyError {
    Refused(Refusal),
    Late,
    CutOff,
    Over,
    /// Something else, that was told before.
    Failed(io::ErrorKind),
}

impl BodyError {
    fn of(error: &io::Error) -> BodyError {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        inner.copied().unwrap_or(BodyError::Failed(error.kind()))
    }

    /// The response that says so, if it is the client's fault.
    pub(crate) fn refusal(error: &io::Error) -> Option<Refusal> {
        match error.get_ref()?.downcast_ref()? {
            BodyError::Refused(refusal) => Some(*refusal),
            BodyError::Late => {
                Some(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))
            }
            BodyError::CutOff => Some(Refusal::bad("the body is shorter than was said")),
            BodyError::Over | BodyError::Failed(_) => None,
        }
    }
}

impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> io::Error {
        let kind = match error {
            BodyError::Refused(_) => io::ErrorKind::InvalidData,
            BodyError::Late => io::ErrorKind::TimedOut,
            BodyError::CutOff => io::ErrorKind::UnexpectedEof,
            BodyError::Over => io::ErrorKind::BrokenPipe,
            BodyError::Failed(kind) => kind,
        };
        io::Error::new(kind, error)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Refused(refusal) => f.write_str(refusal.reason),
            BodyError::Late => f.write_str("the body did not come in time"),
            BodyError::CutOff => f.write_str("the connection ended within the body"),
            BodyError::Over => f.write_str("the request of this body was answered"),
            BodyError::Failed(kind) => write!(f, "the body could not be read before: {kind}"),
        }
    }
}

impl Error for BodyError {}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Whole(bytes) => write!(f, "{} bytes", bytes.len()),
            Kind::Incoming(_) => f.write_str("incoming"),
        }
    }
}
