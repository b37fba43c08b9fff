//! Opens files with `openat2` of Linux, which can refuse to leave a directory.

use super::FLAGS;
use rustix::fs::{Mode, ResolveFlags, openat2};
use rustix::io::{Errno, Result};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Refuses to go up out of the root, to follow links out of it, and to follow magic links of
/// `/proc`.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// How often a lookup is tried again when the kernel could not decide whether the path leads out,
/// because something on the path was renamed.
const ATTEMPTS: usize = 16;

/// Whether the kernel has `openat2`, and no sandbox forbids it.
pub(super) fn is_known(root: &OwnedFd) -> bool {
    let flags = super::ON_THE_WAY;
    openat2(root, ".", flags, Mode::empty(), WITHIN).is_ok()
}

/// Opens a file that can be looked up in memory; fails with `AGAIN` otherwise.
pub(super) fn open_cached(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    openat2(root, path, FLAGS, Mode::empty(), WITHIN | ResolveFlags::CACHED)
}

/// Opens a file. Blocks.
pub(super) fn open(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    let mut result = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        result = openat2(root, path, FLAGS, Mode::empty(), WITHIN);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}
