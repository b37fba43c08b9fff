//! Guards: addresses below a stack that fault when touched.
//!
//! Linux 6.13 can mark pages as guards in the page table (`MADV_GUARD_INSTALL`): no mapping is
//! split, so a million guards fit into the default limit of 65,530 mappings. Older kernels,
//! and memory that is locked, answer `EINVAL`; there `mprotect` does it at the price of two
//! mappings a stack. Which of the two is decided for each region by trying.

use super::mapping::explain;
use core::ptr::NonNull;
use std::io;

/// How the guards of a region are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuardKind {
    /// Marks in the page table: no mapping of their own.
    InPlace,
    /// Mappings without access: two mappings for each stack.
    Mprotect,
}

#[cfg(target_os = "linux")]
const MADV_GUARD_INSTALL: i32 = 102;

/// Guards that one system call installs, at most.
pub(super) const BATCH: usize = 64;

/// Installs `guards` by the kind that is wanted, or by the cheapest that works.
///
/// # Safety
/// Each range is committed memory of this crate that nobody uses.
pub(super) unsafe fn install(
    guards: &[(NonNull<u8>, usize)],
    wanted: Option<GuardKind>,
) -> io::Result<GuardKind> {
    if wanted != Some(GuardKind::Mprotect) && !cfg!(sinew_force_fallback) {
        // SAFETY: as promised by the caller.
        let installed = unsafe { install_in_place(guards) };
        match installed {
            // An emulator may answer yes to advice that it does not know.
            Ok(()) if faults(guards[0].0) => return Ok(GuardKind::InPlace),
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
            _ if wanted.is_none() => {}
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
    for &(low, len) in guards {
        // SAFETY: as promised by the caller.
        if unsafe { libc::mprotect(low.as_ptr().cast(), len, libc::PROT_NONE) } != 0 {
            return Err(explain("guard", len));
        }
    }
    Ok(GuardKind::Mprotect)
}

/// Whether reading at the address faults: the kernel is asked to read there beforehand, which
/// every kernel that knows guards in place can.
#[cfg(target_os = "linux")]
fn faults(address: NonNull<u8>) -> bool {
    const MADV_POPULATE_READ: i32 = 22;
    // SAFETY: mapped memory of ours, of which a page may become resident.
    let read =
        unsafe { libc::madvise(address.as_ptr().cast(), super::page_size(), MADV_POPULATE_READ) };
    read != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

#[cfg(not(target_os = "linux"))]
fn faults(_: NonNull<u8>) -> bool {
    false
}

#[cfg(target_os = "linux")]
unsafe fn install_in_place(guards: &[(NonNull<u8>, usize)]) -> io::Result<()> {
    let mut rest = guards;
    if guards.len() > 1 {
        // SAFETY: as promised by the caller.
        let done = unsafe { install_batch(guards) };
        rest = &guards[done..];
    }
    for &(low, len) in rest {
        // SAFETY: as promised by the caller.
        if unsafe { libc::madvise(low.as_ptr().cast(), len, MADV_GUARD_INSTALL) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
unsafe fn install_in_place(_: &[(NonNull<u8>, usize)]) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// Installs as many guards as one system call takes; says how many. Zero where the kernel has no
/// such call (before 6.13 `process_madvise` refuses this advice).
#[cfg(target_os = "linux")]
unsafe fn install_batch(guards: &[(NonNull<u8>, usize)]) -> usize {
    /// Stands for the calling process since 6.14; earlier kernels answer `EBADF`.
    const PIDFD_SELF: i32 = -10_001;
    let mut vectors = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; BATCH];
    let count = guards.len().min(BATCH);
    for (vector, &(low, len)) in vectors.iter_mut().zip(guards) {
        *vector = libc::iovec { iov_base: low.as_ptr().cast(), iov_len: len };
    }
    // SAFETY: the vectors name memory of ours, as promised by the caller.
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
    let mut advised = usize::try_from(advised).unwrap_or(0);
    // It may stop early: count the guards that were done whole.
    guards
        .iter()
        .take_while(|&&(_, len)| {
            let whole = advised >= len;
            advised = advised.saturating_sub(len);
            whole
        })
        .count()
}
