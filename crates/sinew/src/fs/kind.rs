//! The kind of an open file, which decides how its bytes are moved.

use super::transfer::Way;
use crate::primitive::{AtomicBool, AtomicUsize, Ordering};
use crate::reactor::Direction;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kind of an open file. The module page of `transfer` has a table of the kinds.
#[derive(Debug)]
pub(super) struct Kind {
    way: Way,
    /// Whether the file system answers questions about an open file from memory.
    local: bool,
    /// Whether calls that must not wait are unsupported or useless for this file, by direction.
    slow: [AtomicBool; 2],
    /// The number of transfers at the file position that threads of the pool perform at this
    /// moment. Meanwhile the kernel makes all other users of the position wait.
    lent: AtomicUsize,
}

impl Kind {
    pub(super) fn of(fd: BorrowedFd<'_>) -> Kind {
        let (in_memory, local) = where_it_is(fd);
        let way = if is_pollable(fd) {
            Way::WhenReady
        } else if in_memory {
            Way::Direct
        } else {
            Way::Cached
        };
        // With `O_DIRECT`, a call that must not wait avoids waiting for locks and memory, but still
        // waits for the disk.
        let slow = way == Way::Cached && bypasses_cache(fd);
        Kind {
            way,
            local,
            slow: [AtomicBool::new(slow), AtomicBool::new(slow)],
            lent: AtomicUsize::new(0),
        }
    }

    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Whether a call about the open file, not about its bytes, returns without a wait.
    pub(super) fn is_local(&self) -> bool {
        self.local && !self.is_position_lent()
    }

    pub(super) fn is_slow(&self, direction: Direction) -> bool {
        self.slow[direction as usize].load(Ordering::Relaxed)
    }

    pub(super) fn set_slow(&self, direction: Direction) {
        self.slow[direction as usize].store(true, Ordering::Relaxed);
    }

    /// Whether another thread is using the file position.
    pub(super) fn is_position_lent(&self) -> bool {
        self.lent.load(Ordering::Relaxed) > 0
    }

    /// Notes that another thread uses the file position while `f` runs.
    pub(super) fn lend_position<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Lent<'a>(&'a AtomicUsize);
        impl Drop for Lent<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.lent.fetch_add(1, Ordering::Relaxed);
        let _lent = Lent(&self.lent);
        f()
    }
}

fn is_pollable(fd: BorrowedFd<'_>) -> bool {
    let kind = status(fd).map(|status| status.st_mode & libc::S_IFMT);
    !matches!(kind, None | Some(libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK))
}

/// Returns the kernel's `stat` of an open file.
pub(super) fn status(fd: BorrowedFd<'_>) -> Option<libc::stat> {
    // SAFETY: the struct is plain integers, so zeros are valid; `fd` is open.
    unsafe {
        let mut status = core::mem::zeroed::<libc::stat>();
        (libc::fstat(fd.as_raw_fd(), &raw mut status) == 0).then_some(status)
    }
}

/// Returns the flags that a file was opened with, with later changes.
pub(super) fn flags(fd: BorrowedFd<'_>) -> libc::c_int {
    // SAFETY: `fd` is open, and the command takes no pointer.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn bypasses_cache(fd: BorrowedFd<'_>) -> bool {
    flags(fd) & libc::O_DIRECT != 0
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn bypasses_cache(_fd: BorrowedFd<'_>) -> bool {
    false
}

/// Returns whether the bytes of a file are in memory, and whether its metadata is in memory as long
/// as the file is open. A file system that is not listed may have to ask another machine or
/// process.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn where_it_is(fd: BorrowedFd<'_>) -> (bool, bool) {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    const EXT: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const F2FS: i64 = 0xf2f5_2010;
    const PIPES: i64 = 0x5049_5045;
    // SAFETY: the struct is plain integers, so zeros are valid; `fd` is open.
    let file_system = unsafe {
        let mut status = core::mem::zeroed::<libc::statfs>();
        if libc::fstatfs(fd.as_raw_fd(), &raw mut status) < 0 {
            return (false, false);
        }
        // The kernel has an unsigned word here, which some platforms declare as signed.
        status.f_type as i64 & 0xffff_ffff
    };
    match file_system {
        TMPFS | RAMFS => (true, true),
        EXT | XFS | BTRFS | F2FS | PIPES => (false, true),
        _ => (false, false),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn where_it_is(_fd: BorrowedFd<'_>) -> (bool, bool) {
    (false, false)
}
