//! A descriptor that fibers and threads can wait for.

use super::Reactor;
use super::gate::Tick;
use super::slot::{Slot, Waits, closed};
use super::sys::{self, Direction};
use crate::carrier::current;
use crate::clock::NEVER;
use crate::fiber::state::Outcome;
use crate::fiber::{Flags, WaitKind};
use crate::park::Wait;
use crate::park::list::{Begin, Ended, Terms, Wakes, wait_in};
use crate::park::raise;
use crate::primitive::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::RawFd;

/// A descriptor that fibers and threads can wait for. A reactor watches the descriptor from the
/// first wait of a fiber until this is dropped.
///
/// The owner of the descriptor drops this first, and then closes the descriptor.
#[doc(hidden)] // a sealed trait names it
pub struct Source {
    fd: RawFd,
    slot: &'static Slot,
    /// Whether this source is counted as a user of the slot. Changed under the slot's lock.
    joined: AtomicBool,
    /// Whether this source has closed the slot. It opens the slot again when it is dropped.
    closed: AtomicBool,
}

impl Source {
    pub(crate) fn new(fd: RawFd) -> Source {
        Source {
            fd,
            slot: Slot::of(fd),
            joined: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Returns the slot of the descriptor's number.
    #[inline(always)]
    pub(crate) fn slot(&self) -> &'static Slot {
        self.slot
    }

    /// Waits until the descriptor may have become ready since `tick` was read. Returns false if the
    /// deadline passed first. Descriptors that cannot be watched are always ready.
    ///
    /// Raises the cancellation if the fiber is cancelled.
    #[inline]
    pub(crate) fn wait(&self, direction: Direction, tick: Tick, deadline: u64) -> io::Result<bool> {
        if deadline == NEVER {
            self.wait_for_ever(direction, tick)
        } else {
            self.wait_specially(direction, tick, deadline)
        }
    }

    /// Waits without a deadline. Most callers are fibers without special flags, and take the short
    /// way here.
    #[inline(never)]
    fn wait_for_ever(&self, direction: Direction, tick: Tick) -> io::Result<bool> {
        match Wait::begin_plainly(kind(direction), self.fd as usize) {
            Some(wait) => self.wait_as_fiber::<true>(wait, direction, tick, NEVER),
            None => self.wait_specially(direction, tick, NEVER),
        }
    }

    #[inline(never)]
    fn wait_specially(&self, direction: Direction, tick: Tick, deadline: u64) -> io::Result<bool> {
        match current::fiber() {
            Some((_, control)) if !control.flags().has(BLOCKS) => {
                let wait = Wait::begin(kind(direction), self.fd as usize);
                self.wait_as_fiber::<false>(wait, direction, tick, deadline)
            }
            _ => self.wait_as_thread(direction, deadline),
        }
    }

    /// Waits as a fiber. `PLAIN` does not change the behaviour: it gives plain waits their own copy
    /// of this function.
    #[inline(always)]
    fn wait_as_fiber<const PLAIN: bool>(
        &self,
        wait: Wait,
        direction: Direction,
        tick: Tick,
        deadline: u64,
    ) -> io::Result<bool> {
        let terms =
            Terms { kind: kind(direction), address: self.fd as usize, deadline, must: false };
        let ended = wait_in(
            Begin::Begun(wait),
            &self.slot.state,
            terms,
            &Waits::Suspended,
            |node| {
                let mut state = self.slot.state.lock();
                // The reactor is looked up here, because a migratable fiber may have moved before
                // its wait began.
                let here = Reactor::here().expect("a fiber runs on a carrier, which has a reactor");
                if let Err(error) = self.join(&mut state) {
                    return Some(Err(error));
                }
                self.slot.enter(self.fd, here, (direction, tick), &mut state, node)
            },
            |state, node| {
                if let Some(node) = node {
                    state.remove(direction, node);
                }
                Wakes::none()
            },
        );
        match ended {
            Ended::AtOnce(Err(error)) if is_always_ready(&error) => Ok(true),
            Ended::AtOnce(result) => result.map(|()| true),
            Ended::TimedOut => Ok(false),
            // A fiber that was woken for another reason tries in vain, and waits again.
            Ended::Granted => Ok(true),
        }
    }

    /// Counts this source as a user of the slot, once. The caller holds the slot's lock.
    #[inline(always)]
    pub(super) fn join(&self, state: &mut super::slot::State) -> io::Result<()> {
        if self.joined.load(Ordering::Relaxed) { Ok(()) } else { self.join_anew(state) }
    }

    /// Counts this source as a user of the slot, for a fiber that has made no attempt. Makes the
    /// kernel report the readiness at this moment, unless the stream was found empty at `tick`. The
    /// caller has read `tick` before it took the lock.
    pub(super) fn join_for_later(
        &self,
        tick: Tick,
        state: &mut super::slot::State,
    ) -> io::Result<()> {
        if !self.joined.load(Ordering::Relaxed) {
            self.join_anew(state)
        } else if self.slot.is_drained(tick) {
            Ok(())
        } else {
            Slot::ask_again(self.fd, state)
        }
    }

    #[cold]
    #[inline(never)]
    fn join_anew(&self, state: &mut super::slot::State) -> io::Result<()> {
        self.slot.join(self.fd, state)?;
        self.joined.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits as a plain thread, or as a pinned fiber, which blocks its carrier.
    #[cold]
    fn wait_as_thread(&self, direction: Direction, deadline: u64) -> io::Result<bool> {
        if self.slot.is_closed() {
            return Err(closed());
        }
        let wait = Wait::begin_polling(kind(direction), self.fd as usize);
        let who = wait.who();
        let mut result = Ok(());
        let outcome = wait.suspend_polling(deadline, |bell, timeout| {
            match block(self.fd, direction, bell, timeout) {
                Ok(ready) => ready,
                Err(error) => {
                    result = Err(error);
                    true
                }
            }
        });
        raise::settle(who, outcome);
        result.map(|()| outcome == Outcome::Notified)
    }

    /// Makes every present and later use of the descriptor fail.
    pub(crate) fn close(&self) {
        {
            let mut state = self.slot.state.lock();
            // An error means that the kernel does not know the descriptor. That does not matter any
            // more.
            let _ = self.join(&mut state);
            self.closed.store(true, Ordering::Relaxed);
        }
        self.slot.close(self.fd);
    }

    /// Returns the error of a descriptor that was closed while others still use it.
    pub(crate) fn closed() -> io::Error {
        closed()
    }
}

// The state of a slot changes under a lock, in code that does not panic.
impl std::panic::UnwindSafe for Source {}
impl std::panic::RefUnwindSafe for Source {}

impl Drop for Source {
    fn drop(&mut self) {
        if *self.closed.get_mut() {
            self.slot.reopen();
        }
        if *self.joined.get_mut() {
            self.slot.leave(self.fd);
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// The flags of a fiber that blocks its carrier when it waits.
pub(super) const BLOCKS: Flags = Flags(Flags::PINNED.0 | Flags::NO_WAIT.0);

/// Whether `error` says that a descriptor cannot be watched because its kind is always ready.
pub(super) fn is_always_ready(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

pub(super) fn kind(direction: Direction) -> WaitKind {
    match direction {
        Direction::Read => WaitKind::Readable,
        Direction::Write => WaitKind::Writable,
    }
}

fn entry(fd: RawFd, direction: Direction) -> libc::pollfd {
    let events = match direction {
        Direction::Read => libc::POLLIN,
        Direction::Write => libc::POLLOUT,
    };
    libc::pollfd { fd, events, revents: 0 }
}

/// Blocks the thread until the descriptor is ready, the bell rings, or `timeout` passes. Returns
/// whether the descriptor is ready.
fn block(
    fd: RawFd,
    direction: Direction,
    bell: Option<RawFd>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    // `poll` ignores a negative descriptor.
    let mut fds = [entry(fd, direction), entry(bell.unwrap_or(-1), Direction::Read)];
    match sys::ppoll(&mut fds, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
        Ok(_) => Ok(fds[0].revents != 0),
    }
}

/// Whether the descriptor is ready at this moment.
pub(crate) fn look(fd: RawFd, direction: Direction) -> io::Result<bool> {
    loop {
        let mut fds = [entry(fd, direction)];
        match sys::ppoll(&mut fds, Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) if fds[0].revents & libc::POLLNVAL != 0 => {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            Ok(count) => return Ok(count > 0),
        }
    }
}
