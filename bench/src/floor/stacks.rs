//! Stacks by hand: slots of one mapping, each 256 KiB above a guard of one page.
//!
//! A guard is a mark in the page table (`MADV_GUARD_INSTALL`, since Linux 6.13). Guards that are
//! mappings of their own would exceed the limit of 65,530 mappings. The stride of 65 pages spreads
//! the tops over all sets of the TLB.

use std::ops::Range;
use std::ptr;

const PAGE: usize = 4096;
const STACK: usize = 256 * 1024;
const STRIDE: usize = PAGE + STACK;
const GUARD_INSTALL: i32 = 102;

/// The number of guards that one call installs; the kernel takes at most 1,024.
pub(super) const BATCH: usize = 1024;

/// The number of cache lines over which the tops are spread. At equal offsets in their pages, the
/// tops of many stacks would share a few sets of the cache.
const LINES: usize = 32;

/// Stacks that stay until the process ends.
pub(super) struct Stacks {
    low: *mut u8,
}

impl Stacks {
    /// Maps `count` stacks. They have no guards yet.
    pub(super) fn map(count: usize) -> Option<Stacks> {
        // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
        let low = unsafe {
            libc::mmap(
                ptr::null_mut(),
                count * STRIDE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if low == libc::MAP_FAILED {
            return None;
        }
        // A huge page would make many tops resident at once.
        // SAFETY: the mapping is new, and the advice changes no content.
        unsafe { libc::madvise(low, count * STRIDE, libc::MADV_NOHUGEPAGE) };
        Some(Stacks { low: low.cast() })
    }

    /// Installs the guards below some stacks, at most [`BATCH`] of them. Returns `None` if the
    /// kernel cannot.
    pub(super) fn guard(&self, slots: Range<usize>) -> Option<()> {
        let guard = |slot| libc::iovec {
            iov_base: self.low.wrapping_add(slot * STRIDE).cast(),
            iov_len: PAGE,
        };
        install(&Vec::from_iter(slots.map(guard)))
    }

    /// Returns the top of a stack, aligned to a cache line.
    pub(super) fn top(&self, slot: usize) -> *mut usize {
        self.low.wrapping_add((slot + 1) * STRIDE - slot % LINES * 64).cast()
    }
}

/// Turns pages that no stack uses yet into guards. Returns `None` if the kernel is too old.
fn install(guards: &[libc::iovec]) -> Option<()> {
    const PIDFD_SELF_THREAD_GROUP: i32 = -10_001;
    // SAFETY: the ranges lie in a mapping of `Stacks`, below its stacks.
    let installed = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            PIDFD_SELF_THREAD_GROUP,
            guards.as_ptr(),
            guards.len(),
            GUARD_INSTALL,
            0,
        )
    };
    if installed == (guards.len() * PAGE) as i64 {
        return Some(());
    }
    // The kernel does not know `PIDFD_SELF_THREAD_GROUP`, or was interrupted: install the guards
    // one by one.
    for guard in guards {
        // SAFETY: the range lies in a mapping of `Stacks`, below a stack. Installing a guard twice
        // changes nothing.
        if unsafe { libc::madvise(guard.iov_base, guard.iov_len, GUARD_INSTALL) } != 0 {
            return None;
        }
    }
    Some(())
}
