//! A process that was started.

use super::collect::collect;
use super::exit::{self, Exit};
use super::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use core::time::Duration;
use std::io;
use std::process;

/// A process that was started by a [`Command`](super::Command): `std::process::Child` for fibers.
///
/// Dropping it leaves the process running, unless
/// [`kill_on_drop`](super::Command::kill_on_drop) was asked for; the [module](super) says what becomes
/// of processes that nobody waits for.
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
    /// What it reads, if that was set to a pipe.
    pub stdin: Option<ChildStdin>,
    /// What it writes, if that was set to a pipe.
    pub stdout: Option<ChildStdout>,
    /// What it says about errors, if that was set to a pipe.
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

    /// The number of the process, as the system has it.
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

    /// Ends the process by `SIGKILL`, which it cannot refuse. It is still to be waited for. Nothing if
    /// it has been.
    ///
    /// # Errors
    /// If this process may not do that.
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

    /// Waits until the process has ended, and tells how. Once it has, the answer stays the same.
    ///
    /// Closes [`stdin`](Self::stdin) first: a process that reads to the end of its input would else
    /// wait for this one. A cancelled fiber is unwound from here; the process goes on, and can be
    /// waited for again.
    ///
    /// # Errors
    /// If the status cannot be had: because this process ignores `SIGCHLD`, or somebody else has
    /// taken it.
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
            // It has ended, but a debugger keeps its status.
            None => crate::blocking(|| self.process.child.wait()),
        }
    }

    /// As [`wait`](Self::wait), at most for `timeout`; `None` if that was over before. Closes
    /// [`stdin`](Self::stdin) first, as `wait` does: take it out before if the child is to go on reading.
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

    /// How the process has ended, if it has. Does not wait, and leaves [`stdin`](Self::stdin) open.
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
    ///     assert!(child.try_wait()?.is_none()); // it reads
    ///     assert!(child.wait()?.success());
    ///     assert!(child.try_wait()?.is_some());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Reads what the process writes to its pipes, until they end, and waits for it.
    ///
    /// Closes [`stdin`](Self::stdin) first. Both pipes are read at the same time, so neither of them
    /// stops the process by being full. A cancelled fiber is unwound from here, and what was read is
    /// lost.
    ///
    /// # Errors
    /// If a pipe cannot be read, and as [`wait`](Self::wait).
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
    /// A process that was started otherwise. Its pipes are put into non-blocking mode at this end.
    fn from(child: process::Child) -> Child {
        Child::new(child, false)
    }
}

/// The process without its pipes.
#[derive(Debug)]
struct Process {
    /// Takes the status, and remembers it.
    child: process::Child,
    /// Made by the first wait that is not over at once, kept until the status was taken.
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
        // The number is still that of the child, whose status nobody else takes.
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
