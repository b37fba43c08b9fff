//! `io_uring`, on Linux: one ring for descriptors and for operations.
//!
//! Each descriptor is watched by a *poll*, an operation of the kernel that reports again and again.
//! Beginning a poll needs no system call of its own. If the kernel has no room for a report, it
//! ends the poll with that report. The carrier begins the poll again when there is room. If the
//! carrier did so at once, the poll would only end again, with one more report without room. Each
//! poll that has ended leaves its room to the others, so there will be room.

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
    /// The polls that the kernel has ended, and that have to be begun again.
    ended: SpinLock<VecDeque<Token>>,
}

/// The most polls that one harvest begins again. It is a part of a harvest, so that neither ended
/// polls nor other events wait forever. It is far less than the room for reports.
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

    /// Ends all polls with this token. `AsyncCancel2` also ends a poll that is about to report;
    /// `PollRemove` would spare it.
    fn end(&self, token: Token) -> io::Result<()> {
        let which = types::CancelBuilder::user_data(token.0).all();
        self.push(&opcode::AsyncCancel2::new(which).build(), NOBODY)
    }

    /// Takes completions. Returns false if there were none, and no ended polls.
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
            // The bell has only one poll, which must exist when the carrier sleeps.
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

    /// Adds `ENDED` events for some ended polls, so that their slots begin them again. Does nothing
    /// while the kernel has no room for reports.
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
        // SAFETY: the entries of this file, which begin and end polls, point to no memory.
        unsafe { self.ring.push(&entry.clone().user_data(mark)) }
    }
}

const BOTH: u32 = READ | WRITE;
const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
const END: u32 = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
const SPECIAL: u32 = (libc::EPOLLRDHUP | libc::EPOLLPRI) as u32 | END;

fn ready(result: i32) -> Ready {
    // An error is about the poll, not about the descriptor. The waiter tries its operation, and so
    // finds out the state of the descriptor.
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
        // There may be an old poll or none. If there is one, its end is reported with its own
        // token.
        self.end(old)?;
        self.begin(fd, BOTH, new)
    }

    fn remove(&self, _fd: RawFd, token: Token, here: bool) -> bool {
        // If the poll itself was not submitted yet, both entries are submitted together. By then
        // the number may belong to a new descriptor. The kernel watches that descriptor only from
        // the first entry to the second.
        let _ = self.end(token);
        if here {
            let _ = self.ring.submit();
        }
        // When there is a report, the kernel interrupts the thread that submitted the poll. A
        // thread that does not expect the interruption must not submit.
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

    /// Only the ring's own carrier may take reports. If a neighbour put a poll into `ended`, a
    /// carrier that falls asleep at that moment might miss it. Also, while a carrier computes, the
    /// kernel hands it reports only when a timer interrupts it. So a neighbour would find few
    /// reports.
    fn is_for_neighbours(&self) -> bool {
        false
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }
}
