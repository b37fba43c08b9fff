//! Pipes of the operating system.

use super::adapter::Async;
use super::faults;
use crate::primitive::{AtomicI32, Ordering};
use crate::reactor::nudge;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Makes a pipe: what is written to one end is read from the other.
///
/// For other processes, and for what wants descriptors. Between fibers, a
/// [`channel`](crate::sync::channel) costs less.
///
/// # Errors
/// If there are no descriptors left.
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

/// The end of a pipe of this process that is read from, as the other end knows it: its descriptor, or
/// a negative number once it is gone.
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

/// The end of a [`pipe`] that is read from.
#[derive(Debug)]
pub struct PipeReader {
    /// If the other end may be in this process. Goes before the descriptor does.
    near: Option<Near>,
    io: Async<io::PipeReader>,
}

/// The end of a [`pipe`] that is written to.
#[derive(Debug)]
pub struct PipeWriter {
    io: Async<io::PipeWriter>,
    /// The other end, if it may be in this process.
    far: Option<Arc<AtomicI32>>,
}

impl PipeWriter {
    /// Notes that something was written. A fiber that waits for it here runs as soon as this one waits:
    /// if it is the number's next owner, it tries in vain and waits again.
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

    /// Another one for the same end. Each byte is read by one of them.
    ///
    /// # Errors
    /// If there are no descriptors left.
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
    /// Another one for the same end. The reader finds the end when all are gone.
    ///
    /// # Errors
    /// If there are no descriptors left.
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
        // After each attempt that gave less than was asked for there may be more: the next packet of
        // a writer who has set the mode for packets, which may be a child, and is not to be seen here.
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
            /// The descriptor, which blocks.
            fn from(pipe: $type) -> OwnedFd {
                pipe.io.into_blocking().into()
            }
        }

        impl From<$type> for std::process::Stdio {
            /// For a child; takes the pipe out of non-blocking mode, which that would not expect.
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
