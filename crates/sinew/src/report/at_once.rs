//! Writes that never wait for a reader.
//!
//! The mode of the descriptor stays as it is: other processes may share the open file, and would
//! not expect it to be non-blocking.

use std::io;
use std::os::fd::RawFd;

/// Writes as many bytes as fit at this moment, and returns their number.
///
/// # Errors
/// Fails with `WouldBlock` if nothing fits.
pub(super) fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    return linux::write(fd, bytes);
    #[cfg(not(target_os = "linux"))]
    write_if_ready(fd, bytes)
}

/// Writes in the descriptor's own mode. If that mode is blocking, the write waits for the reader.
pub(super) fn write_plainly(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the pointer and the length come from `bytes`.
    count(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
}

/// Waits until the descriptor is writable, or an error is due. There is no time limit.
pub(super) fn wait_writable(fd: RawFd) {
    is_writable(fd, -1);
}

fn is_writable(fd: RawFd, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: there is one valid entry.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
}

/// Writes if the kernel says that the descriptor is writable. Writes at most `PIPE_BUF` bytes, for
/// which a writable pipe has room.
///
/// Another process that writes to the pipe may take the room before this write, and a terminal may
/// have less room. Then the write waits for the reader.
fn write_if_ready(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    match is_writable(fd, 0) {
        true => write_plainly(fd, &bytes[..bytes.len().min(libc::PIPE_BUF)]),
        false => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn count(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{count, write_if_ready, write_plainly};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

    pub(super) fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // The offset -1, in two halves, means the position of the file. Each argument has the width
        // that `syscall` reads.
        // SAFETY: there is one valid entry, which the kernel only reads.
        let written = unsafe {
            libc::syscall(
                libc::SYS_pwritev2,
                libc::c_long::from(fd),
                &raw const part,
                1_usize,
                -1_i64,
                -1_i64,
                libc::c_long::from(libc::RWF_NOWAIT),
            )
        };
        match count(written as libc::ssize_t) {
            // Pipes and sockets support the call. Other kinds refuse it.
            Err(error) if is_unsupported(&error) => write_by_kind(fd, bytes),
            result => result,
        }
    }

    /// Whether an error means that the descriptor's kind, the kernel, or a filter of system calls
    /// does not support the call.
    fn is_unsupported(error: &io::Error) -> bool {
        let code = error.raw_os_error();
        [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPERM, libc::EINVAL]
            .iter()
            .any(|&unsupported| code == Some(unsupported))
    }

    fn write_by_kind(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
        match kind(fd)? {
            // A regular file and a block device have no reader to wait for.
            libc::S_IFREG | libc::S_IFBLK => write_plainly(fd, bytes),
            // SAFETY: the pointer and the length come from `bytes`.
            libc::S_IFSOCK => count(unsafe {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags)
            }),
            _ => match reopen(fd) {
                Ok(again) => write_plainly(again.as_raw_fd(), bytes),
                Err(_) => write_if_ready(fd, bytes),
            },
        }
    }

    fn kind(fd: RawFd) -> io::Result<libc::mode_t> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: there is room for a `stat`.
        match unsafe { libc::fstat(fd, stat.as_mut_ptr()) } {
            // SAFETY: the call has succeeded, so the kernel has written the whole `stat`.
            0 => Ok(unsafe { stat.assume_init() }.st_mode & libc::S_IFMT),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Opens the pipe or terminal once more, in a mode of its own.
    fn reopen(fd: RawFd) -> io::Result<OwnedFd> {
        use std::io::Write as _;
        let mut path = [0_u8; 32];
        // The rest of the array, which is zero, ends the string.
        write!(&mut path[..31], "/proc/self/fd/{fd}")?;
        let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: the string ends in zero.
        match unsafe { libc::open(path.as_ptr().cast(), flags) } {
            ..0 => Err(io::Error::last_os_error()),
            // SAFETY: the descriptor is new, and nothing else owns it.
            again => Ok(unsafe { OwnedFd::from_raw_fd(again) }),
        }
    }
}
