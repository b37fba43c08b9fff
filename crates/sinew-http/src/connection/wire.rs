//! The two directions of a connection: what was received and not used, and what is to be sent.
//!
//! Neither has the transport: who has both passes it.

use super::kit::ROOM;
use super::transport::Transport;
use core::time::Duration;
use std::io;
use std::time::Instant;

/// What comes in.
pub(crate) struct Reader {
    /// All of it has been written to once: its length is its capacity.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader { buffer: vec![0; ROOM], start: 0, end: 0 }
    }

    /// Makes it as good as a new one. False if it has grown for something unusual.
    pub(super) fn renew(&mut self) -> bool {
        (self.start, self.end) = (0, 0);
        self.buffer.capacity() <= 2 * ROOM
    }

    /// What was received and not used.
    pub(crate) fn received(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Leaves out the first bytes of what was received.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end, "what was used was received");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives more, in addition to what there is; zero at the end of the connection. With a deadline,
    /// fails with `TimedOut` then.
    pub(crate) fn receive(
        &mut self,
        transport: &Transport,
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        self.make_room();
        let room = &mut self.buffer[self.end..];
        let count = match deadline {
            None => transport.read(room)?,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                transport.read_within(room, left)?
            }
        };
        self.end += count;
        Ok(count)
    }

    fn make_room(&mut self) {
        if self.end < self.buffer.len() {
            return;
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
    }

    /// Reads what was received, or else, past the buffer, what comes within `limit`.
    pub(crate) fn read(
        &mut self,
        transport: &Transport,
        out: &mut [u8],
        limit: Duration,
    ) -> io::Result<usize> {
        if self.start == self.end {
            if out.len() >= ROOM {
                return transport.read_within(out, limit);
            }
            self.receive(transport, Some(Instant::now() + limit))?;
        }
        Ok(self.take(out))
    }

    /// Reads what was received.
    pub(crate) fn take(&mut self, out: &mut [u8]) -> usize {
        let count = out.len().min(self.end - self.start);
        out[..count].copy_from_slice(&self.received()[..count]);
        self.consume(count);
        count
    }

    /// Whether nothing was received that is not used, as far as one can know without asking the kernel.
    pub(crate) fn is_empty(&self, transport: &Transport) -> bool {
        self.start == self.end && !transport.has_buffered()
    }
}

/// What goes out. Gathers small pieces.
pub(crate) struct Writer {
    gathered: Vec<u8>,
    /// Whether something was not sent that should have been: nothing that comes after it may be.
    failed: bool,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer { gathered: Vec::with_capacity(ROOM), failed: false }
    }

    /// Makes it as good as a new one. False if it has grown for something unusual.
    pub(super) fn renew(&mut self) -> bool {
        self.gathered.clear();
        self.failed = false;
        self.gathered.capacity() <= 2 * ROOM
    }

    /// Where small pieces are written to; [`flush_if_full`](Self::flush_if_full) is called after it.
    pub(crate) fn gather(&mut self) -> &mut Vec<u8> {
        &mut self.gathered
    }

    /// Whether a response with so many bytes of a body can be gathered, and nothing has failed before.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        !self.failed && self.gathered.len() + bytes <= ROOM
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    /// Sends what was gathered, if it is much.
    pub(crate) fn flush_if_full(&mut self, transport: &Transport) -> io::Result<()> {
        if self.gathered.len() >= ROOM { self.flush(transport) } else { self.check() }
    }

    /// Sends what was gathered.
    pub(crate) fn flush(&mut self, transport: &Transport) -> io::Result<()> {
        self.check()?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        // Until the opposite is known: a deadline of the handler's may unwind it.
        self.failed = true;
        let sent = transport.write_all(&self.gathered);
        self.settle(sent)
    }

    /// Writes a piece: small ones are gathered, larger ones are sent with what was.
    pub(crate) fn write(&mut self, transport: &Transport, piece: &[u8]) -> io::Result<()> {
        self.check()?;
        if piece.len() + self.gathered.len() <= ROOM {
            self.gathered.extend_from_slice(piece);
            return Ok(());
        }
        self.failed = true;
        let sent = transport.write_both(&self.gathered, piece);
        self.settle(sent)
    }

    /// Fails if something was not sent that should have been.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.failed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// What could not be sent will not be sent again.
    fn settle(&mut self, sent: io::Result<()>) -> io::Result<()> {
        self.gathered.clear();
        self.failed = sent.is_err();
        sent
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("received", &(self.end - self.start)).finish_non_exhaustive()
    }
}
