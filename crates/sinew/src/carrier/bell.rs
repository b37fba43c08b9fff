//! What wakes a thread that sleeps in the kernel: a descriptor to be waited on with others.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A bell. Rung before it is waited for, it ends the next wait.
#[derive(Debug)]
pub(crate) struct Bell {
    read: OwnedFd,
    /// The other end of a pipe, where there is no eventfd.
    write: Option<OwnedFd>,
}

impl Bell {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn new() -> io::Result<Bell> {
        use std::os::fd::FromRawFd;
        // SAFETY: no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor.
        Ok(Bell { read: unsafe { OwnedFd::from_raw_fd(fd) }, write: None })
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn new() -> io::Result<Bell> {
        let (read, write) = io::pipe()?;
        let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
        for fd in [&read, &write] {
            // SAFETY: a valid descriptor.
            unsafe {
                let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
                libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
            }
        }
        Ok(Bell { read, write: Some(write) })
    }

    /// Ends the wait that is under way, or the next one.
    pub(crate) fn ring(&self) {
        let word = 1_u64.to_ne_bytes();
        let fd = self.write.as_ref().unwrap_or(&self.read).as_raw_fd();
        // A full counter or pipe rings as well, so the result says nothing.
        // SAFETY: a valid descriptor and buffer.
        let _ = unsafe { libc::write(fd, word.as_ptr().cast(), word.len()) };
    }

    /// Waits until the bell rings or the time is over; true if it rang.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut fds =
            [libc::pollfd { fd: self.read.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let ready = poll(&mut fds, timeout);
        ready > 0 && self.clear()
    }

    /// Takes back what rang; false if nothing did.
    pub(crate) fn clear(&self) -> bool {
        let mut buffer = [0_u8; 64];
        // SAFETY: a valid descriptor and buffer.
        let read =
            unsafe { libc::read(self.read.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        read > 0
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

/// Waits until something has happened to one of the descriptors, or the time is over; returns to how many.
/// Interrupted is as good as nothing: the caller looks again.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> libc::c_int {
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(libc::nfds_t::MAX);
    #[cfg(not(target_vendor = "apple"))]
    {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos() as _,
        });
        let timeout = timeout.as_ref().map_or(core::ptr::null(), |timeout| &raw const *timeout);
        // SAFETY: so many valid entries, and a valid time or none.
        unsafe { libc::ppoll(fds.as_mut_ptr(), count, timeout, core::ptr::null()) }
    }
    #[cfg(target_vendor = "apple")]
    {
        // Not a moment too early.
        let millis = |timeout: Duration| timeout.as_nanos().div_ceil(1_000_000);
        let timeout = timeout.map_or(-1, |timeout| {
            libc::c_int::try_from(millis(timeout)).unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: so many valid entries.
        unsafe { libc::poll(fds.as_mut_ptr(), count, timeout) }
    }
}
