//! The directory that is served, and how what is in it is opened.
//!
//! Guarantee: what is opened was beneath the root, whoever changes links and directories meanwhile.
//!
//! Each platform has `walk`, which goes from directory to directory. Where the kernel can refuse to leave a
//! directory by itself, `beneath` asks it to, which is a single call.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod beneath;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[path = "without.rs"]
mod beneath;
#[cfg(test)]
mod tests;
mod walk;

use rustix::fs::{Mode, OFlags, fcntl_setfl, openat};
use rustix::io::Errno;
use sinew::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A directory that is open.
#[derive(Debug)]
pub(super) struct Root {
    directory: OwnedFd,
    /// Its name, without symbolic links.
    path: PathBuf,
    /// Whether the kernel can keep to the root by itself.
    has_beneath: bool,
}

/// What was found under a name.
#[derive(Debug)]
pub(super) enum Node {
    File(File, Metadata),
    Directory(OwnedFd),
}

/// How what is found is opened. A FIFO is not waited for, and no terminal becomes that of the process.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// How a directory is opened to open something in it, for which it need not be readable where that can be
/// told.
#[cfg(any(target_os = "linux", target_os = "android"))]
const ON_THE_WAY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const ON_THE_WAY: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);

impl Root {
    /// Opens a directory. Blocks.
    pub(super) fn new(path: &Path) -> io::Result<Root> {
        let path = path.canonicalize()?;
        let directory = openat(rustix::fs::CWD, &path, ON_THE_WAY, Mode::empty())?;
        let has_beneath = beneath::is_known(&directory) && !cfg!(sinew_force_fallback);
        Ok(Root { directory, path, has_beneath })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what has a path without dots beneath the root: a regular file, or a directory. The carrier is
    /// not blocked.
    ///
    /// # Errors
    /// `NotFound` if nothing has the path, or something else, or something outside of the root;
    /// `PermissionDenied` if it may not be read.
    pub(super) fn open(&self, path: &Path) -> io::Result<Node> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let opened = match self.open_at_once(path) {
            Some(opened) => opened,
            None => sinew::blocking(|| self.open_slowly(path)),
        };
        opened.map_err(told).and_then(Node::of)
    }

    /// Opens what the kernel knows without looking at the disk; `None` if it does not.
    fn open_at_once(&self, path: &Path) -> Option<rustix::io::Result<OwnedFd>> {
        if !self.has_beneath {
            return None;
        }
        match beneath::open_cached(&self.directory, path) {
            // Not at once; or not on old kernels; or by a link that may lead back.
            Err(Errno::AGAIN | Errno::INVAL | Errno::XDEV) => None,
            result => Some(result),
        }
    }

    fn open_slowly(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        if self.has_beneath {
            match beneath::open(&self.directory, path) {
                // A link that begins with a slash is refused wherever it leads.
                Err(Errno::XDEV) => {}
                result => return result,
            }
        }
        walk::open(&self.directory, &self.path, path)
    }
}

impl Node {
    fn of(opened: OwnedFd) -> io::Result<Node> {
        let file = File::from(opened);
        let about = file.metadata()?;
        if about.is_dir() {
            return Ok(Node::Directory(file.into()));
        }
        if !about.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Nobody has to wait for a regular file to be ready, but there are file systems that would fail
        // rather than look at a disk.
        fcntl_setfl(&file, OFlags::empty())?;
        Ok(Node::File(file, about))
    }
}

/// What the client is told of why something cannot be opened. What is outside of the root is not there, nor
/// what no name can lead to.
fn told(error: Errno) -> io::Error {
    match error {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NAMETOOLONG
        | Errno::ILSEQ
        | Errno::INVAL
        // Sockets, and devices that are not there.
        | Errno::NXIO
        | Errno::NODEV
        | Errno::OPNOTSUPP => io::ErrorKind::NotFound.into(),
        other => other.into(),
    }
}
