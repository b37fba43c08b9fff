//! This process's ends of the pipes to a child.

use super::Stdio;
use crate::io::readable::sealed::HasSource;
use crate::io::{PipeReader, PipeWriter};
use crate::reactor::Source;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::process;

/// The standard input of a child, to be written to. The child finds the end of its input when this
/// is dropped.
///
/// # Examples
/// ```
/// use sinew::process::{Command, Stdio};
/// use std::io::{Read, Write};
///
/// sinew::run(|| {
///     let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
///     child.stdin.take().unwrap().write_all(b"hello")?;
///     let mut text = String::new();
///     child.stdout.take().unwrap().read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     child.wait()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ChildStdin {
    pipe: PipeWriter,
}

/// The standard output of a child, to be read from.
///
/// Converted to a [`Stdio`], it is the input of another child:
///
/// ```
/// use sinew::process::{Command, Stdio};
///
/// sinew::run(|| {
///     let mut first = Command::new("echo").arg("one two").stdout(Stdio::piped()).spawn()?;
///     let words = first.stdout.take().unwrap();
///     let count = Command::new("wc").arg("-w").stdin(words).output()?;
///     assert_eq!(String::from_utf8_lossy(&count.stdout).trim(), "2");
///     first.wait()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ChildStdout {
    pub(super) pipe: PipeReader,
}

/// The standard error of a child, to be read from.
///
/// # Examples
/// ```
/// use sinew::process::{Command, Stdio};
/// use std::io::Read;
///
/// sinew::run(|| {
///     let mut child =
///         Command::new("sh").args(["-c", "echo oh >&2"]).stderr(Stdio::piped()).spawn()?;
///     let mut text = String::new();
///     child.stderr.take().unwrap().read_to_string(&mut text)?;
///     assert_eq!(text, "oh\n");
///     child.wait()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ChildStderr {
    pub(super) pipe: PipeReader,
}

impl Write for ChildStdin {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.pipe.write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.pipe.write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &ChildStdin {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&self.pipe).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.pipe).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

macro_rules! reads {
    ($type:ident) => {
        impl Read for $type {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.pipe.read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.pipe.read_vectored(buffers)
            }
        }

        impl Read for &$type {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&self.pipe).read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&self.pipe).read_vectored(buffers)
            }
        }

        impl HasSource for $type {
            fn source(&self) -> &Source {
                self.pipe.io().source()
            }
        }
    };
}

reads!(ChildStdout);
reads!(ChildStderr);

macro_rules! end_of_pipe {
    ($type:ident, $pipe:ident) => {
        impl From<process::$type> for $type {
            /// Puts this end of the pipe into non-blocking mode. The child's end stays as it is.
            fn from(end: process::$type) -> $type {
                $type { pipe: OwnedFd::from(end).into() }
            }
        }

        impl From<$type> for $pipe {
            fn from(end: $type) -> $pipe {
                end.pipe
            }
        }

        impl From<$type> for Stdio {
            /// Prepares the pipe for another child. Takes it out of non-blocking mode, which the
            /// child would not expect.
            fn from(end: $type) -> Stdio {
                io::$pipe::from(end.pipe).into()
            }
        }

        impl From<$type> for OwnedFd {
            /// Returns the descriptor in blocking mode.
            fn from(end: $type) -> OwnedFd {
                end.pipe.into()
            }
        }

        impl IntoRawFd for $type {
            fn into_raw_fd(self) -> RawFd {
                self.pipe.into_raw_fd()
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.pipe.as_fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.pipe.as_raw_fd()
            }
        }
    };
}

end_of_pipe!(ChildStdin, PipeWriter);
end_of_pipe!(ChildStdout, PipeReader);
end_of_pipe!(ChildStderr, PipeReader);
