//! Turns events of the kernel into wakes of the fibers that wait for descriptors.
//!
//! Each carrier has a [`Reactor`], which is its `Driver`. `io`, `net`, `fs`, `process` and `signal`
//! wait through [`Source`], [`several`] and `ring`.
//!
//! README.md in this folder has the protocol, and the reasons why no wake is lost. Next:
//! `source.rs`, then `io`, which reads and writes.

pub(crate) mod deferred;
mod gate;
mod nap;
#[cfg(target_os = "linux")]
pub(crate) mod ring;
pub(crate) mod several;
mod slot;
mod source;
mod sys;
mod table;

pub(crate) use gate::Tick;
pub(crate) use source::{Source, look};
pub use sys::Backend;
pub(crate) use sys::Direction;

use crate::carrier::bell::Bell;
use crate::carrier::driver::Driver;
use crate::carrier::{Carrier, current};
use crate::clock;
use crate::primitive::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::report;
use core::time::Duration;
use nap::Naps;
use slot::{Slot, Unstarted};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use sys::{Events, HARVEST, Poller, Ready, Token};

/// The place where one carrier sleeps and learns of events.
pub(crate) struct Reactor {
    backend: Backend,
    bell: &'static Bell,
    /// Made when the first descriptor has to be watched.
    poller: OnceLock<Box<dyn Poller>>,
    /// Whether the poller wants to be told of each wait. True until the poller is made.
    wants_arming: AtomicBool,
    /// Number of watched descriptors.
    watched: AtomicUsize,
    /// Number of delivered events.
    events: AtomicU64,
    /// Whether a foreign loop decides when to look here. It may never look.
    of_loop: bool,
    naps: Naps,
}

impl Reactor {
    pub(crate) fn new(backend: Backend, bell: &'static Bell) -> Reactor {
        Reactor {
            backend,
            bell,
            poller: OnceLock::new(),
            wants_arming: AtomicBool::new(true),
            watched: AtomicUsize::new(0),
            events: AtomicU64::new(0),
            of_loop: false,
            naps: Naps::new(),
        }
    }

    /// Makes the reactor of a carrier in a foreign loop. Other carriers do not rely on it.
    pub(crate) fn of_loop(backend: Backend, bell: &'static Bell) -> Reactor {
        Reactor { of_loop: true, ..Reactor::new(backend, bell) }
    }

    /// Returns the reactor of the carrier that runs on this thread.
    #[inline(always)]
    fn here() -> Option<&'static Reactor> {
        // SAFETY: carriers live forever. The carrier's thread, which is this one, keeps its crew
        // and so the reactor.
        unsafe { current::carrier().as_ref().map(|carrier| Reactor::of(carrier)) }
    }

    /// Returns the reactor of a carrier.
    ///
    /// # Safety
    /// The carrier's crew has fibers for as long as the caller uses the reactor.
    #[inline(always)]
    unsafe fn of(carrier: &'static Carrier) -> &'static Reactor {
        // SAFETY: the crew has fibers, as the caller ensures, so the driver exists. Runtimes give
        // their carriers no other drivers.
        unsafe { &*carrier.driver().cast::<Reactor>() }
    }

    /// Returns the poller, and makes it if necessary. If the chosen backend cannot be opened, the
    /// poller uses `poll`, which needs nothing to open.
    fn poller(&self) -> &dyn Poller {
        if let Some(poller) = self.poller.get() {
            return &**poller;
        }
        let poller = self.new_poller();
        // The carrier may be asleep without the poller.
        self.bell.ring();
        poller
    }

    #[cold]
    fn new_poller(&self) -> &dyn Poller {
        let poller = self.poller.get_or_init(|| {
            self.backend.open(self.bell).unwrap_or_else(|error| {
                report::say(format_args!(
                    "a carrier cannot use the backend {:?}: {error}; it uses poll",
                    self.backend
                ));
                sys::fallback(self.bell)
            })
        });
        self.wants_arming.store(poller.wants_arming(), Ordering::Relaxed);
        &**poller
    }

    fn add(&self, fd: RawFd, token: Token) -> io::Result<()> {
        self.poller().add(fd, token)?;
        self.watched.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn renew(&self, fd: RawFd, old: Token, new: Token) -> io::Result<()> {
        let result = self.poller().renew(fd, old, new);
        if self.wants_arming.load(Ordering::Relaxed) && !self.is_here() {
            // A thread that already waits in the kernel does not know of the change.
            self.bell.ring();
        }
        result
    }

    fn remove(&self, fd: RawFd, token: Token) {
        if self.poller().remove(fd, token, self.is_here()) {
            self.bell.ring();
        }
        // ORDERING: Release keeps the use of the poller before this; pairs with the Acquire in
        // `close`, after which the poller may be freed. This is the last access to this reactor.
        self.watched.fetch_sub(1, Ordering::Release);
    }

    /// Tells the poller that a fiber is about to wait.
    #[inline(always)]
    fn arm(&self, token: impl FnOnce() -> Token, direction: Direction) {
        if self.wants_arming.load(Ordering::Relaxed) {
            self.arm_poller(token(), direction);
        }
    }

    #[cold]
    fn arm_poller(&self, token: Token, direction: Direction) {
        if self.poller().arm(token, direction) && !self.is_here() {
            self.bell.ring();
        }
    }

    /// Clears the bell. If a neighbour finds that the bell was rung, it rings the bell again,
    /// because the carrier has to hear it.
    #[cold]
    fn hear_bell(&self) {
        if self.is_here() {
            self.bell.clear();
        } else {
            self.bell.ring();
        }
    }

    /// Whether this is the thread of the reactor's carrier.
    fn is_here(&self) -> bool {
        Reactor::here().is_some_and(|here| core::ptr::eq(here, self))
    }

    /// Looks for events, or waits for them. Returns how many there were.
    fn harvest(&self, poller: &dyn Poller, timeout: Option<Duration>) -> usize {
        let mut events = Events::new();
        if let Err(error) = poller.wait(timeout, &mut events)
            && error.kind() != io::ErrorKind::Interrupted
        {
            report::say(format_args!("waiting for events failed, trying again: {error}"));
            self.bell.wait(timeout.map(|timeout| timeout.min(PAUSE)).or(Some(PAUSE)));
        }
        let events = events.as_slice();
        if !events.is_empty() {
            self.events.fetch_add(events.len() as u64, Ordering::Relaxed);
        }
        if events.len() >= MANY {
            self.deliver_many(events);
        } else {
            for (token, ready) in events {
                if let Some(unstarted) = self.deliver(*token, *ready, token.slot()) {
                    // SAFETY: `deliver` took the fiber out of its slot.
                    unsafe { unstarted.submit() };
                }
            }
        }
        events.len()
    }

    /// Delivers many events. Their memory may be cold, so all of it is prefetched before the first
    /// lock is taken: each lock would wait for the loads before it.
    fn deliver_many(&self, events: &[(Token, Ready)]) {
        let mut slots = [None; HARVEST];
        for (place, (token, _)) in slots.iter_mut().zip(events) {
            *place = token.slot().inspect(|slot| slot.fetch());
        }
        slots[..events.len()].iter().flatten().for_each(|slot| slot.fetch_reader());
        let mut unstarted = [None; HARVEST];
        for ((slot, (token, ready)), place) in slots.iter().zip(events).zip(&mut unstarted) {
            *place = self.deliver(*token, *ready, *slot);
        }
        let unstarted = unstarted[..events.len()].iter().flatten();
        unstarted.clone().for_each(|one| one.fetch());
        for one in unstarted {
            // SAFETY: `deliver` took the fiber out of its slot.
            unsafe { one.submit() };
        }
    }

    #[inline(always)]
    fn deliver(&self, token: Token, ready: Ready, slot: Option<&Slot>) -> Option<Unstarted> {
        match slot {
            Some(slot) => return slot.deliver(token, ready),
            None if token == Token::BELL => self.hear_bell(),
            None => {}
        }
        None
    }
}

/// From this number of events on, prefetching their memory pays.
const MANY: usize = 4;

impl Token {
    /// Returns the slot that an event is for.
    fn slot(self) -> Option<&'static Slot> {
        if self == Token::BELL { None } else { table::known(self.fd()) }
    }
}

/// Wakes the first reader of this descriptor, if it is a fiber on the caller's carrier. The caller
/// has just written data for it.
pub(crate) fn nudge(fd: RawFd) {
    if let Some(slot) = table::known(fd) {
        slot.nudge();
    }
}

/// How long a carrier sleeps if the kernel fails to report events.
const PAUSE: Duration = Duration::from_millis(10);

impl Driver for Reactor {
    fn wait(&self, timeout: Option<Duration>) {
        let Some(poller) = self.poller.get() else {
            self.bell.wait(timeout);
            return;
        };
        let before = clock::now();
        // Operations of a ring may have to be submitted, or reported without an event.
        if let Some(nap) = self.naps.due(before, timeout)
            && !poller.is_active()
        {
            self.bell.wait(Some(nap));
            let found = self.harvest(&**poller, Some(Duration::ZERO));
            // The carrier looks at all its queues before it waits again.
            return self.naps.napped(before, found);
        }
        let found = self.harvest(&**poller, timeout);
        self.naps.looked(before, clock::now(), found);
    }

    fn poll(&self) -> bool {
        match self.poller.get() {
            Some(poller) if !poller.is_for_neighbours() && !self.is_here() => false,
            Some(poller) => self.harvest(&**poller, Some(Duration::ZERO)) > 0,
            None => false,
        }
    }

    fn registered(&self) -> usize {
        self.watched.load(Ordering::Relaxed)
    }

    fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    fn is_active(&self) -> bool {
        self.watched.load(Ordering::Relaxed) > 0
            || self.poller.get().is_some_and(|poller| poller.is_active())
    }

    fn open(&self) {
        self.new_poller();
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match self.poller.get() {
            Some(poller) => poller.as_fd(),
            None => Some(self.bell.as_fd()),
        }
    }

    fn close(&self) {
        table::for_each(|fd, slot: &Slot| {
            // ORDERING: Acquire; pairs with the Release in `remove`, by other threads that have
            // ended registrations with this reactor.
            if self.watched.load(Ordering::Acquire) == 0 {
                return false;
            }
            slot.part_from(fd, self);
            true
        });
    }
}
