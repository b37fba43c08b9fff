//! Bells, which wake threads that sleep in the kernel. A bell is a descriptor, so a thread can wait
//! for it together with other descriptors.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Wakes a thread that sleeps in the kernel. If the bell has rung before the thread waits, the wait
/// ends at once.
#[derive(Debug)]
pub(crate) struct Bell {
    read: OwnedFd,
    /// The write end of a pipe, on systems without eventfd.
    write: Option<OwnedFd>,
}

impl Bell {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn new() -> io::Result<Bell> {
        use std::os::fd::FromRawFd;
        // SAFETY: `eventfd` has no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by no one else.
        Ok(Bell { read: unsafe { OwnedFd::from_raw_fd(fd) }, write: None })
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn new() -> io::Result<Bell> {
        let (read, write) = io::pipe()?;
        let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
        for fd in [&read, &write] {
            // SAFETY: the descriptor is open.
            unsafe {
                let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
                libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
            }
        }
        Ok(Bell { read, write: Some(write) })
    }

    /// Ends the current or the next wait for this bell.
    pub(crate) fn ring(&self) {
        let word = 1_u64.to_ne_bytes();
        let fd = self.write.as_ref().unwrap_or(&self.read).as_raw_fd();
        // The result does not matter: if the counter or pipe is full, the bell has rung already.
        // SAFETY: the descriptor is open, and the buffer is valid for its length.
        let _ = unsafe { libc::write(fd, word.as_ptr().cast(), word.len()) };
    }

    /// Waits until the bell rings or `timeout` passes. Returns whether it rang.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut fds =
            [libc::pollfd { fd: self.read.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let ready = poll(&mut fds, timeout);
        ready > 0 && self.clear()
    }

    /// Clears the bell. Returns whether it had rung.
    pub(crate) fn clear(&self) -> bool {
        let mut buffer = [0_u8; 64];
        // SAFETY: the descriptor is open, and the buffer is valid for its length.
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

/// Waits for an event at one of the descriptors, or until `timeout` passes. Returns the number of
/// descriptors with events. If a signal interrupts the wait, it returns a negative number, and the
/// caller looks again.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> libc::c_int {
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(libc::nfds_t::MAX);
    #[cfg(not(target_vendor = "apple"))]
    {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos() as _,
        });
        let timeout = timeout.as_ref().map_or(core::ptr::null(), |timeout| &raw const *timeout);
        // SAFETY: `fds` has `count` valid entries, and the time is valid or null.
        unsafe { libc::ppoll(fds.as_mut_ptr(), count, timeout, core::ptr::null()) }
    }
    #[cfg(target_vendor = "apple")]
    {
        // Round up, so that the wait does not end too early.
        let millis = |timeout: Duration| timeout.as_nanos().div_ceil(1_000_000);
        let timeout = timeout.map_or(-1, |timeout| {
            libc::c_int::try_from(millis(timeout)).unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: `fds` has `count` valid entries.
        unsafe { libc::poll(fds.as_mut_ptr(), count, timeout) }
    }
}
