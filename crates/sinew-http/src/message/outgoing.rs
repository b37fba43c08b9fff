//! The body of a response, and how it is framed on the wire.

use crate::upgrade::Upgraded;
use crate::wire::buffers::Writer;
use crate::wire::transport::Transport;
use bytes::Bytes;
use core::fmt;
use std::io::{self, Read, Write};

/// A closure that writes a body.
type WriteBody = dyn FnOnce(&mut BodyWriter<'_>) -> io::Result<()> + Send;

/// The body of a response.
pub(crate) enum Outgoing {
    Whole(Bytes),
    Reader(Box<dyn Read + Send>, Option<u64>),
    /// This many bytes of a file. The server limits the number of files that it sends at a time.
    File(Box<dyn Read + Send>, u64),
    Stream(Box<WriteBody>),
    /// No body: another protocol follows.
    Upgrade(Box<dyn FnOnce(Upgraded) + Send>),
}

impl Outgoing {
    /// The length of the body, if it is known before the body is sent.
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

/// How the client learns where a body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delimiter {
    /// The head has told the length.
    Length(u64),
    /// Each chunk tells its length.
    Chunks,
    /// The connection ends with the body.
    Close,
}

/// The writer that [`Response::stream`](crate::Response::stream) passes to its closure.
///
/// Written bytes are gathered. They are sent when some kilobytes have been gathered, or on a flush.
/// Sending waits while the client does not read, for
/// [`Limits::write_timeout`](crate::Limits::write_timeout) at most.
///
/// # Examples
/// ```
/// use sinew_http::{BodyWriter, Request, Response, Server};
/// use std::io::{self, Write};
///
/// fn write_numbers(body: &mut BodyWriter<'_>) -> io::Result<()> {
///     for number in 1..=3 {
///         write!(body, "{number} ")?;
///         body.flush()?; // the client gets each number as soon as it is made
///     }
///     body.write_all(b"end")
/// }
///
/// # fn get(at: std::net::SocketAddr, target: &str) -> std::io::Result<String> {
/// #     use std::io::{Read, Write};
/// #     let mut stream = std::net::TcpStream::connect(at)?;
/// #     write!(stream, "GET {target} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")?;
/// #     let mut answer = String::new();
/// #     stream.read_to_string(&mut answer)?;
/// #     Ok(answer)
/// # }
/// #
/// let server = Server::bind("127.0.0.1:0").start(|_: Request| Response::stream(write_numbers))?;
/// let answer = get(server.local_addr(), "/")?;
/// assert!(answer.contains("1 ") && answer.contains("3 ") && answer.contains("end"));
/// # let _ = server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct BodyWriter<'a> {
    writer: &'a mut Writer,
    transport: &'a Transport,
    delimiter: Delimiter,
    /// How many bytes of the body were written.
    count: &'a mut u64,
    /// Whether a write has failed. Nothing more can be sent then.
    failed: bool,
    /// The gathered bytes of the next chunk.
    chunk: Vec<u8>,
}

/// Gathered bytes become a chunk before they reach this length.
const CHUNK: usize = 4 * 1024;

/// Room for the length of a chunk and its line end.
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

    /// Writes the gathered bytes as a chunk.
    fn write_chunk(&mut self) -> io::Result<()> {
        // An empty chunk would end the body.
        if self.chunk.is_empty() {
            return Ok(());
        }
        let written = write_chunk(self.writer, self.transport, &self.chunk);
        self.chunk.clear();
        written
    }

    /// Writes the gathered part of a body that failed.
    pub(crate) fn break_off(mut self) {
        let _ = self.write_chunk();
    }

    /// Ends the body, if it has the announced length.
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
