//! Waiting for a descriptor that somebody else has.

use crate::clock;
use crate::reactor::{Direction, Source, look};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Waits until there is something to read from a descriptor, or the end of it; false if `timeout` is
/// over before. Without one it waits for as long as it takes.
///
/// Works for whatever the kernel can wait for: sockets, pipes, terminals, `eventfd`, `timerfd`,
/// `inotify`, devices. Regular files and directories are always ready. With a timeout of zero it only
/// looks. A cancelled fiber is unwound from here.
///
/// Another fiber or process may be faster: a read after it should not block, so the descriptor should
/// be in non-blocking mode if it is shared.
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

/// Waits until a descriptor can be written to; see [`wait_readable`].
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

/// Whether there is something to read from a descriptor at this moment, or the end of it. Does not
/// wait.
///
/// # Errors
/// If the descriptor cannot be asked.
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

/// Whether a descriptor can be written to at this moment. Does not wait.
///
/// # Errors
/// If the descriptor cannot be asked.
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

/// Waits until `source` is ready; false if the deadline passes before.
pub(crate) fn wait_until(source: &Source, direction: Direction, deadline: u64) -> io::Result<bool> {
    loop {
        let tick = source.tick(direction);
        if look(source.fd(), direction)? {
            return Ok(true);
        }
        if deadline <= clock::now() || !source.wait(direction, tick, deadline)? {
            return look(source.fd(), direction);
        }
    }
}
