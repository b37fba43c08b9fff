//! A connection that has left HTTP, as the closure of an upgrade sees it.
//!
//! `connection::exchange` makes it and closes it.

use crate::wire::buffers::Reader;
use crate::wire::transport::{Transport, timed_out};
use core::fmt;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::SocketAddr;

/// A connection after an [upgrade](crate::Response::upgrade), on which both ends speak another
/// protocol.
///
/// The connection is closed when the closure of the upgrade returns, even if this value has been
/// moved elsewhere. When the server shuts down, reads come to the end of the stream. One fiber may
/// read while another writes: see [`duplicate`](Self::duplicate).
///
/// # Examples
/// ```
/// use sinew_http::{Request, Response, Server, Upgraded};
/// use std::io::{BufRead, BufReader, Write};
///
/// /// Sends each line back, in capital letters.
/// fn shout(stream: Upgraded) {
///     let mut writer = stream.duplicate();
///     for line in BufReader::new(stream).lines().map_while(Result::ok) {
///         let _ = writeln!(writer, "{}", line.to_uppercase());
///     }
/// }
///
/// let upgrade = |_: Request| Response::upgrade(shout).with_header("upgrade", "shouting");
/// let server = Server::bind("127.0.0.1:0").start(upgrade)?;
/// # let mut client = std::net::TcpStream::connect(server.local_addr())?;
/// # client.write_all(
/// #     b"GET / HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\nupgrade: shouting\r\n\r\n",
/// # )?;
/// # let mut answers = BufReader::new(client.try_clone()?);
/// # let mut head = String::new();
/// # while !head.ends_with("\r\n\r\n") {
/// #     assert!(answers.read_line(&mut head)? > 0);
/// # }
/// // After the head of the response, the client speaks the new protocol.
/// client.write_all(b"hello\n")?;
/// let mut answer = String::new();
/// answers.read_line(&mut answer)?;
/// assert_eq!(answer, "HELLO\n");
/// # drop((client, answers));
/// # let _ = server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Upgraded {
    /// Bytes that came after the request are read first.
    reader: Option<Reader>,
    transport: Transport,
    peer: SocketAddr,
}

impl Upgraded {
    pub(crate) fn new(reader: Reader, transport: Transport, peer: SocketAddr) -> Upgraded {
        Upgraded { reader: Some(reader), transport, peer }
    }

    /// Returns the address of the client.
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

    /// Makes a second handle for the connection, so that one fiber can write while another reads.
    /// Bytes that came with the request are read from the first handle.
    ///
    /// Two fibers that write at the same time mix their bytes, as with any stream. A WebSocket of
    /// `tungstenite` writes while it reads, to answer pings, so two WebSockets cannot share a
    /// connection. Give the socket to one fiber, and send that fiber its messages through a
    /// channel.
    ///
    /// # Examples
    /// ```
    /// use std::io::{Read, Write};
    ///
    /// /// Sends hello every second until the client closes the connection.
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

    /// Sets how long a read may take before it fails with `TimedOut`. `None` means forever.
    ///
    /// # Errors
    /// If the timeout is zero.
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

    /// Sets how long a write may wait. The default is the [limit](crate::Limits::write_timeout) of
    /// the server.
    ///
    /// # Errors
    /// If the timeout is zero.
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
