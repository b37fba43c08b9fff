//! Opens a path directory by directory, without following links.

use super::{FLAGS, ON_THE_WAY};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, Result};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

/// Opens `path` beneath `root`. The path of `root` itself is `root_path`. Blocks.
///
/// It resolves symbolic links first. The resolved path has no links; if one appears there
/// meanwhile, it is not followed, so a concurrent change cannot lead out of the root.
pub(super) fn open(root: &OwnedFd, root_path: &Path, path: &Path) -> Result<OwnedFd> {
    // Do not reveal that a directory cannot be searched: it may be outside the root.
    let found = root_path.join(path).canonicalize().map_err(|_| Errno::NOENT)?;
    let beneath = found.strip_prefix(root_path).map_err(|_| Errno::XDEV)?;
    descend(root, beneath)
}

/// Opens a path that has no links. Blocks.
pub(super) fn descend(root: &OwnedFd, path: &Path) -> Result<OwnedFd> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            _ => return Err(Errno::XDEV),
        }
    }
    let Some((last, directories)) = names.split_last() else {
        return openat(root, ".", FLAGS, Mode::empty());
    };
    let mut reached = None;
    for name in directories {
        let from = reached.as_ref().unwrap_or(root);
        reached = Some(openat(from, *name, ON_THE_WAY | OFlags::NOFOLLOW, Mode::empty())?);
    }
    let from = reached.as_ref().unwrap_or(root);
    openat(from, *last, FLAGS | OFlags::NOFOLLOW, Mode::empty())
}
