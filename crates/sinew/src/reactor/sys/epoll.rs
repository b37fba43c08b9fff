//! `epoll`, on Linux: each descriptor is added once, for edges of both directions.

use super::{Events, HARVEST, Poller, Ready, Token};
use crate::carrier::bell::Bell;
use crate::clock;
use crate::primitive::{AtomicBool, Ordering};
#[cfg(target_os = "linux")]
use crate::reactor::ring::Ring;
use core::mem::MaybeUninit;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

pub(super) struct Epoll {
    fd: OwnedFd,
    /// The ring for files. Made at the first use, if the kernel allows it.
    #[cfg(target_os = "linux")]
    ring: OnceLock<Option<Ring>>,
}

/// Whether the kernel is too old for timeouts in nanoseconds.
static COARSE: AtomicBool = AtomicBool::new(false);

/// Fails with `PermissionDenied` if the descriptor's kind is always ready.
#[cfg(target_os = "linux")]
pub(super) fn check(fd: RawFd) -> io::Result<()> {
    match Epoll::empty() {
        Ok(epoll) => match epoll.control(libc::EPOLL_CTL_ADD, fd, 0, Token::BELL) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
            // Other errors do not depend on the kind of the descriptor.
            _ => Ok(()),
        },
        // Without an epoll the kind is unknown. Most kinds are not always ready.
        Err(_) => Ok(()),
    }
}

impl Epoll {
    fn empty() -> io::Result<Epoll> {
        // SAFETY: `epoll_create1` has no preconditions.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Epoll {
            fd,
            #[cfg(target_os = "linux")]
            ring: OnceLock::new(),
        })
    }

    pub(super) fn new(bell: &Bell) -> io::Result<Epoll> {
        let epoll = Epoll::empty()?;
        let bell = bell.as_fd().as_raw_fd();
        epoll.control(libc::EPOLL_CTL_ADD, bell, libc::EPOLLIN as u32, Token::BELL)?;
        Ok(epoll)
    }

    fn control(&self, what: libc::c_int, fd: RawFd, events: u32, token: Token) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token.0 };
        // SAFETY: the epoll descriptor is our own, and the event is valid. A wrong `fd` is only an
        // error.
        let result = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), what, fd, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn wait_fine(
        &self,
        events: &mut [MaybeUninit<libc::epoll_event>],
        timeout: Option<Duration>,
    ) -> libc::c_long {
        let timeout = timeout.map(clock::timespec);
        let timeout = timeout.as_ref().map_or(core::ptr::null(), |timeout| &raw const *timeout);
        // SAFETY: the buffer and its length are valid, the timeout is valid or null, and there is
        // no signal mask.
        unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                timeout,
                core::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        }
    }

    fn wait_coarse(
        &self,
        events: &mut [MaybeUninit<libc::epoll_event>],
        timeout: Option<Duration>,
    ) -> libc::c_long {
        if timeout != Some(Duration::ZERO) {
            // `ppoll` takes nanoseconds on every kernel.
            let mut poll =
                [libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
            if let Err(error) = super::ppoll(&mut poll, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                return -1;
            }
        }
        let (buffer, len) = (events.as_mut_ptr().cast(), events.len() as libc::c_int);
        // SAFETY: the buffer and its length are valid.
        unsafe { libc::epoll_wait(self.fd.as_raw_fd(), buffer, len, 0) as libc::c_long }
    }
}

const BOTH: u32 =
    (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET) as u32;
const SPECIAL: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI) as u32;
const READ: u32 = libc::EPOLLIN as u32 | SPECIAL;
const WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;

impl Poller for Epoll {
    fn add(&self, fd: RawFd, token: Token) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, BOTH, token)
    }

    fn renew(&self, fd: RawFd, _old: Token, new: Token) -> io::Result<()> {
        match self.control(libc::EPOLL_CTL_MOD, fd, BOTH, new) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => self.add(fd, new),
            result => result,
        }
    }

    fn remove(&self, fd: RawFd, token: Token, _here: bool) -> bool {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, token);
        false
    }

    fn wait(&self, timeout: Option<Duration>, events: &mut Events) -> io::Result<()> {
        let mut buffer = [const { MaybeUninit::<libc::epoll_event>::uninit() }; HARVEST];
        let mut timeout = timeout;
        #[cfg(target_os = "linux")]
        if let Some(Some(ring)) = self.ring.get() {
            if ring.has_unsubmitted() {
                ring.submit()?;
            }
            if ring.is_active() && ring.reap(HARVEST, &mut |_, _, _| ()) > 0 {
                timeout = Some(Duration::ZERO);
            }
        }
        let count = if timeout == Some(Duration::ZERO) || COARSE.load(Ordering::Relaxed) {
            self.wait_coarse(&mut buffer, timeout)
        } else {
            match self.wait_fine(&mut buffer, timeout) {
                -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) => {
                    COARSE.store(true, Ordering::Relaxed);
                    self.wait_coarse(&mut buffer, timeout)
                }
                count => count,
            }
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        for event in &buffer[..count as usize] {
            // SAFETY: the kernel has written `count` events.
            let event = unsafe { event.assume_init() };
            #[cfg(target_os = "linux")]
            if event.u64 == Token::RING.0 {
                if let Some(Some(ring)) = self.ring.get() {
                    ring.reap(HARVEST, &mut |_, _, _| ());
                }
                continue;
            }
            let happened = event.events;
            let ready = Ready::of([
                (Ready::READ, happened & READ != 0),
                (Ready::WRITE, happened & WRITE != 0),
                (Ready::SPECIAL, happened & SPECIAL != 0),
            ]);
            events.push(Token(event.u64), ready);
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn ring(&self) -> Option<&Ring> {
        let make = || {
            let ring = Ring::new().ok()?;
            let fd = ring.as_fd().as_raw_fd();
            let edges = (libc::EPOLLIN | libc::EPOLLET) as u32;
            self.control(libc::EPOLL_CTL_ADD, fd, edges, Token::RING).ok()?;
            Some(ring)
        };
        self.ring.get_or_init(make).as_ref()
    }

    #[cfg(target_os = "linux")]
    fn is_active(&self) -> bool {
        matches!(self.ring.get(), Some(Some(ring)) if ring.is_active())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}
