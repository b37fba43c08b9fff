//! What kind of file one is, and so how its bytes are moved.

use super::transfer::Way;
use crate::primitive::{AtomicBool, Ordering};
use crate::reactor::Direction;
use std::os::fd::{AsRawFd, BorrowedFd};

/// See the page of `transfer`.
#[derive(Debug)]
pub(super) struct Kind {
    begins: Begins,
    /// Whether the file system has refused to do without waiting, by direction.
    slow: [AtomicBool; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begins {
    InMemory,
    OnDisk,
    Pollable,
}

impl Kind {
    pub(super) fn of(fd: BorrowedFd<'_>) -> Kind {
        let begins = if is_pollable(fd) {
            Begins::Pollable
        } else if is_in_memory(fd) {
            Begins::InMemory
        } else {
            Begins::OnDisk
        };
        Kind { begins, slow: [AtomicBool::new(false), AtomicBool::new(false)] }
    }

    pub(super) fn way(&self, direction: Direction) -> Way {
        match self.begins {
            Begins::InMemory => Way::Direct,
            _ if self.slow[direction as usize].load(Ordering::Relaxed) => Way::Slow,
            Begins::OnDisk => Way::Cached,
            Begins::Pollable => Way::WhenReady,
        }
    }

    pub(super) fn set_slow(&self, direction: Direction) {
        self.slow[direction as usize].store(true, Ordering::Relaxed);
    }
}

fn is_pollable(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: zeroed is a valid value; a valid descriptor.
    let mode = unsafe {
        let mut status = core::mem::zeroed::<libc::stat>();
        if libc::fstat(fd.as_raw_fd(), &raw mut status) < 0 {
            return false;
        }
        status.st_mode & libc::S_IFMT
    };
    !matches!(mode, libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_in_memory(fd: BorrowedFd<'_>) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    // SAFETY: zeroed is a valid value; a valid descriptor.
    let file_system = unsafe {
        let mut status = core::mem::zeroed::<libc::statfs>();
        if libc::fstatfs(fd.as_raw_fd(), &raw mut status) < 0 {
            return false;
        }
        status.f_type as i64
    };
    matches!(file_system, TMPFS | RAMFS)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_in_memory(_fd: BorrowedFd<'_>) -> bool {
    false
}
