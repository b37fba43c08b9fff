//! Receiving and sending, the two system calls that a busy socket makes most. On 64-bit Linux they
//! bypass the C library, which would add its handling of thread cancellation.

pub(super) use imp::{receive, send};

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod imp {
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};

    /// Receives the bytes that have arrived, up to the length of the buffer.
    #[inline]
    pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `socket` is an open descriptor; pointer and length describe `buffer`.
        let count = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                socket.as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.len(),
                0,
                core::ptr::null_mut::<libc::sockaddr>(),
                core::ptr::null_mut::<libc::socklen_t>(),
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Sends as much of the buffer as there is room for.
    #[inline]
    pub(crate) fn send(socket: BorrowedFd<'_>, buffer: &[u8]) -> io::Result<usize> {
        // SAFETY: `socket` is an open descriptor; pointer and length describe `buffer`.
        let count = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                socket.as_raw_fd(),
                buffer.as_ptr(),
                buffer.len(),
                libc::MSG_NOSIGNAL,
                core::ptr::null::<libc::sockaddr>(),
                0,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod imp {
    use socket2::SockRef;
    use std::io::{self, Read, Write};
    use std::os::fd::BorrowedFd;

    pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        (&*SockRef::from(&socket)).read(buffer)
    }

    pub(crate) fn send(socket: BorrowedFd<'_>, buffer: &[u8]) -> io::Result<usize> {
        (&*SockRef::from(&socket)).write(buffer)
    }
}
