//! Memory that the allocator keeps although nothing uses it.

/// Gives memory that was freed back to the system, where the allocator would keep it.
///
/// The allocator of glibc keeps what lies between blocks that are in use, so a process stays as large as it was at
/// its largest moment. Elsewhere this does nothing. It takes some milliseconds after a burst, during which other
/// threads may wait to allocate: call it when a burst is over, in [`blocking`](crate::blocking).
///
/// # Examples
/// ```
/// let large: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 10_000]).collect();
/// drop(large);
/// sinew::release_free_memory();
/// ```
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: no preconditions; blocks that are in use stay where they are.
    unsafe {
        libc::malloc_trim(0);
    }
}
