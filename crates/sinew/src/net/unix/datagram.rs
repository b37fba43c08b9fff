//! The Unix socket for datagrams.

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
/// Several fibers may send and receive at the same time. Exactly one receiver gets each datagram.
/// No datagram is lost: the sender waits while the receiver's queue is full.
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
    /// Makes a socket with the address `path`, and a file at that path.
    ///
    /// # Errors
    /// `AddrInUse` if there is something at this path. Other errors if the file cannot be made.
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

    /// Makes a socket with the address `address`.
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
    /// If the process has no file descriptors left.
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

    /// Makes two sockets that are connected to each other.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
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

    /// Wraps a socket that is in non-blocking mode.
    fn from_nonblocking(socket: net::UnixDatagram) -> UnixDatagram {
        UnixDatagram { socket: Socket::from_nonblocking(socket) }
    }

    /// Connects to the socket at `path`. From then on [`send`](Self::send) sends to that socket,
    /// and this socket receives only datagrams from it.
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

    /// Connects to the socket at `address`. From then on [`send`](Self::send) sends to that socket,
    /// and this socket receives only datagrams from it.
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

    /// Makes another handle to this socket. All handles share its options and timeouts.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
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

    /// Returns the address of this socket.
    ///
    /// # Errors
    /// If the system call fails.
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

    /// Returns the address that the socket is [connected](Self::connect) to.
    ///
    /// # Errors
    /// If the socket is not connected.
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

    /// Receives a datagram, parking the fiber until one arrives. Returns its length and the address
    /// of its sender. Bytes that do not fit into `buffer` are lost. A cancelled fiber is unwound
    /// from this wait.
    ///
    /// Returns a length of 0 if the socket was [shut down](Self::shutdown).
    ///
    /// # Errors
    /// `WouldBlock` if the read timeout passes.
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

    /// Receives a datagram, parking the fiber until one arrives. Returns its length. Bytes that do
    /// not fit into `buffer` are lost. A cancelled fiber is unwound from this wait.
    ///
    /// Returns a length of 0 if the socket was [shut down](Self::shutdown).
    ///
    /// # Errors
    /// `WouldBlock` if the read timeout passes.
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

    /// Sends a datagram to the socket at `path`. Waits while the queue of that socket is full. A
    /// cancelled fiber is unwound from this wait.
    ///
    /// # Errors
    /// If there is no such socket, or the datagram is too long. Also if the process has no file
    /// descriptor left, because waiting needs one. `WouldBlock` if the write timeout passes.
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

    /// Sends a datagram to the socket at `address`. Waits while the queue of that socket is full. A
    /// cancelled fiber is unwound from this wait.
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

    /// Sends a datagram to the socket that this one is [connected](Self::connect) to. Waits while
    /// the queue of that socket is full. A cancelled fiber is unwound from this wait.
    ///
    /// # Errors
    /// If the socket is not connected, the datagram is too long, or the other side is gone.
    /// `WouldBlock` if the write timeout passes.
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

    /// Sets how long a receive may wait. `None` means for ever. A receive that waits longer fails
    /// with `WouldBlock`.
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

    /// Sets how long a send may wait. `None` means for ever. A send that waits longer fails with
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

    /// Returns how long a receive may wait. `None` means for ever.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
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

    /// Returns how long a send may wait. `None` means for ever.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
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

    /// Sets whether operations fail with `WouldBlock` instead of waiting. Copies of this socket
    /// share the setting. The descriptor is in non-blocking mode in either case.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
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

    /// Returns and clears the pending error of the socket, if there is one.
    ///
    /// # Errors
    /// If the system call fails.
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

    /// Shuts down one direction, or both. Receivers then get 0 bytes, and senders get an error.
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

    /// Closes the socket, even while other fibers or threads use it. Receives and sends that wait
    /// fail with `NotConnected`, and so do later ones.
    ///
    /// Copies made by [`try_clone`](Self::try_clone) are shut down as well.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
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

    /// Sends to an address, whether or not this socket is connected. `send` sends the datagram;
    /// `connect` connects a second socket to that address, to wait for room there.
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

    /// Waits until there may be room in the queue of the receiver. `connect` connects a socket to
    /// the receiver.
    ///
    /// On Linux the full queue is usually the receiver's. Room in that queue makes only those
    /// sockets ready that are connected to the receiver. So this function connects a second socket
    /// for the time of the wait.
    fn wait_for_room(
        &self,
        connect: impl Fn(&net::UnixDatagram) -> io::Result<()>,
        deadline: u64,
    ) -> io::Result<()> {
        let there: net::UnixDatagram = socket::open(Domain::UNIX, Type::DGRAM, None)?.into();
        // If the second socket cannot connect, there are two cases. Either sending fails as well,
        // and its error says why. Or the receiver is connected to this socket and takes datagrams
        // from no other; then only the buffer of this socket limits sending, and the wait is for
        // this socket.
        let connected = connect(&there).is_ok();
        let there = Async::new_nonblocking(there);
        if connected && !crate::io::is_writable(&there)? {
            // Closing this socket does not end a wait for the second one, so the wait is short.
            let soon = clock::after(clock::now(), LOOK);
            wait_until(there.source(), Direction::Write, deadline.min(soon))?;
        } else {
            wait_until(self.socket.source(), Direction::Write, deadline)?;
        }
        Ok(())
    }
}

/// The longest time until a sender that waits for the second socket notices that its own socket was
/// closed.
const LOOK: Duration = Duration::from_millis(50);

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.get().fmt(f)
    }
}

socket::descriptor!(UnixDatagram, net::UnixDatagram);
