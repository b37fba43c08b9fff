//! Reading, writing and seeking a file as a stream of bytes.

use super::File;
use super::transfer;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        transfer::read(self.inner.as_fd(), &self.kind, buffers, None)
    }

    fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let before = bytes.len();
        bytes.try_reserve(self.remaining())?;
        loop {
            if bytes.len() == bytes.capacity() {
                // The file probably ends here. Probe with a small buffer before allocating more.
                let mut probe = [0; PROBE];
                let count = self.read(&mut probe)?;
                if count == 0 {
                    return Ok(bytes.len() - before);
                }
                bytes.try_reserve(count)?;
                bytes.extend_from_slice(&probe[..count]);
                continue;
            }
            let spare = bytes.spare_capacity_mut();
            let count = transfer::read_spare(self.inner.as_fd(), &self.kind, spare)?;
            if count == 0 {
                return Ok(bytes.len() - before);
            }
            // SAFETY: the read has initialized `count` bytes of the spare capacity.
            unsafe { bytes.set_len(bytes.len() + count) };
        }
    }

    fn read_to_string(&mut self, text: &mut String) -> io::Result<usize> {
        let mut bytes = Vec::new();
        let result = self.read_to_end(&mut bytes);
        let more = String::from_utf8(bytes).map_err(|_| not_text());
        // Text that was read before an error is appended, as in the standard library.
        match more {
            Ok(more) if text.is_empty() => *text = more,
            Ok(more) => text.push_str(&more),
            Err(error) => return result.and(Err(error)),
        }
        result
    }
}

/// The number of bytes that are read to find out whether the file ends.
const PROBE: usize = 32;

/// Makes the error for text that is not UTF-8.
pub(super) fn not_text() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8")
}

impl Write for &File {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        transfer::write(self.inner.as_fd(), &self.kind, buffers, None)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.asked(|| (&self.inner).seek(position))
    }
}

impl File {
    /// Returns the number of bytes from the file position to the end of the file, or zero if it is
    /// not known.
    fn remaining(&self) -> usize {
        let size_and_position = || {
            let size = self.inner.metadata().ok()?.len();
            let position = (&self.inner).stream_position().ok()?;
            Some(size.saturating_sub(position))
        };
        let remaining = self.asked(size_and_position).unwrap_or(0);
        usize::try_from(remaining).unwrap_or(0)
    }
}

/// Reads as `&File` does.
impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }

    fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(bytes)
    }

    fn read_to_string(&mut self, text: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(text)
    }
}

/// Writes as `&File` does.
impl Write for File {
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

/// Seeks as `&File` does.
impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&*self).seek(position)
    }
}
