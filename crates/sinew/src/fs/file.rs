//! An open file.

use super::kind::Kind;
use super::transfer;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;

/// An open file: `std::fs::File` for fibers.
///
/// What is in memory is read and written directly; for a disk the fiber waits, and others run. Several
/// fibers may use one file by reference, best with [`read_at`](Self::read_at) and
/// [`write_at`](Self::write_at), which do not depend on where the file stands.
#[derive(Debug)]
pub struct File {
    inner: fs::File,
    kind: Kind,
}

impl File {
    /// Reads at `offset`, and leaves the file where it stands. Returns how many bytes there were: zero
    /// at the end.
    ///
    /// # Errors
    /// If the file cannot be read there.
    ///
    /// # Examples
    /// ```
    /// use sinew::fs::File;
    ///
    /// sinew::run(|| {
    ///     let file = File::from(std::fs::File::open("Cargo.toml")?);
    ///     let mut buffer = [0; 9];
    ///     assert_eq!(file.read_at(&mut buffer, 0)?, 9);
    ///     assert_eq!(&buffer, b"[package]");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        transfer::read(self.inner.as_fd(), &self.kind, &mut [IoSliceMut::new(buffer)], Some(offset))
    }

    /// Writes at `offset`, and leaves the file where it stands. Returns how many bytes were written.
    ///
    /// # Errors
    /// If the file cannot be written there.
    ///
    /// # Examples
    /// ```no_run
    /// use sinew::fs::File;
    ///
    /// sinew::run(|| {
    ///     let file = File::from(std::fs::File::create("notes")?);
    ///     file.write_at(b"hello", 100)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        transfer::write(self.inner.as_fd(), &self.kind, &[IoSlice::new(buffer)], Some(offset))
    }

    /// Has everything written to the disk, data and what is known of the file.
    ///
    /// # Errors
    /// If that fails.
    ///
    /// # Examples
    /// ```no_run
    /// let file = sinew::fs::File::from(std::fs::File::create("notes")?);
    /// file.sync_all()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_all(&self) -> io::Result<()> {
        transfer::sync(self.inner.as_fd(), false)
    }

    /// Has the data written to the disk, and what is needed to find it again.
    ///
    /// # Errors
    /// If that fails.
    ///
    /// # Examples
    /// ```no_run
    /// let file = sinew::fs::File::from(std::fs::File::create("notes")?);
    /// file.sync_data()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_data(&self) -> io::Result<()> {
        transfer::sync(self.inner.as_fd(), true)
    }
}

impl From<fs::File> for File {
    fn from(inner: fs::File) -> File {
        let kind = Kind::of(inner.as_fd());
        File { inner, kind }
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        transfer::read(self.inner.as_fd(), &self.kind, &mut [IoSliceMut::new(buffer)], None)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        transfer::read(self.inner.as_fd(), &self.kind, buffers, None)
    }
}

impl Write for &File {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        transfer::write(self.inner.as_fd(), &self.kind, &[IoSlice::new(buffer)], None)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        transfer::write(self.inner.as_fd(), &self.kind, buffers, None)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
