//! What a file is opened for.
//!
//! A thread opens it, also if the kernel has the name in memory. To ask for no more than that
//! (`RESOLVE_CACHED`) does not keep a FIFO from waiting for its other side, nor a file system from
//! asking a server; to find out first what it is, and to open just that, takes five calls.

use super::File;
use super::paths::with;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What a file is to be opened for: `std::fs::OpenOptions` for fibers.
///
/// The trait [`OpenOptionsExt`] of the standard library adds `mode` and `custom_flags`.
///
/// # Examples
/// ```
/// use sinew::fs::OpenOptions;
/// use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
///
/// let path = std::env::temp_dir().join(format!("sinew-options-{}", std::process::id()));
/// let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
/// assert_eq!(file.metadata()?.permissions().mode() & 0o777, 0o600);
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

impl OpenOptions {
    /// Nothing yet: say for what.
    ///
    /// # Examples
    /// ```
    /// let file = sinew::fs::OpenOptions::new().read(true).open("Cargo.toml")?;
    /// assert!(file.metadata()?.is_file());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[expect(clippy::new_without_default, reason = "that of the standard library has none")]
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    /// Whether it is opened for reading.
    ///
    /// # Examples
    /// ```
    /// sinew::fs::OpenOptions::new().read(true).open("Cargo.toml")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.0.read(read);
        self
    }

    /// Whether it is opened for writing; what is there is overwritten.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-option-write-{}", std::process::id()));
    /// sinew::fs::OpenOptions::new().write(true).create(true).open(&path)?;
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.0.write(write);
        self
    }

    /// Whether it is opened for writing at the end, wherever that is at the time of each write.
    ///
    /// # Examples
    /// ```
    /// use std::io::Write;
    ///
    /// let path = std::env::temp_dir().join(format!("sinew-option-append-{}", std::process::id()));
    /// for word in ["one ", "two"] {
    ///     sinew::fs::OpenOptions::new().append(true).create(true).open(&path)?.write_all(word.as_bytes())?;
    /// }
    /// assert_eq!(std::fs::read(&path)?, b"one two");
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.0.append(append);
        self
    }

    /// Whether it is opened without what was in it; needs writing.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-option-truncate-{}", std::process::id()));
    /// sinew::fs::OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.0.truncate(truncate);
        self
    }

    /// Whether it is opened and made if there is none; needs writing or appending.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-option-create-{}", std::process::id()));
    /// sinew::fs::OpenOptions::new().write(true).create(true).open(&path)?;
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.0.create(create);
        self
    }

    /// Whether it is opened only if there is none, and made; needs writing or appending.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-option-create-new-{}", std::process::id()));
    /// sinew::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    /// std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.0.create_new(create_new);
        self
    }

    /// Opens the file.
    ///
    /// Waits without blocking the carrier. A fiber that is cancelled meanwhile waits until it is open, also
    /// for the other side of a FIFO.
    ///
    /// # Errors
    /// As in the standard library: `NotFound`, `PermissionDenied`, `AlreadyExists`, or `InvalidInput` if
    /// the options contradict each other.
    ///
    /// # Examples
    /// ```
    /// use sinew::fs::OpenOptions;
    ///
    /// let error = OpenOptions::new().read(true).open("Cargo.tomb").unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        with(path, |path| self.0.open(path)).map(File::from)
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }
}
