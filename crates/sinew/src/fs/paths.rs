//! Operations on files by name.
//!
//! Each operation runs on a thread that may block, because any directory of the path may have to be
//! read from a disk. A fiber that is cancelled meanwhile waits until the operation is done.

use super::{Metadata, Permissions};
use crate::blocking;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the metadata of a file: its length, times, permissions. Follows symbolic links.
///
/// # Errors
/// If there is no such file, or the caller may not enter a directory of the path.
///
/// # Examples
/// ```
/// assert!(sinew::fs::metadata("Cargo.toml")?.is_file());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    with(path, |path| fs::metadata(path))
}

/// Returns the metadata of a file. Does not follow symbolic links: returns the metadata of the
/// link.
///
/// # Errors
/// As [`metadata`].
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-symlink-metadata-{}", std::process::id()));
/// sinew::os::unix::fs::symlink("nowhere", &path)?;
/// assert!(sinew::fs::symlink_metadata(&path)?.is_symlink());
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    with(path, |path| fs::symlink_metadata(path))
}

/// Returns whether there is a file at this path. Follows symbolic links.
///
/// # Errors
/// If the answer cannot be found, for example because the caller may not enter a directory of the
/// path.
///
/// # Examples
/// ```
/// assert!(sinew::fs::exists("Cargo.toml")?);
/// assert!(!sinew::fs::exists("Cargo.tomb")?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    with(path, |path| fs::exists(path))
}

/// Returns the absolute path of a file, with all symbolic links resolved.
///
/// # Errors
/// If there is no such file.
///
/// # Examples
/// ```
/// let path = sinew::fs::canonicalize("src/../Cargo.toml")?;
/// assert!(path.is_absolute() && path.ends_with("Cargo.toml"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    with(path, |path| fs::canonicalize(path))
}

/// Returns the path that a symbolic link points to.
///
/// # Errors
/// If there is no symbolic link at this path.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-read-link-{}", std::process::id()));
/// sinew::os::unix::fs::symlink("nowhere", &path)?;
/// assert_eq!(sinew::fs::read_link(&path)?.to_str(), Some("nowhere"));
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    with(path, |path| fs::read_link(path))
}

/// Changes the permissions of a file.
///
/// # Errors
/// If there is no such file, or the caller may not change its permissions.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-set-permissions-{}", std::process::id()));
/// sinew::fs::write(&path, "text")?;
/// let mut permissions = sinew::fs::metadata(&path)?.permissions();
/// permissions.set_readonly(true);
/// sinew::fs::set_permissions(&path, permissions)?;
/// assert!(sinew::fs::metadata(&path)?.permissions().readonly());
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    with(path, |path| fs::set_permissions(path, permissions))
}

/// Renames a file. Replaces the file at `to`, if there is one.
///
/// # Errors
/// If there is no file at `from`, or `from` and `to` are on different file systems.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-rename-{}", std::process::id()));
/// let other = path.with_extension("renamed");
/// sinew::fs::write(&path, "text")?;
/// sinew::fs::rename(&path, &other)?;
/// assert!(!sinew::fs::exists(&path)?);
/// std::fs::remove_file(&other)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    let to = to.as_ref();
    with(from, |from| fs::rename(from, to))
}

/// Makes a hard link: `link` becomes another name of the file `original`.
///
/// # Errors
/// If there is no file at `original`, or there is something at `link`.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-hard-link-{}", std::process::id()));
/// let other = path.with_extension("other");
/// sinew::fs::write(&path, "text")?;
/// sinew::fs::hard_link(&path, &other)?;
/// assert_eq!(sinew::fs::read(&other)?, b"text");
/// std::fs::remove_file(&path)?;
/// std::fs::remove_file(&other)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    let link = link.as_ref();
    with(original, |original| fs::hard_link(original, link))
}

/// Removes a file, or a symbolic link.
///
/// # Errors
/// If there is no such file, or it is a directory.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-remove-file-{}", std::process::id()));
/// sinew::fs::write(&path, "text")?;
/// sinew::fs::remove_file(&path)?;
/// assert!(!sinew::fs::exists(&path)?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    with(path, |path| fs::remove_file(path))
}

/// Makes a directory.
///
/// # Errors
/// If there is something at this path, or its parent directory does not exist.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-create-dir-{}", std::process::id()));
/// sinew::fs::create_dir(&path)?;
/// assert!(sinew::fs::metadata(&path)?.is_dir());
/// std::fs::remove_dir(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    with(path, |path| fs::create_dir(path))
}

/// Makes a directory, and its parent directories. Directories that exist are no error.
///
/// # Errors
/// If one of the directories cannot be made.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-create-dir-all-{}", std::process::id()));
/// sinew::fs::create_dir_all(path.join("a/b"))?;
/// assert!(sinew::fs::metadata(path.join("a/b"))?.is_dir());
/// std::fs::remove_dir_all(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    with(path, |path| fs::create_dir_all(path))
}

/// Removes an empty directory.
///
/// # Errors
/// If there is no such directory, or it is not empty.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-remove-dir-{}", std::process::id()));
/// sinew::fs::create_dir(&path)?;
/// sinew::fs::remove_dir(&path)?;
/// assert!(!sinew::fs::exists(&path)?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    with(path, |path| fs::remove_dir(path))
}

/// Removes a directory and its contents. Symbolic links are removed, not followed.
///
/// A fiber that is cancelled meanwhile waits until everything is removed.
///
/// # Errors
/// If an entry cannot be removed. Other entries may have been removed.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-remove-dir-all-{}", std::process::id()));
/// sinew::fs::create_dir_all(path.join("a/b"))?;
/// sinew::fs::remove_dir_all(&path)?;
/// assert!(!sinew::fs::exists(&path)?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    with(path, |path| fs::remove_dir_all(path))
}

/// Runs `work` with a path on a thread that may block.
pub(crate) fn with<P: AsRef<Path>, R: Send>(path: P, work: impl FnOnce(&Path) -> R + Send) -> R {
    let path = path.as_ref();
    blocking(|| work(path))
}
