//! The listener of TCP connections.

use super::addresses::{ToSocketAddrs, with_each};
use super::socket::{self, Socket};
use super::{SocketAddr, TcpStream};
use std::fmt;
use std::io;
use std::net;

/// A TCP socket that accepts connections: `std::net::TcpListener` for fibers.
///
/// # Examples
/// ```
/// use sinew::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// sinew::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     let server = sinew::spawn(move || {
///         let (mut stream, _) = listener.accept()?;
///         stream.write_all(b"hello")
///     });
///     let mut text = String::new();
///     TcpStream::connect(address)?.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     server.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener {
    pub(super) socket: Socket<net::TcpListener>,
}

impl TcpListener {
    /// Listens at `address`. If `address` resolves to several addresses, uses the first that works.
    /// Port 0 means any free port.
    ///
    /// # Errors
    /// If the address is in use, or does not belong to this machine.
    ///
    /// # Examples
    /// ```
    /// let listener = sinew::net::TcpListener::bind("127.0.0.1:0")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind<A: ToSocketAddrs>(address: A) -> io::Result<TcpListener> {
        with_each(address, net::TcpListener::bind).and_then(socket::listen).map(TcpListener::from)
    }

    /// Returns the address that the socket listens at.
    ///
    /// # Errors
    /// If the socket was closed.
    ///
    /// # Examples
    /// ```
    /// let listener = sinew::net::TcpListener::bind("127.0.0.1:0")?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// Makes another handle to this socket. Each connection is accepted through one of the handles.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// let listener = sinew::net::TcpListener::bind("127.0.0.1:0")?;
    /// let other = listener.try_clone()?;
    /// assert_eq!(listener.local_addr()?, other.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        let socket = self.socket.try_clone(net::TcpListener::try_clone)?;
        Ok(TcpListener { socket })
    }

    /// Accepts the next connection, parking the fiber until there is one. A cancelled fiber is
    /// unwound from this wait.
    ///
    /// # Errors
    /// If the process has no file descriptors left. The call then pauses before it returns, longer
    /// each time, so that a loop that tries again does not spin. The connection stays in the
    /// kernel's queue until a later call accepts it.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// sinew::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let client = TcpStream::connect(listener.local_addr()?)?;
    ///     let (_, address) = listener.accept()?;
    ///     assert_eq!(address, client.local_addr()?);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = self.socket.accept()?;
        let address = address.as_socket().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the peer's address is not IPv4 or IPv6")
        })?;
        let socket = Socket::from_nonblocking(net::TcpStream::from(stream));
        Ok((TcpStream { socket }, address))
    }

    /// Returns an iterator that accepts one connection after the other. It ends only when the
    /// listener is [closed](Self::close).
    ///
    /// # Examples
    /// ```no_run
    /// let listener = sinew::net::TcpListener::bind("127.0.0.1:8080")?;
    /// for stream in listener.incoming() {
    ///     let stream = stream?;
    ///     sinew::spawn(move || println!("{:?}", stream.peer_addr()));
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Closes the socket, even while other fibers or threads use it. Accepts that wait fail with
    /// `NotConnected`, and so do later ones. The port becomes free.
    ///
    /// On Linux the socket itself stops listening, so copies made by [`try_clone`](Self::try_clone)
    /// accept no more connections. On other systems the copies go on, and keep the port.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// sinew::run(|| {
    ///     let listener = Arc::new(sinew::net::TcpListener::bind("127.0.0.1:0")?);
    ///     let server = sinew::spawn({
    ///         let listener = listener.clone();
    ///         move || listener.accept().is_err()
    ///     });
    ///     listener.close()?;
    ///     assert!(server.join().unwrap());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) -> io::Result<()> {
        self.socket.close()
    }

    /// Sets how many routers a packet of this socket may pass.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let listener = sinew::net::TcpListener::bind("127.0.0.1:0")?;
    /// listener.set_ttl(100)?;
    /// assert_eq!(listener.ttl()?, 100);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.socket.get().set_ttl(ttl)
    }

    /// Returns how many routers a packet of this socket may pass.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let listener = sinew::net::TcpListener::bind("127.0.0.1:0")?;
    /// assert!(listener.ttl()? > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket.get().ttl()
    }

    /// Returns and clears the pending error of the socket, if there is one.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let listener = sinew::net::TcpListener::bind("127.0.0.1:0")?;
    /// assert!(listener.take_error()?.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.get().take_error()
    }

    /// Sets whether [`accept`](Self::accept) fails with `WouldBlock` instead of waiting. Copies of
    /// this socket share the setting. The descriptor is in non-blocking mode in either case.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
    ///
    /// # Examples
    /// ```
    /// let listener = sinew::net::TcpListener::bind("127.0.0.1:0")?;
    /// listener.set_nonblocking(true)?;
    /// assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking);
        Ok(())
    }
}

/// An iterator that accepts the connections of a [`TcpListener`], one after the other. It ends only
/// when the listener is [closed](TcpListener::close).
///
/// # Examples
/// ```
/// use sinew::net::{TcpListener, TcpStream};
///
/// sinew::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let clients = [listener.local_addr()?; 2].map(TcpStream::connect);
///     let mut accepted = 0;
///     for stream in listener.incoming() {
///         stream?;
///         accepted += 1;
///         if accepted == clients.len() {
///             listener.close()?; // the loop ends
///         }
///     }
///     assert_eq!(accepted, 2);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        let accepted = self.listener.accept();
        let closed = accepted.is_err() && self.listener.socket.source().slot().is_closed();
        (!closed).then(|| accepted.map(|(stream, _)| stream))
    }
}

impl std::iter::FusedIterator for Incoming<'_> {}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.get().fmt(f)
    }
}

socket::descriptor!(TcpListener, net::TcpListener);
