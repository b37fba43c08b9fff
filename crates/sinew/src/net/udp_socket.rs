//! The UDP socket.

use super::addresses::{ToSocketAddrs, with_each};
use super::socket::{self, Socket};
use super::{Ipv4Addr, Ipv6Addr, SocketAddr};
use crate::reactor::Direction;
use core::time::Duration;
use std::fmt;
use std::io;
use std::net;

/// A UDP socket: `std::net::UdpSocket` for fibers.
///
/// Several fibers may send and receive at the same time. Exactly one receiver gets each datagram
/// that arrives.
///
/// # Examples
/// ```
/// use sinew::net::UdpSocket;
///
/// sinew::run(|| {
///     let server = UdpSocket::bind("127.0.0.1:0")?;
///     let address = server.local_addr()?;
///     let echo = sinew::spawn(move || {
///         let mut buffer = [0; 64];
///         let (count, from) = server.recv_from(&mut buffer)?;
///         server.send_to(&buffer[..count], from)
///     });
///     let client = UdpSocket::bind("127.0.0.1:0")?;
///     client.send_to(b"hello", address)?;
///     let mut buffer = [0; 64];
///     let (count, from) = client.recv_from(&mut buffer)?;
///     assert_eq!((&buffer[..count], from), (&b"hello"[..], address));
///     echo.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket {
    socket: Socket<net::UdpSocket>,
}

impl UdpSocket {
    /// Makes a socket with the address `address`. If `address` resolves to several addresses, uses
    /// the first that works. Port 0 means any free port.
    ///
    /// # Errors
    /// If the address is in use, or does not belong to this machine.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind<A: ToSocketAddrs>(address: A) -> io::Result<UdpSocket> {
        with_each(address, net::UdpSocket::bind).map(UdpSocket::from)
    }

    /// Receives a datagram, parking the fiber until one arrives. Returns its length and the address
    /// of its sender. Bytes that do not fit into `buffer` are lost. A cancelled fiber is unwound
    /// from this wait.
    ///
    /// # Errors
    /// `WouldBlock` if the read timeout passes. Another error if the system reports that a datagram
    /// sent earlier from this socket was not delivered.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::UdpSocket;
    ///
    /// sinew::run(|| {
    ///     let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     one.send_to(b"hello", other.local_addr()?)?;
    ///     let mut buffer = [0; 64];
    ///     assert_eq!(other.recv_from(&mut buffer)?, (5, one.local_addr()?));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.take_next(|socket| socket.recv_from(buffer), from_nobody)
    }

    /// Copies the next datagram into `buffer` without taking it, parking the fiber until one
    /// arrives. Returns its length and the address of its sender.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    ///
    /// # Examples
    /// ```
    /// use sinew::net::UdpSocket;
    ///
    /// sinew::run(|| {
    ///     let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     one.send_to(b"hello", other.local_addr()?)?;
    ///     let mut buffer = [0; 64];
    ///     assert_eq!(other.peek_from(&mut buffer)?, (5, one.local_addr()?));
    ///     assert_eq!(other.recv_from(&mut buffer)?, (5, one.local_addr()?));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.take_next(|socket| socket.peek_from(buffer), from_nobody)
    }

    /// Sends a datagram to `address`. If `address` resolves to several addresses, uses the first.
    /// Waits while there is no room in the system's buffers. A cancelled fiber is unwound from this
    /// wait.
    ///
    /// # Errors
    /// If the datagram is too long, or the address and the socket are of different kinds (IPv4 and
    /// IPv6). `WouldBlock` if the write timeout passes.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::UdpSocket;
    ///
    /// sinew::run(|| {
    ///     let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     assert_eq!(one.send_to(b"hello", other.local_addr()?)?, 5);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send_to<A: ToSocketAddrs>(&self, buffer: &[u8], address: A) -> io::Result<usize> {
        let address = address.to_socket_addrs()?.next().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to")
        })?;
        self.socket.attempt(Direction::Write, |socket| socket.send_to(buffer, address))
    }

    /// Returns the address that the socket is [connected](Self::connect) to.
    ///
    /// # Errors
    /// If the socket is not connected.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(socket.peer_addr().unwrap_err().kind(), std::io::ErrorKind::NotConnected);
    /// socket.connect("127.0.0.1:41203")?;
    /// assert_eq!(socket.peer_addr()?.port(), 41203);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().peer_addr()
    }

    /// Returns the address of this socket.
    ///
    /// # Errors
    /// If the socket was closed.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert_ne!(socket.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// Makes another handle to this socket. All handles share its options and timeouts.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let other = socket.try_clone()?;
    /// assert_eq!(socket.local_addr()?, other.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<UdpSocket> {
        let socket = self.socket.try_clone(net::UdpSocket::try_clone)?;
        Ok(UdpSocket { socket })
    }

    /// Closes the socket, even while other fibers or threads use it. Receives and sends that wait
    /// fail with `NotConnected`, and so do later ones.
    ///
    /// On Linux the socket itself is shut down, so copies made by [`try_clone`](Self::try_clone)
    /// receive and send no more. On other systems the copies go on.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// sinew::run(|| {
    ///     let socket = Arc::new(sinew::net::UdpSocket::bind("127.0.0.1:0")?);
    ///     let receiver = sinew::spawn({
    ///         let socket = socket.clone();
    ///         move || socket.recv(&mut [0]).is_err()
    ///     });
    ///     socket.close()?;
    ///     assert!(receiver.join().unwrap());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) -> io::Result<()> {
        self.socket.close()
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
    ///     let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    ///     socket.set_read_timeout(Some(Duration::from_millis(1)))?;
    ///     assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
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
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_write_timeout(Some(Duration::from_secs(5)))?;
    /// assert!(socket.set_write_timeout(Some(Duration::ZERO)).is_err());
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
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(socket.read_timeout()?, None);
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
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(socket.write_timeout()?, None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeout(Direction::Write))
    }

    /// Sets whether datagrams may be sent to a broadcast address.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_broadcast(true)?;
    /// assert!(socket.broadcast()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.socket.get().set_broadcast(broadcast)
    }

    /// Returns whether datagrams may be sent to a broadcast address.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert!(!socket.broadcast()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn broadcast(&self) -> io::Result<bool> {
        self.socket.get().broadcast()
    }

    /// Sets whether IPv4 multicast datagrams sent from this socket come back to this machine.
    ///
    /// # Errors
    /// If the socket does not use IPv4.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_multicast_loop_v4(false)?;
    /// assert!(!socket.multicast_loop_v4()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_multicast_loop_v4(&self, multicast_loop_v4: bool) -> io::Result<()> {
        self.socket.get().set_multicast_loop_v4(multicast_loop_v4)
    }

    /// Returns whether IPv4 multicast datagrams sent from this socket come back to this machine.
    ///
    /// # Errors
    /// If the socket does not use IPv4.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert!(socket.multicast_loop_v4()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.socket.get().multicast_loop_v4()
    }

    /// Sets how many routers a multicast datagram may pass. With 1 it stays in the local network.
    ///
    /// # Errors
    /// If the socket does not use IPv4.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_multicast_ttl_v4(42)?;
    /// assert_eq!(socket.multicast_ttl_v4()?, 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_multicast_ttl_v4(&self, multicast_ttl_v4: u32) -> io::Result<()> {
        self.socket.get().set_multicast_ttl_v4(multicast_ttl_v4)
    }

    /// Returns how many routers a multicast datagram may pass.
    ///
    /// # Errors
    /// If the socket does not use IPv4.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(socket.multicast_ttl_v4()?, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.socket.get().multicast_ttl_v4()
    }

    /// Sets whether IPv6 multicast datagrams sent from this socket come back to this machine.
    ///
    /// # Errors
    /// If the socket does not use IPv6.
    ///
    /// # Examples
    /// ```no_run
    /// let socket = sinew::net::UdpSocket::bind("[::1]:0")?;
    /// socket.set_multicast_loop_v6(false)?;
    /// assert!(!socket.multicast_loop_v6()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_multicast_loop_v6(&self, multicast_loop_v6: bool) -> io::Result<()> {
        self.socket.get().set_multicast_loop_v6(multicast_loop_v6)
    }

    /// Returns whether IPv6 multicast datagrams sent from this socket come back to this machine.
    ///
    /// # Errors
    /// If the socket does not use IPv6.
    ///
    /// # Examples
    /// ```no_run
    /// let socket = sinew::net::UdpSocket::bind("[::1]:0")?;
    /// assert!(socket.multicast_loop_v6()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.socket.get().multicast_loop_v6()
    }

    /// Sets how many routers a packet of this socket may pass.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_ttl(100)?;
    /// assert_eq!(socket.ttl()?, 100);
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
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert!(socket.ttl()? > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket.get().ttl()
    }

    /// Joins the multicast group `multiaddr` at the interface with the address `interface`. The
    /// system chooses the interface if that address is unspecified.
    ///
    /// # Errors
    /// If `multiaddr` is no multicast address, or there is no such interface.
    ///
    /// # Examples
    /// ```no_run
    /// use sinew::net::{Ipv4Addr, UdpSocket};
    ///
    /// let socket = UdpSocket::bind("0.0.0.0:5353")?;
    /// socket.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 251), &Ipv4Addr::UNSPECIFIED)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.socket.get().join_multicast_v4(multiaddr, interface)
    }

    /// Joins the multicast group `multiaddr` at the interface with the number `interface`. The
    /// system chooses the interface if that number is zero.
    ///
    /// # Errors
    /// If `multiaddr` is no multicast address, or there is no such interface.
    ///
    /// # Examples
    /// ```no_run
    /// use sinew::net::{Ipv6Addr, UdpSocket};
    ///
    /// let socket = UdpSocket::bind("[::]:5353")?;
    /// socket.join_multicast_v6(&Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb), 0)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.socket.get().join_multicast_v6(multiaddr, interface)
    }

    /// Leaves a multicast group that [`join_multicast_v4`](Self::join_multicast_v4) joined.
    ///
    /// # Errors
    /// If the socket is not a member of the group.
    ///
    /// # Examples
    /// ```no_run
    /// use sinew::net::{Ipv4Addr, UdpSocket};
    ///
    /// let group = Ipv4Addr::new(224, 0, 0, 251);
    /// let socket = UdpSocket::bind("0.0.0.0:5353")?;
    /// socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
    /// socket.leave_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn leave_multicast_v4(&self, multiaddr: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.socket.get().leave_multicast_v4(multiaddr, interface)
    }

    /// Leaves a multicast group that [`join_multicast_v6`](Self::join_multicast_v6) joined.
    ///
    /// # Errors
    /// If the socket is not a member of the group.
    ///
    /// # Examples
    /// ```no_run
    /// use sinew::net::{Ipv6Addr, UdpSocket};
    ///
    /// let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
    /// let socket = UdpSocket::bind("[::]:5353")?;
    /// socket.join_multicast_v6(&group, 0)?;
    /// socket.leave_multicast_v6(&group, 0)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.socket.get().leave_multicast_v6(multiaddr, interface)
    }

    /// Returns and clears the pending error of the socket, if there is one.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// assert!(socket.take_error()?.is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.get().take_error()
    }

    /// Connects the socket to `address`. From then on [`send`](Self::send) sends to this address,
    /// and the socket receives only datagrams from it. If `address` resolves to several addresses,
    /// uses the first that works.
    ///
    /// # Errors
    /// If the system has no route to the address.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::UdpSocket;
    ///
    /// let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// one.connect(other.local_addr()?)?;
    /// assert_eq!(one.peer_addr()?, other.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect<A: ToSocketAddrs>(&self, address: A) -> io::Result<()> {
        with_each(address, |address| self.socket.get().connect(address))
    }

    /// Sends a datagram to the address that the socket is [connected](Self::connect) to. Waits
    /// while there is no room in the system's buffers. A cancelled fiber is unwound from this wait.
    ///
    /// # Errors
    /// If the socket is not connected, or the datagram is too long. `WouldBlock` if the write
    /// timeout passes. `ConnectionRefused` if an earlier datagram found no receiver.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::UdpSocket;
    ///
    /// sinew::run(|| {
    ///     let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     one.connect(other.local_addr()?)?;
    ///     assert_eq!(one.send(b"hello")?, 5);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn send(&self, buffer: &[u8]) -> io::Result<usize> {
        self.socket.attempt(Direction::Write, |socket| socket.send(buffer))
    }

    /// Receives a datagram, parking the fiber until one arrives. Returns its length. Bytes that do
    /// not fit into `buffer` are lost. A cancelled fiber is unwound from this wait.
    ///
    /// # Errors
    /// `WouldBlock` if the read timeout passes. `ConnectionRefused` if an earlier datagram to the
    /// [connected](Self::connect) address found no receiver.
    ///
    /// # Examples
    /// ```
    /// use sinew::net::UdpSocket;
    ///
    /// sinew::run(|| {
    ///     let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     one.send_to(b"hello", other.local_addr()?)?;
    ///     let mut buffer = [0; 64];
    ///     let count = other.recv(&mut buffer)?;
    ///     assert_eq!(&buffer[..count], b"hello");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.take_next(|socket| socket.recv(buffer), || Ok(0))
    }

    /// Copies the next datagram into `buffer` without taking it, parking the fiber until one
    /// arrives. Returns its length.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    ///
    /// # Examples
    /// ```
    /// use sinew::net::UdpSocket;
    ///
    /// sinew::run(|| {
    ///     let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     one.send_to(b"hello", other.local_addr()?)?;
    ///     let mut buffer = [0; 64];
    ///     assert_eq!(other.peek(&mut buffer)?, 5);
    ///     assert_eq!(other.recv(&mut buffer)?, 5);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.take_next(|socket| socket.peek(buffer), || Ok(0))
    }

    /// Sets whether operations fail with `WouldBlock` instead of waiting. Copies of this socket
    /// share the setting. The descriptor is in non-blocking mode in either case.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
    ///
    /// # Examples
    /// ```
    /// let socket = sinew::net::UdpSocket::bind("127.0.0.1:0")?;
    /// socket.set_nonblocking(true)?;
    /// assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking);
        Ok(())
    }
}

/// Returns the error of a receive from a socket that was shut down. The standard library returns
/// this error because it finds a datagram of zero bytes without an address.
fn from_nobody() -> io::Result<(usize, SocketAddr)> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, "invalid argument"))
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.get().fmt(f)
    }
}

socket::descriptor!(UdpSocket, net::UdpSocket);
