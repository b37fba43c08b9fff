//! A process that was started.

use super::collect::collect;
use super::exit::{self, Exit};
use super::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use core::time::Duration;
use std::io;
use std::process;

/// A process that was started by a [`Command`](super::Command): `std::process::Child` for fibers.
///
/// Dropping a `Child` leaves the process running, unless
/// [`kill_on_drop`](super::Command::kill_on_drop) was requested. The [module](super) says what
/// happens to a process that no caller waits for.
///
/// # Examples
/// ```
/// use sinew::process::Command;
///
/// sinew::run(|| {
///     let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn()?;
///     let status = child.wait()?; // other fibers run meanwhile
///     assert_eq!(status.code(), Some(3));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Child {
    /// The standard input of the process, if it was set to a pipe.
    pub stdin: Option<ChildStdin>,
    /// The standard output of the process, if it was set to a pipe.
    pub stdout: Option<ChildStdout>,
    /// The standard error of the process, if it was set to a pipe.
    pub stderr: Option<ChildStderr>,
    process: Process,
}

impl Child {
    pub(super) fn new(mut child: process::Child, kill_on_drop: bool) -> Child {
        Child {
            stdin: child.stdin.take().map(Into::into),
            stdout: child.stdout.take().map(Into::into),
            stderr: child.stderr.take().map(Into::into),
            process: Process { child, exit: None, kill_on_drop },
        }
    }

    /// Returns the process number (PID) of the child.
    ///
    /// # Examples
    /// ```
    /// use sinew::process::Command;
    ///
    /// let mut child = Command::new("true").spawn()?;
    /// assert_ne!(child.id(), std::process::id());
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Ends the process by `SIGKILL`, which it cannot refuse. Does nothing if a wait has returned
    /// the status of the process.
    ///
    /// The caller still has to wait for the process.
    ///
    /// # Errors
    /// Fails if this process may not kill the other.
    ///
    /// # Examples
    /// ```
    /// use sinew::process::Command;
    /// use std::os::unix::process::ExitStatusExt;
    ///
    /// sinew::run(|| {
    ///     let mut child = Command::new("sleep").arg("1000").spawn()?;
    ///     child.kill()?;
    ///     assert_eq!(child.wait()?.signal(), Some(libc::SIGKILL));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.child.kill()
    }

    /// Waits until the process has ended, and returns its status. Later calls return the same
    /// status.
    ///
    /// Closes [`stdin`](Self::stdin) first, because a process that reads to the end of its input
    /// would otherwise wait for this one. A cancelled fiber is unwound from this wait. The process
    /// goes on, and can be waited for again.
    ///
    /// # Errors
    /// Fails if the status cannot be had, because this process ignores `SIGCHLD`, or because other
    /// code has taken the status.
    ///
    /// # Examples
    /// ```
    /// use sinew::process::Command;
    ///
    /// sinew::run(|| {
    ///     let mut child = Command::new("true").spawn()?;
    ///     assert!(child.wait()?.success());
    ///     assert!(child.wait()?.success());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        match self.process.wait(None)? {
            Some(status) => Ok(status),
            // The process has ended, but a debugger keeps its status.
            None => crate::blocking(|| self.process.child.wait()),
        }
    }

    /// Waits until the process has ended, at most for `timeout`. Returns `None` if the timeout
    /// passed first.
    ///
    /// Closes [`stdin`](Self::stdin) first, as [`wait`](Self::wait) does. If the child is to go on
    /// reading, take `stdin` out before the call.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Examples
    /// ```
    /// use sinew::process::Command;
    /// use std::time::Duration;
    ///
    /// sinew::run(|| {
    ///     let mut child = Command::new("sleep").arg("1000").spawn()?;
    ///     if child.wait_timeout(Duration::from_millis(10))?.is_none() {
    ///         child.kill()?;
    ///     }
    ///     assert!(!child.wait()?.success());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_timeout(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        drop(self.stdin.take());
        self.process.wait(Some(timeout))
    }

    /// Returns the status of the process, if it has ended. Does not wait, and leaves
    /// [`stdin`](Self::stdin) open.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Examples
    /// ```
    /// use sinew::process::{Command, Stdio};
    ///
    /// sinew::run(|| {
    ///     let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
    ///     assert!(child.try_wait()?.is_none()); // it waits for input
    ///     assert!(child.wait()?.success());
    ///     assert!(child.try_wait()?.is_some());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Reads the output of the process from its pipes to their ends, and waits for the process.
    ///
    /// Closes [`stdin`](Self::stdin) first. Reads both pipes at the same time, so that the process
    /// never waits for room in one of them. A cancelled fiber is unwound from this wait, and the
    /// output that was read is lost.
    ///
    /// # Errors
    /// Fails if a pipe cannot be read, and as [`wait`](Self::wait).
    ///
    /// # Examples
    /// ```
    /// use sinew::process::{Command, Stdio};
    ///
    /// sinew::run(|| {
    ///     let child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
    ///     let output = child.wait_with_output()?;
    ///     assert_eq!(output.stdout, b"hello\n");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let out = self.stdout.as_ref().map(|end| &end.pipe);
        let err = self.stderr.as_ref().map(|end| &end.pipe);
        let (stdout, stderr) = collect(out, err)?;
        Ok(Output { status: self.wait()?, stdout, stderr })
    }
}

impl From<process::Child> for Child {
    /// Converts a process that was started in another way. Its pipes are put into non-blocking mode
    /// at this end.
    fn from(child: process::Child) -> Child {
        Child::new(child, false)
    }
}

/// The process without its pipes.
#[derive(Debug)]
struct Process {
    /// Takes the status, and remembers it.
    child: process::Child,
    /// Made by the first wait that is not over at once, and kept until the status was taken.
    exit: Option<Exit>,
    kill_on_drop: bool,
}

impl Process {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.exit = None;
        }
        Ok(status)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Option<ExitStatus>> {
        if let Some(status) = self.try_wait()? {
            return Ok(Some(status));
        }
        // Nothing else takes the status of the child, so the number still belongs to it.
        let exit = self.exit.get_or_insert_with(|| Exit::of(self.child.id()));
        if exit.wait(timeout)? { self.try_wait() } else { Ok(None) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.kill_on_drop && matches!(self.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            exit::reap(self.child.id());
        }
    }
}
