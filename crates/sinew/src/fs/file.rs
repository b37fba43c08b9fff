//! An open file.

use super::kind::Kind;
use super::{FileTimes, Metadata, OpenOptions, Permissions, transfer};
use crate::blocking;
use std::fmt;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

/// An open file: `std::fs::File` for fibers.
///
/// Bytes in memory are read and written directly. For bytes on a disk the fiber is suspended, and
/// other fibers run. Several fibers may share one file by reference, best with
/// [`read_at`](Self::read_at) and [`write_at`](Self::write_at), which do not use the file position.
/// Dropping the `File` closes it.
///
/// Reads and writes of a FIFO, a terminal or a device wait until it is ready. A cancelled fiber is
/// unwound from this wait. With `O_NONBLOCK` they do not wait.
///
/// # Examples
/// ```
/// use sinew::fs::File;
/// use std::io::{Read, Seek, Write};
///
/// let path = std::env::temp_dir().join(format!("sinew-file-{}", std::process::id()));
/// let name = path.clone();
/// sinew::run(move || {
///     let mut file = File::create_new(&name)?;
///     file.write_all(b"hello")?;
///     file.rewind()?;
///     let mut text = String::new();
///     file.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File {
    pub(super) inner: fs::File,
    pub(super) kind: Kind,
}

impl File {
    /// Opens a file for reading.
    ///
    /// Waits without blocking the carrier. A cancelled fiber waits until the file is open, even for
    /// a FIFO that no process has opened for writing.
    ///
    /// # Errors
    /// If there is no such file, or the caller may not read it.
    ///
    /// # Examples
    /// ```
    /// use std::io::Read;
    ///
    /// let mut file = sinew::fs::File::open("Cargo.toml")?;
    /// let mut text = String::new();
    /// file.read_to_string(&mut text)?;
    /// assert!(text.starts_with("[package]"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing and removes its contents. Makes the file if there is none.
    ///
    /// # Errors
    /// If the file cannot be made, or the caller may not write it.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-create-{}", std::process::id()));
    /// sinew::fs::File::create(&path)?;
    /// assert_eq!(std::fs::metadata(&path)?.len(), 0);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Makes a new file, and opens it for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something at this path. Other errors if the file cannot be made.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-create-new-{}", std::process::id()));
    /// sinew::fs::File::create_new(&path)?;
    /// let again = sinew::fs::File::create_new(&path).unwrap_err();
    /// assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// Returns new options for opening a file, as [`OpenOptions::new`] does.
    ///
    /// # Examples
    /// ```
    /// let file = sinew::fs::File::options().read(true).open("Cargo.toml")?;
    /// assert!(file.metadata()?.is_file());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Reads at `offset`, and does not change the file position. Returns the number of bytes read:
    /// zero at the end of the file.
    ///
    /// A cancelled fiber is unwound from this call if no byte was read.
    ///
    /// # Errors
    /// If the file cannot be read at this offset.
    ///
    /// # Examples
    /// ```
    /// use sinew::fs::File;
    ///
    /// sinew::run(|| {
    ///     let file = File::open("Cargo.toml")?;
    ///     let mut buffer = [0; 7];
    ///     assert_eq!(file.read_at(&mut buffer, 1)?, 7);
    ///     assert_eq!(&buffer, b"package");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        transfer::read(self.inner.as_fd(), &self.kind, &mut [IoSliceMut::new(buffer)], Some(offset))
    }

    /// Fills `buffer` with the bytes at `offset`, and does not change the file position.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before `buffer` is full. Other errors if the file cannot be
    /// read.
    ///
    /// # Examples
    /// ```
    /// let file = sinew::fs::File::open("Cargo.toml")?;
    /// let mut buffer = [0; 7];
    /// file.read_exact_at(&mut buffer, 1)?;
    /// assert_eq!(&buffer, b"package");
    /// let error = file.read_exact_at(&mut buffer, 1 << 40).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }

    /// Writes at `offset`, and does not change the file position. Returns the number of bytes
    /// written.
    ///
    /// A cancelled fiber is unwound from this call if no byte was written.
    ///
    /// # Errors
    /// If the file cannot be written at this offset.
    ///
    /// # Examples
    /// ```
    /// use sinew::fs::File;
    ///
    /// let path = std::env::temp_dir().join(format!("sinew-write-at-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// sinew::run(move || file.write_at(b"hello", 3))?;
    /// assert_eq!(std::fs::read(&path)?, b"\0\0\0hello");
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        transfer::write(self.inner.as_fd(), &self.kind, &[IoSlice::new(buffer)], Some(offset))
    }

    /// Writes all of `buffer` at `offset`, and does not change the file position.
    ///
    /// # Errors
    /// If the file cannot be written at this offset. A part of `buffer` may have been written.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-write-all-at-{}", std::process::id()));
    /// let file = sinew::fs::File::create(&path)?;
    /// file.write_all_at(b"world", 6)?;
    /// file.write_all_at(b"hello ", 0)?;
    /// assert_eq!(std::fs::read(&path)?, b"hello world");
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, buffer, offset)
    }

    /// Waits until the data and the metadata of the file are on the disk.
    ///
    /// A fiber that is cancelled during the call is unwound only if the kernel has not begun to
    /// write.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-sync-all-{}", std::process::id()));
    /// let file = sinew::fs::File::create(&path)?;
    /// file.write_all_at(b"safe", 0)?;
    /// file.sync_all()?;
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_all(&self) -> io::Result<()> {
        transfer::sync(self.inner.as_fd(), false)
    }

    /// Waits until the data of the file is on the disk, with the metadata that is needed to read
    /// it.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-sync-data-{}", std::process::id()));
    /// let file = sinew::fs::File::create(&path)?;
    /// file.write_all_at(b"safe", 0)?;
    /// file.sync_data()?;
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_data(&self) -> io::Result<()> {
        transfer::sync(self.inner.as_fd(), true)
    }

    /// Sets the length of the file to `size` bytes: cuts it off, or appends zeros. Does not change
    /// the file position.
    ///
    /// # Errors
    /// If the file is not open for writing, or cannot have this size.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-set-len-{}", std::process::id()));
    /// let file = sinew::fs::File::create(&path)?;
    /// file.set_len(10)?;
    /// assert_eq!(file.metadata()?.len(), 10);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        blocking(|| self.inner.set_len(size))
    }

    /// Returns the metadata of the file: its length, times, permissions.
    ///
    /// # Errors
    /// If the system call fails.
    ///
    /// # Examples
    /// ```
    /// let file = sinew::fs::File::open("Cargo.toml")?;
    /// assert!(file.metadata()?.len() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.asked(|| self.inner.metadata())
    }

    /// Changes the permissions of the file.
    ///
    /// # Errors
    /// If the caller may not change them.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-set-permissions-of-{}", std::process::id()));
    /// let file = sinew::fs::File::create(&path)?;
    /// let mut permissions = file.metadata()?.permissions();
    /// permissions.set_readonly(true);
    /// file.set_permissions(permissions)?;
    /// assert!(file.metadata()?.permissions().readonly());
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        blocking(|| self.inner.set_permissions(permissions))
    }

    /// Changes the times of the last read and the last write of the file.
    ///
    /// # Errors
    /// If the caller may not change them.
    ///
    /// # Examples
    /// ```
    /// use sinew::fs::{File, FileTimes};
    /// use std::time::SystemTime;
    ///
    /// let path = std::env::temp_dir().join(format!("sinew-set-times-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH))?;
    /// assert_eq!(file.metadata()?.modified()?, SystemTime::UNIX_EPOCH);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        blocking(|| self.inner.set_times(times))
    }

    /// Changes the time of the last write of the file.
    ///
    /// # Errors
    /// If the caller may not change the time.
    ///
    /// # Examples
    /// ```
    /// use std::time::SystemTime;
    ///
    /// let path = std::env::temp_dir().join(format!("sinew-set-modified-{}", std::process::id()));
    /// let file = sinew::fs::File::create(&path)?;
    /// file.set_modified(SystemTime::UNIX_EPOCH)?;
    /// assert_eq!(file.metadata()?.modified()?, SystemTime::UNIX_EPOCH);
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Makes another handle to this open file. Both handles share the file position.
    ///
    /// # Errors
    /// If the process has no file descriptors left.
    ///
    /// # Examples
    /// ```
    /// use std::io::Read;
    ///
    /// let mut file = sinew::fs::File::open("Cargo.toml")?;
    /// let mut other = file.try_clone()?;
    /// let (mut first, mut second) = ([0; 1], [0; 7]);
    /// file.read_exact(&mut first)?;
    /// other.read_exact(&mut second)?;
    /// assert_eq!(&second, b"package");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<File> {
        self.inner.try_clone().map(File::from)
    }

    /// Runs `question`, a call about the open file: directly if the kernel answers without waiting,
    /// otherwise on a thread that may block.
    pub(super) fn asked<R: Send>(&self, question: impl FnOnce() -> R + Send) -> R {
        if self.kind.is_local() { question() } else { blocking(question) }
    }
}

/// Calls the methods of [`File`] with the same names, for code that accepts any `FileExt`.
impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(self, buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        File::write_at(self, buffer, offset)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl From<fs::File> for File {
    fn from(inner: fs::File) -> File {
        let kind = Kind::of(inner.as_fd());
        File { inner, kind }
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> fs::File {
        file.inner
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        File::from(fs::File::from(fd))
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.inner.into()
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Stdio {
        file.inner.into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.inner.into_raw_fd()
    }
}

impl FromRawFd for File {
    // # Safety: as in the trait.
    unsafe fn from_raw_fd(fd: RawFd) -> File {
        // SAFETY: the caller promises that `fd` is open and that nothing else owns it.
        File::from(unsafe { fs::File::from_raw_fd(fd) })
    }
}
