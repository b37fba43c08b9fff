//! `poll`, on every platform: each call lists all descriptors that fibers wait for.
//!
//! `poll` reports a direction again and again as long as it is ready. So each call asks only for
//! armed directions, and a reported direction is disarmed.

use super::{Direction, Events, HARVEST, Poller, Ready, Token};
use crate::carrier::bell::Bell;
use crate::primitive::{AtomicU32, Ordering, SpinLock};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

pub(super) struct List {
    bell: RawFd,
    /// The armed descriptors and directions.
    armed: SpinLock<Vec<(Token, Ready)>>,
    /// The number of threads that are in `poll`, or about to be.
    waiting: AtomicU32,
}

impl List {
    pub(super) fn new(bell: &Bell) -> List {
        let bell = bell.as_fd().as_raw_fd();
        List { bell, armed: SpinLock::new(Vec::new()), waiting: AtomicU32::new(0) }
    }

    /// Builds the question for the kernel: the bell first, then the armed descriptors.
    fn question(&self) -> (Vec<libc::pollfd>, Vec<Token>) {
        let armed = self.armed.lock();
        let mut fds = Vec::with_capacity(armed.len() + 1);
        fds.push(libc::pollfd { fd: self.bell, events: libc::POLLIN, revents: 0 });
        fds.extend(armed.iter().map(|(token, wanted)| libc::pollfd {
            fd: token.fd(),
            events: if wanted.has(Ready::READ) { READ } else { 0 }
                | if wanted.has(Ready::WRITE) { libc::POLLOUT } else { 0 },
            revents: 0,
        }));
        (fds, armed.iter().map(|(token, _)| *token).collect())
    }

    fn disarm(&self, token: Token, ready: Ready) {
        let mut armed = self.armed.lock();
        if let Some(index) = armed.iter().position(|(known, _)| *known == token) {
            armed[index].1.0 &= !ready.0;
            if armed[index].1.0 == 0 {
                armed.swap_remove(index);
            }
        }
    }
}

const READ: libc::c_short = libc::POLLIN | libc::POLLPRI;
const END: libc::c_short = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;

impl Poller for List {
    fn add(&self, fd: RawFd, _token: Token) -> io::Result<()> {
        super::check_watchable(fd).map(|_| ())
    }

    fn renew(&self, fd: RawFd, old: Token, new: Token) -> io::Result<()> {
        self.add(fd, new)?;
        let mut armed = self.armed.lock();
        armed.iter_mut().filter(|(known, _)| *known == old).for_each(|(known, _)| *known = new);
        Ok(())
    }

    fn remove(&self, _fd: RawFd, token: Token, here: bool) -> bool {
        self.armed.lock().retain(|(known, _)| *known != token);
        // A descriptor that is closed during a `poll` stays open in the kernel until that call
        // returns. So the bell has to end the call.
        // ORDERING: SeqCst; pairs with the `fetch_add` in `wait`. Either the question leaves this
        // descriptor out, or we see the thread that asks.
        !here && self.waiting.load(Ordering::SeqCst) > 0
    }

    fn wants_arming(&self) -> bool {
        true
    }

    fn arm(&self, token: Token, direction: Direction) -> bool {
        let wanted = Ready::direction(direction);
        let mut armed = self.armed.lock();
        match armed.iter_mut().find(|(known, _)| *known == token) {
            Some((_, ready)) => ready.0 |= wanted.0,
            None => armed.push((token, wanted)),
        }
        // ORDERING: SeqCst; pairs with the `fetch_add` in `wait`. Either the question includes this
        // direction, or we see the thread that asks.
        self.waiting.load(Ordering::SeqCst) > 0
    }

    fn wait(&self, timeout: Option<Duration>, events: &mut Events) -> io::Result<()> {
        // ORDERING: SeqCst: this thread is counted before it reads the list; pairs with the loads
        // in `arm` and `remove`.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (mut fds, tokens) = self.question();
        let result = ppoll(&mut fds, timeout);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if result? == 0 {
            return Ok(());
        }
        let happened = fds.iter().zip(core::iter::once(Token::BELL).chain(tokens));
        for (poll, token) in happened.filter(|(poll, _)| poll.revents != 0).take(HARVEST) {
            let end = poll.revents & END != 0;
            let ready = Ready::of([
                (Ready::READ, end || poll.revents & READ != 0),
                (Ready::WRITE, end || poll.revents & libc::POLLOUT != 0),
                // `poll` sees a hang-up only when it is complete, so no attempt may be left out.
                (Ready::SPECIAL, true),
            ]);
            self.disarm(token, ready);
            events.push(token, ready);
        }
        Ok(())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Calls `ppoll`, or `poll` where there is no `ppoll`.
pub(in crate::reactor) fn ppoll(
    fds: &mut [libc::pollfd],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    // SAFETY: the entries and their number come from a slice.
    let count = unsafe { poll_for(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Calls `ppoll`. Returns a negative number, and sets `errno`, if the call fails.
///
/// # Safety
/// `fds` points to `count` entries that this call may read and write.
#[cfg(not(target_vendor = "apple"))]
unsafe fn poll_for(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: Option<Duration>,
) -> libc::c_int {
    let timeout = timeout.map(crate::clock::timespec);
    let timeout = timeout.as_ref().map_or(core::ptr::null(), |timeout| &raw const *timeout);
    // SAFETY: the caller passes valid entries and their number. The timeout is valid or null, and
    // there is no signal mask.
    unsafe { libc::ppoll(fds, count, timeout, core::ptr::null()) }
}

/// Calls `poll`. Returns a negative number, and sets `errno`, if the call fails.
///
/// # Safety
/// `fds` points to `count` entries that this call may read and write.
#[cfg(target_vendor = "apple")]
unsafe fn poll_for(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: Option<Duration>,
) -> libc::c_int {
    // Round up: a wait that ends early would begin again without a pause.
    let millis = timeout.map_or(-1, |timeout| {
        libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: the caller passes valid entries and their number.
    unsafe { libc::poll(fds, count, millis) }
}
