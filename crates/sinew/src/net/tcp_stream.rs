//! A TCP connection.

use super::addresses::{ToSocketAddrs, with_each};
use super::calls;
use super::socket::{self, Socket};
use super::{Shutdown, SocketAddr};
use crate::io::attempt::Limit;
use crate::io::faults;
use crate::reactor::Direction;
use core::time::Duration;
use socket2::{Domain, Protocol, SockAddr, Type};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net;
use std::os::fd::AsFd;

/// A TCP connection: `std::net::TcpStream` for fibers.
///
/// One fiber may read while another writes, through references or copies. Dropping the last copy
/// closes the connection.
///
/// # Examples
/// ```
/// use sinew::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// sinew::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     sinew::spawn(move || listener.accept()?.0.write_all(b"hello"));
///     let mut stream = TcpStream::connect(address)?;
///     let mut text = String::new();
///     stream.read_to_string(&mut text)?; // until the other side has closed
///     assert_eq!(text, "hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpStream {
    pub(super) socket: Socket<net::TcpStream>,
}

impl TcpStream {
    /// Connects to `address`. If `address` resolves to several addresses, uses the first that
    /// works.
    ///
    /// Waits until the connection is established or has failed. A cancelled fiber is unwound from
    /// this wait.
    ///
    /// # Errors
    /// If no listener accepts connections at the address, or the host name cannot be resolved.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// sinew::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect<A: ToSocketAddrs>(address: A) -> io::Result<TcpStream> {
        with_each(address, |address| connect(address, Limit::None))
    }

    /// Connects to an address, waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect). Also `TimedOut` if `timeout` passes first, and `InvalidInput`
    /// if `timeout` is zero.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// sinew::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     TcpStream::connect_timeout(&listener.local_addr()?, Duration::from_secs(1))?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot set a 0 duration timeout",
            ));
        }
        connect(*address, Limit::Within(timeout))
    }

    /// Returns the address of the other side.
    ///
    /// # Errors
    /// If the socket is not connected.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().peer_addr()
    }

    /// Returns the address of this side.
    ///
    /// # Errors
    /// If the socket was closed.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert!(stream.local_addr()?.ip().is_loopback());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// Shuts down one direction, or both. Readers then find the end of the stream, and writers get
    /// an error.
    ///
    /// # Errors
    /// If the socket is not connected.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{Shutdown, TcpListener, TcpStream};
    /// use std::io::Read;
    ///
    /// sinew::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut stream = TcpStream::connect(listener.local_addr()?)?;
    ///     stream.shutdown(Shutdown::Both)?;
    ///     assert_eq!(stream.read(&mut [0])?, 0);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.get().shutdown(how)
    }

    /// Closes the connection, even while other fibers or threads use it. Reads and writes that wait
    /// fail with `NotConnected`, and so do later ones.
    ///
    /// Copies made by [`try_clone`](Self::try_clone) find the end of the connection.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    /// use std::io::Read;
    /// use std::sync::Arc;
    ///
    /// sinew::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = Arc::new(TcpStream::connect(listener.local_addr()?)?);
    ///     let reader = sinew::spawn({
    ///         let stream = stream.clone();
    ///         move || (&*stream).read(&mut [0]).is_err()
    ///     });
    ///     stream.close()?;
    ///     assert!(reader.join().unwrap());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) -> io::Result<()> {
        self.socket.close()
    }

    /// Makes another handle to this connection. All handles share its options and timeouts.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let other = stream.try_clone()?;
    /// assert_eq!(stream.local_addr()?, other.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        let socket = self.socket.try_clone(net::TcpStream::try_clone)?;
        Ok(TcpStream { socket })
    }

    /// Sets how long a read may wait. `None` means for ever. A read that waits longer fails with
    /// `WouldBlock`.
    ///
    /// # Errors
    /// If the timeout is zero.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    /// use std::io::{ErrorKind, Read};
    /// use std::time::Duration;
    ///
    /// sinew::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut stream = TcpStream::connect(listener.local_addr()?)?;
    ///     stream.set_read_timeout(Some(Duration::from_millis(1)))?;
    ///     assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Direction::Read, timeout)
    }

    /// Sets how long a write may wait. `None` means for ever. A write that waits longer fails with
    /// `WouldBlock`.
    ///
    /// # Errors
    /// If the timeout is zero.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    /// assert!(stream.set_write_timeout(Some(Duration::ZERO)).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Direction::Write, timeout)
    }

    /// Returns how long a read may wait. `None` means for ever.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.read_timeout()?, None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeout(Direction::Read))
    }

    /// Returns how long a write may wait. `None` means for ever.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert_eq!(stream.write_timeout()?, None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeout(Direction::Write))
    }

    /// Copies the next bytes into `buffer` without taking them, waiting until there are some. The
    /// next read returns the same bytes.
    ///
    /// # Errors
    /// The errors of a read.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    /// use std::io::{Read, Write};
    ///
    /// sinew::run(|| {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let mut client = TcpStream::connect(listener.local_addr()?)?;
    ///     let (mut server, _) = listener.accept()?;
    ///     client.write_all(b"x")?;
    ///     let mut buffer = [0; 8];
    ///     assert_eq!(server.peek(&mut buffer)?, 1);
    ///     assert_eq!(server.read(&mut buffer)?, 1);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.socket.attempt_read(|stream| stream.peek(buffer))
    }

    /// Sets whether small writes are sent at once instead of being collected (`TCP_NODELAY`).
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_nodelay(true)?;
    /// assert!(stream.nodelay()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.get().set_nodelay(nodelay)
    }

    /// Returns whether small writes are sent at once instead of being collected (`TCP_NODELAY`).
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert!(!stream.nodelay()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket.get().nodelay()
    }

    /// Sets how many routers a packet of this socket may pass.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_ttl(100)?;
    /// assert_eq!(stream.ttl()?, 100);
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
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert!(stream.ttl()? > 0);
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
    /// use sinew::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// assert!(stream.take_error()?.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.get().take_error()
    }

    /// Sets whether reads and writes fail with `WouldBlock` instead of waiting. Copies of this
    /// socket share the setting. The descriptor is in non-blocking mode in either case.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::{TcpListener, TcpStream};
    /// use std::io::{ErrorKind, Read};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut stream = TcpStream::connect(listener.local_addr()?)?;
    /// stream.set_nonblocking(true)?;
    /// assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking);
        Ok(())
    }
}

fn connect(address: SocketAddr, limit: Limit) -> io::Result<TcpStream> {
    let domain = Domain::for_address(address);
    let socket = socket::open(domain, Type::STREAM, Some(Protocol::TCP))?;
    let socket = Socket::from_nonblocking(net::TcpStream::from(socket));
    socket::connect(&socket, &SockAddr::from(address), limit)?;
    Ok(TcpStream { socket })
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let buffer = faults::shorten_mut(buffer);
        let len = buffer.len();
        self.socket.attempt_read_of_tcp(len, |stream| calls::receive(stream.as_fd(), buffer))
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let len = buffers.iter().map(|buffer| buffer.len()).sum();
        self.socket.attempt_read_of_tcp(len, |mut stream| stream.read_vectored(buffers))
    }
}

impl Write for TcpStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let buffer = faults::shorten(buffer);
        self.socket.attempt(Direction::Write, |stream| calls::send(stream.as_fd(), buffer))
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.attempt(Direction::Write, |mut stream| stream.write_vectored(buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.get().fmt(f)
    }
}

socket::descriptor!(TcpStream, net::TcpStream);
