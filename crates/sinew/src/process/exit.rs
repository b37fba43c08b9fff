//! Detects that a child has ended, without taking its status.

use crate::blocking;
use crate::io::Async;
use crate::sync::Event;
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The end of a child. It can be waited for any number of times.
#[derive(Debug)]
pub(super) enum Exit {
    /// The descriptor of the process. It is readable when the process has ended.
    Descriptor(Async<OwnedFd>),
    /// An event that a watching thread sets.
    Watched(Arc<Event>),
}

impl Exit {
    /// Makes the exit of a child of this process. The status of the child must not have been taken.
    pub(super) fn of(pid: u32) -> Exit {
        // If the kernel gives no descriptor, for any reason, a thread waits.
        match open(pid) {
            Ok(descriptor) => Exit::Descriptor(Async::new_nonblocking(descriptor)),
            Err(_) => Exit::watched(pid),
        }
    }

    /// Watches the child with a thread, which works everywhere.
    //
    // If the status is taken before the thread has seen the end, the number may belong to another
    // child by then. Then the thread waits for that child, which does no harm: its event has no
    // waiter.
    fn watched(pid: u32) -> Exit {
        let ended = Arc::new(Event::new());
        let seen = ended.clone();
        blocking::detached(move || {
            block_until_ended(pid);
            seen.set();
        });
        Exit::Watched(ended)
    }

    /// Waits until the child has ended. Returns false if `timeout` passes first.
    ///
    /// Raises the cancellation if the fiber is cancelled.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        match self {
            Exit::Descriptor(descriptor) => match timeout {
                Some(timeout) => descriptor.wait_readable_timeout(timeout),
                None => descriptor.wait_readable().map(|()| true),
            },
            Exit::Watched(ended) => match timeout {
                Some(timeout) => Ok(ended.is_set() || ended.wait_timeout(timeout)),
                None => {
                    ended.wait();
                    Ok(true)
                }
            },
        }
    }
}

/// Takes the status of a child when it has ended, on a thread of the pool.
pub(super) fn reap(pid: u32) {
    blocking::detached(move || {
        block_until_ended(pid);
        // SAFETY: `pid` is a child of this process, and nothing else takes its status. `waitpid`
        // accepts a null pointer for the status.
        unsafe { libc::waitpid(pid as libc::pid_t, core::ptr::null_mut(), 0) };
    });
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn open(pid: u32) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;

    // SAFETY: `pidfd_open` has no preconditions.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it. The kernel closes it at `exec`.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open(_: u32) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Blocks the thread until the child has ended, or is not a child of this process any more.
fn block_until_ended(pid: u32) {
    loop {
        // SAFETY: all zero is a valid `siginfo_t`.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        // SAFETY: `info` is a valid place for the answer. `WNOWAIT` leaves the status to be taken.
        let result = unsafe {
            libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        if result == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
