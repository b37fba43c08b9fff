//! The bare mechanisms, by hand and without a library: the least that each operation costs.
//!
//! Nothing here uses sinew. The assembly is for x86_64.

pub(crate) mod asleep;
pub(crate) mod epoll;
pub(crate) mod http;
pub(crate) mod pipe;
pub(crate) mod pread;
mod stacks;
pub(crate) mod switch;
pub(crate) mod threads;
pub(crate) mod unwinding;
pub(crate) mod yielding;

use std::fs::read_to_string;

/// Returns the resident memory and the page tables of this process, in bytes.
pub(crate) fn memory() -> usize {
    memory_of("self").iter().sum()
}

/// Returns the resident memory and the page tables of a process, in bytes.
pub(crate) fn memory_of(process: &str) -> [usize; 2] {
    let status = read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let field = |name: &str| -> usize {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.unwrap_or(0)
    };
    [1024 * field("VmRSS"), 1024 * field("VmPTE")]
}
