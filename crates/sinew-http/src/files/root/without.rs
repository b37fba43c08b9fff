//! Stands in for `beneath` on kernels that cannot confine a lookup to a directory.

use rustix::io::{Errno, Result};
use std::os::fd::OwnedFd;
use std::path::Path;

pub(super) fn is_known(_root: &OwnedFd) -> bool {
    false
}

pub(super) fn open_cached(_root: &OwnedFd, _path: &Path) -> Result<OwnedFd> {
    Err(Errno::AGAIN)
}

pub(super) fn open(_root: &OwnedFd, _path: &Path) -> Result<OwnedFd> {
    Err(Errno::XDEV)
}
