//! A connection that is encrypted.
//!
//! The session is locked for computing only, never while somebody waits for the network, so that one
//! fiber can read while another writes. What is sent is encrypted and sent under a second lock, which
//! keeps records in their order.

use super::Connection;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustls::{ServerConfig, ServerConnection};
use sinew::net::TcpStream;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How much is read of what is encrypted at a time.
const ROOM: usize = 4096;

/// How much memory a connection keeps for what it sends.
const KEPT: usize = 1024;

/// How much is encrypted at a time: a record.
const RECORD: usize = 16 * 1024;

pub(crate) struct TlsTransport {
    connection: Arc<Connection>,
    session: Mutex<Session>,
    /// Held by who sends: what was encrypted, to be sent. Nothing is left in it.
    sending: sinew::sync::Mutex<Vec<u8>>,
    /// Whether the handshake was made.
    ready: AtomicBool,
}

struct Session {
    tls: Box<ServerConnection>,
    /// What was received and is not decrypted: the session has room for one record at a time.
    received: Vec<u8>,
}

impl Session {
    /// Decrypts some of what was received. To be called when nothing is left of what was decrypted before.
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
    pub(crate) fn new(
        connection: Arc<Connection>,
        config: Arc<ServerConfig>,
    ) -> io::Result<TlsTransport> {
        let tls = Box::new(ServerConnection::new(config).map_err(io::Error::other)?);
        Ok(TlsTransport {
            connection,
            session: Mutex::new(Session { tls, received: Vec::new() }),
            sending: sinew::sync::Mutex::new(Vec::new()),
            ready: AtomicBool::new(false),
        })
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    fn stream(&self) -> &TcpStream {
        &self.connection.stream
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the handshake. Others get their turn after each step of it, which computes for a while.
    pub(super) fn shake_hands(&self, limit: Duration) -> io::Result<()> {
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

    /// Decrypts what was received, or else receives more; false at the end of the connection.
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
        // Also if that failed: the other end is told why.
        self.flush()?;
        advanced.map(|()| true)
    }

    fn receive(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        let Some(deadline) = deadline else { return (self.stream()).read(buffer) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.connection.read_within(buffer, left)
    }

    /// Sends what the session has to send, unless somebody sends: that one takes it along, then or later.
    fn flush(&self) -> io::Result<()> {
        if !self.session().tls.wants_write() {
            return Ok(());
        }
        match self.sending.try_lock() {
            Some(mut sending) => self.send(&mut sending, |_| Ok(())),
            None => Ok(()),
        }
    }

    /// Lets `f` give something to the session, and sends what that has to send.
    fn send(
        &self,
        encrypted: &mut Vec<u8>,
        f: impl FnOnce(&mut ServerConnection) -> io::Result<()>,
    ) -> io::Result<()> {
        encrypted.clear();
        // A record that was sent in part is the last one.
        let sent = self.connection.write_whole(|mut stream| {
            {
                let tls = &mut self.session().tls;
                f(tls)?;
                while tls.wants_write() {
                    tls.write_tls(encrypted)?;
                }
            }
            stream.write_all(encrypted)
        });
        // A connection that is idle has no use for much memory.
        if encrypted.capacity() > KEPT {
            *encrypted = Vec::new();
        }
        sent
    }

    /// Reads what was decrypted, or what comes before the deadline, if there is one.
    pub(super) fn read(&self, out: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            match self.session().tls.reader().read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Some end a connection without saying so first. What was missing, HTTP tells.
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

    /// Says that nothing more comes.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut sending = self.sending.lock();
        self.send(&mut sending, |tls| {
            tls.send_close_notify();
            Ok(())
        })
    }
}
