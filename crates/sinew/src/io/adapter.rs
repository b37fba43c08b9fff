//! Lets fibers wait for the descriptors of types from other libraries.

use super::attempt::{Limit, attempt};
use super::waiting::wait_until;
use crate::clock;
use crate::reactor::{Direction, Source};
use core::time::Duration;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Instant;

/// Wraps a value that has a descriptor, so that fibers wait where its operations would block.
///
/// The descriptor is put into non-blocking mode. [`read_with`](Self::read_with) and
/// [`write_with`](Self::write_with) run any operation of `T`, and wait and try again when it fails
/// with `WouldBlock`. If `&T` implements `Read` or `Write`, so do `Async<T>` and `&Async<T>`: one
/// fiber may read while another writes.
///
/// The value must keep its descriptor as long as the `Async` exists. Otherwise waits may last for
/// ever.
///
/// # Examples
/// ```
/// use sinew::io::Async;
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// sinew::run(|| {
///     let (one, other) = UnixStream::pair()?;
///     let (one, mut other) = (Async::new(one)?, Async::new(other)?);
///     let reader = sinew::spawn(move || {
///         let mut text = String::new();
///         (&one).read_to_string(&mut text).map(|_| text)
///     });
///     other.write_all(b"hello")?;
///     drop(other);
///     assert_eq!(reader.join().unwrap()?, "hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Async<T> {
    /// Declared first: it must be dropped before the descriptor is closed.
    source: Source,
    inner: T,
}

impl<T: AsFd> Async<T> {
    /// Wraps `inner`, and puts its descriptor into non-blocking mode.
    ///
    /// # Errors
    /// If the mode cannot be set.
    ///
    /// # Examples
    /// ```
    /// let (reader, _writer) = std::io::pipe()?;
    /// let reader = sinew::io::Async::new(reader)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(inner: T) -> io::Result<Async<T>> {
        set_nonblocking(inner.as_fd(), true)?;
        Ok(Async::new_nonblocking(inner))
    }

    /// Wraps `inner`, whose descriptor is in non-blocking mode already. If it is not, operations
    /// block the whole carrier.
    ///
    /// # Examples
    /// ```
    /// let (socket, _other) = std::os::unix::net::UnixStream::pair()?;
    /// socket.set_nonblocking(true)?;
    /// let socket = sinew::io::Async::new_nonblocking(socket);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new_nonblocking(inner: T) -> Async<T> {
        Async { source: Source::new(inner.as_fd().as_raw_fd()), inner }
    }

    /// Wraps a socket or a pipe as [`new`](Self::new) does. The kernel never refuses to change
    /// their mode, so this cannot fail.
    pub(crate) fn of_any_mode(inner: T) -> Async<T> {
        Async::new(inner).expect("the mode of a socket or pipe can be changed")
    }

    /// Returns the wrapped value, with its descriptor in blocking mode. Only for sockets and pipes.
    pub(crate) fn into_blocking(self) -> T {
        let inner = self.into_inner();
        set_nonblocking(inner.as_fd(), false).expect("the mode of a socket or pipe can be changed");
        inner
    }

    /// Waits until there is something to read.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
    ///
    /// # Examples
    /// ```
    /// use std::io::Write;
    ///
    /// let (reader, mut writer) = std::io::pipe()?;
    /// writer.write_all(b"x")?;
    /// sinew::io::Async::new(reader)?.wait_readable()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_readable(&self) -> io::Result<()> {
        wait_until(&self.source, Direction::Read, clock::NEVER).map(drop)
    }

    /// Waits until there is something to read, at most for `timeout`. Returns false if the timeout
    /// passes first.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let reader = sinew::io::Async::new(reader)?;
    /// assert!(!reader.wait_readable_timeout(Duration::from_millis(1))?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_readable_timeout(&self, timeout: Duration) -> io::Result<bool> {
        wait_until(&self.source, Direction::Read, clock::after(clock::now(), timeout))
    }

    /// Waits until there is something to read, at most until `deadline`. Returns false if the
    /// deadline passes first.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let reader = sinew::io::Async::new(reader)?;
    /// assert!(!reader.wait_readable_deadline(Instant::now())?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_readable_deadline(&self, deadline: Instant) -> io::Result<bool> {
        wait_until(&self.source, Direction::Read, clock::at(deadline))
    }

    /// Waits until there is room to write.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
    ///
    /// # Examples
    /// ```
    /// let (_reader, writer) = std::io::pipe()?;
    /// sinew::io::Async::new(writer)?.wait_writable()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_writable(&self) -> io::Result<()> {
        wait_until(&self.source, Direction::Write, clock::NEVER).map(drop)
    }

    /// Waits until there is room to write, at most for `timeout`. Returns false if the timeout
    /// passes first.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let (_reader, writer) = std::io::pipe()?;
    /// let writer = sinew::io::Async::new(writer)?;
    /// assert!(writer.wait_writable_timeout(Duration::from_millis(1))?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_writable_timeout(&self, timeout: Duration) -> io::Result<bool> {
        wait_until(&self.source, Direction::Write, clock::after(clock::now(), timeout))
    }

    /// Waits until there is room to write, at most until `deadline`. Returns false if the deadline
    /// passes first.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let (_reader, writer) = std::io::pipe()?;
    /// let writer = sinew::io::Async::new(writer)?;
    /// assert!(writer.wait_writable_deadline(Instant::now())?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_writable_deadline(&self, deadline: Instant) -> io::Result<bool> {
        wait_until(&self.source, Direction::Write, clock::at(deadline))
    }

    /// Runs an operation that reads. Whenever it fails with `WouldBlock`, waits until there is
    /// something to read and runs it again.
    ///
    /// # Errors
    /// If the operation fails with another error.
    ///
    /// # Examples
    /// ```
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// let (one, other) = UnixDatagram::pair()?;
    /// let one = sinew::io::Async::new(one)?;
    /// other.send(b"hi")?;
    /// let mut buffer = [0; 8];
    /// let count = one.read_with(|socket| socket.recv(&mut buffer))?;
    /// assert_eq!(&buffer[..count], b"hi");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_with<R>(&self, mut operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        attempt(&self.source, Direction::Read, || Limit::None, || operation(&self.inner))
    }

    /// Runs an operation that writes. Whenever it fails with `WouldBlock`, waits until there is
    /// room and runs it again.
    ///
    /// # Errors
    /// If the operation fails with another error.
    ///
    /// # Examples
    /// ```
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// let (one, other) = UnixDatagram::pair()?;
    /// let one = sinew::io::Async::new(one)?;
    /// one.write_with(|socket| socket.send(b"hi"))?;
    /// let mut buffer = [0; 8];
    /// assert_eq!(other.recv(&mut buffer)?, 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_with<R>(&self, mut operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        attempt(&self.source, Direction::Write, || Limit::None, || operation(&self.inner))
    }
}

impl<T> Async<T> {
    /// Returns a reference to the wrapped value.
    ///
    /// # Examples
    /// ```
    /// use std::os::unix::net::UnixStream;
    ///
    /// let (socket, _other) = UnixStream::pair()?;
    /// let socket = sinew::io::Async::new(socket)?;
    /// assert!(socket.get_ref().peer_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the wrapped value. Its descriptor is still in non-blocking mode.
    ///
    /// # Examples
    /// ```
    /// use std::os::unix::net::UnixStream;
    ///
    /// let (socket, _other) = UnixStream::pair()?;
    /// let socket = sinew::io::Async::new(socket)?.into_inner();
    /// socket.set_nonblocking(false)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_inner(self) -> T {
        self.inner
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }
}

impl<T: AsFd> AsFd for Async<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T> Read for Async<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl<T> Read for &Async<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        attempt(&self.source, Direction::Read, || Limit::None, || (&self.inner).read(buffer))
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let read = || (&self.inner).read_vectored(buffers);
        attempt(&self.source, Direction::Read, || Limit::None, read)
    }
}

impl<T> Write for Async<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl<T> Write for &Async<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        attempt(&self.source, Direction::Write, || Limit::None, || (&self.inner).write(buffer))
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let write = || (&self.inner).write_vectored(buffers);
        attempt(&self.source, Direction::Write, || Limit::None, write)
    }

    fn flush(&mut self) -> io::Result<()> {
        attempt(&self.source, Direction::Write, || Limit::None, || (&self.inner).flush())
    }
}

/// Puts a descriptor into non-blocking mode, or into blocking mode.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> io::Result<()> {
    let fd = fd.as_raw_fd();
    // SAFETY: `fd` is borrowed, so it is open. These commands take no pointers.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 {
            return Err(io::Error::last_os_error());
        }
        let wanted = if nonblocking { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
        if wanted != flags && libc::fcntl(fd, libc::F_SETFL, wanted) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
