//! Standard input.

use super::waiting::wait_until;
use crate::clock;
use crate::reactor::{Direction, Source};
use crate::sync::{Mutex, MutexGuard, OnceLock};
use std::io::{self, BufRead, BufReader, Read};

/// The standard input of the process; see [`stdin`].
///
/// # Examples
/// ```no_run
/// use std::io::Read;
///
/// sinew::run(|| {
///     let mut text = String::new();
///     sinew::io::stdin().lock().read_to_string(&mut text)?;
///     println!("{} bytes were piped in", text.len());
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Stdin {
    input: &'static Mutex<BufReader<Input>>,
}

/// Exclusive access to the standard input, for one fiber or thread; see [`Stdin::lock`].
///
/// # Examples
/// ```no_run
/// use std::io::BufRead;
///
/// fn two_lines(input: &mut sinew::io::StdinLock) -> std::io::Result<(String, String)> {
///     let (mut first, mut second) = (String::new(), String::new());
///     input.read_line(&mut first)?;
///     input.read_line(&mut second)?;
///     Ok((first, second))
/// }
///
/// let (name, password) = two_lines(&mut sinew::io::stdin().lock())?;
/// # let _ = (name, password);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct StdinLock {
    input: MutexGuard<'static, BufReader<Input>>,
}

/// The descriptor of the standard input. This module does not change its mode (blocking or
/// non-blocking), because other processes may share the descriptor.
#[derive(Debug)]
struct Input {
    source: Source,
}

/// Returns the standard input of the process. A fiber that reads from it is suspended until there
/// is data.
///
/// Its buffer is separate from the buffer of `std::io::stdin`: do not mix the two.
///
/// # Examples
/// ```no_run
/// sinew::run(|| {
///     for line in sinew::io::stdin().lines() {
///         println!("you said: {}", line?);
///     }
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn stdin() -> Stdin {
    static INPUT: OnceLock<Mutex<BufReader<Input>>> = OnceLock::new();
    let make = || Mutex::new(BufReader::new(Input { source: Source::new(libc::STDIN_FILENO) }));
    Stdin { input: INPUT.get_or_init(make) }
}

impl Stdin {
    /// Locks the standard input for this fiber or thread, and gives access to the methods of
    /// `BufRead`. Waits while another fiber or thread has the lock.
    ///
    /// # Examples
    /// ```no_run
    /// use std::io::BufRead;
    ///
    /// let mut line = String::new();
    /// sinew::io::stdin().lock().read_line(&mut line)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lock(self) -> StdinLock {
        StdinLock { input: self.input.lock() }
    }

    /// Reads a line, with its line ending, and appends it to `line`. Returns the number of bytes
    /// read: zero at the end of the input.
    ///
    /// # Errors
    /// If the input cannot be read, or is not UTF-8.
    ///
    /// # Examples
    /// ```no_run
    /// let mut line = String::new();
    /// sinew::io::stdin().read_line(&mut line)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_line(self, line: &mut String) -> io::Result<usize> {
        self.lock().read_line(line)
    }

    /// Returns an iterator over the lines, without their line endings. It holds the lock until it
    /// is dropped.
    ///
    /// # Examples
    /// ```no_run
    /// for line in sinew::io::stdin().lines() {
    ///     println!("{}", line?);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lines(self) -> io::Lines<StdinLock> {
        self.lock().lines()
    }
}

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.lock().read(buffer)
    }
}

impl Read for StdinLock {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer)
    }
}

impl BufRead for StdinLock {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match wait_until(&self.source, Direction::Read, clock::NEVER) {
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => return Ok(0),
                result => result?,
            };
            // SAFETY: pointer and length describe `buffer`.
            let count =
                unsafe { libc::read(self.source.fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
            if let Ok(count) = usize::try_from(count) {
                return Ok(count);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                // In non-blocking mode, `WouldBlock` means that another reader was faster.
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }
}
