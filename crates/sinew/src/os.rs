//! What only some systems have, where `std::os` has it.

/// What Unix systems have.
pub mod unix {
    /// Files, as Unix has them.
    pub mod fs {
        use crate::fs::paths::with;
        use std::io;
        use std::path::Path;

        /// Makes a symbolic link at `link` that leads to `original`.
        ///
        /// A fiber that is cancelled meanwhile waits until it is made.
        ///
        /// # Errors
        /// If there is something at `link`, or no folder to put it in.
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
    /// [`net`](crate::net) does for sockets of the internet; what is said there of differences is true
    /// here.
    pub mod net {
        pub use crate::net::unix::{Incoming, UnixDatagram, UnixListener, UnixStream};
        pub use std::os::unix::net::SocketAddr;
    }
}
