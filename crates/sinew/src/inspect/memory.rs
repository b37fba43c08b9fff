//! Reads memory of this process as a debugger does.
//!
//! If another thread changes the memory during a read, the read returns old bytes, new bytes or a
//! mix of both. If another thread has unmapped the memory, the read fails.

use std::io;

/// Fills `into` with the bytes at `address`.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn copy(address: usize, into: &mut [u8]) -> io::Result<()> {
    if into.is_empty() {
        return Ok(());
    }
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote =
        libc::iovec { iov_base: core::ptr::without_provenance_mut(address), iov_len: into.len() };
    // SAFETY: the local part is a valid buffer, and the kernel checks the remote part.
    let count = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    match usize::try_from(count) {
        Ok(count) if count == into.len() => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EFAULT) => Err(error),
            // Some sandboxes lack the call, or forbid it.
            _ => copy_from_file(address, into),
        },
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn copy_from_file(address: usize, into: &mut [u8]) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    std::fs::File::open("/proc/self/mem")?.read_exact_at(into, address as u64)
}

/// Fails, because this platform has no call for such reads.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn copy(_address: usize, _into: &mut [u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Reads the word at `address`.
pub(super) fn word(address: usize) -> io::Result<usize> {
    let mut bytes = [0; size_of::<usize>()];
    copy(address, &mut bytes)?;
    Ok(usize::from_ne_bytes(bytes))
}

/// Orders later reads after earlier ones. If a read before this call saw a write of another thread,
/// reads after the call see everything that this other thread wrote before that write.
///
/// The writers have no barrier, because every wake would pay for it. On x86 no barrier is needed.
/// On other machines the kernel makes every running thread pass a barrier.
pub(super) fn settle() {
    use crate::primitive::{Ordering, fence};
    fence(Ordering::SeqCst);
    #[cfg(all(any(target_os = "linux", target_os = "android"), not(target_arch = "x86_64")))]
    {
        use std::sync::Once;
        const QUERY_GLOBAL: libc::c_long = 1;
        const EXPEDITED: libc::c_long = 1 << 3;
        const REGISTER: libc::c_long = 1 << 4;
        static REGISTERED: Once = Once::new();
        // SAFETY: the call takes plain numbers.
        let call =
            |command: libc::c_long| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
        REGISTERED.call_once(|| {
            call(REGISTER);
        });
        if call(EXPEDITED) < 0 {
            call(QUERY_GLOBAL);
        }
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn mapped_memory_is_copied_and_unmapped_memory_is_an_error() {
        let text = *b"somewhere in memory";
        let mut copied = [0; 19];
        copy(text.as_ptr().addr(), &mut copied).unwrap();
        assert_eq!(copied, text);
        copied = [0; 19];
        copy_from_file(text.as_ptr().addr(), &mut copied).unwrap();
        assert_eq!(copied, text);
        assert_eq!(copy(4096, &mut copied).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        copy_from_file(4096, &mut copied).unwrap_err();
        copy(4096, &mut []).unwrap();
        assert_eq!(word((&raw const text).addr()).unwrap().to_ne_bytes(), text[..8]);
    }
}
