//! Waiting for several descriptors at once.

use crate::clock;
use crate::reactor::several::{self, Polled};
use core::marker::PhantomData;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The readiness of one descriptor that a [`poll`] waits for.
///
/// # Examples
/// ```
/// use sinew::io::{Interest, PollFd, poll};
/// use std::time::Duration;
///
/// let (reader, writer) = std::io::pipe()?; // empty: there is room to write, and nothing to read
/// let mut reading = [PollFd::new(&reader, Interest::Readable)];
/// assert_eq!(poll(&mut reading, Some(Duration::ZERO))?, 0);
/// let mut writing = [PollFd::new(&writer, Interest::Writable)];
/// assert_eq!(poll(&mut writing, Some(Duration::ZERO))?, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Interest {
    /// There is something to read.
    Readable,
    /// There is room to write.
    Writable,
    /// There is something to read, or room to write.
    Both,
}

/// A descriptor to [`poll`], with the result of the last poll.
///
/// # Examples
/// ```
/// use sinew::io::{Interest, PollFd, poll};
/// use std::io::Write;
///
/// let (reader, mut writer) = std::io::pipe()?;
/// let mut entries = [PollFd::new(&reader, Interest::Readable)];
/// assert!(!entries[0].is_readable()); // before the first poll
/// writer.write_all(b"x")?;
/// poll(&mut entries, None)?;
/// assert!(entries[0].is_readable());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PollFd<'fd> {
    entry: Polled,
    _fd: PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> PollFd<'fd> {
    /// Makes an entry for a descriptor. `interest` is the readiness that a poll waits for. A poll
    /// reports hang-ups and errors in any case.
    ///
    /// # Examples
    /// ```
    /// use sinew::io::{Interest, PollFd};
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let entry = PollFd::new(&reader, Interest::Readable);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new<F: AsFd + ?Sized>(fd: &'fd F, interest: Interest) -> PollFd<'fd> {
        let wanted = match interest {
            Interest::Readable => libc::POLLIN,
            Interest::Writable => libc::POLLOUT,
            Interest::Both => libc::POLLIN | libc::POLLOUT,
        };
        PollFd { entry: Polled::new(fd.as_fd().as_raw_fd(), wanted), _fd: PhantomData }
    }

    /// Returns whether the last poll found something to read, the end of the data, or an error that
    /// a read would return.
    ///
    /// # Examples
    /// ```
    /// use sinew::io::{Interest, PollFd, poll};
    ///
    /// let (reader, writer) = std::io::pipe()?;
    /// drop(writer);
    /// let mut entries = [PollFd::new(&reader, Interest::Readable)];
    /// poll(&mut entries, None)?;
    /// assert!(entries[0].is_readable());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_readable(&self) -> bool {
        self.entry.ready() & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Returns whether the last poll found room to write, or an error that a write would return.
    ///
    /// # Examples
    /// ```
    /// use sinew::io::{Interest, PollFd, poll};
    ///
    /// let (reader, writer) = std::io::pipe()?;
    /// let mut entries = [PollFd::new(&writer, Interest::Writable)];
    /// poll(&mut entries, None)?;
    /// assert!(entries[0].is_writable());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_writable(&self) -> bool {
        self.entry.ready() & (libc::POLLOUT | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Returns whether the last poll found that the other side is gone.
    ///
    /// # Examples
    /// ```
    /// use sinew::io::{Interest, PollFd, poll};
    ///
    /// let (reader, writer) = std::io::pipe()?;
    /// drop(writer);
    /// let mut entries = [PollFd::new(&reader, Interest::Readable)];
    /// poll(&mut entries, None)?;
    /// assert!(entries[0].is_hung_up());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_hung_up(&self) -> bool {
        self.entry.ready() & libc::POLLHUP != 0
    }

    /// Returns whether the last poll found an error.
    ///
    /// # Examples
    /// ```
    /// use sinew::io::{Interest, PollFd, poll};
    ///
    /// let (reader, writer) = std::io::pipe()?;
    /// drop(reader);
    /// let mut entries = [PollFd::new(&writer, Interest::Writable)];
    /// poll(&mut entries, None)?;
    /// assert!(entries[0].is_error());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_error(&self) -> bool {
        self.entry.ready() & (libc::POLLERR | libc::POLLNVAL) != 0
    }
}

impl std::fmt::Debug for PollFd<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PollFd")
            .field("readable", &self.is_readable())
            .field("writable", &self.is_writable())
            .finish_non_exhaustive()
    }
}

/// Waits until at least one of several descriptors is ready. Returns how many are ready, or zero if
/// `timeout` passes first. `None` means no timeout.
///
/// The methods of each entry return its result. Regular files are always ready. With a timeout of
/// zero this call does not wait. A cancelled fiber is unwound from this wait.
///
/// # Errors
/// If a descriptor cannot be waited for.
///
/// # Examples
/// ```
/// use sinew::io::{Interest, PollFd, poll};
/// use std::io::Write;
///
/// sinew::run(|| {
///     let (first, _keep) = std::io::pipe()?;
///     let (second, mut writer) = std::io::pipe()?;
///     sinew::spawn(move || writer.write_all(b"x"));
///     let mut entries =
///         [PollFd::new(&first, Interest::Readable), PollFd::new(&second, Interest::Readable)];
///     assert_eq!(poll(&mut entries, None)?, 1);
///     assert!(!entries[0].is_readable() && entries[1].is_readable());
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn poll(entries: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let deadline = timeout.map_or(clock::NEVER, |timeout| clock::after(clock::now(), timeout));
    several::wait(entries, deadline)
}

impl AsMut<Polled> for PollFd<'_> {
    fn as_mut(&mut self) -> &mut Polled {
        &mut self.entry
    }
}
