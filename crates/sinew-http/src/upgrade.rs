//! A connection that has left HTTP.

use crate::connection::transport::{Transport, timed_out};
use crate::connection::wire::Reader;
use core::fmt;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

/// A connection after an [upgrade](crate::Response::upgrade): both ends speak what they agreed upon.
///
/// It is closed when the function that was given it returns, wherever it is then. When the server shuts down,
/// reading comes to its end. One fiber may read while another writes: see [`duplicate`](Self::duplicate).
pub struct Upgraded {
    /// What came after the request is read first.
    reader: Option<Reader>,
    transport: Transport,
    peer: SocketAddr,
}

impl Upgraded {
    pub(crate) fn new(reader: Reader, transport: Transport, peer: SocketAddr) -> Upgraded {
        Upgraded { reader: Some(reader), transport, peer }
    }

    /// The address of the other end.
    ///
    /// # Examples
    /// ```
    /// fn log(stream: &sinew_http::Upgraded) {
    ///     println!("{} speaks something else now", stream.peer_addr());
    /// }
    /// ```
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Another one for the same connection, to write while this one reads, or the other way round. What came
    /// with the request is read from this one.
    ///
    /// Two that write at the same time get in each other's way, as with any stream: a WebSocket of `tungstenite`
    /// writes while it reads, to answer pings, so that two of them cannot share a connection. One fiber has
    /// the socket then, and gets what is to be sent through a channel.
    ///
    /// # Examples
    /// ```
    /// use std::io::{Read, Write};
    ///
    /// /// Says hello every second, whatever comes.
    /// fn converse(mut stream: sinew_http::Upgraded) {
    ///     let mut writer = stream.duplicate();
    ///     sinew::scope(|s| {
    ///         let greeter = s.spawn(move || {
    ///             while writer.write_all(b"hello").is_ok() {
    ///                 sinew::sleep(std::time::Duration::from_secs(1));
    ///             }
    ///         });
    ///         while let Ok(1..) = stream.read(&mut [0; 256]) {}
    ///         greeter.fiber().cancel();
    ///     });
    /// }
    /// ```
    #[must_use]
    pub fn duplicate(&self) -> Upgraded {
        Upgraded { reader: None, transport: self.transport.clone(), peer: self.peer }
    }

    /// How long a read may take; it fails with `TimedOut` then. For ever without.
    ///
    /// # Errors
    /// If it is zero.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// fn be_patient(stream: &sinew_http::Upgraded) -> std::io::Result<()> {
    ///     stream.set_read_timeout(Some(Duration::from_secs(600)))
    /// }
    /// ```
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.transport.set_read_timeout(timeout)
    }

    /// How long a write may wait. At first it is that of the server's
    /// [limits](crate::Limits::write_timeout).
    ///
    /// # Errors
    /// If it is zero.
    ///
    /// # Examples
    /// ```
    /// fn wait_for_ever(stream: &sinew_http::Upgraded) -> std::io::Result<()> {
    ///     stream.set_write_timeout(None)
    /// }
    /// ```
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.transport.set_write_timeout(timeout)
    }
}

impl Upgraded {
    fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        self.transport.read(out).map_err(timed_out)
    }
}

impl Read for Upgraded {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(reader) = &mut self.reader else { return self.receive(out) };
        let count = out.len().min(reader.received().len());
        out[..count].copy_from_slice(&reader.received()[..count]);
        reader.consume(count);
        if reader.received().is_empty() {
            self.reader = None;
        }
        if count > 0 || out.is_empty() { Ok(count) } else { self.receive(out) }
    }
}

impl Write for Upgraded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("peer", &self.peer).finish_non_exhaustive()
    }
}
