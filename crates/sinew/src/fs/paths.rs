//! What is done to files by name.
//!
//! Each is done by a thread that may block: any folder on the way may have to be read from a disk. A
//! fiber that is cancelled meanwhile waits until it is done.

use super::{Metadata, Permissions};
use crate::blocking;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is known of a file: its length, times, permissions. Follows symbolic links.
///
/// # Errors
/// If there is no such file, or a folder on the way may not be entered.
///
/// # Examples
/// ```
/// assert!(sinew::fs::metadata("Cargo.toml")?.is_file());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    with(path, |path| fs::metadata(path))
}

/// What is known of a file, or of the symbolic link if it is one.
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

/// Whether there is such a file. Follows symbolic links.
///
/// # Errors
/// If that cannot be known: a folder on the way may not be entered, say.
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

/// The path from the root, without symbolic links.
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

/// Where a symbolic link leads.
///
/// # Errors
/// If it is none.
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

/// Changes who may do what with a file.
///
/// # Errors
/// If there is none, or the caller may not change that.
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

/// Gives a file another name, in place of the one that has it.
///
/// # Errors
/// If there is no such file, or the two are on different file systems.
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

/// Gives a file one more name.
///
/// # Errors
/// If there is no such file, or there is one at `link`.
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
/// If there is none, or it is a folder.
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

/// Makes a folder.
///
/// # Errors
/// If there is something of that name, or no folder to put it in.
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

/// Makes a folder, and those on the way to it. One that is there is no error.
///
/// # Errors
/// If one of them cannot be made.
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

/// Removes an empty folder.
///
/// # Errors
/// If it is not empty, or none.
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

/// Removes a folder and all that is in it. Symbolic links are removed, not followed.
///
/// A fiber that is cancelled meanwhile waits until all is gone.
///
/// # Errors
/// If something cannot be removed; other things may have been.
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

/// Does something with a path where it may block.
pub(crate) fn with<P: AsRef<Path>, R: Send>(path: P, work: impl FnOnce(&Path) -> R + Send) -> R {
    let path = path.as_ref();
    blocking(|| work(path))
}
