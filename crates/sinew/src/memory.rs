//! Memory that the allocator keeps although nothing uses it.

/// Gives memory that the program has freed, but that the allocator keeps, back to the system.
///
/// The allocator of glibc keeps free memory that lies between used blocks, so a process stays as
/// large as it was at its largest moment. With other allocators this function does nothing. After a
/// burst, the call takes some milliseconds, and other threads that allocate meanwhile may have to
/// wait. When a burst is over, call it inside [`blocking`](crate::blocking).
///
/// # Examples
/// ```
/// let large: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 10_000]).collect();
/// drop(large);
/// sinew::release_free_memory();
/// ```
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` has no preconditions, and used blocks stay where they are.
    unsafe {
        libc::malloc_trim(0);
    }
}
