//! Making directories with options.

use super::paths::with;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Options for making a directory: `std::fs::DirBuilder` for fibers.
///
/// The trait [`DirBuilderExt`] of the standard library adds `mode`.
///
/// # Examples
/// ```
/// use sinew::fs::DirBuilder;
/// use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
///
/// let path = std::env::temp_dir().join(format!("sinew-dir-builder-{}", std::process::id()));
/// DirBuilder::new().mode(0o700).create(&path)?;
/// assert_eq!(std::fs::metadata(&path)?.permissions().mode() & 0o777, 0o700);
/// std::fs::remove_dir(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DirBuilder(fs::DirBuilder);

impl DirBuilder {
    /// Makes a builder with the default options: the usual permissions, and not
    /// [`recursive`](Self::recursive).
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-dir-builder-new-{}", std::process::id()));
    /// sinew::fs::DirBuilder::new().create(&path)?;
    /// std::fs::remove_dir(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[expect(clippy::new_without_default, reason = "the standard library has no `Default` here")]
    pub fn new() -> DirBuilder {
        DirBuilder(fs::DirBuilder::new())
    }

    /// Sets whether parent directories are made too. If they are, directories that exist are no
    /// error.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-dir-builder-recursive-{}", std::process::id()));
    /// sinew::fs::DirBuilder::new().recursive(true).create(path.join("a/b"))?;
    /// std::fs::remove_dir_all(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// Makes a directory at `path`.
    ///
    /// # Errors
    /// If the directory cannot be made.
    ///
    /// # Examples
    /// ```
    /// let path = std::env::temp_dir().join(format!("sinew-dir-builder-create-{}", std::process::id()));
    /// sinew::fs::DirBuilder::new().create(&path)?;
    /// let again = sinew::fs::DirBuilder::new().create(&path).unwrap_err();
    /// assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    /// std::fs::remove_dir(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        with(path, |path| self.0.create(path))
    }
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.0.mode(mode);
        self
    }
}
