//! `io_uring`, on Linux: one ring for descriptors and for operations.
//!
//! A poll that reports again and again watches a descriptor, and adding one needs no system call of
//! its own. If the kernel has no room for a report, it ends that poll with the report. The carrier
//! begins the poll again when there is room. If it did so at once, the poll would only end again,
//! with one more report without room. Each poll that has ended leaves room to the others, so there
//! will be room.

use super::{Direction, Events, HARVEST, Poller, Ready, Token, check_watchable, epoll};
use crate::carrier::bell::Bell;
use crate::primitive::SpinLock;
use crate::reactor::ring::{NOBODY, Ring};
use core::time::Duration;
use io_uring::{cqueue, opcode, squeue, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

pub(super) struct Uring {
    ring: Ring,
    bell: RawFd,
    /// Polls that the kernel has ended.
    ended: SpinLock<VecDeque<Token>>,
}

/// The most polls that are begun again at a time. It is a part of a harvest, so that neither ended
/// polls nor other events wait forever, and far less than the room for reports.
const AGAIN: usize = HARVEST / 4;

impl Uring {
    pub(super) fn new(bell: &Bell) -> io::Result<Uring> {
        let (ring, bell) = (Ring::new()?, bell.as_fd().as_raw_fd());
        let uring = Uring { ring, bell, ended: SpinLock::new(VecDeque::new()) };
        uring.watch_bell()?;
        Ok(uring)
    }

    fn begin(&self, fd: RawFd, events: u32, token: Token) -> io::Result<()> {
        self.push(&opcode::PollAdd::new(types::Fd(fd), events).multi(true).build(), token.0)
    }

    /// Ends all polls with this token. The kernel's own operation for that spares a poll that is
    /// about to report; this one does not.
    fn end(&self, token: Token) -> io::Result<()> {
        let which = types::CancelBuilder::user_data(token.0).all();
        self.push(&opcode::AsyncCancel2::new(which).build(), NOBODY)
    }

    /// Takes completions. Returns false if there was nothing.
    fn reap(&self, events: &mut Events) -> bool {
        let some_ended = !self.ended.lock().is_empty();
        let room = events.room() - if some_ended { AGAIN } else { 0 };
        let count = self.ring.reap(room, &mut |mark, result, flags| {
            let token = Token(mark);
            if mark == NOBODY {
                return;
            }
            let bell = token == Token::BELL;
            events.push(token, if bell { Ready::READ } else { ready(result) });
            // The bell has one poll only, which must exist when the carrier sleeps.
            let goes_on = cqueue::more(flags) || bell && self.watch_bell().is_ok();
            if !goes_on {
                self.ended.lock().push_back(token);
            }
        });
        if some_ended {
            self.begin_again(events);
        }
        some_ended || count > 0
    }

    /// Reports the end of polls, so that they are begun again, if there is room for their reports.
    #[cold]
    fn begin_again(&self, events: &mut Events) {
        if self.ring.has_overflowed() {
            return;
        }
        let mut ended = self.ended.lock();
        let count = ended.len().min(AGAIN);
        let mut failed = false;
        for token in ended.drain(..count) {
            if token == Token::BELL {
                failed |= self.watch_bell().is_err();
            } else {
                events.push(token, Ready::ENDED);
            }
        }
        if failed {
            ended.push_back(Token::BELL);
        }
    }

    fn watch_bell(&self) -> io::Result<()> {
        self.begin(self.bell, libc::POLLIN as u32, Token::BELL)
    }

    fn push(&self, entry: &squeue::Entry, mark: u64) -> io::Result<()> {
        // SAFETY: a poll's entry points to no memory.
        unsafe { self.ring.push(&entry.clone().user_data(mark)) }
    }
}

const BOTH: u32 = READ | WRITE;
const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
const END: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
const SPECIAL: u32 = (libc::EPOLLRDHUP | libc::EPOLLPRI) as u32 | END;

fn ready(result: i32) -> Ready {
    // An error does not concern the descriptor. The waiter tries, and finds out.
    let events = u32::try_from(result).unwrap_or(END);
    Ready::of([
        (Ready::READ, events & (READ | END) != 0),
        (Ready::WRITE, events & (WRITE | END) != 0),
        (Ready::SPECIAL, events & SPECIAL != 0),
    ])
}

/// Fails if the descriptor is not open, or if its kind is always ready: the kernel would end a poll
/// of such a descriptor at once, again and again. `epoll` knows all these kinds.
fn check(fd: RawFd) -> io::Result<()> {
    if check_watchable(fd)? { Ok(()) } else { epoll::check(fd) }
}

impl Poller for Uring {
    fn add(&self, fd: RawFd, token: Token) -> io::Result<()> {
        check(fd)?;
        self.begin(fd, BOTH, token)
    }

    fn renew(&self, fd: RawFd, old: Token, new: Token) -> io::Result<()> {
        check(fd)?;
        // It is not known whether there is an old poll. If there is, its end is reported with its
        // own token.
        self.end(old)?;
        self.begin(fd, BOTH, new)
    }

    fn remove(&self, _fd: RawFd, token: Token, here: bool) -> bool {
        // If the poll was not submitted either, the two are submitted together, and a new
        // descriptor with the number is watched only in between.
        let _ = self.end(token);
        if here {
            let _ = self.ring.submit();
        }
        // The kernel interrupts the thread that submitted a poll when there is a report. A thread
        // that does not expect that must not submit.
        !here
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
        if self.reap(events) {
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
        self.ring.is_active() || self.ring.has_unsubmitted() || !self.ended.lock().is_empty()
    }

    /// Only its own carrier may look. A poll that a neighbour puts into `ended` might be missed by
    /// a carrier that falls asleep at that moment. And the kernel reports to a computing carrier
    /// only when a tick interrupts it.
    fn is_for_neighbours(&self) -> bool {
        false
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }
}
