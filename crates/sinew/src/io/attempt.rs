//! Runs an operation on a non-blocking descriptor, and waits whenever it would block.
//!
//! Sockets, pipes and [`Async`](super::Async) read and write through this module.
//! `reactor/README.md` shows why no wake is lost between an attempt and its wait.

use super::faults;
use crate::carrier::current;
use crate::clock;
use crate::reactor::{Direction, Source, Tick};
use core::time::Duration;
use std::io;

/// How long an operation may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// It waits as long as it takes.
    None,
    /// It does not wait: it fails if it would block.
    AtOnce,
    /// It waits at most this long, counted from its first wait.
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

/// Runs `operation`, waiting whenever it would block. Fails with `WouldBlock` when the limit is
/// reached, as operations with a timeout do in the standard library. Calls `limit` only if the
/// first attempt fails: the limit may be in memory that has left the cache.
///
/// Raises the cancellation of the fiber, but never after the operation has succeeded.
#[inline]
pub(crate) fn attempt<R>(
    source: &Source,
    direction: Direction,
    limit: impl Fn() -> Limit,
    mut operation: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    take_turns();
    let tick = source.slot().tick(direction);
    match faulty(source, direction, &limit, &mut operation) {
        Err(error) => {
            persist::<false, _>(source, (direction, tick), limit(), error, |_| operation())
        }
        result => result,
    }
}

/// Continues after a first attempt, at `tick`, that failed or was left out. Cold, because most
/// first attempts succeed. Calls `operation` with the tick that was read before that call.
///
/// With `TRY_AGAIN`, tries a last time when the deadline has passed: there may be data that no
/// harvest has reported.
#[cold]
fn persist<const TRY_AGAIN: bool, R>(
    source: &Source,
    (direction, mut tick): (Direction, Tick),
    mut limit: Limit,
    mut error: io::Error,
    mut operation: impl FnMut(Tick) -> io::Result<R>,
) -> io::Result<R> {
    let mut deadline = None;
    loop {
        match error.kind() {
            io::ErrorKind::WouldBlock if matches!(limit, Limit::AtOnce) => return Err(error),
            io::ErrorKind::WouldBlock => {
                let deadline = *deadline.get_or_insert_with(|| limit.deadline());
                if !source.wait(direction, tick, deadline)? {
                    if !TRY_AGAIN {
                        return Err(would_block());
                    }
                    limit = Limit::AtOnce;
                }
            }
            io::ErrorKind::Interrupted => {}
            _ => return Err(explain(source, error)),
        }
        tick = source.slot().tick(direction);
        match faulty(source, direction, || limit, &mut || operation(tick)) {
            Err(again) => error = again,
            result => return result,
        }
    }
}

/// Reads at most `len` bytes from a stream on which a short read means that no data is left. If the
/// last read was short and no event has followed, this call leaves out its first attempt and waits
/// at once. See "The attempt that is left out" in `reactor/README.md`.
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
    // Only a harvest clears the note that the stream is empty. So the note may replace only the
    // attempt before a wait. A caller that may not wait has to try. A caller that has waited has to
    // try as well: the wait of a plain thread may end before a harvest clears the note.
    let mut tick = source.slot().tick(Direction::Read);
    let (limit, error) = 'first: {
        if source.slot().is_drained(tick) {
            match limit() {
                Limit::None => {
                    source.wait(Direction::Read, tick, clock::NEVER)?;
                    tick = source.slot().tick(Direction::Read);
                }
                Limit::AtOnce => {}
                limit @ Limit::Within(_) => break 'first (limit, would_block()),
            }
        }
        match faulty(source, Direction::Read, &limit, &mut read) {
            Ok(count) => return has_read(source, tick, len, count),
            Err(error) => (limit(), error),
        }
    };
    persist::<true, _>(source, (Direction::Read, tick), limit, error, |tick| {
        read().and_then(|count| has_read(source, tick, len, count))
    })
}

/// Notes that the stream is empty if the read was short. Returns its count, or an error if the
/// socket was closed.
#[inline(always)]
fn has_read(source: &Source, tick: Tick, len: usize, count: usize) -> io::Result<usize> {
    if count > 0 && count < len {
        source.slot().set_drained(tick);
    }
    unless_closed(source, count)
}

/// Returns the `count` of a read from a stream, or an error if the socket was closed. Closing shuts
/// the socket down, so a read at that moment gets 0 bytes although the other side has not ended the
/// stream.
#[inline]
pub(crate) fn unless_closed(source: &Source, count: usize) -> io::Result<usize> {
    if count == 0 && source.slot().is_closed() { Err(Source::closed()) } else { Ok(count) }
}

/// Runs an operation once, or fails in its place if `faults` says so.
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
        source.slot().feign(direction);
        return Err(io::ErrorKind::WouldBlock.into());
    }
    operation()
}

/// Makes the error that the standard library returns when a timeout is over.
pub(crate) fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

#[cold]
fn explain(source: &Source, error: io::Error) -> io::Error {
    if source.slot().is_closed() { Source::closed() } else { error }
}

/// Yields once in a while, so that fibers that never have to wait let other fibers of their carrier
/// run.
#[inline]
pub(crate) fn take_turns() {
    if let Some(owner) = current::owner() {
        let left = owner.operations.get();
        if left > 0 {
            owner.operations.set(left - 1);
        } else {
            owner.operations.set(TURN);
            let_others_run();
        }
    }
}

/// The number of operations on one carrier between two yields.
const TURN: u32 = 32;

#[cold]
fn let_others_run() {
    if crate::can_yield() {
        crate::yield_now();
    }
}
