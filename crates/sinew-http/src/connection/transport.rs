//! How bytes get to the other end: as they are, or encrypted.
//!
//! A transport is shared by who reads a request and who writes a response, which may be two fibers.
//! Nobody waits for the network while holding what the two share.

use super::Connection;
use core::time::Duration;
use sinew::net::{Shutdown, TcpStream};
use socket2::SockRef;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
#[cfg(feature = "tls")]
use std::time::Instant;

#[cfg(feature = "tls")]
use super::tls::TlsTransport;

/// One connection's way to the other end.
#[derive(Clone)]
pub(crate) enum Transport {
    Plain(Arc<Connection>),
    #[cfg(feature = "tls")]
    Tls(Arc<TlsTransport>),
}

impl Transport {
    /// That of a new connection.
    pub(super) fn new(connection: &Arc<Connection>) -> io::Result<Transport> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &connection.shared.tls {
            let transport = TlsTransport::new(connection.clone(), tls.config().clone())?;
            return Ok(Transport::Tls(Arc::new(transport)));
        }
        Ok(Transport::Plain(connection.clone()))
    }

    /// The connection that it belongs to.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        match self {
            Transport::Plain(connection) => connection,
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.connection(),
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.connection().stream
    }

    /// Reads what there is, waiting for something; zero at the end.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(connection) => (&connection.stream).read(buffer),
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.read(buffer, None),
        }
    }

    /// The same, for so long at most: then the error is of the kind `TimedOut`.
    pub(crate) fn read_within(&self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        match self {
            Transport::Plain(connection) => connection.read_within(buffer, limit),
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.read(buffer, Some(Instant::now() + limit)),
        }
    }

    /// Whether something can be read without anybody waiting, without asking the kernel.
    pub(crate) fn has_decrypted(&self) -> bool {
        match self {
            Transport::Plain(_) => false,
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.has_decrypted(),
        }
    }

    /// Whether there is something to read that the kernel does not know of. It may be part of a record, of which
    /// the rest has to be waited for.
    pub(crate) fn has_buffered(&self) -> bool {
        match self {
            Transport::Plain(_) => false,
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.has_buffered(),
        }
    }

    /// Writes all of it. Once that has failed, or was unwound, nothing more can be written: nobody knows how much
    /// the other end has got.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Transport::Plain(connection) => {
                connection.write_whole(|mut stream| stream.write_all(bytes)).map_err(timed_out)
            }
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => tls.write_all(bytes).map_err(timed_out),
        }
    }

    /// Whether [`write_at_once`](Self::write_at_once) does anything.
    pub(crate) fn can_write_at_once(&self) -> bool {
        matches!(self, Transport::Plain(_))
    }

    /// Writes as much as the kernel takes without anybody waiting. What is encrypted has to be written whole.
    pub(crate) fn write_at_once(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(connection) => {
                let mut stream = &connection.stream;
                stream.set_nonblocking(true)?;
                let count = stream.write(bytes);
                stream.set_nonblocking(false)?;
                count
            }
            #[cfg(feature = "tls")]
            Transport::Tls(_) => Ok(0),
        }
    }

    /// Writes two pieces, together if that is possible.
    pub(crate) fn write_both(&self, first: &[u8], second: &[u8]) -> io::Result<()> {
        match self {
            Transport::Plain(connection) => connection
                .write_whole(|stream| write_both(stream, first, second))
                .map_err(timed_out),
            #[cfg(feature = "tls")]
            Transport::Tls(_) => {
                self.write_all(first)?;
                self.write_all(second)
            }
        }
    }

    /// Tells the other end that nothing more comes.
    pub(crate) fn finish(&self) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Transport::Tls(tls) = self {
            tls.finish()?;
        }
        self.stream().shutdown(Shutdown::Write)
    }

    /// Tells the other end that an idle connection is closed, where that is not the same as to close it: who gets no such
    /// notice has to take it for somebody else's doing.
    pub(super) fn take_leave(&self) {
        #[cfg(feature = "tls")]
        if let Transport::Tls(tls) = self {
            // It may have gone, or be told already, or not read what it got before: nobody waits for it.
            let _ = self.stream().set_nonblocking(true).and_then(|()| tls.finish());
        }
    }

    /// Whether somebody besides the lease of the connection has it, or may have: one who looks at all
    /// connections at this moment counts as well.
    pub(super) fn is_shared(&self) -> bool {
        match self {
            Transport::Plain(connection) => Arc::strong_count(connection) > 1,
            #[cfg(feature = "tls")]
            Transport::Tls(tls) => Arc::strong_count(tls) > 1,
        }
    }

    /// Whether something came that nobody has read.
    pub(crate) fn has_unread(&self) -> bool {
        self.has_buffered() || sinew::io::is_readable(self.stream()).unwrap_or(false)
    }

    /// Has the other end told, when the connection is closed, that something went wrong.
    pub(crate) fn reset_when_closed(&self) {
        let _ = SockRef::from(self.stream()).set_linger(Some(Duration::ZERO));
    }

    /// How long a read may wait.
    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream().set_read_timeout(limit)
    }

    /// How long a write may wait.
    pub(crate) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream().set_write_timeout(limit)
    }
}

/// How much of what is written may wait to be sent, in bytes.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 128 * 1024;

/// Has those who write to a new connection woken when the client has taken some tens of kilobytes. The kernel would do so
/// when a third of what it keeps for the connection is free, which may be more than a client that reads all the time
/// takes before a write is given up.
pub(super) fn have_progress_reported(stream: &TcpStream) -> io::Result<()> {
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

/// An operation of a socket that took too long says that it would block.
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
