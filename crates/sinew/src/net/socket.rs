//! The parts that all sockets share: attempts with timeouts, copies, and closing.
//!
//! Every socket type of [`net`](super) holds a [`Socket`]. `io/attempt.rs` does the waiting.

use super::backoff::Backoff;
use crate::io::Async;
use crate::io::attempt::{Limit, attempt, attempt_read, unless_closed};
use crate::primitive::{AtomicBool, AtomicU64, Ordering};
use crate::reactor::{Direction, Source};
use core::mem;
use core::time::Duration;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockRef, Type};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// A socket of the standard library in non-blocking mode, with the options that the kernel ignores
/// in that mode.
#[derive(Debug)]
pub(crate) struct Socket<T> {
    io: Async<T>,
    /// Shared with copies made by `try_clone`. Allocated when an option is first set, or the socket
    /// is first copied.
    options: OnceLock<Arc<Options>>,
    /// Slows down a listener that cannot accept.
    backoff: Backoff,
    /// Whether the socket was made from a descriptor that is not plain TCP. Users may convert any
    /// descriptor to a `TcpStream`.
    is_foreign: bool,
}

/// Lets as many connections wait to be accepted as the system allows. The TCP listener of the
/// standard library asks for 128, and a client that finds the queue full connects a second late.
pub(crate) fn listen<T: AsFd>(listener: T) -> io::Result<T> {
    SockRef::from(&listener).listen(libc::c_int::MAX)?;
    Ok(listener)
}

/// Whether the protocol of a socket is plain TCP.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn is_tcp(socket: &SockRef<'_>) -> bool {
    matches!(socket.protocol(), Ok(Some(Protocol::TCP)))
}

/// Whether a socket is TCP: only TCP sockets have the option that this reads.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn is_tcp(socket: &SockRef<'_>) -> bool {
    socket.tcp_nodelay().is_ok()
}

/// Options of a socket and its copies. Timeouts are in nanoseconds; zero means none.
#[derive(Default, Debug)]
struct Options {
    read_timeout: AtomicU64,
    write_timeout: AtomicU64,
    nonblocking: AtomicBool,
}

impl Options {
    fn timeout(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::Read => &self.read_timeout,
            Direction::Write => &self.write_timeout,
        }
    }
}

impl<T: AsFd> Socket<T> {
    /// Wraps a socket of the standard library. Puts it into non-blocking mode and keeps its
    /// timeouts.
    pub(crate) fn from_std(inner: T) -> Socket<T> {
        let socket = Socket::new(Async::of_any_mode(inner));
        let kernel = SockRef::from(socket.io.get_ref());
        for (direction, timeout) in
            [(Direction::Read, kernel.read_timeout()), (Direction::Write, kernel.write_timeout())]
        {
            if let Ok(Some(timeout)) = timeout {
                let _ = socket.set_timeout(direction, Some(timeout));
            }
        }
        let is_foreign = !is_tcp(&kernel);
        Socket { is_foreign, ..socket }
    }

    /// Wraps a socket that is in non-blocking mode.
    pub(crate) fn from_nonblocking(inner: T) -> Socket<T> {
        Socket::new(Async::new_nonblocking(inner))
    }

    fn new(io: Async<T>) -> Socket<T> {
        Socket { io, options: OnceLock::new(), backoff: Backoff::default(), is_foreign: false }
    }

    /// Returns the socket as the standard library expects it: the kernel knows its timeouts, and it
    /// blocks, unless the user has set it to non-blocking.
    pub(crate) fn into_std(self) -> T {
        if let Some(options) = self.options.get() {
            let kernel = SockRef::from(self.io.get_ref());
            for direction in [Direction::Read, Direction::Write] {
                let timeout = self.timeout(direction);
                let _ = match direction {
                    Direction::Read => kernel.set_read_timeout(timeout),
                    Direction::Write => kernel.set_write_timeout(timeout),
                };
            }
            if options.nonblocking.load(Ordering::Relaxed) {
                return self.io.into_inner();
            }
        }
        self.io.into_blocking()
    }

    pub(crate) fn get(&self) -> &T {
        self.io.get_ref()
    }

    pub(crate) fn source(&self) -> &Source {
        self.io.source()
    }

    /// Makes another handle to this socket. `copy` duplicates the descriptor.
    pub(crate) fn try_clone(
        &self,
        copy: impl FnOnce(&T) -> io::Result<T>,
    ) -> io::Result<Socket<T>> {
        let options = self.options.get_or_init(Arc::default).clone();
        let inner = copy(self.get())?;
        let is_foreign = self.is_foreign;
        Ok(Socket { options: options.into(), is_foreign, ..Socket::from_nonblocking(inner) })
    }

    /// Returns how long an operation may wait.
    #[inline]
    pub(crate) fn limit(&self, direction: Direction) -> Limit {
        match self.options.get() {
            None => Limit::None,
            Some(options) => options.limit(direction),
        }
    }

    /// Runs `operation` on the socket, waiting whenever it would block.
    #[inline]
    pub(crate) fn attempt<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        attempt(self.source(), direction, || self.limit(direction), || operation(self.get()))
    }

    /// Reads from a stream, waiting whenever it would block.
    #[inline]
    pub(crate) fn attempt_read(
        &self,
        mut read: impl FnMut(&T) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let count = self.attempt(Direction::Read, &mut read)?;
        unless_closed(self.source(), count)
    }

    /// Reads up to `len` bytes from a TCP connection, waiting whenever it would block. A short read
    /// of TCP takes all the bytes that are there. So [`attempt_read`] of `io/attempt.rs` may leave
    /// out the next attempt.
    #[inline]
    pub(crate) fn attempt_read_of_tcp(
        &self,
        len: usize,
        mut read: impl FnMut(&T) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.is_foreign && len > 0 {
            return self.attempt_read(read);
        }
        let limit = || self.limit(Direction::Read);
        attempt_read(self.source(), limit, len, || read(self.get()))
    }

    /// Receives a datagram or accepts a connection with `operation`, waiting until there is one.
    /// Returns `end()` if the socket was shut down for receiving.
    ///
    /// Linux reports such a shutdown to blocking calls only. In non-blocking mode, a datagram
    /// socket or a Unix listener fails with `WouldBlock` for ever although it is ready. So this
    /// function asks the kernel in two cases: after a wake that found nothing, and after the
    /// reactor has seen a hang-up, which the kernel does not report again.
    pub(crate) fn take_next<R>(
        &self,
        mut operation: impl FnMut(&T) -> io::Result<R>,
        end: impl Fn() -> io::Result<R>,
    ) -> io::Result<R> {
        let mut woken = false;
        self.attempt(Direction::Read, |socket| {
            let result = operation(socket);
            let asks = mem::replace(&mut woken, true) || self.source().slot().saw_special();
            match result {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && asks
                        && !matches!(self.limit(Direction::Read), Limit::AtOnce)
                        && gets_no_more(socket) =>
                {
                    if self.source().slot().is_closed() {
                        Err(Source::closed())
                    } else {
                        end()
                    }
                }
                result => result,
            }
        })
    }

    /// Accepts a connection, waiting until there is one. Returns the new socket, in non-blocking
    /// mode, and the address of the peer.
    pub(crate) fn accept(&self) -> io::Result<(OwnedFd, SockAddr)> {
        let end = || Err(io::Error::from_raw_os_error(libc::EINVAL));
        self.backoff.pace(self.take_next(accept, end))
    }

    /// Sets how long an operation may wait. `None` means for ever.
    pub(crate) fn set_timeout(
        &self,
        direction: Direction,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let nanos = match timeout {
            None => 0,
            Some(Duration::ZERO) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "cannot set a 0 duration timeout",
                ));
            }
            // A `u64` holds at most 584 years in nanoseconds. This maximum stands for any longer
            // timeout.
            Some(timeout) => u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX),
        };
        let options = self.options.get_or_init(Arc::default);
        options.timeout(direction).store(nanos, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn timeout(&self, direction: Direction) -> Option<Duration> {
        let nanos = self.options.get()?.timeout(direction).load(Ordering::Relaxed);
        (nanos != 0).then(|| Duration::from_nanos(nanos))
    }

    /// Sets whether operations fail with `WouldBlock` instead of waiting.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        let options = self.options.get_or_init(Arc::default);
        options.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Closes the socket, even while other fibers or threads use it. Their waits fail, and so do
    /// operations that they begin later. The descriptor number stays open until they drop the
    /// socket, and refers to an unconnected socket.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.source().close();
        // Ends the waits of plain threads. An error means that the socket is not connected.
        let _ = SockRef::from(self.get()).shutdown(std::net::Shutdown::Both);
        let nothing = open(Domain::UNIX, Type::STREAM, None)?;
        replace(&OwnedFd::from(nothing), self.get())
    }
}

impl Options {
    #[cold]
    fn limit(&self, direction: Direction) -> Limit {
        if self.nonblocking.load(Ordering::Relaxed) {
            return Limit::AtOnce;
        }
        match self.timeout(direction).load(Ordering::Relaxed) {
            0 => Limit::None,
            nanos => Limit::Within(Duration::from_nanos(nanos)),
        }
    }
}

/// Makes a socket in non-blocking mode. Child processes do not inherit it.
pub(crate) fn open(
    domain: Domain,
    kind: Type,
    protocol: Option<Protocol>,
) -> io::Result<socket2::Socket> {
    #[cfg(not(target_vendor = "apple"))]
    let kind = kind.nonblocking();
    let socket = socket2::Socket::new(domain, kind, protocol)?;
    #[cfg(target_vendor = "apple")]
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Makes two connected Unix sockets in non-blocking mode. Child processes do not inherit them.
pub(crate) fn pair(kind: Type) -> io::Result<(socket2::Socket, socket2::Socket)> {
    #[cfg(not(target_vendor = "apple"))]
    let kind = kind.nonblocking();
    let (one, other) = socket2::Socket::pair(Domain::UNIX, kind, None)?;
    #[cfg(target_vendor = "apple")]
    for socket in [&one, &other] {
        socket.set_nonblocking(true)?;
    }
    Ok((one, other))
}

/// Makes the descriptor number of `fd` refer to the file of `with`, and closes its previous file.
fn replace(with: &OwnedFd, fd: &impl AsFd) -> io::Result<()> {
    let (with, fd) = (with.as_raw_fd(), fd.as_fd().as_raw_fd());
    let result = loop {
        // SAFETY: both descriptors are open. The number of `fd` stays open, so its users find
        // another file and not a closed number.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let result = unsafe { libc::dup3(with, fd, libc::O_CLOEXEC) };
        // SAFETY: both descriptors are open, as for `dup3`.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let result = unsafe { libc::dup2(with, fd) };
        if result >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break result;
        }
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Accepts a connection. The new socket is in non-blocking mode; child processes do not inherit it.
fn accept<T: AsFd>(listener: &T) -> io::Result<(OwnedFd, SockAddr)> {
    let fd = listener.as_fd().as_raw_fd();
    let accept = |storage: *mut SockAddrStorage, len: *mut libc::socklen_t| {
        let storage = storage.cast::<libc::sockaddr>();
        // SAFETY: `fd` is open; `storage` has room for an address, and `len` says how much.
        #[cfg(not(target_vendor = "apple"))]
        let accepted =
            unsafe { libc::accept4(fd, storage, len, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) };
        // SAFETY: `fd`, `storage` and `len` are valid, as for `accept4`.
        #[cfg(target_vendor = "apple")]
        let accepted = unsafe { libc::accept(fd, storage, len) };
        if accepted < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(accepted) })
    };
    // SAFETY: if `accept` succeeds, the kernel has written an address and its length.
    let (accepted, address) = unsafe { SockAddr::try_init(accept) }?;
    #[cfg(target_vendor = "apple")]
    {
        let socket = SockRef::from(&accepted);
        socket.set_cloexec(true)?;
        socket.set_nonblocking(true)?;
    }
    Ok((accepted, address))
}

/// Whether the socket was shut down for receiving.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn gets_no_more(socket: &impl AsFd) -> bool {
    let fd = socket.as_fd().as_raw_fd();
    let mut entry = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: the pointer is to one entry, and the count is 1.
    let count = unsafe { libc::poll(&raw mut entry, 1, 0) };
    count > 0 && entry.revents & libc::POLLRDHUP != 0
}

/// Always false: other systems report the shutdown to non-blocking calls as well.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn gets_no_more(_socket: &impl AsFd) -> bool {
    false
}

/// Connects a socket, waiting until the attempt has succeeded or failed.
pub(crate) fn connect<T: AsFd>(
    socket: &Socket<T>,
    address: &SockAddr,
    limit: Limit,
) -> io::Result<()> {
    let kernel = SockRef::from(socket.get());
    let mut tick = socket.source().slot().tick(Direction::Write);
    match kernel.connect(address) {
        Ok(()) => return Ok(()),
        Err(error)
            if error.raw_os_error() == Some(libc::EINPROGRESS)
                || error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    let deadline = limit.deadline();
    loop {
        if !socket.source().wait(Direction::Write, tick, deadline)? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"));
        }
        tick = socket.source().slot().tick(Direction::Write);
        // A wake does not mean that the attempt has ended.
        if let Some(error) = kernel.take_error()? {
            return Err(error);
        }
        if kernel.peer_addr().is_ok() {
            return Ok(());
        }
    }
}

/// Implements the descriptor traits of a socket, and its conversions from and to the standard
/// library.
macro_rules! descriptor {
    ($type:ident, $std:ty) => {
        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                std::os::fd::AsFd::as_fd(self.socket.get())
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(self.socket.get())
            }
        }

        impl crate::io::readable::sealed::HasSource for $type {
            fn source(&self) -> &crate::reactor::Source {
                self.socket.source()
            }
        }

        impl From<$std> for $type {
            /// Puts the socket into non-blocking mode. It keeps its timeouts.
            fn from(socket: $std) -> $type {
                $type { socket: crate::net::socket::Socket::from_std(socket) }
            }
        }

        impl From<$type> for $std {
            /// Returns the socket as the standard library expects it: it blocks, unless
            /// `set_nonblocking(true)` was called. Copies share this mode, so operations on a
            /// remaining copy block the carrier.
            fn from(socket: $type) -> $std {
                socket.socket.into_std()
            }
        }

        impl From<std::os::fd::OwnedFd> for $type {
            /// Puts the socket into non-blocking mode.
            fn from(fd: std::os::fd::OwnedFd) -> $type {
                <$std>::from(fd).into()
            }
        }

        impl From<$type> for std::os::fd::OwnedFd {
            /// Returns the descriptor as the standard library expects it: it blocks, unless
            /// `set_nonblocking(true)` was called. Copies share this mode, so operations on a
            /// remaining copy block the carrier.
            fn from(socket: $type) -> std::os::fd::OwnedFd {
                socket.socket.into_std().into()
            }
        }

        impl std::os::fd::IntoRawFd for $type {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::IntoRawFd::into_raw_fd(std::os::fd::OwnedFd::from(self))
            }
        }

        impl std::os::fd::FromRawFd for $type {
            // # Safety: as in the trait.
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> $type {
                // SAFETY: the caller promises that `fd` is open and that nothing else owns it.
                unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) }.into()
            }
        }
    };
}

pub(crate) use descriptor;
