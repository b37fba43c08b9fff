//! Carries bytes to and from the client, plain or encrypted.
//!
//! The fiber that reads the body of a request and the fiber that writes the response may be two
//! fibers. They share one transport, and neither waits for the network while it holds a lock that
//! the other needs.

use super::line::Line;
use core::time::Duration;
use sinew::net::{Shutdown, TcpStream};
use socket2::SockRef;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
#[cfg(feature = "tls")]
use std::time::Instant;

#[cfg(feature = "tls")]
use {super::tls::TlsTransport, rustls::ServerConfig};

/// The way to the client of one connection.
#[derive(Clone)]
pub(crate) enum Transport {
    Plain(Arc<Line>),
    #[cfg(feature = "tls")]
    Tls(Arc<TlsTransport>),
}

impl Transport {
    /// Makes the transport of a new connection that is encrypted.
    #[cfg(feature = "tls")]
    pub(crate) fn encrypted(line: Arc<Line>, config: Arc<ServerConfig>) -> io::Result<Transport> {
        Ok(Transport::Tls(Arc::new(TlsTransport::new(line, config)?)))
    }

    fn line(&self) -> &Line {
        match self {
            Transport::Plain(line) => line,
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.line(),
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.line().stream
    }

    /// Reads, waiting until some bytes have come; returns zero at the end.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(line) => (&line.stream).read(buffer),
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.read(buffer, None),
        }
    }

    /// Reads, waiting at most `limit`; fails with `TimedOut` after it.
    pub(crate) fn read_within(&self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        match self {
            Transport::Plain(line) => line.read_within(buffer, limit),
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.read(buffer, Some(Instant::now() + limit)),
        }
    }

    /// Whether decrypted bytes can be read without waiting. Does not ask the kernel.
    pub(crate) fn has_decrypted(&self) -> bool {
        match self {
            Transport::Plain(_) => false,
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.has_decrypted(),
        }
    }

    /// Whether bytes are buffered in this process, where the kernel does not see them. They may be
    /// a partial record, whose rest has yet to come.
    pub(crate) fn has_buffered(&self) -> bool {
        match self {
            Transport::Plain(_) => false,
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.has_buffered(),
        }
    }

    /// Writes all bytes. If the write fails or is unwound, nothing more can be written, because the
    /// server does not know how much the client has received.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Transport::Plain(line) => {
                line.write_whole(|mut stream| stream.write_all(bytes)).map_err(timed_out)
            }
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.write_all(bytes).map_err(timed_out),
        }
    }

    /// Whether [`write_at_once`](Self::write_at_once) can write anything.
    pub(crate) fn can_write_at_once(&self) -> bool {
        matches!(self, Transport::Plain(_))
    }

    /// Writes as many bytes as the kernel takes without waiting. Writes nothing if the connection
    /// is encrypted, because records have to be written whole.
    pub(crate) fn write_at_once(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(line) => {
                let mut stream = &line.stream;
                stream.set_nonblocking(true)?;
                let count = stream.write(bytes);
                stream.set_nonblocking(false)?;
                count
            }
            #[cfg(feature = "tls")]
            Transport::Tls(_) => Ok(0),
        }
    }

    /// Writes two pieces, with one system call if that is possible.
    pub(crate) fn write_both(&self, first: &[u8], second: &[u8]) -> io::Result<()> {
        match self {
            Transport::Plain(line) => {
                line.write_whole(|stream| write_both(stream, first, second)).map_err(timed_out)
            }
            #[cfg(feature = "tls")]
            Transport::Tls(_) => {
                self.write_all(first)?;
                self.write_all(second)
            }
        }
    }

    /// Tells the client that nothing more comes.
    pub(crate) fn finish(&self) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Transport::Tls(tls) = self {
            tls.finish()?;
        }
        self.stream().shutdown(Shutdown::Write)
    }

    /// Sends `close_notify` on an encrypted idle connection that is about to be closed. Without it,
    /// the client has to suspect that an attacker cut the connection.
    pub(crate) fn take_leave(&self) {
        #[cfg(feature = "tls")]
        if let Transport::Tls(tls) = self {
            // Do not wait for room to send: the client may have gone, or may not read.
            let _ = self.stream().set_nonblocking(true).and_then(|()| tls.finish());
        }
    }

    /// Whether anything besides the connection and this transport uses the socket, such as a body
    /// that another fiber keeps.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            // One for the connection, and one for this transport.
            Transport::Plain(line) => Arc::strong_count(line) > 2,
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => Arc::strong_count(tls) > 1,
        }
    }

    /// Whether the client has sent bytes that are unread.
    pub(crate) fn has_unread(&self) -> bool {
        self.has_buffered() || sinew::io::is_readable(self.stream()).unwrap_or(false)
    }

    /// Makes the close of the connection send a reset, which tells the client that something went
    /// wrong.
    pub(crate) fn reset_when_closed(&self) {
        let _ = SockRef::from(self.stream()).set_linger(Some(Duration::ZERO));
    }

    /// Sets how long a read may wait.
    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream().set_read_timeout(limit)
    }

    /// Sets how long a write may wait.
    pub(crate) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream().set_write_timeout(limit)
    }
}

/// How many written bytes may be unsent before the kernel calls the socket full.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 128 * 1024;

/// Makes the kernel wake writers of a new connection after the client has taken some tens of
/// kilobytes. By default it wakes them when a third of the send buffer is free. A client that reads
/// slowly but steadily may take longer for that than the write timeout.
pub(crate) fn have_progress_reported(stream: &TcpStream) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return SockRef::from(stream).set_tcp_notsent_lowat(UNSENT);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    Ok(())
}

fn write_both(mut stream: &TcpStream, mut first: &[u8], second: &[u8]) -> io::Result<()> {
    while !first.is_empty() {
        let count = stream.write_vectored(&[IoSlice::new(first), IoSlice::new(second)])?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        match first.get(count..) {
            Some(rest) => first = rest,
            None => return stream.write_all(&second[count - first.len()..]),
        }
    }
    stream.write_all(second)
}

/// Turns the `WouldBlock` of a socket timeout into `TimedOut`.
pub(crate) fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stream().fmt(f)
    }
}
