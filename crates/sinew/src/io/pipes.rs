//! Pipes of the operating system.

use super::adapter::Async;
use super::faults;
use crate::primitive::{AtomicI32, Ordering};
use crate::reactor::nudge;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Makes a pipe: bytes written to the [`PipeWriter`] are read from the [`PipeReader`].
///
/// Use it with other processes, and with code that needs descriptors. Between fibers, a
/// [`channel`](crate::sync::channel) costs less.
///
/// # Errors
/// If the process has no file descriptors left.
///
/// # Examples
/// ```
/// use std::io::{Read, Write};
///
/// sinew::run(|| {
///     let (mut reader, mut writer) = sinew::io::pipe()?;
///     let fiber = sinew::spawn(move || writer.write_all(b"hello"));
///     let mut text = String::new();
///     reader.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     fiber.join().unwrap()
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    let (mut reader, mut writer) = (PipeReader::from(reader), PipeWriter::from(writer));
    let near = Near::new(reader.as_raw_fd());
    writer.far = Some(near.far.clone());
    reader.near = Some(near);
    Ok((reader, writer))
}

/// Tells the writing ends in this process where the reading end is. All ends share `far`, which
/// holds the descriptor number of the reading end, or -1 once the reading end is dropped.
#[derive(Debug)]
struct Near {
    far: Arc<AtomicI32>,
}

impl Near {
    fn new(fd: RawFd) -> Near {
        Near { far: Arc::new(AtomicI32::new(fd)) }
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.far.store(-1, Ordering::Relaxed);
    }
}

/// The reading end of a [`pipe`].
///
/// # Examples
/// ```
/// use std::io::{BufRead, BufReader, Write};
///
/// let (reader, mut writer) = sinew::io::pipe()?;
/// let fiber = sinew::spawn(move || BufReader::new(reader).lines().collect::<Result<Vec<_>, _>>());
/// writer.write_all(b"one\ntwo\n")?;
/// drop(writer); // the reader finds the end of the data
/// assert_eq!(fiber.join().unwrap()?, ["one", "two"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PipeReader {
    /// Set if the writing end may be in this process. Declared first: it must be dropped before the
    /// descriptor is closed.
    near: Option<Near>,
    io: Async<io::PipeReader>,
}

/// The writing end of a [`pipe`].
///
/// # Examples
/// ```
/// use std::io::Write;
///
/// let (reader, mut writer) = sinew::io::pipe()?;
/// writer.write_all(b"hello")?;
/// drop(reader);
/// // Nothing will read what is written from here on.
/// assert_eq!(writer.write_all(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PipeWriter {
    io: Async<io::PipeWriter>,
    /// The descriptor of the reading end, if it may be in this process; see [`Near`].
    far: Option<Arc<AtomicI32>>,
}

impl PipeWriter {
    /// Wakes a reader of this carrier after a write, and returns the result of the write. The
    /// reader runs as soon as the writing fiber waits. The descriptor number may have a new owner:
    /// then a fiber of that owner tries in vain and waits again.
    fn wrote(&self, result: io::Result<usize>) -> io::Result<usize> {
        if let (Ok(1..), Some(far)) = (&result, &self.far) {
            let fd = far.load(Ordering::Relaxed);
            if fd >= 0 {
                nudge(fd);
            }
        }
        result
    }
}

impl PipeReader {
    pub(crate) fn io(&self) -> &Async<io::PipeReader> {
        &self.io
    }

    /// Makes another handle to this end. Each byte is read through one of the handles.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// let (reader, _writer) = sinew::io::pipe()?;
    /// let other = reader.try_clone()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<PipeReader> {
        self.io.get_ref().try_clone().map(PipeReader::from)
    }
}

impl PipeWriter {
    /// Makes another handle to this end. The reader finds the end of the data when all handles are
    /// dropped.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// let (_reader, writer) = sinew::io::pipe()?;
    /// let other = writer.try_clone()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<PipeWriter> {
        let io = Async::of_any_mode(self.io.get_ref().try_clone()?);
        Ok(PipeWriter { io, far: self.far.clone() })
    }
}

impl From<io::PipeReader> for PipeReader {
    /// Puts the pipe into non-blocking mode.
    fn from(reader: io::PipeReader) -> PipeReader {
        PipeReader { near: None, io: Async::of_any_mode(reader) }
    }
}

impl From<io::PipeWriter> for PipeWriter {
    /// Puts the pipe into non-blocking mode.
    fn from(writer: io::PipeWriter) -> PipeWriter {
        PipeWriter { io: Async::of_any_mode(writer), far: None }
    }
}

impl From<OwnedFd> for PipeReader {
    /// Puts the pipe into non-blocking mode.
    fn from(fd: OwnedFd) -> PipeReader {
        io::PipeReader::from(fd).into()
    }
}

impl From<OwnedFd> for PipeWriter {
    /// Puts the pipe into non-blocking mode.
    fn from(fd: OwnedFd) -> PipeWriter {
        io::PipeWriter::from(fd).into()
    }
}

impl From<PipeReader> for io::PipeReader {
    /// Takes the pipe out of non-blocking mode.
    fn from(reader: PipeReader) -> io::PipeReader {
        reader.io.into_blocking()
    }
}

impl From<PipeWriter> for io::PipeWriter {
    /// Takes the pipe out of non-blocking mode.
    fn from(writer: PipeWriter) -> io::PipeWriter {
        writer.io.into_blocking()
    }
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl Read for &PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A short read does not mean that the pipe is empty. A writer in packet mode (`O_DIRECT`)
        // makes reads stop at the end of a packet. That writer may be a child process, whose mode
        // is not visible here.
        (&self.io).read(faults::shorten_mut(buffer))
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&self.io).read_vectored(buffers)
    }
}

impl Write for PipeWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &PipeWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.wrote((&self.io).write(faults::shorten(buffer)))
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.wrote((&self.io).write_vectored(buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

macro_rules! descriptor {
    ($type:ident) => {
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.io.as_fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.io.as_fd().as_raw_fd()
            }
        }

        impl From<$type> for OwnedFd {
            /// Returns the descriptor, in blocking mode.
            fn from(pipe: $type) -> OwnedFd {
                pipe.io.into_blocking().into()
            }
        }

        impl From<$type> for std::process::Stdio {
            /// Hands the pipe to a child process. Takes it out of non-blocking mode, which a child
            /// does not expect.
            fn from(pipe: $type) -> std::process::Stdio {
                pipe.io.into_blocking().into()
            }
        }

        impl IntoRawFd for $type {
            fn into_raw_fd(self) -> RawFd {
                OwnedFd::from(self).into_raw_fd()
            }
        }
    };
}

descriptor!(PipeReader);
descriptor!(PipeWriter);
