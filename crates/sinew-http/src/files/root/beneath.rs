//! `openat2` of Linux, which does not leave a directory if it is told not to.

use super::FLAGS;
use rustix::fs::{Mode, ResolveFlags, openat2};
use rustix::io::{Errno, Result};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Neither up nor by links that lead out, nor by those of `/proc`, which lead where no path does.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// So often a path is looked up again that something was renamed on, of which the kernel then cannot tell
/// whether it leads out.
const ATTEMPTS: usize = 16;

/// Whether the kernel has it, and what stands between does not forbid it.
pub(super) fn is_known(root: &OwnedFd) -> bool {
    let flags = super::ON_THE_WAY;
    openat2(root, ".", flags, Mode::empty(), WITHIN).is_ok()
}

/// Opens what can be looked up in memory; `AGAIN` if that cannot be.
pub(super) fn open_cached(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    openat2(root, path, FLAGS, Mode::empty(), WITHIN | ResolveFlags::CACHED)
}

/// Opens it. Blocks.
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
