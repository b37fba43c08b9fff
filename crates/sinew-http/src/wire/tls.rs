//! An encrypted connection.
//!
//! A fiber locks the TLS session only to compute, never while it waits for the network. So one
//! fiber can read while another writes. A second lock covers encrypting and sending, which keeps
//! records in order.

use super::line::Line;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustls::{ServerConfig, ServerConnection};
use sinew::net::TcpStream;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How many encrypted bytes are read at a time.
const ROOM: usize = 4096;

/// How many bytes of the send buffer an idle connection keeps.
const KEPT: usize = 1024;

/// How many bytes are encrypted at a time: one record.
const RECORD: usize = 16 * 1024;

pub(crate) struct TlsTransport {
    line: Arc<Line>,
    session: Mutex<Session>,
    /// The buffer for encrypted bytes. A fiber holds its lock while it sends. Between sends the
    /// buffer has no unsent bytes.
    sending: sinew::sync::Mutex<Vec<u8>>,
    /// Whether the handshake is complete.
    ready: AtomicBool,
}

struct Session {
    tls: Box<ServerConnection>,
    /// Bytes that were received and not decrypted. `tls` has room for one record at a time.
    received: Vec<u8>,
}

impl Session {
    /// Decrypts some of the received bytes. Call it only when all decrypted bytes have been read.
    fn advance(&mut self) -> io::Result<()> {
        let mut rest = &self.received[..];
        let taken = self.tls.read_tls(&mut rest)?;
        self.received.drain(..taken);
        match self.tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    fn has_decrypted(&mut self) -> bool {
        let state = self.tls.process_new_packets();
        state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }
}

impl TlsTransport {
    pub(crate) fn new(line: Arc<Line>, config: Arc<ServerConfig>) -> io::Result<TlsTransport> {
        let tls = Box::new(ServerConnection::new(config).map_err(io::Error::other)?);
        Ok(TlsTransport {
            line,
            session: Mutex::new(Session { tls, received: Vec::new() }),
            sending: sinew::sync::Mutex::new(Vec::new()),
            ready: AtomicBool::new(false),
        })
    }

    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    fn stream(&self) -> &TcpStream {
        &self.line.stream
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the handshake. Yields after each step, because a step computes for some time.
    pub(crate) fn shake_hands(&self, limit: Duration) -> io::Result<()> {
        let deadline = Instant::now() + limit;
        while self.session().tls.is_handshaking() {
            if !self.advance(Some(deadline))? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            sinew::yield_now();
        }
        self.ready.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Decrypts received bytes, or else receives more. Returns false at the end of the connection.
    fn advance(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let mut session = self.session();
        if session.received.is_empty() {
            drop(session);
            let mut buffer = [0; ROOM];
            let count = self.receive(&mut buffer, deadline)?;
            if count == 0 {
                return Ok(false);
            }
            session = self.session();
            session.received.extend_from_slice(&buffer[..count]);
        }
        let advanced = session.advance();
        drop(session);
        // Flush after an error, too: the alert tells the client the reason.
        self.flush()?;
        advanced.map(|()| true)
    }

    fn receive(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        let Some(deadline) = deadline else { return (self.stream()).read(buffer) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.line.read_within(buffer, left)
    }

    /// Sends the records that the session has queued. If another fiber is sending, that send or the
    /// next one includes them.
    fn flush(&self) -> io::Result<()> {
        if !self.session().tls.wants_write() {
            return Ok(());
        }
        match self.sending.try_lock() {
            Some(mut sending) => self.send(&mut sending, |_| Ok(())),
            None => Ok(()),
        }
    }

    /// Lets `f` give plaintext to the session, then sends all records that the session has queued.
    fn send(
        &self,
        encrypted: &mut Vec<u8>,
        f: impl FnOnce(&mut ServerConnection) -> io::Result<()>,
    ) -> io::Result<()> {
        encrypted.clear();
        // If a record is sent only in part, `write_whole` lets nothing follow it.
        let sent = self.line.write_whole(|mut stream| {
            {
                let tls = &mut self.session().tls;
                f(tls)?;
                while tls.wants_write() {
                    tls.write_tls(encrypted)?;
                }
            }
            stream.write_all(encrypted)
        });
        // An idle connection keeps little memory.
        if encrypted.capacity() > KEPT {
            *encrypted = Vec::new();
        }
        sent
    }

    /// Reads decrypted bytes, or waits for some until the deadline, if there is one.
    pub(super) fn read(&self, out: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            match self.session().tls.reader().read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Some clients end a connection without `close_notify`. The framing of HTTP shows
                // whether a part is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            if !self.advance(deadline)? {
                return Ok(0);
            }
        }
    }

    pub(super) fn has_decrypted(&self) -> bool {
        self.session().has_decrypted()
    }

    pub(super) fn has_buffered(&self) -> bool {
        let mut session = self.session();
        !session.received.is_empty() || session.has_decrypted()
    }

    pub(super) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut sending = self.sending.lock();
        bytes.chunks(RECORD).try_for_each(|record| {
            self.send(&mut sending, |session| session.writer().write_all(record))
        })
    }

    /// Sends `close_notify`, which tells the client that nothing more comes.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut sending = self.sending.lock();
        self.send(&mut sending, |tls| {
            tls.send_close_notify();
            Ok(())
        })
    }
}
