//! Buffers for the two directions of a connection.
//!
//! Neither buffer owns the transport: the caller passes it in.

use super::transport::Transport;
use core::time::Duration;
use std::io;
use std::time::Instant;

/// How many bytes are read at a time, and how many are gathered before they are sent.
pub(crate) const ROOM: usize = 8 * 1024;

/// The input: bytes that were received and not consumed.
pub(crate) struct Reader {
    /// Initialized in full: its length is its capacity.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Reader {
    pub(crate) fn new() -> Reader {
        Reader { buffer: vec![0; ROOM], start: 0, end: 0 }
    }

    /// Clears the reader for reuse. Returns false if the buffer has grown too large to keep.
    pub(crate) fn renew(&mut self) -> bool {
        (self.start, self.end) = (0, 0);
        self.buffer.capacity() <= 2 * ROOM
    }

    /// The bytes that were received and not consumed.
    pub(crate) fn received(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Drops the first `count` received bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end, "no more bytes are consumed than were received");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives more bytes and appends them; returns zero at the end of the connection. Fails with
    /// `TimedOut` after the deadline, if there is one.
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

    /// Reads received bytes. If there are none, waits at most `limit` for more; a large `out`
    /// bypasses the buffer.
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

    /// Copies received bytes to `out`, without waiting.
    pub(crate) fn take(&mut self, out: &mut [u8]) -> usize {
        let count = out.len().min(self.end - self.start);
        out[..count].copy_from_slice(&self.received()[..count]);
        self.consume(count);
        count
    }

    /// Whether all received bytes are consumed, as far as is known without asking the kernel.
    pub(crate) fn is_empty(&self, transport: &Transport) -> bool {
        self.start == self.end && !transport.has_buffered()
    }
}

/// The output. Gathers small pieces.
pub(crate) struct Writer {
    gathered: Vec<u8>,
    /// Whether a write has failed. Nothing may be sent after it.
    failed: bool,
}

impl Writer {
    pub(crate) fn new() -> Writer {
        Writer { gathered: Vec::with_capacity(ROOM), failed: false }
    }

    /// Clears the writer for reuse. Returns false if the buffer has grown too large to keep.
    pub(crate) fn renew(&mut self) -> bool {
        self.gathered.clear();
        self.failed = false;
        self.gathered.capacity() <= 2 * ROOM
    }

    /// The buffer for small pieces. Call [`flush_if_full`](Self::flush_if_full) afterwards.
    pub(crate) fn gather(&mut self) -> &mut Vec<u8> {
        &mut self.gathered
    }

    /// Whether `bytes` more bytes can be gathered, and no write has failed.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        !self.failed && self.gathered.len() + bytes <= ROOM
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    /// Sends the gathered bytes if the buffer is full.
    pub(crate) fn flush_if_full(&mut self, transport: &Transport) -> io::Result<()> {
        if self.gathered.len() >= ROOM { self.flush(transport) } else { self.check() }
    }

    /// Sends the gathered bytes.
    pub(crate) fn flush(&mut self, transport: &Transport) -> io::Result<()> {
        self.check()?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        // Assume failure until the write has returned: a deadline of the handler may unwind it.
        self.failed = true;
        let sent = transport.write_all(&self.gathered);
        self.settle(sent)
    }

    /// Gathers a small piece; sends a large one together with the gathered bytes.
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

    /// Fails if an earlier write has failed.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.failed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// Records the result of a write. Bytes that could not be sent are dropped.
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
