//! Standard input.

use super::waiting::wait_until;
use crate::clock;
use crate::reactor::{Direction, Source};
use crate::sync::{Mutex, MutexGuard, OnceLock};
use std::io::{self, BufRead, BufReader, Read};

/// The standard input of the process; see [`stdin`].
#[derive(Clone, Copy, Debug)]
pub struct Stdin {
    input: &'static Mutex<BufReader<Input>>,
}

/// The standard input, for one fiber or thread at a time.
#[derive(Debug)]
pub struct StdinLock {
    input: MutexGuard<'static, BufReader<Input>>,
}

/// The descriptor. Its mode is not changed: other processes may have it too.
#[derive(Debug)]
struct Input {
    source: Source,
}

/// The standard input of the process. A fiber that reads waits until there is something; other fibers
/// run meanwhile.
///
/// It has a buffer of its own, apart from that of `std::io::stdin`: do not mix the two.
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
    /// Has it alone, with the methods of `BufRead`.
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

    /// Appends a line to `line`, with its end, and returns how many bytes that were: zero at the end
    /// of the input.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
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

    /// The lines, without their ends. Nobody else reads while this exists.
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
            // SAFETY: a valid buffer with its length.
            let count =
                unsafe { libc::read(self.source.fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
            if let Ok(count) = usize::try_from(count) {
                return Ok(count);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                // Somebody else was faster, if the mode is non-blocking.
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }
}
