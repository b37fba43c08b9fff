//! Guards: addresses below a stack that fault when touched.
//!
//! Linux 6.13 can mark pages as guards in the page table (`MADV_GUARD_INSTALL`). No mapping is
//! split, so a million guards fit into the default limit of 65,530 mappings. Older kernels, and
//! locked memory, answer `EINVAL`. There `mprotect` makes the guards, at the price of two mappings
//! for each stack. The code tries guards in place first, for each block of slots.

use super::mapping::explain;
use core::ptr::NonNull;
use std::io;

/// How the guards of a region are made.
///
/// # Examples
/// ```
/// use sinew_context::stack::{GuardKind, StackAllocator, StackPool};
///
/// let pool = StackPool::builder().guards(GuardKind::Mprotect).build()?;
/// let stack = pool.allocate()?;
/// assert_eq!(pool.stats().mprotect_regions, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardKind {
    /// Marks in the page table: no mapping of their own.
    InPlace,
    /// Mappings without access: two mappings for each stack.
    Mprotect,
}

#[cfg(target_os = "linux")]
const MADV_GUARD_INSTALL: i32 = 102;

/// The number of guards that one system call installs, at most. The vectors for them lie on the
/// running stack, which may belong to a fiber that has touched one page so far.
#[cfg(target_os = "linux")]
const BATCH: usize = 16;

/// Guards of equal length at equal distances.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) first: NonNull<u8>,
    pub(super) len: usize,
    pub(super) stride: usize,
    pub(super) count: usize,
}

impl Row {
    /// A row of one guard.
    pub(super) fn single(first: NonNull<u8>, len: usize) -> Row {
        Row { first, len, stride: 0, count: 1 }
    }

    fn guard(&self, index: usize) -> *mut libc::c_void {
        self.first.as_ptr().wrapping_add(index * self.stride).cast()
    }
}

/// Installs guards of the wanted kind, or of the cheapest kind that works. Returns the kind.
///
/// # Safety
/// Each guard is committed memory of this crate that nothing uses.
pub(super) unsafe fn install(row: Row, wanted: Option<GuardKind>) -> io::Result<GuardKind> {
    if wanted != Some(GuardKind::Mprotect) && !cfg!(sinew_force_fallback) {
        // SAFETY: the caller promised unused memory of this crate.
        let installed = unsafe { install_in_place(row) };
        match installed {
            // An emulator may accept advice that it does not know.
            Ok(()) if faults(row.first) => return Ok(GuardKind::InPlace),
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
            _ if wanted.is_none() => {}
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
    for index in 0..row.count {
        // SAFETY: the caller promised unused memory of this crate.
        if unsafe { libc::mprotect(row.guard(index), row.len, libc::PROT_NONE) } != 0 {
            return Err(explain("guard", row.len));
        }
    }
    Ok(GuardKind::Mprotect)
}

/// Whether reading at the address faults. Asks the kernel to prefault the page, which every kernel
/// with guards in place supports.
#[cfg(target_os = "linux")]
fn faults(address: NonNull<u8>) -> bool {
    const MADV_POPULATE_READ: i32 = 22;
    // SAFETY: this is mapped memory of ours; at most one page becomes resident.
    let read =
        unsafe { libc::madvise(address.as_ptr().cast(), super::page_size(), MADV_POPULATE_READ) };
    read != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

#[cfg(not(target_os = "linux"))]
fn faults(_: NonNull<u8>) -> bool {
    false
}

/// Installs guards in place.
///
/// # Safety
/// As for [`install`].
#[cfg(target_os = "linux")]
unsafe fn install_in_place(row: Row) -> io::Result<()> {
    let mut done = 0;
    let mut batches = row.count > 1;
    while done < row.count {
        // SAFETY: the caller of `install` promised unused memory of this crate.
        unsafe {
            let batch = if batches { install_batch(row, done) } else { 0 };
            batches = batch > 0;
            done += batch;
            if !batches {
                if libc::madvise(row.guard(done), row.len, MADV_GUARD_INSTALL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                done += 1;
            }
        }
    }
    Ok(())
}

/// Fails: this system has no guards in place.
///
/// # Safety
/// As for [`install`].
#[cfg(not(target_os = "linux"))]
unsafe fn install_in_place(_: Row) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// Installs as many guards from `from` on as one system call takes, and returns their number.
/// Returns zero if the kernel has no such call: before 6.13 `process_madvise` refuses this advice.
///
/// # Safety
/// As for [`install`].
#[cfg(target_os = "linux")]
unsafe fn install_batch(row: Row, from: usize) -> usize {
    /// The calling process, since 6.14; earlier kernels answer `EBADF`.
    const PIDFD_SELF: i32 = -10_001;
    let mut vectors = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; BATCH];
    let count = (row.count - from).min(BATCH);
    for (index, vector) in vectors[..count].iter_mut().enumerate() {
        *vector = libc::iovec { iov_base: row.guard(from + index), iov_len: row.len };
    }
    // SAFETY: the vectors name unused memory of this crate, as the caller of `install` promised.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            PIDFD_SELF,
            vectors.as_ptr(),
            count,
            MADV_GUARD_INSTALL,
            0,
        )
    };
    // The call may stop early; count only complete guards.
    usize::try_from(advised).unwrap_or(0) / row.len
}
