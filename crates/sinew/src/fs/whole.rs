//! Reading, writing and copying whole files.
//!
//! A thread that may block opens the file, moves the bytes, and closes it, so the fiber waits once.
//! If the file is not a regular file, the thread only opens it, and the fiber reads or writes it as
//! a [`File`].

use super::File;
use super::paths::with;
use super::stream::not_text;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

/// Reads a whole file.
///
/// # Errors
/// If there is no such file, or it cannot be read.
///
/// # Examples
/// ```
/// let bytes = sinew::run(|| sinew::fs::read("Cargo.toml"))?;
/// assert!(bytes.starts_with(b"[package]"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let opened = with(path, |path| {
        let mut file = fs::File::open(path)?;
        if !file.metadata()?.is_file() {
            return Ok(Err(file));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(Ok(bytes))
    })?;
    opened.or_else(|special| {
        let mut bytes = Vec::new();
        File::from(special).read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

/// Reads a whole file of text.
///
/// # Errors
/// As [`read`]. Also `InvalidData` if the file is not UTF-8.
///
/// # Examples
/// ```
/// let text = sinew::run(|| sinew::fs::read_to_string("Cargo.toml"))?;
/// assert!(text.starts_with("[package]"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| not_text())
}

/// Writes a whole file: makes it, or replaces its contents.
///
/// # Errors
/// If the file cannot be written. A part of `contents` may have been written.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-write-{}", std::process::id()));
/// let name = path.clone();
/// sinew::run(move || sinew::fs::write(&name, "hello"))?;
/// assert_eq!(std::fs::read(&path)?, b"hello");
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let contents = contents.as_ref();
    let special = with(path, |path| {
        let mut file = fs::File::create(path)?;
        if !file.metadata()?.is_file() {
            return Ok(Some(file));
        }
        file.write_all(contents)?;
        Ok::<_, io::Error>(None)
    })?;
    special.map_or(Ok(()), |file| File::from(file).write_all(contents))
}

/// Copies the contents and the permissions of the file `from` to the file `to`, and overwrites that
/// file if it exists. Returns the number of bytes copied.
///
/// A fiber that is cancelled meanwhile waits until everything is copied.
///
/// # Errors
/// If `from` cannot be read, or `to` cannot be written. A part may have been written.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("sinew-copy-{}", std::process::id()));
/// let name = path.clone();
/// let count = sinew::run(move || sinew::fs::copy("Cargo.toml", &name))?;
/// assert_eq!(std::fs::metadata(&path)?.len(), count);
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let to = to.as_ref();
    with(from, |from| fs::copy(from, to))
}
