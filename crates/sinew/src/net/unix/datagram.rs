//! Datagrams between Unix sockets.

use super::addresses::unnamed;
use crate::clock;
use crate::io::Async;
use crate::io::attempt::{Limit, attempt, would_block};
use crate::io::waiting::wait_until;
use crate::net::Shutdown;
use crate::net::socket::{self, Socket};
use crate::reactor::Direction;
use core::time::Duration;
use socket2::{Domain, Type};
use std::fmt;
use std::io;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

/// A Unix socket for datagrams: `std::os::unix::net::UnixDatagram` for fibers.
///
/// Several fibers may send and receive at a time; each datagram is received by one of them. None is
/// lost: who sends waits while the queue of the receiver is full.
///
/// # Examples
/// ```
/// use sinew::os::unix::net::UnixDatagram;
///
/// sinew::run(|| {
///     let (one, other) = UnixDatagram::pair()?;
///     let receiver = sinew::spawn(move || {
///         let mut buffer = [0; 64];
///         other.recv(&mut buffer).map(|count| buffer[..count].to_vec())
///     });
///     one.send(b"hello")?;
///     assert_eq!(receiver.join().unwrap()?, b"hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram {
    socket: Socket<net::UnixDatagram>,
}

impl UnixDatagram {
    /// Makes a socket with a path, of which it makes the file.
    ///
    /// # Errors
    /// If there is something with this path (`AddrInUse`), or it cannot be made.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixDatagram;
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-datagram-bind", std::process::id()));
    /// let socket = UnixDatagram::bind(&path)?;
    /// assert!(UnixDatagram::bind(&path).is_err());
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        net::UnixDatagram::bind(path).map(UnixDatagram::from)
    }

    /// Makes a socket with an address.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::{SocketAddr, UnixDatagram};
    ///
    /// # let path =
    /// #     std::env::temp_dir().join(format!("sinew-{}-datagram-bind-addr", std::process::id()));
    /// let socket = UnixDatagram::bind_addr(&SocketAddr::from_pathname(&path)?)?;
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixDatagram> {
        net::UnixDatagram::bind_addr(address).map(UnixDatagram::from)
    }

    /// Makes a socket without an address.
    ///
    /// # Errors
    /// If there are no descriptors left.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::os::unix::net::UnixDatagram::unbound()?;
    /// assert!(socket.local_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unbound() -> io::Result<UnixDatagram> {
        let socket = socket::open(Domain::UNIX, Type::DGRAM, None)?;
        Ok(UnixDatagram::from_nonblocking(socket.into()))
    }

    /// Makes two that are connected to each other.
    ///
    /// # Errors
    /// If there are no descriptors left.
    ///
    /// # Examples
    /// ```
    /// let (one, other) = sinew::os::unix::net::UnixDatagram::pair()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (one, other) = socket::pair(Type::DGRAM)?;
        let (one, other) = (one.into(), other.into());
        Ok((UnixDatagram::from_nonblocking(one), UnixDatagram::from_nonblocking(other)))
    }

    /// Takes a socket that is in non-blocking mode.
    fn from_nonblocking(socket: net::UnixDatagram) -> UnixDatagram {
        UnixDatagram { socket: Socket::from_nonblocking(socket) }
    }

    /// Sets whom [`send`](Self::send) sends to, by its path. Only what comes from there is received
    /// from now on.
    ///
    /// # Errors
    /// If there is no such socket.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixDatagram;
    ///
    /// # let path =
    /// #     std::env::temp_dir().join(format!("sinew-{}-datagram-connect", std::process::id()));
    /// let bound = UnixDatagram::bind(&path)?;
    /// let socket = UnixDatagram::unbound()?;
    /// socket.connect(&path)?;
    /// assert_eq!(socket.peer_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.socket.get().connect(path)
    }

    /// Sets whom [`send`](Self::send) sends to, by its address. Only what comes from there is received
    /// from now on.
    ///
    /// # Errors
    /// If there is no such socket.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixDatagram;
    ///
    /// # let path =
    /// #     std::env::temp_dir().join(format!("sinew-{}-datagram-connect-addr", std::process::id()));
    /// let bound = UnixDatagram::bind(&path)?;
    /// UnixDatagram::unbound()?.connect_addr(&bound.local_addr()?)?;
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.socket.get().connect_addr(address)
    }

    /// Another one for the same socket. Options and timeouts are shared.
    ///
    /// # Errors
    /// If there are no descriptors left.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    /// let copy = one.try_clone()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<UnixDatagram> {
        let socket = self.socket.try_clone(net::UnixDatagram::try_clone)?;
        Ok(UnixDatagram { socket })
    }

    /// The address of this socket.
    ///
    /// # Errors
    /// If the system refuses.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixDatagram;
    ///
    /// # let path =
    /// #     std::env::temp_dir().join(format!("sinew-{}-datagram-local-addr", std::process::id()));
    /// let socket = UnixDatagram::bind(&path)?;
    /// assert_eq!(socket.local_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// The address that it is [connected](Self::connect) to.
    ///
    /// # Errors
    /// If it is not connected.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    /// assert!(one.peer_addr()?.is_unnamed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().peer_addr()
    }

    /// Waits for a datagram: its length and who has sent it. What does not fit the buffer is lost. A
    /// cancelled fiber is unwound from here.
    ///
    /// Gives 0 if the socket was [shut down](Self::shutdown).
    ///
    /// # Errors
    /// If the read timeout is over.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let (one, other) = sinew::os::unix::net::UnixDatagram::pair()?;
    ///     one.send(b"hello")?;
    ///     let mut buffer = [0; 64];
    ///     let (count, from) = other.recv_from(&mut buffer)?;
    ///     assert_eq!(&buffer[..count], b"hello");
    ///     assert!(from.is_unnamed());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let end = || Ok((0, unnamed()?));
        self.socket.take_next(|socket| socket.recv_from(buffer), end)
    }

    /// Waits for a datagram: its length. What does not fit the buffer is lost. A cancelled fiber is
    /// unwound from here.
    ///
    /// Gives 0 if the socket was [shut down](Self::shutdown).
    ///
    /// # Errors
    /// If the read timeout is over.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let (one, other) = sinew::os::unix::net::UnixDatagram::pair()?;
    ///     one.send(b"hello")?;
    ///     let mut buffer = [0; 64];
    ///     assert_eq!(other.recv(&mut buffer)?, 5);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.take_next(|socket| socket.recv(buffer), || Ok(0))
    }

    /// Sends a datagram to the socket with a path. Waits while the queue of that socket is full; a
    /// cancelled fiber is unwound from that.
    ///
    /// # Errors
    /// If there is no such socket, the datagram is too long, or the write timeout is over; and if there
    /// is no descriptor left to wait with.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixDatagram;
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-send-to", std::process::id()));
    /// sinew::run(move || {
    ///     let bound = UnixDatagram::bind(&path)?;
    ///     assert_eq!(UnixDatagram::unbound()?.send_to(b"hello", &path)?, 5);
    ///     assert_eq!(bound.recv(&mut [0; 64])?, 5);
    ///     std::fs::remove_file(&path)
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_to<P: AsRef<Path>>(&self, buffer: &[u8], path: P) -> io::Result<usize> {
        let path = path.as_ref();
        self.send_elsewhere(|socket| socket.send_to(buffer, path), |socket| socket.connect(path))
    }

    /// Sends a datagram to the socket with an address. Waits while the queue of that socket is full; a
    /// cancelled fiber is unwound from that.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixDatagram;
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-send-to-addr", std::process::id()));
    /// sinew::run(move || {
    ///     let bound = UnixDatagram::bind(&path)?;
    ///     let address = bound.local_addr()?;
    ///     assert_eq!(UnixDatagram::unbound()?.send_to_addr(b"hello", &address)?, 5);
    ///     assert_eq!(bound.recv(&mut [0; 64])?, 5);
    ///     std::fs::remove_file(&path)
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_to_addr(&self, buffer: &[u8], address: &SocketAddr) -> io::Result<usize> {
        self.send_elsewhere(
            |socket| socket.send_to_addr(buffer, address),
            |socket| socket.connect_addr(address),
        )
    }

    /// Sends a datagram to whom the socket is [connected](Self::connect) to. Waits while the queue of
    /// that socket is full; a cancelled fiber is unwound from that.
    ///
    /// # Errors
    /// If it is not connected, the datagram is too long, the other side is gone, or the write timeout
    /// is over.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    ///     assert_eq!(one.send(b"hello")?, 5);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&self, buffer: &[u8]) -> io::Result<usize> {
        self.socket.attempt(Direction::Write, |socket| socket.send(buffer))
    }

    /// Sets how long a receive may wait; for ever with `None`. One that takes longer fails with
    /// `WouldBlock`.
    ///
    /// # Errors
    /// If the timeout is zero.
    ///
    /// # Examples
    /// ```
    /// use std::io::ErrorKind;
    /// use std::time::Duration;
    ///
    /// sinew::run(|| {
    ///     let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    ///     one.set_read_timeout(Some(Duration::from_millis(1)))?;
    ///     assert_eq!(one.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Direction::Read, timeout)
    }

    /// Sets how long a send may wait; for ever with `None`. One that takes longer fails with
    /// `WouldBlock`.
    ///
    /// # Errors
    /// If the timeout is zero.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    /// one.set_write_timeout(Some(Duration::from_secs(5)))?;
    /// assert!(one.set_write_timeout(Some(Duration::ZERO)).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Direction::Write, timeout)
    }

    /// How long a receive may wait.
    ///
    /// # Errors
    /// None; it is a `Result` because that of the standard library is.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    /// assert_eq!(one.read_timeout()?, None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeout(Direction::Read))
    }

    /// How long a send may wait.
    ///
    /// # Errors
    /// None; it is a `Result` because that of the standard library is.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    /// assert_eq!(one.write_timeout()?, None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeout(Direction::Write))
    }

    /// Whether operations fail with `WouldBlock` instead of waiting, for this socket and its copies.
    /// The descriptor is in non-blocking mode in either case.
    ///
    /// # Errors
    /// None; it is a `Result` because that of the standard library is.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    /// one.set_nonblocking(true)?;
    /// assert_eq!(one.recv(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking);
        Ok(())
    }

    /// The error that the socket has met since this was last called, if any.
    ///
    /// # Errors
    /// If the system cannot say.
    ///
    /// # Examples
    /// ```
    /// let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    /// assert!(one.take_error()?.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.get().take_error()
    }

    /// Ends one direction, or both: who waits to receive gets 0 bytes, who sends an error.
    ///
    /// # Errors
    /// If the socket was closed.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::Shutdown;
    ///
    /// sinew::run(|| {
    ///     let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    ///     one.shutdown(Shutdown::Both)?;
    ///     assert_eq!(one.recv(&mut [0])?, 0);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.get().shutdown(how)
    }

    /// Closes the socket, although others may have it: those who wait for a datagram get an error of
    /// the kind `NotConnected`, and so does who tries later.
    ///
    /// Copies made by [`try_clone`](Self::try_clone) are shut down as well.
    ///
    /// # Errors
    /// If there are no descriptors left.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// sinew::run(|| {
    ///     let (one, _other) = sinew::os::unix::net::UnixDatagram::pair()?;
    ///     let one = Arc::new(one);
    ///     let receiver = sinew::spawn({
    ///         let one = one.clone();
    ///         move || one.recv(&mut [0]).is_err()
    ///     });
    ///     one.close()?;
    ///     assert!(receiver.join().unwrap());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) -> io::Result<()> {
        self.socket.close()
    }

    /// Sends to another socket than the one this is connected to, if it is connected at all.
    fn send_elsewhere(
        &self,
        mut send: impl FnMut(&net::UnixDatagram) -> io::Result<usize>,
        connect: impl Fn(&net::UnixDatagram) -> io::Result<()>,
    ) -> io::Result<usize> {
        let (source, limit) = (self.socket.source(), self.socket.limit(Direction::Write));
        let mut deadline = None;
        loop {
            let sent =
                attempt(source, Direction::Write, || Limit::AtOnce, || send(self.socket.get()));
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if matches!(limit, Limit::AtOnce) {
                return Err(would_block());
            }
            let deadline = *deadline.get_or_insert_with(|| limit.deadline());
            if deadline <= clock::now() {
                return Err(would_block());
            }
            self.wait_for_room(&connect, deadline)?;
        }
    }

    /// Waits until there may be room for what is sent to the socket that `connect` connects to.
    ///
    /// On Linux, the queue of the receiver is what is usually full. A socket does not become ready when
    /// there is room in that of another one, unless it is connected to it: so a second socket is, for
    /// as long as this waits.
    fn wait_for_room(
        &self,
        connect: impl Fn(&net::UnixDatagram) -> io::Result<()>,
        deadline: u64,
    ) -> io::Result<()> {
        let there: net::UnixDatagram = socket::open(Domain::UNIX, Type::DGRAM, None)?.into();
        // If it cannot be connected, sending fails as well and says why; or the receiver listens to
        // nobody but this socket, and then takes whatever that has room for.
        let connected = connect(&there).is_ok();
        let there = Async::new_nonblocking(there);
        if connected && !crate::io::is_writable(&there)? {
            // That this socket was closed does not end the wait for another one.
            let soon = clock::after(clock::now(), LOOK);
            wait_until(there.source(), Direction::Write, deadline.min(soon))?;
        } else {
            wait_until(self.socket.source(), Direction::Write, deadline)?;
        }
        Ok(())
    }
}

/// How long it may take until who waits for another socket notices that its own was closed.
const LOOK: Duration = Duration::from_millis(50);

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.get().fmt(f)
    }
}

socket::descriptor!(UnixDatagram, net::UnixDatagram);
