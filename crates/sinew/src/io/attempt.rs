//! Trying an operation until it does not block.

use super::faults;
use crate::carrier::current;
use crate::clock;
use crate::reactor::{Direction, Source, Tick};
use core::time::Duration;
use std::io;

/// How long an operation may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// As long as it takes.
    None,
    /// It fails if it cannot be done at once.
    AtOnce,
    /// So long, counted from its first wait.
    Within(Duration),
}

impl Limit {
    pub(crate) fn deadline(self) -> u64 {
        match self {
            Limit::None | Limit::AtOnce => clock::NEVER,
            Limit::Within(duration) => clock::after(clock::now(), duration),
        }
    }
}

/// Does `operation`, waiting whenever it would block. It fails with `WouldBlock` when the limit is
/// reached, as operations with a timeout do in the standard library. The limit is asked for when it is needed: it
/// may be somewhere in memory that was not touched for long.
///
/// Raises if the fiber is cancelled, but not after the operation was done.
#[inline]
pub(crate) fn attempt<R>(
    source: &Source,
    direction: Direction,
    limit: impl Fn() -> Limit,
    mut operation: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    take_turns();
    let tick = source.tick(direction);
    match faulty(source, direction, &limit, &mut operation) {
        Err(error) => persist(source, (direction, tick), limit(), error, operation),
        result => result,
    }
}

/// What comes after an attempt that failed: most do not.
#[cold]
fn persist<R>(
    source: &Source,
    (direction, mut tick): (Direction, Tick),
    limit: Limit,
    mut error: io::Error,
    mut operation: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    let mut deadline = None;
    loop {
        match error.kind() {
            io::ErrorKind::WouldBlock if matches!(limit, Limit::AtOnce) => return Err(error),
            io::ErrorKind::WouldBlock => {
                let deadline = *deadline.get_or_insert_with(|| limit.deadline());
                if !source.wait(direction, tick, deadline)? {
                    return Err(would_block());
                }
            }
            io::ErrorKind::Interrupted => {}
            _ => return Err(explain(source, error)),
        }
        tick = source.tick(direction);
        match faulty(source, direction, || limit, &mut operation) {
            Err(again) => error = again,
            result => return result,
        }
    }
}

/// Reads `len` bytes at most from a stream that gives all it has: if it gave less than was asked
/// for, the next attempt is left out (see the page of the reactor).
#[inline]
pub(crate) fn attempt_read(
    source: &Source,
    limit: impl Fn() -> Limit,
    len: usize,
    mut read: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    if len == 0 {
        return Ok(0);
    }
    take_turns();
    // Nothing but a harvest takes back the note that the stream is empty. So it counts once, before a
    // wait: who may not wait has to try, and so has a thread, of whose wait no harvest knows.
    let mut tick = source.tick(Direction::Read);
    if source.is_drained(tick) {
        match limit() {
            Limit::None => {
                source.wait(Direction::Read, tick, clock::NEVER)?;
                tick = source.tick(Direction::Read);
            }
            Limit::AtOnce => {}
            limit @ Limit::Within(_) => {
                return persist_reading(source, tick, (limit, len), would_block(), read);
            }
        }
    }
    match faulty(source, Direction::Read, &limit, &mut read) {
        Ok(count) => has_read(source, tick, len, count),
        Err(error) => persist_reading(source, tick, (limit(), len), error, read),
    }
}

/// Notes what a read says of the stream.
#[inline(always)]
fn has_read(source: &Source, tick: Tick, len: usize, count: usize) -> io::Result<usize> {
    if count > 0 && count < len {
        source.set_drained(tick);
    }
    unless_closed(source, count)
}

/// What comes after a read that failed.
#[cold]
fn persist_reading(
    source: &Source,
    mut tick: Tick,
    (mut limit, len): (Limit, usize),
    mut error: io::Error,
    mut read: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    let mut deadline = None;
    loop {
        match error.kind() {
            io::ErrorKind::WouldBlock if matches!(limit, Limit::AtOnce) => return Err(error),
            io::ErrorKind::WouldBlock => {
                let deadline = *deadline.get_or_insert_with(|| limit.deadline());
                if !source.wait(Direction::Read, tick, deadline)? {
                    // Something may be there that no harvest has reported.
                    limit = Limit::AtOnce;
                }
            }
            io::ErrorKind::Interrupted => {}
            _ => return Err(explain(source, error)),
        }
        tick = source.tick(Direction::Read);
        match faulty(source, Direction::Read, || limit, &mut read) {
            Ok(count) => return has_read(source, tick, len, count),
            Err(again) => error = again,
        }
    }
}

/// What a read of a stream says that got `count` bytes. Closing a socket shuts it down, so that who
/// reads at that moment finds nothing: that is not the end of what the other side has sent.
#[inline]
pub(crate) fn unless_closed(source: &Source, count: usize) -> io::Result<usize> {
    if count == 0 && source.is_closed() { Err(Source::closed()) } else { Ok(count) }
}

/// Does an operation once, or what may happen instead of it.
#[inline(always)]
fn faulty<R>(
    source: &Source,
    direction: Direction,
    limit: impl Fn() -> Limit,
    operation: &mut impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    if faults::interrupts() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    if faults::blocks() && !matches!(limit(), Limit::AtOnce) {
        source.feign(direction);
        return Err(io::ErrorKind::WouldBlock.into());
    }
    operation()
}

/// What the standard library says of a timeout.
pub(crate) fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

#[cold]
fn explain(source: &Source, error: io::Error) -> io::Error {
    if source.is_closed() { Source::closed() } else { error }
}

/// Lets others run now and then, if the carrier's fibers do one operation after the other without
/// having to wait.
#[inline]
pub(crate) fn take_turns() {
    // SAFETY: carriers live for ever.
    if let Some(carrier) = unsafe { current::carrier().as_ref() } {
        let left = carrier.operations.get();
        if left > 0 {
            carrier.operations.set(left - 1);
        } else {
            carrier.operations.set(TURN);
            let_others_run();
        }
    }
}

/// Operations in a row.
const TURN: u32 = 32;

#[cold]
fn let_others_run() {
    if crate::can_yield() {
        crate::yield_now();
    }
}
