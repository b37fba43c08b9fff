//! Functions and types that only some systems have, at the paths that `std::os` uses.

/// Functions and types of Unix systems.
pub mod unix {
    /// Functions of Unix for files.
    pub mod fs {
        use crate::fs::paths::with;
        use std::io;
        use std::path::Path;

        /// Makes a symbolic link at `link` that leads to `original`.
        ///
        /// A fiber that is cancelled meanwhile waits until the link is made.
        ///
        /// # Errors
        /// Fails if there is something at `link`, or if its parent directory does not exist.
        ///
        /// # Examples
        /// ```
        /// let path = std::env::temp_dir().join(format!("sinew-symlink-{}", std::process::id()));
        /// sinew::os::unix::fs::symlink("nowhere", &path)?;
        /// assert!(std::fs::symlink_metadata(&path)?.is_symlink());
        /// std::fs::remove_file(&path)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
            let link = link.as_ref();
            with(original, |original| std::os::unix::fs::symlink(original, link))
        }
    }

    /// Unix sockets with the methods of `std::os::unix::net`, for fibers.
    ///
    /// Changing `use std::os::unix::net` to `use sinew::os::unix::net` ports a program, as
    /// [`net`](crate::net) does for internet sockets. The differences that are listed there apply
    /// here as well.
    pub mod net {
        pub use crate::net::unix::{Incoming, UnixDatagram, UnixListener, UnixStream};
        pub use std::os::unix::net::SocketAddr;
    }
}
