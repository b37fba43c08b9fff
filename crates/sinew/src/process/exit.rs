//! Learning that a child has ended, without taking its status.

use crate::blocking;
use crate::io::Async;
use crate::sync::Event;
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The end of a child, to be waited for any number of times.
#[derive(Debug)]
pub(super) enum Exit {
    /// The descriptor of the process: readable when it has ended.
    Descriptor(Async<OwnedFd>),
    /// Set by a thread that waits for it.
    Watched(Arc<Event>),
}

impl Exit {
    /// That of a child of this process, whose status nobody has taken.
    pub(super) fn of(pid: u32) -> Exit {
        // Whatever the reason is that there is no descriptor, a thread can wait.
        match open(pid) {
            Ok(descriptor) => Exit::Descriptor(Async::new_nonblocking(descriptor)),
            Err(_) => Exit::watched(pid),
        }
    }

    /// The way that works everywhere.
    //
    // If the status is taken before the thread has seen the end, the number may belong to another
    // child by then. The thread then stays longer than it need; nobody waits for the event any more.
    fn watched(pid: u32) -> Exit {
        let ended = Arc::new(Event::new());
        let seen = ended.clone();
        blocking::detached(move || {
            block_until_ended(pid);
            seen.set();
        });
        Exit::Watched(ended)
    }

    /// Waits until the child has ended; false if `timeout` is over before.
    ///
    /// Raises if the fiber is cancelled.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        match self {
            Exit::Descriptor(descriptor) => descriptor.wait_readable(timeout),
            Exit::Watched(ended) => match timeout {
                Some(timeout) => Ok(ended.is_set() || ended.wait_for(timeout)),
                None => {
                    ended.wait();
                    Ok(true)
                }
            },
        }
    }
}

/// Has the status of a child taken when it has ended, by a thread of the pool.
pub(super) fn reap(pid: u32) {
    blocking::detached(move || {
        block_until_ended(pid);
        // SAFETY: a child of this process whose status nobody else takes; no place for the status.
        unsafe { libc::waitpid(pid as libc::pid_t, core::ptr::null_mut(), 0) };
    });
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn open(pid: u32) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;

    // SAFETY: no preconditions.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor, closed by the kernel when another program is executed.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open(_: u32) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Blocks the thread until a child has ended, or is no child any more.
fn block_until_ended(pid: u32) {
    loop {
        // SAFETY: all zeros is a valid one to write over.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        // SAFETY: a valid place for the answer. The status stays to be taken.
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
