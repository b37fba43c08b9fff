//! The listener of Unix socket connections.

use super::UnixStream;
use super::addresses::from_system;
use crate::net::socket::{self, Socket};
use std::fmt;
use std::io;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

/// A Unix socket that accepts connections: `std::os::unix::net::UnixListener` for fibers.
///
/// Dropping the listener does not remove the file at its path, as in the standard library.
///
/// # Examples
/// ```
/// use sinew::os::unix::net::{UnixListener, UnixStream};
/// use std::io::{Read, Write};
///
/// # let path = std::env::temp_dir().join(format!("sinew-{}-listener", std::process::id()));
/// sinew::run(move || {
///     let listener = UnixListener::bind(&path)?;
///     let server = sinew::spawn(move || {
///         let (mut stream, _) = listener.accept()?;
///         stream.write_all(b"hello")
///     });
///     let mut text = String::new();
///     UnixStream::connect(&path)?.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     std::fs::remove_file(&path)?;
///     server.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixListener {
    socket: Socket<net::UnixListener>,
}

impl UnixListener {
    /// Listens at `path`, and makes a file at that path.
    ///
    /// # Errors
    /// `AddrInUse` if there is something at this path. Other errors if the file cannot be made.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixListener;
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-bind", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// assert!(UnixListener::bind(&path).is_err());
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        net::UnixListener::bind(path).and_then(socket::listen).map(UnixListener::from)
    }

    /// Listens at `address`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::{SocketAddr, UnixListener};
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-bind-addr", std::process::id()));
    /// let listener = UnixListener::bind_addr(&SocketAddr::from_pathname(&path)?)?;
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixListener> {
        net::UnixListener::bind_addr(address).and_then(socket::listen).map(UnixListener::from)
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
    /// use sinew::os::unix::net::{UnixListener, UnixStream};
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-accept", std::process::id()));
    /// sinew::run(move || {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let client = UnixStream::connect(&path)?;
    ///     let (_, address) = listener.accept()?;
    ///     assert!(address.is_unnamed());
    ///     std::fs::remove_file(&path)
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, address) = self.socket.accept()?;
        let stream = UnixStream::from_nonblocking(stream.into());
        Ok((stream, from_system(&address)?))
    }

    /// Makes another handle to this socket. Each connection is accepted through one of the handles.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixListener;
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-try-clone", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// let other = listener.try_clone()?;
    /// assert_eq!(other.local_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<UnixListener> {
        let socket = self.socket.try_clone(net::UnixListener::try_clone)?;
        Ok(UnixListener { socket })
    }

    /// Returns the address that the socket listens at.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixListener;
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-local-addr", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get().local_addr()
    }

    /// Sets whether [`accept`](Self::accept) fails with `WouldBlock` instead of waiting. Copies of
    /// this socket share the setting. The descriptor is in non-blocking mode in either case.
    ///
    /// # Errors
    /// Never fails. It returns a `Result` because the method of the standard library does.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixListener;
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-nonblocking", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// listener.set_nonblocking(true)?;
    /// assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    /// std::fs::remove_file(&path)?;
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
    /// use sinew::os::unix::net::UnixListener;
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-take-error", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// assert!(listener.take_error()?.is_none());
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.get().take_error()
    }

    /// Returns an iterator that accepts one connection after the other. It ends only when the
    /// listener is [closed](Self::close).
    ///
    /// # Examples
    /// ```no_run
    /// let listener = sinew::os::unix::net::UnixListener::bind("/run/my-service")?;
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
    /// `NotConnected`, and so do later ones. The file at the path stays.
    ///
    /// On Linux the socket itself is shut down, so copies made by [`try_clone`](Self::try_clone)
    /// accept no more connections. On other systems the copies go on.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// use sinew::os::unix::net::UnixListener;
    /// use std::sync::Arc;
    ///
    /// # let path = std::env::temp_dir().join(format!("sinew-{}-close", std::process::id()));
    /// sinew::run(move || {
    ///     let listener = Arc::new(UnixListener::bind(&path)?);
    ///     let server = sinew::spawn({
    ///         let listener = listener.clone();
    ///         move || listener.accept().is_err()
    ///     });
    ///     listener.close()?;
    ///     assert!(server.join().unwrap());
    ///     std::fs::remove_file(&path)
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn close(&self) -> io::Result<()> {
        self.socket.close()
    }
}

/// An iterator that accepts the connections of a [`UnixListener`], one after the other. It ends
/// only when the listener is [closed](UnixListener::close).
///
/// # Examples
/// ```
/// use sinew::os::unix::net::{UnixListener, UnixStream};
///
/// # let path = std::env::temp_dir().join(format!("sinew-{}-iter", std::process::id()));
/// sinew::run(move || {
///     let listener = UnixListener::bind(&path)?;
///     let _client = UnixStream::connect(&path)?;
///     let mut incoming = listener.incoming();
///     assert!(incoming.next().is_some_and(|stream| stream.is_ok()));
///     listener.close()?;
///     assert!(incoming.next().is_none());
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "iterators are lazy and do nothing unless consumed"]
pub struct Incoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        let accepted = self.listener.accept();
        let closed = accepted.is_err() && self.listener.socket.source().slot().is_closed();
        (!closed).then(|| accepted.map(|(stream, _)| stream))
    }
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = Incoming<'a>;

    fn into_iter(self) -> Incoming<'a> {
        self.incoming()
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.get().fmt(f)
    }
}

socket::descriptor!(UnixListener, net::UnixListener);
