//! The connection of two Unix sockets.

use super::addresses::{of_path, to_system};
use crate::io::attempt::Limit;
use crate::io::faults;
use crate::net::Shutdown;
use crate::net::socket::{self, Socket};
use crate::reactor::Direction;
use core::time::Duration;
use socket2::{Domain, SockAddr, Type};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

/// A connection of two Unix sockets: `std::os::unix::net::UnixStream` for fibers.
///
/// One fiber may read while another writes, through references or copies. Dropping the last copy
/// closes the connection.
///
/// # Examples
/// ```
/// use sinew::os::unix::net::UnixStream;
/// use std::io::{Read, Write};
///
/// sinew::run(|| {
///     let (mut one, mut other) = UnixStream::pair()?;
///     let writer = sinew::spawn(move || one.write_all(b"hello"));
///     let mut text = String::new();
///     other.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     writer.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixStream {
    socket: Socket<net::UnixStream>,
}

impl UnixStream {
    /// Connects to the listener at `path`.
    ///
    /// Waits while the listener's queue is full. A cancelled fiber is unwound from this wait.
    ///
    /// # Errors
    /// If no listener accepts connections at `path`.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::{UnixListener, UnixStream};
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-connect", std::process::id()));
    /// sinew::run(move || {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let stream = UnixStream::connect(&path)?;
    ///     assert_eq!(stream.peer_addr()?.as_pathname(), Some(&*path));
    ///     std::fs::remove_file(&path)
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        connect(&of_path(path.as_ref())?)
    }

    /// Connects to the listener at `address`.
    ///
    /// Waits while the listener's queue is full. A cancelled fiber is unwound from this wait.
    ///
    /// # Errors
    /// If no listener accepts connections at `address`.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::{UnixListener, UnixStream};
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-connect-addr", std::process::id()));
    /// sinew::run(move || {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let stream = UnixStream::connect_addr(&listener.local_addr()?)?;
    ///     std::fs::remove_file(&path)
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect_addr(address: &SocketAddr) -> io::Result<UnixStream> {
        connect(&to_system(address)?)
    }

    /// Makes two streams that are connected to each other.
    ///
    /// Between fibers of one process, a [`channel`](crate::sync::channel) costs less.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// let (one, other) = sinew::os::unix::net::UnixStream::pair()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (one, other) = socket::pair(Type::STREAM)?;
        Ok((UnixStream::from_nonblocking(one.into()), UnixStream::from_nonblocking(other.into())))
    }

    /// Wraps a socket that is in non-blocking mode.
    pub(super) fn from_nonblocking(stream: net::UnixStream) -> UnixStream {
        UnixStream { socket: Socket::from_nonblocking(stream) }
    }

    /// Makes another handle to this connection. All handles share its options and timeouts.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    /// let copy = one.try_clone()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<UnixStream> {
        let socket = self.socket.try_clone(net::UnixStream::try_clone)?;
        Ok(UnixStream { socket })
    }

    /// Returns the address of this side.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    /// assert!(one.local_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// Returns the address of the other side.
    ///
    /// # Errors
    /// If the socket is not connected.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    /// assert!(one.peer_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().peer_addr()
    }

    /// Sets how long a read may wait. `None` means for ever. A read that waits longer fails with
    /// `WouldBlock`.
    ///
    /// # Errors
    /// If the timeout is zero.
    ///
    /// # Examples
    /// ```
    /// use std::io::{ErrorKind, Read};
    /// use std::time::Duration;
    ///
    /// sinew::run(|| {
    ///     let (mut one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    ///     one.set_read_timeout(Some(Duration::from_millis(1)))?;
    ///     assert_eq!(one.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
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
    /// use std::time::Duration;
    ///
    /// let (one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    /// one.set_write_timeout(Some(Duration::from_secs(5)))?;
    /// assert!(one.set_write_timeout(Some(Duration::ZERO)).is_err());
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
    /// let (one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    /// assert_eq!(one.read_timeout()?, None);
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
    /// let (one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    /// assert_eq!(one.write_timeout()?, None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeout(Direction::Write))
    }

    /// Sets whether reads and writes fail with `WouldBlock` instead of waiting. Copies of this
    /// socket share the setting. The descriptor is in non-blocking mode in either case.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
    ///
    /// # Examples
    /// ```
    /// use std::io::{ErrorKind, Read};
    ///
    /// let (mut one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    /// one.set_nonblocking(true)?;
    /// assert_eq!(one.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Returns and clears the pending error of the socket, if there is one.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    /// assert!(one.take_error()?.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.get().take_error()
    }

    /// Shuts down one direction, or both. Readers then find the end of the stream, and writers get
    /// an error.
    ///
    /// # Errors
    /// If the socket is not connected.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::Shutdown;
    /// use std::io::Read;
    ///
    /// sinew::run(|| {
    ///     let (one, mut other) = sinew::os::unix::net::UnixStream::pair()?;
    ///     one.shutdown(Shutdown::Write)?;
    ///     assert_eq!(other.read(&mut [0])?, 0);
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
    /// use std::io::Read;
    /// use std::sync::Arc;
    ///
    /// sinew::run(|| {
    ///     let (one, _other) = sinew::os::unix::net::UnixStream::pair()?;
    ///     let one = Arc::new(one);
    ///     let reader = sinew::spawn({
    ///         let one = one.clone();
    ///         move || (&*one).read(&mut [0]).is_err()
    ///     });
    ///     one.close()?;
    ///     assert!(reader.join().unwrap());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) -> io::Result<()> {
        self.socket.close()
    }
}

/// Connects to a listener. Waits while its queue is full, as a blocking connect does.
///
/// Linux cannot wait for room in the queue without blocking a thread: a non-blocking connect fails
/// at once, and nothing becomes ready when there is room. A blocking connect on a pool thread could
/// not be cancelled. It would also take one thread for each waiter: if every thread of the pool
/// waits for a listener that itself needs a pool thread, they wait for ever.
///
/// So this function tries again after pauses. The pauses grow, so a long wait costs little. The
/// price: a waiter may be late by one pause, and waiters are not served in order.
fn connect(address: &SockAddr) -> io::Result<UnixStream> {
    let stream =
        UnixStream::from_nonblocking(socket::open(Domain::UNIX, Type::STREAM, None)?.into());
    let mut pause = FIRST_PAUSE;
    loop {
        match socket::connect(&stream.socket, address, Limit::None) {
            Ok(()) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        crate::sleep(pause);
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// The first pause before another attempt to connect. Each pause after it is twice as long, up to
/// [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_micros(250);
const LAST_PAUSE: Duration = Duration::from_millis(32);

impl Read for UnixStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

/// Every read makes the system call, even after a short read. A short read does not mean that the
/// stream is empty: a read also stops where a descriptor was passed.
impl Read for &UnixStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let buffer = faults::shorten_mut(buffer);
        self.socket.attempt_read(|mut stream| stream.read(buffer))
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Ok(0);
        }
        self.socket.attempt_read(|mut stream| stream.read_vectored(buffers))
    }
}

impl Write for UnixStream {
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

impl Write for &UnixStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let buffer = faults::shorten(buffer);
        self.socket.attempt(Direction::Write, |mut stream| stream.write(buffer))
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.attempt(Direction::Write, |mut stream| stream.write_vectored(buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.get().fmt(f)
    }
}

socket::descriptor!(UnixStream, net::UnixStream);
