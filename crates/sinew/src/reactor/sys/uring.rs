//! Linux: one ring for descriptors and for operations.
//!
//! A descriptor is watched by a poll that reports again and again; adding one needs no call of its
//! own. Should the kernel end such a poll by itself, it is begun again.

use super::{Direction, Events, Poller, Ready, Token, check_watchable};
use crate::carrier::bell::Bell;
use crate::reactor::ring::Ring;
use core::time::Duration;
use io_uring::{cqueue, opcode, squeue, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

pub(super) struct Uring {
    ring: Ring,
    bell: RawFd,
}

impl Uring {
    pub(super) fn new(bell: &Bell) -> io::Result<Uring> {
        let uring = Uring { ring: Ring::new()?, bell: bell.as_fd().as_raw_fd() };
        uring.begin(uring.bell, libc::POLLIN as u32, Token::BELL)?;
        Ok(uring)
    }

    fn begin(&self, fd: RawFd, events: u32, token: Token) -> io::Result<()> {
        self.push(&opcode::PollAdd::new(types::Fd(fd), events).multi(true).build(), token.0)
    }

    fn reap(&self, events: &mut Events) -> usize {
        self.ring.reap(events.room(), &mut |mark, result, flags| {
            if mark == Token::BELL.0 {
                events.push(Token::BELL, Ready::READ);
                if !cqueue::more(flags) {
                    let _ = self.begin(self.bell, libc::POLLIN as u32, Token::BELL);
                }
            } else if mark != 0 {
                events.push(Token(mark), ready(result, flags));
            }
        })
    }

    /// For those who wait already. The caller may be on another carrier, and that of this ring be
    /// asleep in the kernel.
    fn submit_now(&self) {
        // If it does not work out, the carrier does it in its next round.
        let _ = self.ring.submit();
    }

    fn push(&self, entry: &squeue::Entry, mark: u64) -> io::Result<()> {
        // SAFETY: polls point to nothing.
        unsafe { self.ring.push(&entry.clone().user_data(mark)) }
    }
}

const BOTH: u32 = READ | WRITE;
const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
const END: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
const SPECIAL: u32 = (libc::EPOLLRDHUP | libc::EPOLLPRI) as u32 | END;

fn ready(result: i32, flags: u32) -> Ready {
    // An error says nothing of the descriptor; who waits for it tries, and finds out.
    let events = u32::try_from(result).unwrap_or(END);
    Ready::of([
        (Ready::READ, events & (READ | END) != 0),
        (Ready::WRITE, events & (WRITE | END) != 0),
        (Ready::SPECIAL, events & SPECIAL != 0),
        (Ready::ENDED, !cqueue::more(flags)),
    ])
}

impl Poller for Uring {
    fn add(&self, fd: RawFd, token: Token) -> io::Result<()> {
        check_watchable(fd)?;
        self.begin(fd, BOTH, token)
    }

    fn renew(&self, fd: RawFd, before: Token, token: Token) -> io::Result<()> {
        check_watchable(fd)?;
        // Whether there is one is not known. If there is, its end is reported with its own token,
        // which nobody knows any more: it would be taken for the end of the new one.
        self.push(&opcode::PollRemove::new(before.0).build(), 0)?;
        self.begin(fd, BOTH, token)?;
        self.submit_now();
        Ok(())
    }

    fn resume(&self, fd: RawFd, token: Token) -> io::Result<()> {
        self.add(fd, token)?;
        self.submit_now();
        Ok(())
    }

    fn remove(&self, _fd: RawFd, token: Token) {
        self.ring.cancel(token.0);
    }

    fn wants_arming(&self) -> bool {
        true
    }

    fn arm(&self, _token: Token, _direction: Direction) -> bool {
        self.ring.has_unsubmitted()
    }

    fn wait(&self, timeout: Option<Duration>, events: &mut Events) -> io::Result<()> {
        if self.ring.has_unsubmitted() {
            self.ring.submit()?;
        }
        if self.reap(events) > 0 {
            return Ok(());
        }
        match timeout {
            Some(Duration::ZERO) if self.ring.is_quiet() => return Ok(()),
            Some(Duration::ZERO) => self.ring.submit()?,
            timeout => self.ring.submit_and_wait(timeout)?,
        }
        self.reap(events);
        Ok(())
    }

    fn ring(&self) -> Option<&Ring> {
        Some(&self.ring)
    }

    fn is_active(&self) -> bool {
        self.ring.is_active()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }
}
