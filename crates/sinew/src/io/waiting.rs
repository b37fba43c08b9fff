//! Waiting for a descriptor that other code owns.

use crate::clock;
use crate::reactor::{Direction, Source, look};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

/// Waits until a read from a descriptor would find data or the end of the data.
///
/// Works for every descriptor that the kernel can wait for: sockets, pipes, terminals, `eventfd`,
/// `timerfd`, `inotify`, devices. Regular files and directories are always ready. A cancelled fiber
/// is unwound from this wait.
///
/// Another fiber or process may read the data first. So put a shared descriptor into non-blocking
/// mode: then the read after this wait cannot block.
///
/// # Errors
/// If the descriptor cannot be waited for.
///
/// # Examples
/// ```
/// use std::io::Write;
///
/// sinew::run(|| {
///     let (reader, mut writer) = std::io::pipe()?;
///     writer.write_all(b"x")?;
///     sinew::io::wait_readable(&reader)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_readable(fd: impl AsFd) -> io::Result<()> {
    wait(fd, Direction::Read, clock::NEVER).map(drop)
}

/// Waits until a read from a descriptor would find data or the end of the data, at most for
/// `timeout`. Returns false if the timeout passes first. With a timeout of zero this call does not
/// wait. See [`wait_readable`].
///
/// # Errors
/// If the descriptor cannot be waited for.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let (reader, _writer) = std::io::pipe()?;
/// assert!(!sinew::io::wait_readable_timeout(&reader, Duration::from_millis(1))?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_readable_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    wait(fd, Direction::Read, clock::after(clock::now(), timeout))
}

/// Waits until a read from a descriptor would find data or the end of the data, at most until
/// `deadline`. Returns false if the deadline passes first. See [`wait_readable`].
///
/// # Errors
/// If the descriptor cannot be waited for.
///
/// # Examples
/// ```
/// use std::time::Instant;
///
/// let (reader, _writer) = std::io::pipe()?;
/// assert!(!sinew::io::wait_readable_deadline(&reader, Instant::now())?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_readable_deadline(fd: impl AsFd, deadline: Instant) -> io::Result<bool> {
    wait(fd, Direction::Read, clock::at(deadline))
}

/// Waits until a descriptor can be written to. [`wait_readable`] lists the descriptors that can be
/// waited for.
///
/// # Errors
/// If the descriptor cannot be waited for.
///
/// # Examples
/// ```
/// let (_reader, writer) = std::io::pipe()?;
/// sinew::io::wait_writable(&writer)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_writable(fd: impl AsFd) -> io::Result<()> {
    wait(fd, Direction::Write, clock::NEVER).map(drop)
}

/// Waits until a descriptor can be written to, at most for `timeout`. Returns false if the timeout
/// passes first. See [`wait_writable`].
///
/// # Errors
/// If the descriptor cannot be waited for.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let (_reader, writer) = std::io::pipe()?;
/// assert!(sinew::io::wait_writable_timeout(&writer, Duration::from_millis(1))?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_writable_timeout(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    wait(fd, Direction::Write, clock::after(clock::now(), timeout))
}

/// Waits until a descriptor can be written to, at most until `deadline`. Returns false if the
/// deadline passes first. See [`wait_writable`].
///
/// # Errors
/// If the descriptor cannot be waited for.
///
/// # Examples
/// ```
/// use std::time::Instant;
///
/// let (_reader, writer) = std::io::pipe()?;
/// assert!(sinew::io::wait_writable_deadline(&writer, Instant::now())?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_writable_deadline(fd: impl AsFd, deadline: Instant) -> io::Result<bool> {
    wait(fd, Direction::Write, clock::at(deadline))
}

/// Returns whether a read from a descriptor would find data or the end of the data at this moment.
/// Does not wait.
///
/// # Errors
/// If the system call fails.
///
/// # Examples
/// ```
/// use std::io::Write;
///
/// let (reader, mut writer) = std::io::pipe()?;
/// assert!(!sinew::io::is_readable(&reader)?);
/// writer.write_all(b"x")?;
/// assert!(sinew::io::is_readable(&reader)?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn is_readable(fd: impl AsFd) -> io::Result<bool> {
    look(fd.as_fd().as_raw_fd(), Direction::Read)
}

/// Returns whether a descriptor can be written to at this moment. Does not wait.
///
/// # Errors
/// If the system call fails.
///
/// # Examples
/// ```
/// let (reader, writer) = std::io::pipe()?;
/// assert!(sinew::io::is_writable(&writer)?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn is_writable(fd: impl AsFd) -> io::Result<bool> {
    look(fd.as_fd().as_raw_fd(), Direction::Write)
}

fn wait(fd: impl AsFd, direction: Direction, deadline: u64) -> io::Result<bool> {
    let source = Source::new(fd.as_fd().as_raw_fd());
    wait_until(&source, direction, deadline)
}

/// Waits until `source` is ready. Returns false if the deadline passes first.
pub(crate) fn wait_until(source: &Source, direction: Direction, deadline: u64) -> io::Result<bool> {
    loop {
        let tick = source.slot().tick(direction);
        if look(source.fd(), direction)? {
            return Ok(true);
        }
        if deadline <= clock::now() || !source.wait(direction, tick, deadline)? {
            return look(source.fd(), direction);
        }
    }
}
