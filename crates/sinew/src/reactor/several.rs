//! Waits for the first of several descriptors.

use super::gate::Tick;
use super::slot::{Slot, Waits};
use super::source::{BLOCKS, Source, is_always_ready};
use super::sys::{self, Direction};
use super::{Reactor, slot};
use crate::carrier::current;
use crate::clock;
use crate::fiber::WaitKind;
use crate::fiber::state::Outcome;
use crate::park::Wait;
use crate::park::list::Node;
use crate::park::raise;
use core::pin::Pin;
use std::io;

/// One descriptor of a wait for several descriptors.
pub(crate) struct Polled {
    source: Source,
    wanted: libc::c_short,
    ready: libc::c_short,
    /// The node of each wanted direction, during a wait.
    nodes: [Option<Node<Waits>>; 2],
    ticks: [Tick; 2],
}

/// The payload that the nodes of all entries share.
const SUSPENDED: &Waits = &Waits::Suspended;

impl Polled {
    /// Makes an entry for the events `wanted`, as `poll` encodes them.
    pub(crate) fn new(fd: std::os::fd::RawFd, wanted: libc::c_short) -> Polled {
        Polled {
            source: Source::new(fd),
            wanted,
            ready: 0,
            nodes: [None, None],
            ticks: [Tick::START; 2],
        }
    }

    /// Returns the events that `poll` found.
    pub(crate) fn ready(&self) -> libc::c_short {
        self.ready
    }

    fn wants(&self, direction: Direction) -> bool {
        let events = match direction {
            Direction::Read => libc::POLLIN | libc::POLLPRI,
            Direction::Write => libc::POLLOUT,
        };
        // A hang-up is reported as something to read.
        self.wanted & events != 0 || (direction == Direction::Read && self.wanted == 0)
    }

    fn slot(&self) -> &'static Slot {
        self.source.slot()
    }
}

/// Entries with nodes in the lists of their slots. Dropping this takes the nodes out of the lists.
struct Linked<'a, E: AsMut<Polled>>(&'a mut [E]);

impl<E: AsMut<Polled>> Drop for Linked<'_, E> {
    fn drop(&mut self) {
        for entry in self.0.iter_mut().map(AsMut::as_mut) {
            for direction in Direction::BOTH {
                if let Some(node) = &entry.nodes[direction as usize] {
                    let mut state = entry.slot().state.lock();
                    if node.is_linked() {
                        state.remove(direction, node);
                    }
                    drop(state);
                    entry.nodes[direction as usize] = None;
                }
            }
        }
    }
}

/// Waits until one of the entries is ready or the deadline passes. Returns how many are ready.
///
/// Raises the cancellation if the fiber is cancelled.
pub(crate) fn wait<E: AsMut<Polled>>(entries: &mut [E], deadline: u64) -> io::Result<usize> {
    loop {
        for entry in entries.iter_mut().map(AsMut::as_mut) {
            entry.ticks = Direction::BOTH.map(|direction| entry.slot().tick(direction));
        }
        let count = look(entries)?;
        if count > 0 {
            return Ok(count);
        }
        if deadline <= clock::now() {
            return Ok(0);
        }
        let ended = match current::fiber() {
            Some((_, control)) if !control.flags().has(BLOCKS) => wait_as_fiber(entries, deadline)?,
            _ => wait_as_thread(entries, deadline)?,
        };
        if !ended {
            return look(entries);
        }
    }
}

/// Asks the kernel which entries are ready.
fn look<E: AsMut<Polled>>(entries: &mut [E]) -> io::Result<usize> {
    const TOGETHER: usize = 64;
    let mut count = 0;
    for entries in entries.chunks_mut(TOGETHER) {
        let mut fds = [libc::pollfd { fd: -1, events: 0, revents: 0 }; TOGETHER];
        let fds = &mut fds[..entries.len()];
        for (fd, entry) in fds.iter_mut().zip(entries.iter_mut().map(AsMut::as_mut)) {
            *fd = libc::pollfd { fd: entry.source.fd(), events: entry.wanted, revents: 0 };
        }
        count += loop {
            match sys::ppoll(fds, Some(core::time::Duration::ZERO)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        for (fd, entry) in fds.iter().zip(entries.iter_mut().map(AsMut::as_mut)) {
            entry.ready = fd.revents;
        }
    }
    Ok(count)
}

/// Waits as a fiber. Returns false if the deadline passed.
fn wait_as_fiber<E: AsMut<Polled>>(entries: &mut [E], deadline: u64) -> io::Result<bool> {
    let wait = Wait::begin(WaitKind::Readable, 0);
    let who = wait.who();
    let here = Reactor::here().expect("a fiber runs on a carrier, which has a reactor");
    let linked = Linked(entries);
    for entry in linked.0.iter_mut().map(AsMut::as_mut) {
        for direction in Direction::BOTH {
            if !entry.wants(direction) {
                continue;
            }
            let slot = entry.slot();
            let tick = entry.ticks[direction as usize];
            let node =
                entry.nodes[direction as usize].insert(Node::one_of_several(&wait, SUSPENDED));
            // SAFETY: `linked` borrows the entry, and takes the node out of its list before the
            // entry may move.
            let node = unsafe { Pin::new_unchecked(&*node) };
            let fd = entry.source.fd();
            let entered = {
                let mut state = slot.state.lock();
                match entry.source.join(&mut state) {
                    Ok(()) => slot.enter(fd, here, (direction, tick), &mut state, node),
                    Err(error) => Some(Err(error)),
                }
            };
            let Some(result) = entered else { continue };
            drop(linked);
            wait.withdraw();
            return match result {
                Err(error) if !is_always_ready(&error) => Err(error),
                _ => Ok(true),
            };
        }
    }
    let outcome = wait.suspend(deadline);
    drop(linked);
    raise::settle(who, outcome);
    Ok(outcome != Outcome::TimedOut || clock::now() < deadline)
}

#[cold]
fn wait_as_thread<E: AsMut<Polled>>(entries: &mut [E], deadline: u64) -> io::Result<bool> {
    if entries.iter_mut().any(|entry| entry.as_mut().slot().is_closed()) {
        return Err(slot::closed());
    }
    let mut fds: Vec<_> = entries
        .iter_mut()
        .map(AsMut::as_mut)
        .map(|entry| libc::pollfd { fd: entry.source.fd(), events: entry.wanted, revents: 0 })
        .collect();
    fds.push(libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 });
    let wait = Wait::begin_polling(WaitKind::Readable, 0);
    let who = wait.who();
    let mut result = Ok(());
    let outcome = wait.suspend_polling(deadline, |bell, timeout| {
        if let Some(last) = fds.last_mut() {
            last.fd = bell.unwrap_or(-1);
        }
        match sys::ppoll(&mut fds, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(error) => {
                result = Err(error);
                true
            }
            Ok(_) => fds[..fds.len() - 1].iter().any(|fd| fd.revents != 0),
        }
    });
    raise::settle(who, outcome);
    result.map(|()| outcome != Outcome::TimedOut)
}
