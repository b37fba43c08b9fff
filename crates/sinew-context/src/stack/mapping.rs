//! Address space from the kernel: reserved, committed as needed, given back.

use super::page_size;
use core::ptr::NonNull;
use std::io;

/// A mapping that is unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    low: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, and any thread may unmap it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Reserves addresses without memory: they cannot be touched yet, and strict overcommit does
    /// not count them.
    pub(super) fn reserve(len: usize) -> io::Result<Mapping> {
        // FreeBSD counts no memory for inaccessible mappings, and has no flag for it.
        #[cfg(not(target_os = "freebsd"))]
        const UNCOUNTED: libc::c_int = libc::MAP_NORESERVE;
        #[cfg(target_os = "freebsd")]
        const UNCOUNTED: libc::c_int = 0;
        // SAFETY: a new anonymous mapping overlaps nothing.
        let low = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANON | UNCOUNTED,
                -1,
                0,
            )
        };
        if low == libc::MAP_FAILED {
            return Err(explain("reserve", len));
        }
        let low = NonNull::new(low.cast::<u8>()).expect("the kernel maps nothing at address zero");
        // A huge page would make the first touch of a stack cost 2 MiB.
        #[cfg(target_os = "linux")]
        // SAFETY: our own mapping. Kernels without huge pages refuse, which has the same effect.
        let _ = unsafe { libc::madvise(low.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
        // The registry and the frames use addresses on the stack as plain numbers.
        low.as_ptr().expose_provenance();
        Ok(Mapping { low, len })
    }

    /// Makes `len` bytes from `offset` on readable and writable.
    pub(super) fn commit(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(offset + len <= self.len);
        // SAFETY: inside our own mapping.
        let result = unsafe {
            libc::mprotect(
                self.low.as_ptr().add(offset).cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if result == 0 { Ok(()) } else { Err(explain("commit", len)) }
    }

    pub(super) fn low(&self) -> NonNull<u8> {
        self.low
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Keeps the mapping alive until [`unmap`] is called.
    pub(super) fn leak(self) -> NonNull<u8> {
        let low = self.low;
        core::mem::forget(self);
        low
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no pointer into it is used after this.
        unsafe { unmap(self.low, self.len) };
    }
}

/// Unmaps a mapping that [`Mapping::leak`] left.
///
/// # Safety
/// The `len` bytes from `low` on are one mapping that nothing uses any more.
pub(super) unsafe fn unmap(low: NonNull<u8>, len: usize) {
    // SAFETY: the caller promised an unused mapping. The call fails only for lack of mappings. Then
    // the memory is lost, and there is no remedy.
    let _ = unsafe { libc::munmap(low.as_ptr().cast(), len) };
}

/// Gives the pages that lie wholly in the range back to the kernel. They read as zero when touched
/// again. Guards stay.
///
/// # Safety
/// The range is private anonymous memory that holds nothing of value.
pub(super) unsafe fn discard(low: NonNull<u8>, len: usize) {
    let page = page_size();
    // The kernel would round the length up, into memory that does not belong to the range.
    let start = low.addr().get().next_multiple_of(page);
    let end = (low.addr().get() + len) & !(page - 1);
    if start < end {
        let start = low.as_ptr().with_addr(start);
        let len = end - start.addr();
        // SAFETY: the caller promised worthless memory. On failure (locked memory) the pages stay.
        let _ = unsafe { libc::madvise(start.cast(), len, libc::MADV_DONTNEED) };
    }
}

/// Returns the last OS error, with the failed operation and the usual remedy.
pub(super) fn explain(verb: &str, len: usize) -> io::Error {
    let error = io::Error::last_os_error();
    let advice = if error.raw_os_error() == Some(libc::ENOMEM) {
        "; use fewer or smaller stacks, or raise the limit on memory, on addresses (ulimit -v), on \
         mappings (vm.max_map_count) or on committed memory (vm.overcommit_memory = 2)"
    } else {
        ""
    };
    io::Error::new(error.kind(), format!("cannot {verb} {len} bytes for stacks: {error}{advice}"))
}
