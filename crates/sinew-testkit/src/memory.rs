//! The kernel's figures about the memory of this process.

use std::fs::read_to_string;

/// A figure of `/proc/self/status` in bytes, for instance `VmRSS`; `None` if the system does not
/// report it.
pub fn status(field: &str) -> Option<usize> {
    let status = read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<usize>().ok().map(|kib| kib * 1024)
}

/// The resident memory in bytes; zero if the system does not report it.
pub fn resident() -> usize {
    status("VmRSS").unwrap_or(0)
}

/// The size of the page tables in bytes; zero if the system does not report it.
pub fn page_tables() -> usize {
    status("VmPTE").unwrap_or(0)
}

/// The number of mappings; zero if the system does not report it.
pub fn mappings() -> usize {
    read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count())
}

/// The available memory of the machine, in bytes; zero if the system does not report it.
pub fn available() -> usize {
    let info = read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

/// The size of a page in bytes.
pub fn page_size() -> usize {
    // SAFETY: `sysconf` has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
