//! One turn of a fiber with its connection: the fiber serves the requests that have come, one after
//! the other.
//!
//! Next: `exchange`, which serves one request.

use super::answer::{self, Terms};
use super::kit::Kit;
use super::linger::linger;
use super::{Connection, Lease, REST_OF_HEAD};
use crate::log::{AccessEntry, Problem, contain};
use crate::message::case::Case;
use crate::message::outgoing::Delimiter;
use crate::message::response::Response;
use crate::parse::Refusal;
use crate::parse::head::{Head, Parsed, parse};
use crate::wire::transport::Transport;
use core::mem;
use core::sync::atomic::Ordering;
use core::time::Duration;
use http::StatusCode;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// How a fiber's turn with a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Every request that was received is answered.
    Idle,
    /// The connection is to be closed.
    Close,
}

/// One fiber's turn with a connection.
pub(super) struct Session<'a> {
    pub(super) connection: &'a Connection,
    pub(super) transport: &'a Transport,
    pub(super) kit: Box<Kit>,
    /// Whether to reset the connection, so that the client does not take its end for the end of the
    /// body.
    pub(super) resets: bool,
    /// Whether the first read of this turn is still to come. Arriving bytes began the turn, so this
    /// read hardly ever waits, and the connection is still marked idle.
    is_first: bool,
}

impl<'a> Session<'a> {
    /// Serves requests until none is left.
    pub(super) fn hold(lease: &Lease) -> End {
        let kit = Kit::take();
        let mut session = Session {
            connection: &lease.connection,
            transport: &lease.transport,
            kit,
            resets: false,
            is_first: true,
        };
        let end = session.kit.current.clone().enter(|| session.serve());
        session.kit.give_back();
        end
    }

    fn serve(&mut self) -> End {
        #[cfg(feature = "tls")]
        if !self.greet() {
            return End::Close;
        }
        loop {
            let case = match self.next_case() {
                Ok(Next::Request(case)) => case,
                Ok(Next::Idle) => return End::Idle,
                Ok(Next::Close) => {
                    self.transport.take_leave();
                    return End::Close;
                }
                Err(_) => return End::Close,
            };
            self.connection.may_skip_line.store(true, Ordering::Relaxed);
            let goes_on = self.exchange(&case);
            self.kit.current.set(None);
            self.kit.answered = Some(case);
            match goes_on {
                Ok(true) => {}
                Ok(false) => return End::Close,
                Err(error) => {
                    let peer = self.connection.origin.peer;
                    self.connection.shared.tell(&Problem::Response(peer, &error));
                    self.break_off();
                    return End::Close;
                }
            }
        }
    }

    /// Sends the gathered bytes after the body of a response has failed: the whole responses before
    /// it, and the beginning of the failed one. After a failed write nothing is gathered, and
    /// nothing is sent.
    fn break_off(&mut self) {
        if self.resets {
            let _ = self.kit.writer.flush(self.transport);
            self.transport.reset_when_closed();
        } else if !self.kit.writer.is_empty() && self.kit.writer.flush(self.transport).is_ok() {
            let _ = linger(self.kit.reader.take(), self.transport);
        }
    }

    #[cfg(feature = "tls")]
    fn greet(&mut self) -> bool {
        let Transport::Tls(tls) = self.transport else { return true };
        let shared = &self.connection.shared;
        if tls.is_ready() {
            return true;
        }
        // `GREETING` keeps the clock fiber from closing the connection as idle during the
        // handshake.
        if !self.connection.greet() {
            return false;
        }
        self.is_first = false;
        let done = tls.shake_hands(shared.limits.head_timeout);
        let is_wanted = self.connection.has_greeted();
        if let Err(error) = &done
            && is_wanted
        {
            shared.tell(&Problem::Handshake(self.connection.origin.peer, error));
        }
        done.is_ok() && is_wanted
    }

    /// Waits for the next request.
    fn next_case(&mut self) -> io::Result<Next> {
        let connection = self.connection;
        let limits = &connection.shared.limits;
        let Some(reader) = &mut self.kit.reader else { return Ok(Next::Close) };
        // The first `seen` bytes are known to contain no whole head.
        let mut seen = 0;
        let mut deadline = None;
        // The deadline for the rest of a head once the server is closing.
        let mut last_call = None;
        loop {
            // Some clients send an extra line end after a body. The session skips it once. Further
            // empty lines begin the next request, whose deadline then runs.
            if reader.received().starts_with(b"\r\n")
                && connection.may_skip_line.swap(false, Ordering::Relaxed)
            {
                reader.consume(2);
                (seen, deadline) = (0, None);
            }
            let received = reader.received();
            let is_worth_it = received.len() >= limits.head.bytes
                || seen == 0
                || memchr::memchr(b'\n', &received[seen..]).is_some();
            if !received.is_empty() && is_worth_it {
                match parse(received, limits.head) {
                    Ok(Parsed::Complete(outline, len)) => {
                        let head = (outline, &received[..len]);
                        let number = connection.counts.count_request();
                        let case =
                            Case::new(self.kit.answered.take(), head, &connection.origin, number);
                        reader.consume(len);
                        return Ok(Next::Request(case));
                    }
                    Ok(Parsed::Partial) => {}
                    Err(refusal) => {
                        let bare = is_head(received);
                        return self.refuse(refusal, bare, None).map(|()| Next::Close);
                    }
                }
            }
            seen = received.len();
            self.kit.writer.flush(self.transport)?;
            if seen > 0 {
                let is_closing = !connection.await_rest_of_head();
                let until = *deadline.get_or_insert_with(|| Instant::now() + limits.head_timeout);
                if is_closing && last_call.is_none() {
                    last_call = Some(until.min(Instant::now() + REST_OF_HEAD));
                }
                let received = reader.receive(self.transport, Some(last_call.unwrap_or(until)));
                let is_wanted = connection.has_more_of_head();
                match received {
                    Ok(1..) => {}
                    // The client has gone without sending a whole request.
                    Ok(0) if is_wanted => return Ok(Next::Close),
                    Err(error) if is_wanted && error.kind() != io::ErrorKind::TimedOut => {
                        return Err(error);
                    }
                    Ok(0) | Err(_) => {
                        let bare = is_head(reader.received());
                        return self.refuse(LATE, bare, None).map(|()| Next::Close);
                    }
                }
                continue;
            }
            let is_first = mem::replace(&mut self.is_first, false);
            // Bytes that came with the previous request and are decrypted can be read without
            // waiting.
            let is_there = !is_first && self.transport.has_decrypted();
            if !(is_first || is_there) {
                if connection.shared.defers() && reader.is_empty(self.transport) {
                    return Ok(Next::Idle);
                }
                // A partial TLS record does not count as part of a request: the connection is idle.
                if !connection.rest() {
                    return Ok(Next::Close);
                }
            }
            if reader.receive(self.transport, None)? == 0 {
                return Ok(Next::Close);
            }
            if !(is_there || connection.begin()) {
                return Ok(Next::Close);
            }
        }
    }

    /// Answers a request that cannot be served, and closes the connection in a way that lets the
    /// answer arrive. `bare` says that the request is a `HEAD`. `head` is `None` if the head was
    /// malformed or incomplete.
    pub(super) fn refuse(
        &mut self,
        refusal: Refusal,
        bare: bool,
        head: Option<&Head>,
    ) -> io::Result<()> {
        let connection = self.connection;
        let peer = connection.origin.peer;
        connection.shared.tell(&Problem::Refused(peer, refusal.status, refusal.reason));
        connection.counts.count_response(refusal.status);
        let response = Response::refusing(refusal);
        let terms = self.terms(false, bare, false);
        let delimiter = Delimiter::Length(refusal.reason.len() as u64 + 1);
        answer::write_head(&mut self.kit.writer, &response, delimiter, terms);
        let reason = if bare { String::new() } else { format!("{}\n", refusal.reason) };
        self.kit.writer.write(self.transport, reason.as_bytes())?;
        if let Some(log) = &connection.shared.access_log {
            let entry = AccessEntry {
                peer,
                method: head.map(|head| &head.method),
                target: head.map_or("-", Head::target),
                version: head.map_or(http::Version::HTTP_11, Head::version),
                status: refusal.status,
                bytes: reason.len() as u64,
                complete: true,
                duration: Duration::ZERO,
            };
            contain(|| log(&entry));
        }
        self.kit.writer.flush(self.transport)?;
        let reader = self.kit.reader.take();
        linger(reader, self.transport)
    }

    pub(super) fn terms(&self, old: bool, bare: bool, persists: bool) -> Terms {
        Terms { old, bare, persists, now: self.connection.shared.clock.second() }
    }
}

/// The next event on a connection.
enum Next {
    Request(Arc<Case>),
    Idle,
    Close,
}

const LATE: Refusal = Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request did not come in time");

/// Whether a malformed or partial head looks like the head of a `HEAD` request.
fn is_head(received: &[u8]) -> bool {
    received.trim_ascii_start().starts_with(b"HEAD ")
}
