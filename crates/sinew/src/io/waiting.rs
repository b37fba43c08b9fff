//! Waiting for a descriptor that other code owns.

use crate::clock;
use crate::reactor::{Direction, Source, look};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Waits until a read from a descriptor would find data or the end of the data. Returns false if
/// `timeout` passes first. `None` means no timeout.
///
/// Works for every descriptor that the kernel can wait for: sockets, pipes, terminals, `eventfd`,
/// `timerfd`, `inotify`, devices. Regular files and directories are always ready. With a timeout of
/// zero this call does not wait. A cancelled fiber is unwound from this wait.
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
/// use std::time::Duration;
///
/// sinew::run(|| {
///     let (reader, mut writer) = std::io::pipe()?;
///     assert!(!sinew::io::wait_readable(&reader, Some(Duration::from_millis(1)))?);
///     writer.write_all(b"x")?;
///     assert!(sinew::io::wait_readable(&reader, None)?);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_readable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    wait(fd, Direction::Read, timeout)
}

/// Waits until a descriptor can be written to. Returns false if `timeout` passes first. `None`
/// means no timeout. [`wait_readable`] lists the descriptors that can be waited for.
///
/// # Errors
/// If the descriptor cannot be waited for.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let (reader, writer) = std::io::pipe()?;
///     assert!(sinew::io::wait_writable(&writer, None)?);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wait_writable(fd: impl AsFd, timeout: Option<Duration>) -> io::Result<bool> {
    wait(fd, Direction::Write, timeout)
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

fn wait(fd: impl AsFd, direction: Direction, timeout: Option<Duration>) -> io::Result<bool> {
    let deadline = timeout.map_or(clock::NEVER, |timeout| clock::after(clock::now(), timeout));
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
