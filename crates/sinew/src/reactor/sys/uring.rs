//! Linux: one ring for descriptors and for operations.
//!
//! A descriptor is watched by a poll that reports again and again; adding one needs no call of its
//! own. The kernel ends such a poll by itself when it has no room for a report, after that report. It
//! is begun again when there is room: at once, it would only find none, and end with one more report
//! for which there is none. Each poll that has ended leaves room to those that have not, so there will
//! be some.

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
    /// Polls that have ended by themselves.
    ended: SpinLock<VecDeque<Token>>,
}

/// How many polls are begun again at a time, at most: a part of a harvest, so that nobody waits for
/// ever, and far fewer than there is room for reports.
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

    /// Ends all polls with this token. The operation that is made for that leaves one alone that is
    /// just about to report; this one does not.
    fn end(&self, token: Token) -> io::Result<()> {
        let which = types::CancelBuilder::user_data(token.0).all();
        self.push(&opcode::AsyncCancel2::new(which).build(), NOBODY)
    }

    /// Takes what is complete; false if there was nothing.
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
            // The bell is one alone, and must not be missing when the carrier sleeps.
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

    /// Reports the end of polls, so that they are begun again, if there is room for what they will
    /// report.
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
        // SAFETY: polls point to nothing.
        unsafe { self.ring.push(&entry.clone().user_data(mark)) }
    }
}

const BOTH: u32 = READ | WRITE;
const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
const END: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
const SPECIAL: u32 = (libc::EPOLLRDHUP | libc::EPOLLPRI) as u32 | END;

fn ready(result: i32) -> Ready {
    // An error says nothing of the descriptor; who waits for it tries, and finds out.
    let events = u32::try_from(result).unwrap_or(END);
    Ready::of([
        (Ready::READ, events & (READ | END) != 0),
        (Ready::WRITE, events & (WRITE | END) != 0),
        (Ready::SPECIAL, events & SPECIAL != 0),
    ])
}

/// An error if the descriptor is not open, or of a kind that is always ready: the kernel ends a poll of
/// such a one at once, again and again. `epoll` knows them all.
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
        // Whether there is one is not known. If there is, its end is reported, with its own token.
        self.end(old)?;
        self.begin(fd, BOTH, new)
    }

    fn remove(&self, _fd: RawFd, token: Token, here: bool) -> bool {
        // If the poll was not submitted either, the two are submitted together, and whatever has the
        // number by then is watched for no longer than that.
        let _ = self.end(token);
        if here {
            let _ = self.ring.submit();
        }
        // The kernel interrupts whoever submits a poll when it has something to report: a thread that
        // knows nothing of that must not.
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

    /// What a neighbour took out and put into `ended` might be missed by the carrier, which falls asleep
    /// at that moment. And the kernel reports to a carrier that computes only when a tick interrupts it.
    fn is_for_neighbours(&self) -> bool {
        false
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }
}
