//! The bare mechanisms, by hand and without a library: what cannot be beaten.

pub(crate) mod epoll;
pub(crate) mod http;
pub(crate) mod pipe;
pub(crate) mod pread;
#[cfg(target_arch = "x86_64")]
pub(crate) mod switch;
pub(crate) mod threads;
pub(crate) mod unwinding;
pub(crate) mod yielding;

use std::fs::read_to_string;

/// Resident memory and page tables of this process, in bytes.
pub(crate) fn memory() -> usize {
    memory_of("self").iter().sum()
}

/// Resident memory of a process, and its page tables, in bytes.
pub(crate) fn memory_of(process: &str) -> [usize; 2] {
    let status = read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let field = |name: &str| -> usize {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.unwrap_or(0)
    };
    [1024 * field("VmRSS"), 1024 * field("VmPTE")]
}

/// Bytes of a page that was touched, with a guard in place below it: a million of them.
pub(crate) fn million() -> f64 {
    let count = crate::suite::context::MILLION;
    let before = memory();
    match touch(count) {
        Some(()) => (memory() - before) as f64 / count as f64,
        None => f64::NAN,
    }
}

/// Nanoseconds that such a page takes to make, with a million of them.
pub(crate) fn million_time() -> f64 {
    let count = crate::suite::context::MILLION;
    let start = std::time::Instant::now();
    match touch(count) {
        Some(()) => start.elapsed().as_nanos() as f64 / count as f64,
        None => f64::NAN,
    }
}

/// Makes `count` stacks in one mapping, each a guard with a page touched above; they stay.
fn touch(count: usize) -> Option<()> {
    const STACK: usize = 256 * 1024;
    const GUARD: usize = 64 * 1024;
    const GUARD_INSTALL: i32 = 102;
    // SAFETY: one large mapping; guards are put into it, and each page above is touched once.
    unsafe {
        let len = count * (STACK + GUARD);
        let low = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if low == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(low, len, libc::MADV_NOHUGEPAGE);
        for slot in 0..count {
            let guard = low.byte_add(slot * (STACK + GUARD));
            if libc::madvise(guard, GUARD, GUARD_INSTALL) != 0 {
                return None;
            }
            guard.byte_add(GUARD + STACK - 8).cast::<u64>().write_volatile(1);
        }
    }
    Some(())
}
