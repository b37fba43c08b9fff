//! The body of a response, and how it gets onto the wire.

use crate::connection::transport::Transport;
use crate::connection::wire::Writer;
use crate::upgrade::Upgraded;
use bytes::Bytes;
use core::fmt;
use std::io::{self, Read, Write};

/// Writes a body.
type WriteBody = dyn FnOnce(&mut BodyWriter<'_>) -> io::Result<()> + Send;

/// What is sent as the body.
pub(crate) enum Outgoing {
    Whole(Bytes),
    Reader(Box<dyn Read + Send>, Option<u64>),
    /// So many bytes of a file. The server has room for a limited number of them.
    File(Box<dyn Read + Send>, u64),
    Stream(Box<WriteBody>),
    /// None: what follows is of another protocol.
    Upgrade(Box<dyn FnOnce(Upgraded) + Send>),
}

impl Outgoing {
    /// How long it is, if that is known before it is sent.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Outgoing::Whole(bytes) => Some(bytes.len() as u64),
            Outgoing::Reader(_, length) => *length,
            Outgoing::File(_, length) => Some(*length),
            Outgoing::Stream(_) => None,
            Outgoing::Upgrade(_) => Some(0),
        }
    }
}

/// How the other end knows where a body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delimiter {
    /// It was told the length.
    Length(u64),
    /// Each chunk says how long it is.
    Chunks,
    /// By the end of the connection.
    Close,
}

/// Where the body of a [`Response::stream`](crate::Response::stream) is written to.
///
/// What is written is gathered, and sent when it is some kilobytes, or when it is flushed. Sending waits
/// while the client does not read, for [`Limits::write_timeout`](crate::Limits::write_timeout) at most.
pub struct BodyWriter<'a> {
    writer: &'a mut Writer,
    transport: &'a Transport,
    delimiter: Delimiter,
    /// How many bytes were written.
    count: &'a mut u64,
    /// Whether a write has failed: nothing more can be sent then.
    failed: bool,
    /// What is written next becomes one chunk with what is here.
    chunk: Vec<u8>,
}

/// A chunk is sent when it is this long.
const CHUNK: usize = 4 * 1024;

/// Room for the length of a chunk and the end of its line.
const SIZE_LINE: usize = 18;

impl<'a> BodyWriter<'a> {
    pub(crate) fn new(
        writer: &'a mut Writer,
        transport: &'a Transport,
        delimiter: Delimiter,
        count: &'a mut u64,
    ) -> BodyWriter<'a> {
        BodyWriter { writer, transport, delimiter, count, failed: false, chunk: Vec::new() }
    }

    fn write_piece(&mut self, piece: &[u8]) -> io::Result<()> {
        match self.delimiter {
            Delimiter::Length(length) if piece.len() as u64 > length - *self.count => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "the body has more than the {length} bytes that its content-length says"
                    ),
                ));
            }
            Delimiter::Length(_) | Delimiter::Close => self.writer.write(self.transport, piece)?,
            Delimiter::Chunks if self.chunk.len() + piece.len() < CHUNK => {
                self.chunk.extend_from_slice(piece);
            }
            Delimiter::Chunks => {
                self.write_chunk()?;
                if piece.len() < CHUNK {
                    self.chunk.extend_from_slice(piece);
                } else {
                    write_chunk(self.writer, self.transport, piece)?;
                }
            }
        }
        *self.count += piece.len() as u64;
        Ok(())
    }

    /// Writes what was gathered as a chunk.
    fn write_chunk(&mut self) -> io::Result<()> {
        // An empty one would be the end.
        if self.chunk.is_empty() {
            return Ok(());
        }
        let written = write_chunk(self.writer, self.transport, &self.chunk);
        self.chunk.clear();
        written
    }

    /// Writes what there is of a body that failed.
    pub(crate) fn break_off(mut self) {
        let _ = self.write_chunk();
    }

    /// Ends the body, if it is as long as was said.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if self.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.writer.check()?;
        match self.delimiter {
            Delimiter::Length(length) if *self.count < length => {
                let message = format!(
                    "the body has {} bytes, and its content-length says {length}",
                    self.count
                );
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
            Delimiter::Chunks => {
                self.write_chunk()?;
                self.writer.write(self.transport, b"0\r\n\r\n")?;
            }
            Delimiter::Length(_) | Delimiter::Close => {}
        }
        Ok(())
    }
}

fn write_chunk(writer: &mut Writer, transport: &Transport, chunk: &[u8]) -> io::Result<()> {
    let mut line = [0; SIZE_LINE];
    let mut rest = &mut line[..];
    write!(rest, "{:x}\r\n", chunk.len())?;
    let left = rest.len();
    writer.write(transport, &line[..SIZE_LINE - left])?;
    writer.write(transport, chunk)?;
    writer.write(transport, b"\r\n")
}

impl Write for BodyWriter<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.is_empty() {
            return Ok(0);
        }
        if self.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let result = self.write_piece(piece);
        self.failed |= result.is_err();
        result.map(|()| piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.write_chunk().and_then(|()| self.writer.flush(self.transport));
        self.failed |= flushed.is_err();
        flushed
    }
}

impl fmt::Debug for BodyWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyWriter")
            .field("delimiter", &self.delimiter)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outgoing::Whole(bytes) => write!(f, "{} bytes", bytes.len()),
            Outgoing::Reader(_, length) => write!(f, "a reader of {length:?} bytes"),
            Outgoing::File(_, length) => write!(f, "{length} bytes of a file"),
            Outgoing::Stream(_) => f.write_str("a stream"),
            Outgoing::Upgrade(_) => f.write_str("an upgrade"),
        }
    }
}
