//! Bytes to and from a file, by the way that keeps the carrier least.
//!
//! | file | way |
//! | --- | --- |
//! | in memory (`tmpfs`, `ramfs`) | a direct call: there is nothing to wait for |
//! | on a disk | a direct call that fails if it would have to wait, then the slow way |
//! | that, where the file system knows no such call, and past the cache (`O_DIRECT`) | the slow way |
//! | a pipe, a terminal, a device | a direct call that fails if it would have to wait; when it is ready, again |
//!
//! The slow way is the ring of the carrier, or a thread that may block where there is none. Where a
//! file stands is changed by threads only: a ring takes no lock for it, so that two who write at the
//! same time would write to the same place. What is appended goes to the end in any case.
//!
//! A regular file gives and takes as much at a time as it does in the standard library: what a call
//! that does not wait has left is done by the slow way. A fiber that is cancelled is unwound before
//! any byte was moved, or not at all.

use super::kind::{self, Kind};
use crate::cancel;
use crate::io::attempt::take_turns;
use crate::reactor::Direction;
use core::mem::MaybeUninit;
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

/// Reads where the file stands, and returns how many bytes of `buffer` have a value then.
pub(super) fn read_spare(
    fd: BorrowedFd<'_>,
    kind: &Kind,
    buffer: &mut [MaybeUninit<u8>],
) -> io::Result<usize> {
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let buffers = (&raw const part, 1);
    transfer(fd, kind, Transfer { direction: Direction::Read, buffers, offset: None })
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

/// How bytes are moved; see the page of this module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Direct,
    Cached,
    WhenReady,
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
    // Also because all ones would be the place where the file stands.
    transfer.offset.map_or(Ok(0), position)?;
    take_turns();
    loop {
        let attempt = match kind.way() {
            Way::Direct => transfer.direct(fd.as_raw_fd()),
            Way::Cached => transfer.cached(fd, kind),
            Way::WhenReady => transfer.when_ready(fd, kind),
        };
        match attempt {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// What became of a call that was not to wait.
enum AtOnce {
    Done(io::Result<usize>),
    WouldWait,
    /// The kernel cannot tell, of this file or at all; or the call is wrong, and fails again.
    Unknown,
}

impl Transfer {
    /// On a disk.
    fn cached(self, fd: BorrowedFd<'_>, kind: &Kind) -> io::Result<usize> {
        // Whoever has lent the position makes others wait who use it.
        let lent = self.offset.is_none() && kind.is_position_lent();
        if !kind.is_slow(self.direction)
            && !lent
            && let AtOnce::Done(result) = self.at_once(fd.as_raw_fd(), kind)
        {
            return result.and_then(|count| self.rest(fd, kind, count));
        }
        self.slowly(fd, kind)
    }

    /// On a disk, the slow way.
    fn slowly(self, fd: BorrowedFd<'_>, kind: &Kind) -> io::Result<usize> {
        let fd_number = fd.as_raw_fd();
        if (self.offset.is_some() || self.appends(fd))
            && let Some(result) = self.on_ring(fd_number)
        {
            return result;
        }
        let direct = || crate::blocking(|| self.direct(fd_number));
        if self.offset.is_some() { direct() } else { kind.lend_position(direct) }
    }

    /// Whether it writes at the end, wherever the file stands.
    fn appends(self, fd: BorrowedFd<'_>) -> bool {
        self.direction == Direction::Write && kind::flags(fd) & libc::O_APPEND != 0
    }

    /// What a call that did not wait has left, if it is not that the file ends there.
    fn rest(self, fd: BorrowedFd<'_>, kind: &Kind, count: usize) -> io::Result<usize> {
        // SAFETY: the slice is borrowed by the caller.
        let buffers = unsafe { core::slice::from_raw_parts(self.buffers.0, self.buffers.1) };
        let buffers = &buffers[..buffers.len().min(MOST)];
        let total: usize = buffers.iter().map(|part| part.iov_len).sum();
        // A wait that is refused panics, and the caller would not learn that bytes have been moved.
        if count == 0 || count >= total || crate::park::is_refused() || self.ends(fd, count) {
            return Ok(count);
        }
        let mut skip = count;
        let mut left = Vec::with_capacity(buffers.len());
        for part in buffers {
            let skipped = skip.min(part.iov_len);
            skip -= skipped;
            left.push(libc::iovec {
                iov_base: part.iov_base.wrapping_byte_add(skipped),
                iov_len: part.iov_len - skipped,
            });
        }
        let rest = Transfer {
            direction: self.direction,
            buffers: (left.as_ptr(), left.len()),
            offset: self.offset.map(|at| at + count as u64),
        };
        // Some bytes have been moved, and the caller has to know.
        let more = cancel::masked(|| rest.slowly(fd, kind));
        Ok(count + more.unwrap_or(0))
    }

    /// Whether the file ends after the `count` bytes that were read, or is one that has no end.
    fn ends(self, fd: BorrowedFd<'_>, count: usize) -> bool {
        if self.direction == Direction::Write {
            return false;
        }
        let end = match self.offset {
            Some(at) => at + count as u64,
            None => stands_at(fd).unwrap_or(u64::MAX),
        };
        kind::status(fd).is_none_or(|status| end >= status.st_size as u64)
    }

    /// Of a pipe, a terminal, or a device.
    fn when_ready(self, fd: BorrowedFd<'_>, kind: &Kind) -> io::Result<usize> {
        let fd_number = fd.as_raw_fd();
        // SAFETY: the slice is borrowed by the caller.
        let buffers = unsafe { core::slice::from_raw_parts(self.buffers.0, self.buffers.1) };
        let empty = buffers.iter().all(|part| part.iov_len == 0);
        if empty || (self.offset.is_some() && stands_at(fd).is_none()) {
            // Not to be waited for, but an error perhaps; one if there are no positions.
            return crate::blocking(|| self.direct(fd_number));
        }
        loop {
            let attempt = match kind.is_slow(self.direction) {
                true => AtOnce::Unknown,
                false => self.at_once(fd_number, kind),
            };
            match attempt {
                AtOnce::Done(result) => return result,
                _ if kind::flags(fd) & libc::O_NONBLOCK != 0 => return self.direct(fd_number),
                AtOnce::WouldWait => self.wait(fd)?,
                AtOnce::Unknown => {
                    if let Some(result) = self.on_ring(fd_number) {
                        return result;
                    }
                    self.wait(fd)?;
                    // Somebody else may have been faster.
                    return crate::blocking(|| self.direct(fd_number));
                }
            }
        }
    }

    fn wait(self, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self.direction {
            Direction::Read => crate::io::wait_readable(fd, None).map(drop),
            Direction::Write => crate::io::wait_writable(fd, None).map(drop),
        }
    }

    /// The call, if it can be done without waiting.
    fn at_once(self, fd: RawFd, kind: &Kind) -> AtOnce {
        loop {
            let result = self.without_waiting(fd);
            let Err(error) = &result else { return AtOnce::Done(result) };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return AtOnce::WouldWait,
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
                    kind.set_slow(self.direction);
                    return AtOnce::Unknown;
                }
                // What old kernels say of flags that they do not know.
                Some(libc::EINVAL) => return AtOnce::Unknown,
                _ => return AtOnce::Done(result),
            }
        }
    }

    /// The call as it is: it may block the thread.
    fn direct(self, fd: RawFd) -> io::Result<usize> {
        let (buffers, count) = self.buffers;
        if count == 1 {
            // SAFETY: there is one.
            return self.direct_one(fd, unsafe { *buffers });
        }
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

    /// The same for one buffer, which the kernel need not look up.
    fn direct_one(self, fd: RawFd, buffer: libc::iovec) -> io::Result<usize> {
        let (base, len) = (buffer.iov_base, buffer.iov_len);
        // SAFETY: the descriptor and the buffer are borrowed for the time of the call.
        let result = unsafe {
            match (self.direction, self.offset) {
                (Direction::Read, None) => libc::read(fd, base, len),
                (Direction::Write, None) => libc::write(fd, base, len),
                (Direction::Read, Some(at)) => libc::pread(fd, base, len, position(at)?),
                (Direction::Write, Some(at)) => libc::pwrite(fd, base, len, position(at)?),
            }
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn without_waiting(self, fd: RawFd) -> io::Result<usize> {
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
    fn without_waiting(self, _fd: RawFd) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// The call on the ring, if there is one.
    #[cfg(target_os = "linux")]
    fn on_ring(self, fd: RawFd) -> Option<io::Result<usize>> {
        use crate::fiber::WaitKind;
        use crate::reactor::ring;
        use io_uring::{opcode, types};
        let ((buffers, count), fd_of_ring) = (self.buffers, types::Fd(fd));
        let count = count.min(MOST) as u32;
        // All ones: where the file stands.
        let at = self.offset.unwrap_or(u64::MAX);
        let entry = match self.direction {
            Direction::Read => opcode::Readv::new(fd_of_ring, buffers, count).offset(at).build(),
            Direction::Write => opcode::Writev::new(fd_of_ring, buffers, count).offset(at).build(),
        };
        // SAFETY: the buffers are borrowed until this returns, or unwinds.
        let result = unsafe { ring::perform(entry, WaitKind::Blocking, fd as usize) };
        result.map(|result| result.map(|count| count as usize))
    }

    #[cfg(not(target_os = "linux"))]
    fn on_ring(self, _fd: RawFd) -> Option<io::Result<usize>> {
        None
    }
}

/// Where a file stands; `None` if it has no positions.
fn stands_at(fd: BorrowedFd<'_>) -> Option<u64> {
    // SAFETY: a valid descriptor.
    let at = unsafe { libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_CUR) };
    u64::try_from(at).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{PinnedWait, Runtime};
    use std::os::fd::AsFd;

    #[test]
    fn a_refused_wait_does_not_hide_bytes_that_were_moved() {
        let runtime =
            Runtime::builder().carriers(1).pinned_wait(PinnedWait::Error).build().unwrap();
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let moved = runtime.run(move || {
            let mut buffer = [0; 64];
            let buffers = [IoSliceMut::new(&mut buffer)];
            let transfer = Transfer {
                direction: Direction::Read,
                buffers: (buffers.as_ptr().cast(), buffers.len()),
                offset: Some(0),
            };
            let fd = file.as_fd();
            crate::pinned(|| transfer.rest(fd, &Kind::of(fd), 8))
        });
        assert_eq!(moved.unwrap(), 8);
    }
}
