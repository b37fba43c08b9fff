//! Opens files and directories beneath the root that is served.
//!
//! Guarantee: an opened file was beneath the root, even if links and directories change meanwhile.
//!
//! Every platform has `walk`, which goes from directory to directory. Where the kernel itself can
//! refuse to leave a directory, `beneath` uses that, with a single system call.

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

/// An open directory.
#[derive(Debug)]
pub(super) struct Root {
    directory: OwnedFd,
    /// The path of the directory, without symbolic links.
    path: PathBuf,
    /// Whether the kernel can enforce that lookups stay beneath the root.
    has_beneath: bool,
}

/// An opened file or directory.
#[derive(Debug)]
pub(super) enum Node {
    File(File, Metadata),
    Directory(OwnedFd),
}

/// The flags for opening the target. The open does not wait for the writer of a FIFO, and no
/// terminal becomes the controlling one.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The flags for opening a directory on the way to the target. Where `O_PATH` exists, the directory
/// need not be readable.
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

    /// Opens a regular file or a directory beneath the root. `path` has no dot segments. If the
    /// lookup has to wait for the disk, it suspends the fiber; it does not block the carrier.
    ///
    /// # Errors
    /// `NotFound` if nothing has the path, or if the path leads to another kind of file or out of
    /// the root; `PermissionDenied` if the file may not be read.
    pub(super) fn open(&self, path: &Path) -> io::Result<Node> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let opened = match self.open_at_once(path) {
            Some(opened) => opened,
            None => sinew::blocking(|| self.open_slowly(path)),
        };
        opened.map_err(told).and_then(Node::of)
    }

    /// Opens a file that the kernel can look up without disk access; `None` if it cannot.
    fn open_at_once(&self, path: &Path) -> Option<rustix::io::Result<OwnedFd>> {
        if !self.has_beneath {
            return None;
        }
        match beneath::open_cached(&self.directory, path) {
            // The lookup needs the disk, or the kernel is old, or a link may lead out and back.
            Err(Errno::AGAIN | Errno::INVAL | Errno::XDEV) => None,
            result => Some(result),
        }
    }

    fn open_slowly(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        if self.has_beneath {
            match beneath::open(&self.directory, path) {
                // The kernel refuses absolute links, even if they lead back into the root.
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
        // `FLAGS` made the open non-blocking. Reads of regular files never wait for readiness, but
        // some file systems would fail instead of reading from a disk.
        fcntl_setfl(&file, OFlags::empty())?;
        Ok(Node::File(file, about))
    }
}

/// The error for the client. A file outside the root, and a name that cannot exist, are not found.
fn told(error: Errno) -> io::Error {
    match error {
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NAMETOOLONG
        | Errno::ILSEQ
        | Errno::INVAL
        // Sockets, and devices that do not exist.
        | Errno::NXIO
        | Errno::NODEV
        | Errno::OPNOTSUPP => io::ErrorKind::NotFound.into(),
        other => other.into(),
    }
}
