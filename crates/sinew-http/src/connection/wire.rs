//! The two directions of a connection, with what was received and not used, and what is to be sent.

use super::transport::Transport;
use core::cell::RefCell;
use core::mem;
use core::time::Duration;
use std::io;
use std::thread::LocalKey;
use std::time::Instant;

/// How much is read at a time, and how much is gathered before it is sent.
pub(crate) const ROOM: usize = 8 * 1024;

/// How many buffers of each kind a thread keeps for the next fibers that need some.
const KEPT: usize = 64;

/// Buffers that nobody has. A connection has some only while a request is served.
type Pool = RefCell<Vec<Vec<u8>>>;

thread_local! {
    /// Those of readers, all of which has been written to.
    static INPUTS: Pool = const { RefCell::new(Vec::new()) };
    /// Those of writers, which are empty.
    static OUTPUTS: Pool = const { RefCell::new(Vec::new()) };
}

fn take(pool: &'static LocalKey<Pool>) -> Vec<u8> {
    pool.with_borrow_mut(Vec::pop).unwrap_or_default()
}

fn give(pool: &'static LocalKey<Pool>, buffer: Vec<u8>) {
    // One that grew for something unusual is not kept.
    if buffer.capacity() > 2 * ROOM {
        return;
    }
    // When a thread ends, its pools may have gone before its fibers.
    let _ = pool.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if pool.len() < KEPT {
            pool.push(buffer);
        }
    });
}

/// What comes in.
pub(crate) struct Reader {
    transport: Transport,
    /// All of it has been written to once: its length is its capacity.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Reader {
    pub(crate) fn new(transport: Transport) -> Reader {
        let mut buffer = take(&INPUTS);
        if buffer.len() < ROOM {
            buffer.resize(ROOM, 0);
        }
        Reader { transport, buffer, start: 0, end: 0 }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
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
    pub(crate) fn receive(&mut self, deadline: Option<Instant>) -> io::Result<usize> {
        self.make_room();
        let room = &mut self.buffer[self.end..];
        let count = match deadline {
            None => self.transport.read(room)?,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                self.transport.read_within(room, left)?
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
    pub(crate) fn read(&mut self, out: &mut [u8], limit: Duration) -> io::Result<usize> {
        if self.start == self.end {
            if out.len() >= ROOM {
                return self.transport.read_within(out, limit);
            }
            if self.transport.has_buffered() {
                self.receive(None)?;
            } else {
                self.receive(Some(Instant::now() + limit))?;
            }
        }
        let count = out.len().min(self.end - self.start);
        out[..count].copy_from_slice(&self.received()[..count]);
        self.consume(count);
        Ok(count)
    }

    /// Whether nothing was received that is not used, as far as one can know without asking the kernel.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end && !self.transport.has_buffered()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        give(&INPUTS, mem::take(&mut self.buffer));
    }
}

/// What goes out. Gathers small pieces.
pub(crate) struct Writer {
    transport: Transport,
    gathered: Vec<u8>,
    /// Whether something was not sent that should have been: nothing that comes after it may be.
    failed: bool,
}

impl Writer {
    pub(crate) fn new(transport: Transport) -> Writer {
        let mut gathered = take(&OUTPUTS);
        gathered.reserve(ROOM);
        Writer { transport, gathered, failed: false }
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Where small pieces are written to; [`flush_if_full`](Self::flush_if_full) is called after it.
    pub(crate) fn gather(&mut self) -> &mut Vec<u8> {
        &mut self.gathered
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gathered.is_empty()
    }

    /// Sends what was gathered, if it is much.
    pub(crate) fn flush_if_full(&mut self) -> io::Result<()> {
        if self.gathered.len() >= ROOM { self.flush() } else { self.check() }
    }

    /// Sends what was gathered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        let sent = self.transport.write_all(&self.gathered);
        self.settle(sent)
    }

    /// Writes a piece: small ones are gathered, larger ones are sent with what was.
    pub(crate) fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.check()?;
        if piece.len() + self.gathered.len() <= ROOM {
            self.gathered.extend_from_slice(piece);
            return Ok(());
        }
        let sent = self.transport.write_both(&self.gathered, piece);
        self.settle(sent)
    }

    fn check(&self) -> io::Result<()> {
        if self.failed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// What could not be sent will not be sent again.
    fn settle(&mut self, sent: io::Result<()>) -> io::Result<()> {
        self.gathered.clear();
        self.failed = sent.is_err();
        sent
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut gathered = mem::take(&mut self.gathered);
        gathered.clear();
        give(&OUTPUTS, gathered);
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("received", &(self.end - self.start)).finish_non_exhaustive()
    }
}
