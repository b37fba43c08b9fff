//! Serves one request: calls the handler and sends the response.
//!
//! Next: `sending`, which sends the body of a response.

use super::UPGRADED;
use super::answer;
use super::held::holding;
use super::linger::linger;
use super::record::Record;
use super::session::Session;
use crate::log::Problem;
use crate::message::body::{Body, Incoming, Returned, TOO_LARGE};
use crate::message::case::Case;
use crate::message::outgoing::{Delimiter, Outgoing};
use crate::message::request::Request;
use crate::message::response::{IntoResponse, Response, is_bodiless};
use crate::parse::fields::Framing;
use crate::parse::head::Head;
use crate::upgrade::Upgraded;
use bytes::Bytes;
use core::mem;
use core::sync::atomic::Ordering;
use core::time::Duration;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Method, StatusCode};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// To keep the connection, the session skips at most this many bytes of a body that the handler has
/// not read, for at most this long.
const SKIPPED: usize = 64 * 1024;
const SKIPPING: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Serves one request. Returns true if another one may follow.
    pub(super) fn exchange(&mut self, case: &Arc<Case>) -> io::Result<bool> {
        let head = &case.head;
        let connection = self.connection;
        let shared = &connection.shared;
        if let Framing::Length(length) = head.framing
            && length > shared.limits.body_size
        {
            self.refuse(TOO_LARGE, head.method == Method::HEAD, Some(head))?;
            return Ok(false);
        }
        let mut record = Record::begin(connection, case);
        let (body, incoming) = self.body_of(head)?;
        self.kit.current.set(Some(case.clone()));
        let (mut response, panicked) = self.call_handler(case, body)?;
        // The short path for most responses: short, and without special cases.
        if record.is_none()
            && incoming.is_none()
            && head.is_plain
            && !panicked
            && !shared.is_closing()
            && let Some(body) = response.plain_body()
            && self.kit.writer.has_room(body.len())
        {
            let now = shared.clock.second();
            connection.counts.count_response(response.status);
            answer::write_plain(self.kit.writer.gather(), &response, body, now);
            return self.finish(None, true);
        }
        if let Some(cause) = &response.cause {
            let peer = connection.origin.peer;
            shared.tell(&Problem::Handler(peer, head.target(), cause));
        }
        self.fit_status(&mut response);
        fit_upgrade(&mut response, head);
        // Held until the body has been sent and the file is closed.
        let _room = shared.file_room.for_body_of(&mut response);
        let delimiter = answer::delimiter(&response, head);
        let mut persists = head.persists
            && !panicked
            && delimiter != Delimiter::Close
            && !shared.is_closing()
            && !closes(&response);
        // If the rest of the request body cannot be skipped, this response is the last one. Its
        // head says so if that is already known.
        if let Some(incoming) = &incoming {
            persists &= incoming.settle(SKIPPED)?;
        }
        let bare = head.method == Method::HEAD;
        let is_upgrade = is_upgrade(&response, head);
        if is_upgrade {
            persists = false;
        }
        let terms = self.terms(head.old, bare, persists || is_upgrade);
        let status = response.status;
        connection.counts.count_response(status);
        if let Some(record) = &mut record {
            record.status = Some(status);
        }
        answer::write_head(&mut self.kit.writer, &response, delimiter, terms);
        let has_body = !bare && !is_bodiless(status);
        let mut sent = 0;
        match response.body {
            Outgoing::Upgrade(f) if is_upgrade => {
                Record::complete(record);
                self.kit.writer.flush(self.transport)?;
                self.upgrade(incoming.as_deref(), f);
                return Ok(false);
            }
            body if has_body => {
                let count = record.as_mut().map_or(&mut sent, |record| &mut record.bytes);
                let result = self.send(body, delimiter, count);
                if result.is_err() && delimiter == Delimiter::Close {
                    // The client would take the end of the connection for the end of the body.
                    self.resets = true;
                }
                result?;
            }
            _ => {}
        }
        Record::complete(record);
        self.finish(incoming.as_deref(), persists)
    }

    /// Ends an exchange after its response. Returns true if another request may follow.
    fn finish(&mut self, incoming: Option<&Incoming>, persists: bool) -> io::Result<bool> {
        if let Some(incoming) = incoming {
            self.kit.writer.flush(self.transport)?;
            match incoming.take_back(if persists { SKIPPED } else { 0 }, SKIPPING) {
                Returned::AtEnd(reader) => self.kit.reader = Some(reader),
                Returned::Within(reader) => {
                    linger(reader, self.transport)?;
                    return Ok(false);
                }
            }
        }
        if persists {
            self.kit.writer.flush_if_full(self.transport)?;
            return Ok(true);
        }
        self.kit.writer.flush(self.transport)?;
        match self.kit.reader.take() {
            Some(reader) if reader.is_empty(self.transport) && !self.transport.has_unread() => {
                // The client may have closed the connection.
                let _ = self.transport.finish();
            }
            reader => linger(reader, self.transport)?,
        }
        Ok(false)
    }

    /// The body of a request: copied if all of it has come, else received while it is read.
    fn body_of(&mut self, head: &Head) -> io::Result<(Body, Option<Arc<Incoming>>)> {
        let limits = &self.connection.shared.limits;
        let framing = head.framing;
        if framing == Framing::Length(0) {
            return Ok((Body::whole(Bytes::new()), None));
        }
        let Some(mut reader) = self.kit.reader.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if let Framing::Length(length) = framing
            && let Ok(length) = usize::try_from(length)
            && length <= reader.received().len()
        {
            let bytes = Bytes::copy_from_slice(&reader.received()[..length]);
            reader.consume(length);
            self.kit.reader = Some(reader);
            return Ok((Body::whole(bytes), None));
        }
        // Flush first. The reader of the body may wait for the client, while the client waits for
        // earlier responses, or for `100 Continue`, which bypasses the writer.
        self.kit.writer.flush(self.transport)?;
        let incoming =
            Incoming::new((reader, self.transport), framing, head.expects_continue, limits);
        let incoming = Arc::new(incoming);
        Ok((Body::incoming(incoming.clone()), Some(incoming)))
    }

    /// Replaces an informational status by 500. After such a status the client waits for a final
    /// one, and would take the next response for it.
    fn fit_status(&self, response: &mut Response) {
        let status = response.status;
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            let message = format!("the handler answered with {status}, which is not final");
            let peer = self.connection.origin.peer;
            self.connection.shared.tell(&Problem::Response(peer, &io::Error::other(message)));
            *response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    }

    /// Calls the handler. If the handler panics, returns a 500 and true.
    fn call_handler(&mut self, case: &Arc<Case>, body: Body) -> io::Result<(Response, bool)> {
        let request = Request::new(case.clone(), body);
        let handler = &self.connection.shared.handler;
        let call = || catch_unwind(AssertUnwindSafe(|| handler.handle(request)));
        if !self.transport.can_write_at_once() {
            self.kit.writer.flush(self.transport)?;
        }
        let result = if self.kit.writer.is_empty() {
            call()
        } else {
            let gathered = mem::take(self.kit.writer.gather());
            let (result, left) = holding(self.transport, gathered, call);
            *self.kit.writer.gather() = left;
            result
        };
        match result {
            Ok(response) => Ok((response, false)),
            Err(payload) => {
                self.survive(payload, case.head.target());
                Ok((StatusCode::INTERNAL_SERVER_ERROR.into_response(), true))
            }
        }
    }

    /// Reports a panic. A cancellation of this fiber goes on unwinding.
    pub(super) fn survive(&self, payload: Box<dyn Any + Send>, target: &str) {
        // The payload may be the cancellation of another fiber, which the handler passed on after a
        // join.
        if sinew::is_cancel(&*payload) && sinew::is_cancelled() {
            resume_unwind(payload);
        }
        self.connection.shared.tell(&Problem::Panic(self.connection.origin.peer, target));
    }

    /// Lends the connection to another protocol, until `f` returns.
    fn upgrade(&mut self, incoming: Option<&Incoming>, f: Box<dyn FnOnce(Upgraded) + Send>) {
        let reader = match (self.kit.reader.take(), incoming) {
            (Some(reader), _) => Some(reader),
            (None, Some(incoming)) => match incoming.take_back(SKIPPED, SKIPPING) {
                Returned::AtEnd(reader) => Some(reader),
                Returned::Within(_) => None,
            },
            (None, None) => None,
        };
        let Some(reader) = reader else { return };
        let connection = self.connection;
        // ORDERING: SeqCst, before the SeqCst load of `closing` below; pairs with a shutdown, which
        // stores `closing` and then loads the state in `close_if_upgraded`. One of the two sides
        // sees the other.
        connection.state.store(UPGRADED, Ordering::SeqCst);
        let upgraded = Upgraded::new(reader, self.transport.clone(), connection.origin.peer);
        if connection.shared.is_closing() {
            connection.close_if_upgraded();
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(upgraded))) {
            self.survive(payload, "an upgraded connection");
        }
        let _ = self.transport.finish();
    }
}

/// Whether the handler asks to close the connection.
fn closes(response: &Response) -> bool {
    let mut values = response.fields().into_iter().flat_map(|fields| fields.get_all(CONNECTION));
    values.any(|value| {
        let mut tokens = crate::parse::fields::tokens(value.as_bytes());
        tokens.any(|token| token.eq_ignore_ascii_case(b"close"))
    })
}

/// Completes a response with status 101 by naming the protocol. Replaces the status by 426 if the
/// client has not asked for an upgrade, or if the handler has not given a closure for it. If
/// neither side names a protocol, the status becomes 400.
fn fit_upgrade(response: &mut Response, head: &Head) {
    if response.status != StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    if !head.upgrades || !matches!(response.body, Outgoing::Upgrade(_)) {
        response.status = StatusCode::UPGRADE_REQUIRED;
    }
    let fields = head.fields();
    let asked = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("upgrade"));
    let asked = asked.and_then(|(_, value)| HeaderValue::from_bytes(value).ok());
    match asked {
        Some(asked) => response.set_default(UPGRADE, asked),
        // A 426 has to name a protocol, and neither the client nor the handler has named one.
        None if response.fields().is_none_or(|fields| !fields.contains_key(UPGRADE)) => {
            response.status = StatusCode::BAD_REQUEST
        }
        None => {}
    }
}

/// Whether another protocol takes over the connection after this response.
fn is_upgrade(response: &Response, head: &Head) -> bool {
    let status = response.status;
    let is_agreed = status == StatusCode::SWITCHING_PROTOCOLS
        || (head.method == Method::CONNECT && status.is_success());
    is_agreed && matches!(response.body, Outgoing::Upgrade(_))
}
