//! `kqueue`, on the BSDs and macOS: each descriptor is added once, for edges of both directions.

use super::{Events, HARVEST, Poller, Ready, Token};
use crate::carrier::bell::Bell;
use crate::clock;
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub(super) struct Kqueue {
    fd: OwnedFd,
}

impl Kqueue {
    pub(super) fn new(bell: &Bell) -> io::Result<Kqueue> {
        // SAFETY: `kqueue` has no preconditions.
        let fd = unsafe { libc::kqueue() };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let kqueue = Kqueue { fd: unsafe { OwnedFd::from_raw_fd(fd) } };
        // SAFETY: the descriptor is our own.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let bell = bell.as_fd().as_raw_fd();
        kqueue.change(&[change(bell, libc::EVFILT_READ, libc::EV_ADD, Token::BELL)])?;
        Ok(kqueue)
    }

    fn change(&self, changes: &[libc::kevent]) -> io::Result<()> {
        let count = changes.len().try_into().expect("a call has few changes");
        // SAFETY: the changes and their number come from a slice, and there is no room for events.
        let result = unsafe {
            let fd = self.fd.as_raw_fd();
            libc::kevent(fd, changes.as_ptr(), count, ptr::null_mut(), 0, ptr::null())
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn change(fd: RawFd, filter: i16, flags: u16, token: Token) -> libc::kevent {
    // SAFETY: all zero is a valid `kevent`. Zeros also fill the fields that only some systems have.
    let mut change = unsafe { core::mem::zeroed::<libc::kevent>() };
    change.ident = fd as _;
    change.filter = filter as _;
    change.flags = flags as _;
    change.udata = ptr::without_provenance_mut::<libc::c_void>(token.0 as usize) as _;
    change
}

impl Poller for Kqueue {
    fn add(&self, fd: RawFd, token: Token) -> io::Result<()> {
        let flags = libc::EV_ADD | libc::EV_CLEAR;
        // One direction at a time: a pipe has only one, and adding the other is an error.
        let read = self.change(&[change(fd, libc::EVFILT_READ, flags, token)]);
        let write = self.change(&[change(fd, libc::EVFILT_WRITE, flags, token)]);
        read.or(write)
    }

    fn renew(&self, fd: RawFd, _old: Token, new: Token) -> io::Result<()> {
        // Adding a descriptor again replaces its token.
        self.add(fd, new)
    }

    fn remove(&self, fd: RawFd, token: Token, _here: bool) -> bool {
        for filter in [libc::EVFILT_READ, libc::EVFILT_WRITE] {
            let _ = self.change(&[change(fd, filter, libc::EV_DELETE, token)]);
        }
        false
    }

    fn wait(&self, timeout: Option<Duration>, events: &mut Events) -> io::Result<()> {
        let mut buffer = [const { MaybeUninit::<libc::kevent>::uninit() }; HARVEST];
        let timeout = timeout.map(clock::timespec);
        let timeout = timeout.as_ref().map_or(ptr::null(), |timeout| &raw const *timeout);
        let fd = self.fd.as_raw_fd();
        let room = HARVEST.try_into().expect("HARVEST is a small number");
        // SAFETY: there are no changes. The buffer and its length are valid, and the timeout is
        // valid or null.
        let count =
            unsafe { libc::kevent(fd, ptr::null(), 0, buffer.as_mut_ptr().cast(), room, timeout) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for event in &buffer[..count] {
            // SAFETY: the kernel has written `count` events.
            let event = unsafe { event.assume_init() };
            let flags = event.flags as u16;
            let read = event.filter as i16 == libc::EVFILT_READ;
            let ready = Ready::of([
                (Ready::READ, read),
                (Ready::WRITE, !read),
                (Ready::SPECIAL, flags & (libc::EV_EOF | libc::EV_ERROR) != 0),
            ]);
            events.push(Token((event.udata as *mut libc::c_void).addr() as u64), ready);
        }
        Ok(())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}
