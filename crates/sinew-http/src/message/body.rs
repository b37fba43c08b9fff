//! The body of a request.
//!
//! A body that came whole with its head is in memory. Any other body is received from the
//! connection while the handler reads it. Such a body has the connection's reader, and the session
//! takes the reader back after the response. From then on, reading a body that was not read to its
//! end fails.

use crate::limits::Limits;
use crate::parse::Refusal;
use crate::parse::chunked::{Chunked, Step};
use crate::parse::fields::Framing;
use crate::wire::buffers::Reader;
use crate::wire::transport::Transport;
use bytes::Bytes;
use core::fmt;
use core::time::Duration;
use http::StatusCode;
use sinew::sync::Mutex;
use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

/// The body of a request, received while it is read.
///
/// A body may be moved to another fiber, or into a [`Response`](crate::Response) that sends it
/// back. It can be read until the response has been sent. A read waits for the client, at most
/// [`Limits::body_timeout`](crate::Limits::body_timeout) at a time; a cancelled fiber is unwound
/// from the wait. A client that expects `100 Continue` gets it with the first read.
///
/// If a handler returns a read error that is the client's fault, the response is 400, 408 or 413.
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
    /// The whole body, less the bytes that were read.
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

    /// Returns how many bytes are left to read. Returns `None` for a chunked body that has not been
    /// read to its end.
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

    /// Reads the rest of the body.
    ///
    /// # Errors
    /// If the client sends something malformed, too many bytes, or nothing for too long.
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

/// A body that has not been received in full. The fiber that reads it and the serving fiber share
/// it.
pub(crate) struct Incoming {
    inner: Mutex<Inner>,
    /// Where to send `100 Continue`, as long as the client waits for it. No fiber holds this lock
    /// while it waits for bytes from the client.
    invitation: Mutex<Option<Transport>>,
}

struct Inner {
    /// The source of the body, until the session takes it back. So a kept body does not keep the
    /// connection.
    wire: Option<(Reader, Transport)>,
    progress: Progress,
    pace: Pace,
    /// How many more bytes a body of unknown length may have.
    allowance: u64,
    /// Why no more can be read.
    failure: Option<BodyError>,
}

/// How slowly a body may come.
struct Pace {
    /// How long a read may wait.
    timeout: Duration,
    /// How many bytes per second have to come on average, once reads have waited for `timeout` in
    /// total.
    rate: u64,
    /// How long reads have waited for the client in total. The time between reads does not count.
    waited: Duration,
    taken: u64,
}

impl Pace {
    fn of(limits: &Limits) -> Pace {
        let (timeout, rate) = (limits.body_timeout, limits.body_rate);
        Pace { timeout, rate, waited: Duration::ZERO, taken: 0 }
    }

    /// How long the next read may wait. Fails if the client has been too slow.
    fn limit(&self) -> Result<Duration, BodyError> {
        let Some(earned) = self.taken.checked_div(self.rate) else { return Ok(self.timeout) };
        let allowed = self.timeout.saturating_add(Duration::from_secs(earned));
        match allowed.checked_sub(self.waited) {
            Some(left) if !left.is_zero() => Ok(left.min(self.timeout)),
            _ => Err(BodyError::Late),
        }
    }

    /// Calls `receive` with the time that it may wait for the client.
    fn wait(&mut self, receive: impl FnOnce(Duration) -> io::Result<usize>) -> io::Result<usize> {
        /// Counts the time, also if a deadline of the handler unwinds the wait.
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

/// How much of the body is still to come.
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

/// The reader, returned after the response.
pub(crate) enum Returned {
    /// The reader, at the end of the body.
    AtEnd(Reader),
    /// The reader, within the body. `None` if the session has taken it back before.
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

    /// Sends `100 Continue` to a client that waits for it.
    fn invite(&self) -> io::Result<()> {
        let mut invitation = self.invitation.lock();
        match invitation.take() {
            Some(transport) => transport.write_all(b"HTTP/1.1 100 Continue\r\n\r\n"),
            None => Ok(()),
        }
    }

    /// Prepares for the response. Call it before any byte of the response is sent, because
    /// `100 Continue` must not follow that byte. If the body still exists elsewhere, a fiber may
    /// yet read it, so this call sends `100 Continue`.
    ///
    /// Returns false if the handler has dropped the body, and the end of the body is known to be
    /// out of reach. The end is out of reach if it is more than `skip` bytes away, if a read has
    /// failed before it, or if the client waits for `100 Continue`.
    pub(crate) fn settle(self: &Arc<Incoming>, skip: usize) -> io::Result<bool> {
        if Arc::strong_count(self) > 1 {
            self.invite()?;
            return Ok(true);
        }
        let inner = self.inner.lock();
        let is_far = inner.progress.remaining().is_some_and(|left| left > skip as u64);
        Ok(!(is_far || inner.failure.is_some() || self.invitation.lock().is_some()))
    }

    /// Takes the reader back, after skipping at most `skip` unread bytes for at most `patience`. If
    /// the body still exists and was not read to its end, its next read fails.
    pub(crate) fn take_back(&self, skip: usize, patience: Duration) -> Returned {
        // A client that still waits for `100 Continue` may send the body or not, so the next bytes
        // are ambiguous.
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
        // Bytes that have been received are returned even if the client was too slow.
        let mut read = |reader: &mut Reader, pace: &mut Pace, room: usize| {
            let out = &mut out[..room];
            let count = match reader.take(out) {
                0 => pace.wait(|limit| reader.read(transport, out, limit))?,
                count => count,
            };
            pace.taken += count as u64;
            io::Result::Ok(count)
        };
        // One deadline for all framing between two chunks, so that trickling framing does not
        // extend it.
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

    /// Reads and drops bytes until `deadline`, or until more than `limit` were dropped. Returns how
    /// many.
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

/// Turns the end of the connection, and a timeout, into errors of the body.
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
    /// Another error, which an earlier read has returned.
    Failed(io::ErrorKind),
}

impl BodyError {
    fn of(error: &io::Error) -> BodyError {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        inner.copied().unwrap_or(BodyError::Failed(error.kind()))
    }

    /// The error response, if the error is the client's fault.
    pub(crate) fn refusal(error: &io::Error) -> Option<Refusal> {
        match error.get_ref()?.downcast_ref()? {
            BodyError::Refused(refusal) => Some(*refusal),
            BodyError::Late => {
                Some(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))
            }
            BodyError::CutOff => Some(Refusal::bad("the body ended before its announced end")),
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
            BodyError::Over => f.write_str("the body is closed: its request has been answered"),
            BodyError::Failed(kind) => write!(f, "an earlier read of the body failed: {kind}"),
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
