//! Opening files with options.
//!
//! A thread that may block opens the file, even if the kernel has the path in memory.
//! `RESOLVE_CACHED`, which opens only such paths, would not help: opening a FIFO still waits for
//! its other side, and a network file system still asks its server. Finding out the kind of the
//! file first, and then opening exactly that file, takes five system calls.

use super::File;
use super::paths::with;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Options for opening a file: `std::fs::OpenOptions` for fibers.
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
    /// Makes options with nothing set. At least one kind of access must be set before opening.
    ///
    /// # Examples
    /// ```
    /// let file = sinew::fs::OpenOptions::new().read(true).open("Cargo.toml")?;
    /// assert!(file.metadata()?.is_file());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[expect(clippy::new_without_default, reason = "the standard library has no `Default` here")]
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    /// Sets whether the file is opened for reading.
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

    /// Sets whether the file is opened for writing. Writes overwrite its contents.
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

    /// Sets whether the file is opened for appending. Each write goes to the end that the file has
    /// at that time.
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

    /// Sets whether opening removes the contents of the file. Needs [`write`](Self::write).
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

    /// Sets whether the file is made if there is none. Needs [`write`](Self::write) or
    /// [`append`](Self::append).
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

    /// Sets whether the file must be new: opening makes it, and fails if it exists. Needs
    /// [`write`](Self::write) or [`append`](Self::append).
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
    /// Waits without blocking the carrier. A fiber that is cancelled meanwhile waits until the file
    /// is open, even for the other side of a FIFO.
    ///
    /// # Errors
    /// As in the standard library: `NotFound`, `PermissionDenied`, `AlreadyExists`, or
    /// `InvalidInput` if the options contradict each other.
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
