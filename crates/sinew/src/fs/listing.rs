//! Listing the entries of a directory.

use super::paths::with;
use super::{FileType, Metadata};
use crate::blocking;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// Returns an iterator over the entries of a directory, in no particular order and without `.` and
/// `..`.
///
/// A thread that may block reads the entries, a batch at a time. A fiber that is cancelled
/// meanwhile waits until the batch is read.
///
/// # Errors
/// If there is no such directory, or the caller may not read it. Each entry may be an error as
/// well.
///
/// # Examples
/// ```
/// let mut names = Vec::new();
/// for entry in sinew::fs::read_dir(".")? {
///     names.push(entry?.file_name());
/// }
/// assert!(names.iter().any(|name| name == "Cargo.toml"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    with(path, |path| {
        let inner = fs::read_dir(path)?;
        let mut listing = ReadDir { inner, fetched: VecDeque::new(), ended: false };
        listing.fetch();
        Ok(listing)
    })
}

/// An iterator over the entries of a directory; see [`read_dir`].
///
/// # Examples
/// ```
/// let entries = sinew::fs::read_dir("src")?;
/// let sizes = entries.map(|entry| Ok(entry?.metadata()?.len()));
/// let total: u64 = sizes.sum::<std::io::Result<u64>>()?;
/// assert!(total > 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ReadDir {
    inner: fs::ReadDir,
    /// Entries that were read and not yet returned, in order.
    fetched: VecDeque<io::Result<DirEntry>>,
    ended: bool,
}

// A panic cannot break the order of the entries that were read and not yet returned.
impl std::panic::UnwindSafe for ReadDir {}
impl std::panic::RefUnwindSafe for ReadDir {}

/// The number of entries in a batch.
const BATCH: usize = 64;

impl ReadDir {
    /// Reads more entries. Stops after an error: the entries after it are read only when the caller
    /// has seen the error and asks for more.
    fn fetch(&mut self) {
        while !self.ended && self.fetched.len() < BATCH {
            match self.inner.next() {
                None => self.ended = true,
                Some(entry) => {
                    let failed = entry.is_err();
                    self.fetched.push_back(entry.map(DirEntry::new));
                    if failed {
                        return;
                    }
                }
            }
        }
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        if self.fetched.is_empty() && !self.ended {
            blocking(|| self.fetch());
        }
        self.fetched.pop_front()
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// An entry of a directory, with its name and path.
///
/// # Examples
/// ```
/// for entry in sinew::fs::read_dir(".")? {
///     let entry = entry?;
///     assert_eq!(entry.file_name() == "src", entry.path().ends_with("src"));
///     if entry.file_name() == "src" {
///         assert!(entry.file_type()?.is_dir());
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct DirEntry {
    inner: fs::DirEntry,
    /// The type, which most directories store. `None` if it could not be found out when the entry
    /// was read.
    file_type: Option<FileType>,
}

impl DirEntry {
    fn new(inner: fs::DirEntry) -> DirEntry {
        let file_type = inner.file_type().ok();
        DirEntry { inner, file_type }
    }

    /// Returns the path of the entry: the path given to [`read_dir`], followed by the name.
    ///
    /// # Examples
    /// ```
    /// let entry = sinew::fs::read_dir("src")?.next().unwrap()?;
    /// assert!(entry.path().starts_with("src"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn path(&self) -> PathBuf {
        self.inner.path()
    }

    /// Returns the name of the entry, without its directory.
    ///
    /// # Examples
    /// ```
    /// let entry = sinew::fs::read_dir("src")?.next().unwrap()?;
    /// assert_eq!(entry.path().file_name(), Some(&*entry.file_name()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn file_name(&self) -> OsString {
        self.inner.file_name()
    }

    /// Returns the metadata of the entry. Does not follow symbolic links: returns the metadata of
    /// the link.
    ///
    /// # Errors
    /// If the entry is gone.
    ///
    /// # Examples
    /// ```
    /// let entry = sinew::fs::read_dir("src")?.next().unwrap()?;
    /// assert!(entry.metadata()?.modified().is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.inner.metadata())
    }

    /// Returns the type of the entry: a file, a directory, a symbolic link, or another kind.
    ///
    /// # Errors
    /// If the directory does not store the type, and the entry is gone.
    ///
    /// # Examples
    /// ```
    /// for entry in sinew::fs::read_dir("src")? {
    ///     let entry = entry?;
    ///     assert_eq!(entry.file_type()?, entry.metadata()?.file_type());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn file_type(&self) -> io::Result<FileType> {
        self.file_type.map_or_else(|| blocking(|| self.inner.file_type()), Ok)
    }
}

impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.inner.ino()
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
