//! What is in a folder.

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

/// Lists what is in a folder, in no particular order and without `.` and `..`.
///
/// A thread that may block reads some entries at a time. A fiber that is cancelled meanwhile waits for
/// them.
///
/// # Errors
/// If there is no such folder, or it may not be read. Each entry may be an error as well.
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

/// The entries of a folder; see [`read_dir`].
pub struct ReadDir {
    inner: fs::ReadDir,
    /// Entries on their way, in order.
    fetched: VecDeque<io::Result<DirEntry>>,
    ended: bool,
}

// Entries on their way are given out in order, whatever happened in between.
impl std::panic::UnwindSafe for ReadDir {}
impl std::panic::RefUnwindSafe for ReadDir {}

/// How many entries are read at a time.
const BATCH: usize = 64;

impl ReadDir {
    /// Reads some more entries, up to the first that is an error: what comes after it is not asked for
    /// before it was seen.
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

/// One of the entries of a folder: a name, and where it is.
pub struct DirEntry {
    inner: fs::DirEntry,
    /// Mostly the folder says.
    file_type: Option<FileType>,
}

impl DirEntry {
    fn new(inner: fs::DirEntry) -> DirEntry {
        let file_type = inner.file_type().ok();
        DirEntry { inner, file_type }
    }

    /// The path: that of the folder as it was opened, and the name.
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

    /// The name, without the folder.
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

    /// What is known of the file, or of the symbolic link if it is one.
    ///
    /// # Errors
    /// If it is gone.
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

    /// Whether it is a file, a folder, a symbolic link or something else.
    ///
    /// # Errors
    /// If the folder does not say, and the file is gone.
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
