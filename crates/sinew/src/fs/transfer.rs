//! Moves bytes to and from a file by the way that occupies the carrier least.
//!
//! | file | way |
//! | --- | --- |
//! | in memory (`tmpfs`, `ramfs`) | a direct call: there is nothing to wait for |
//! | on a disk | a direct call that must not wait (`RWF_NOWAIT`), then the slow way for the rest |
//! | on a disk, without support for such calls, or with `O_DIRECT` | the slow way |
//! | a pipe, a terminal, a device | a direct call that must not wait, repeated when it is ready |
//!
//! The slow way is the ring of the carrier, or a thread that may block if there is no ring. On a
//! disk, a transfer at the file position never uses the ring: the ring takes no lock of the
//! position, so two concurrent writers would write to the same place. An appending write may use
//! the ring, because it goes to the end of the file in any case.
//!
//! A transfer of a regular file moves as many bytes as in the standard library: if a call that must
//! not wait moves a part, the slow way moves the rest. A cancelled fiber is unwound only before any
//! byte is moved.

use super::kind::{self, Kind};
use crate::cancel;
use crate::io::attempt::take_turns;
use crate::reactor::Direction;
use core::mem::MaybeUninit;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Reads into `buffers`, at `offset` or at the file position.
pub(super) fn read(
    fd: BorrowedFd<'_>,
    kind: &Kind,
    buffers: &mut [IoSliceMut<'_>],
    offset: Option<u64>,
) -> io::Result<usize> {
    // `IoSliceMut` has the layout of `iovec`, as its documentation guarantees.
    let buffers = (buffers.as_ptr().cast::<libc::iovec>(), buffers.len());
    transfer(fd, kind, Transfer { direction: Direction::Read, buffers, offset })
}

/// Reads into `buffer` at the file position. Returns the number of bytes at the start of `buffer`
/// that are initialized.
pub(super) fn read_spare(
    fd: BorrowedFd<'_>,
    kind: &Kind,
    buffer: &mut [MaybeUninit<u8>],
) -> io::Result<usize> {
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let buffers = (&raw const part, 1);
    transfer(fd, kind, Transfer { direction: Direction::Read, buffers, offset: None })
}

/// Writes from `buffers`, at `offset` or at the file position.
pub(super) fn write(
    fd: BorrowedFd<'_>,
    kind: &Kind,
    buffers: &[IoSlice<'_>],
    offset: Option<u64>,
) -> io::Result<usize> {
    let buffers = (buffers.as_ptr().cast::<libc::iovec>(), buffers.len());
    transfer(fd, kind, Transfer { direction: Direction::Write, buffers, offset })
}

/// How the bytes of a file are moved. The table of this module says which files take which way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Direct,
    Cached,
    WhenReady,
}

/// The largest number of buffers in one call.
const MOST: usize = 1024;

/// One call: its direction, its buffers, and its offset. No offset means the file position.
#[derive(Clone, Copy)]
struct Transfer {
    direction: Direction,
    buffers: (*const libc::iovec, usize),
    offset: Option<u64>,
}

// SAFETY: `buffers` has a raw pointer. The caller borrows the buffers that it points to, and waits
// until the call is done.
unsafe impl Send for Transfer {}
// SAFETY: as for `Send`; shared references only copy the pointer.
unsafe impl Sync for Transfer {}

fn transfer(fd: BorrowedFd<'_>, kind: &Kind, transfer: Transfer) -> io::Result<usize> {
    // Refuse an offset that no file has. The ring would take an offset of all ones for the file
    // position.
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

/// The outcome of a call that must not wait.
enum AtOnce {
    Done(io::Result<usize>),
    WouldWait,
    /// The kernel does not support such calls, for this file or at all. Or the call is wrong, and
    /// the slow way returns its error.
    Unknown,
}

impl Transfer {
    /// Moves bytes of a file on a disk.
    fn cached(self, fd: BorrowedFd<'_>, kind: &Kind) -> io::Result<usize> {
        // While another thread uses the position, the kernel makes other users of it wait.
        let lent = self.offset.is_none() && kind.is_position_lent();
        if !kind.is_slow(self.direction)
            && !lent
            && let AtOnce::Done(result) = self.at_once(fd.as_raw_fd(), kind)
        {
            return result.and_then(|count| self.finish(fd, kind, count));
        }
        self.slowly(fd, kind)
    }

    /// Moves bytes of a file on a disk by the slow way.
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

    /// Whether the call appends, regardless of the file position.
    fn appends(self, fd: BorrowedFd<'_>) -> bool {
        self.direction == Direction::Write && kind::flags(fd) & libc::O_APPEND != 0
    }

    /// Moves the rest by the slow way after a call that must not wait has moved `count` bytes. Does
    /// nothing if no bytes are left or the file ends there. Returns the number of bytes that both
    /// calls moved.
    fn finish(self, fd: BorrowedFd<'_>, kind: &Kind, count: usize) -> io::Result<usize> {
        // SAFETY: pointer and length come from a slice that the caller borrows for the whole call.
        let buffers = unsafe { core::slice::from_raw_parts(self.buffers.0, self.buffers.1) };
        let buffers = &buffers[..buffers.len().min(MOST)];
        let total: usize = buffers.iter().map(|part| part.iov_len).sum();
        // A refused wait panics, and the panic would hide from the caller that bytes were moved.
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
        // Masked: a cancellation would hide from the caller that bytes were moved.
        let more = cancel::masked(|| rest.slowly(fd, kind));
        Ok(count + more.unwrap_or(0))
    }

    /// Whether the file ends after the `count` bytes that were read. True if its size or position
    /// is not known.
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

    /// Moves bytes of a pipe, a terminal, or a device, waiting until it is ready.
    fn when_ready(self, fd: BorrowedFd<'_>, kind: &Kind) -> io::Result<usize> {
        let fd_number = fd.as_raw_fd();
        // SAFETY: pointer and length come from a slice that the caller borrows for the whole call.
        let buffers = unsafe { core::slice::from_raw_parts(self.buffers.0, self.buffers.1) };
        let empty = buffers.iter().all(|part| part.iov_len == 0);
        if empty || (self.offset.is_some() && stands_at(fd).is_none()) {
            // There is nothing to wait for. The call fails if it has an offset and the file has no
            // positions.
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
                    // May block: another fiber or process may have been faster.
                    return crate::blocking(|| self.direct(fd_number));
                }
            }
        }
    }

    fn wait(self, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self.direction {
            Direction::Read => crate::io::wait_readable(fd),
            Direction::Write => crate::io::wait_writable(fd),
        }
    }

    /// Makes the call if that is possible without waiting.
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
                // Old kernels return this for flags that they do not know.
                Some(libc::EINVAL) => return AtOnce::Unknown,
                _ => return AtOnce::Done(result),
            }
        }
    }

    /// Makes the plain call, which may block the thread.
    fn direct(self, fd: RawFd) -> io::Result<usize> {
        let (buffers, count) = self.buffers;
        if count == 1 {
            // SAFETY: `buffers` points to one `iovec`, as `count` says.
            return self.direct_one(fd, unsafe { *buffers });
        }
        let count = count.min(MOST) as libc::c_int;
        // SAFETY: the caller borrows the descriptor and the buffers for the time of the call.
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

    /// Makes the plain call with one buffer, so that the kernel need not read an array of them.
    fn direct_one(self, fd: RawFd, buffer: libc::iovec) -> io::Result<usize> {
        let (base, len) = (buffer.iov_base, buffer.iov_len);
        // SAFETY: the caller borrows the descriptor and the buffer for the time of the call.
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
        // SAFETY: the caller borrows the descriptor and the buffers for the time of the call.
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

    /// Makes the call on the ring of the carrier. Returns `None` if there is no ring, or it does
    /// not take the call.
    #[cfg(target_os = "linux")]
    fn on_ring(self, fd: RawFd) -> Option<io::Result<usize>> {
        use crate::fiber::WaitKind;
        use crate::reactor::ring;
        use io_uring::{opcode, types};
        let ((buffers, count), fd_of_ring) = (self.buffers, types::Fd(fd));
        let count = count.min(MOST) as u32;
        // To the kernel, an offset of all ones means the file position.
        let at = self.offset.unwrap_or(u64::MAX);
        let entry = match self.direction {
            Direction::Read => opcode::Readv::new(fd_of_ring, buffers, count).offset(at).build(),
            Direction::Write => opcode::Writev::new(fd_of_ring, buffers, count).offset(at).build(),
        };
        // SAFETY: the caller borrows the buffers until this returns or unwinds, as `perform`
        // requires.
        let result = unsafe { ring::perform(entry, WaitKind::Blocking, fd as usize) };
        result.map(|result| result.map(|count| count as usize))
    }

    #[cfg(not(target_os = "linux"))]
    fn on_ring(self, _fd: RawFd) -> Option<io::Result<usize>> {
        None
    }
}

/// Returns the position of a file, or `None` if it has no positions.
fn stands_at(fd: BorrowedFd<'_>) -> Option<u64> {
    // SAFETY: `fd` is open, and the call takes no pointer.
    let at = unsafe { libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_CUR) };
    u64::try_from(at).ok()
}

fn position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| {
        let message = format!("offset {offset} is beyond the end of any file");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

/// Waits until the kernel has written a file to its disk: its data and metadata, or only the data
/// and the metadata that is needed to read it.
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
        // SAFETY: the entry contains no pointers.
        if let Some(result) = unsafe { ring::perform(entry, WaitKind::Blocking, fd as usize) } {
            return result.map(drop);
        }
    }
    crate::blocking(|| {
        #[cfg(not(target_vendor = "apple"))]
        // SAFETY: `fd` is open, and the call takes no pointer.
        let result = unsafe { if data_only { libc::fdatasync(fd) } else { libc::fsync(fd) } };
        #[cfg(target_vendor = "apple")]
        // SAFETY: `fd` is open, and the call takes no pointer.
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
            crate::pinned(|| transfer.finish(fd, &Kind::of(fd), 8))
        });
        assert_eq!(moved.unwrap(), 8);
    }
}
