//! Bytes to and from a file, by the way that keeps the carrier least.
//!
//! | file | way |
//! | --- | --- |
//! | in memory (`tmpfs`, `ramfs`) | a direct call: there is nothing to wait for |
//! | on a disk | a direct call that fails if it would have to wait, then the slow way |
//! | that, where the file system knows no such call | the slow way |
//! | a pipe, a terminal, a device | when it is ready, a direct call |
//!
//! The slow way is the ring of the carrier, or a thread that may block where there is none.

use super::kind::Kind;
use crate::reactor::Direction;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Reads into `buffers`, at `offset` or where the file stands.
pub(super) fn read(
    fd: BorrowedFd<'_>,
    kind: &Kind,
    buffers: &mut [IoSliceMut<'_>],
    offset: Option<u64>,
) -> io::Result<usize> {
    // Slices have the layout of `iovec`, as their documentation says.
    let buffers = (buffers.as_ptr().cast::<libc::iovec>(), buffers.len());
    transfer(fd, kind, Transfer { direction: Direction::Read, buffers, offset })
}

/// Writes from `buffers`, at `offset` or where the file stands.
pub(super) fn write(
    fd: BorrowedFd<'_>,
    kind: &Kind,
    buffers: &[IoSlice<'_>],
    offset: Option<u64>,
) -> io::Result<usize> {
    let buffers = (buffers.as_ptr().cast::<libc::iovec>(), buffers.len());
    transfer(fd, kind, Transfer { direction: Direction::Write, buffers, offset })
}

/// The most buffers that one call takes.
const MOST: usize = 1024;

/// One call: which way, what, and where.
#[derive(Clone, Copy)]
struct Transfer {
    direction: Direction,
    buffers: (*const libc::iovec, usize),
    offset: Option<u64>,
}

// SAFETY: the buffers are borrowed by the caller, who waits for the call to be done.
unsafe impl Send for Transfer {}
// SAFETY: the same.
unsafe impl Sync for Transfer {}

fn transfer(fd: BorrowedFd<'_>, kind: &Kind, transfer: Transfer) -> io::Result<usize> {
    let direction = transfer.direction;
    let fd_number = fd.as_raw_fd();
    loop {
        let attempt = match kind.way(direction) {
            Way::Direct => transfer.direct(fd_number),
            Way::Cached => transfer.at_once(fd_number),
            Way::Slow => transfer.slowly(fd_number),
            Way::WhenReady => {
                match direction {
                    Direction::Read => crate::io::wait_readable(fd, None)?,
                    Direction::Write => crate::io::wait_writable(fd, None)?,
                };
                // Somebody else may have been faster.
                transfer.at_once(fd_number)
            }
        };
        match attempt {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => match kind.way(direction) {
                Way::WhenReady => {}
                _ => match transfer.slowly(fd_number) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => return result,
                },
            },
            Err(error) if knows_no_waiting(&error) => kind.set_slow(direction),
            result => return result,
        }
    }
}

/// How bytes are moved; see the page of this module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Direct,
    Cached,
    Slow,
    WhenReady,
}

/// Whether the file system refused because it was asked not to wait.
fn knows_no_waiting(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

impl Transfer {
    /// The call as it is: it may block the thread.
    fn direct(self, fd: RawFd) -> io::Result<usize> {
        let (buffers, count) = self.buffers;
        let count = count.min(MOST) as libc::c_int;
        // SAFETY: the descriptor and the buffers are borrowed for the time of the call.
        let result = unsafe {
            match (self.direction, self.offset) {
                (Direction::Read, None) => libc::readv(fd, buffers, count),
                (Direction::Write, None) => libc::writev(fd, buffers, count),
                (Direction::Read, Some(at)) => libc::preadv(fd, buffers, count, position(at)?),
                (Direction::Write, Some(at)) => libc::pwritev(fd, buffers, count, position(at)?),
            }
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// The call, if it can be done without waiting; `WouldBlock` if not.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn at_once(self, fd: RawFd) -> io::Result<usize> {
        let (buffers, count) = self.buffers;
        let count = count.min(MOST) as libc::c_int;
        let at = self.offset.map_or(Ok(-1), position)?;
        // SAFETY: the descriptor and the buffers are borrowed for the time of the call.
        let result = unsafe {
            match self.direction {
                Direction::Read => libc::preadv2(fd, buffers, count, at, libc::RWF_NOWAIT),
                Direction::Write => libc::pwritev2(fd, buffers, count, at, libc::RWF_NOWAIT),
            }
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn at_once(self, _fd: RawFd) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// The call on the ring, or on a thread that may block.
    fn slowly(self, fd: RawFd) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        {
            use crate::fiber::WaitKind;
            use crate::reactor::ring;
            use io_uring::{opcode, types};
            let ((buffers, count), fd_of_ring) = (self.buffers, types::Fd(fd));
            let count = count.min(MOST) as u32;
            // All ones: where the file stands.
            let at = self.offset.unwrap_or(u64::MAX);
            let entry = match self.direction {
                Direction::Read => {
                    opcode::Readv::new(fd_of_ring, buffers, count).offset(at).build()
                }
                Direction::Write => {
                    opcode::Writev::new(fd_of_ring, buffers, count).offset(at).build()
                }
            };
            // SAFETY: the buffers are borrowed until this returns, or unwinds.
            if let Some(result) = unsafe { ring::perform(entry, WaitKind::Blocking, fd as usize) } {
                return result.map(|count| count as usize);
            }
        }
        crate::blocking(|| self.direct(fd))
    }
}

fn position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| {
        let message = format!("offset {offset} is beyond the end of any file");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

/// Has the kernel write a file to its disk: all of it, or all that is needed to read its data.
pub(super) fn sync(fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
    let fd = fd.as_raw_fd();
    loop {
        match sync_once(fd, data_only) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn sync_once(fd: RawFd, data_only: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use crate::fiber::WaitKind;
        use crate::reactor::ring;
        use io_uring::{opcode, types};
        let flags =
            if data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
        let entry = opcode::Fsync::new(types::Fd(fd)).flags(flags).build();
        // SAFETY: the entry points to nothing.
        if let Some(result) = unsafe { ring::perform(entry, WaitKind::Blocking, fd as usize) } {
            return result.map(drop);
        }
    }
    crate::blocking(|| {
        #[cfg(not(target_vendor = "apple"))]
        // SAFETY: a valid descriptor.
        let result = unsafe { if data_only { libc::fdatasync(fd) } else { libc::fsync(fd) } };
        #[cfg(target_vendor = "apple")]
        // SAFETY: a valid descriptor.
        let result =
            unsafe { if data_only { libc::fsync(fd) } else { libc::fcntl(fd, libc::F_FULLFSYNC) } };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    })
}
