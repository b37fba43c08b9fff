//! What is known of one descriptor number: who watches it, and who waits for it.
//!
//! README.md of this folder has the protocol.

use super::Reactor;
use super::gate::{Gate, Tick};
use super::sys::{Direction, Ready, Token};
use super::table;
use crate::carrier::{Claimed, current};
use crate::fiber::Control;
use crate::park::list::{List, Node, Wakes};
use crate::primitive::{AtomicPtr, AtomicU32, Ordering, SpinLock, prefetch};
use core::pin::Pin;
use core::ptr;
use std::io;
use std::os::fd::RawFd;

/// One descriptor number, in one line of the cache. All zero means: nobody has used it yet.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// How often each direction was reported ready. Changed under the lock.
    gates: [Gate; 2],
    /// One more than the tick at which a reader found nothing left, or zero.
    drained: AtomicU32,
    /// What else is known. Changed under the lock.
    marks: Marks,
    /// Where the one was that began to wait for data last: it may have gone, so that the address is
    /// good for nothing but to ask for the memory there.
    reader: AtomicPtr<()>,
    pub(super) state: SpinLock<State>,
}

/// What the lock guards.
#[repr(C)]
pub(crate) struct State {
    /// Who watches; null if nobody does. It stays where it is until it has let go of the slot.
    reactor: *const Reactor,
    /// The number of the registration, which events bring along.
    generation: u32,
    /// How many need the registration.
    users: u32,
    waiters: [List<Waits>; 2],
}

/// Flags, and a count above them.
struct Marks(AtomicU32);

impl Marks {
    /// A hang-up, an error or urgent data was seen.
    const SPECIAL: u32 = 1;
    /// It was closed while somebody still has it.
    const CLOSED: u32 = 2;
    /// One wait in a row from another carrier: the unit of the count.
    const STRANGER: u32 = 4;

    #[inline(always)]
    fn has(&self, mark: u32) -> bool {
        self.0.load(Ordering::Relaxed) & mark != 0
    }

    /// The caller holds the lock of the slot.
    fn set(&self, mark: u32, is: bool) {
        let others = self.0.load(Ordering::Relaxed) & !mark;
        self.0.store(if is { others | mark } else { others }, Ordering::Relaxed);
    }

    /// How many waits in a row came from other carriers.
    fn strangers(&self) -> u32 {
        self.0.load(Ordering::Relaxed) / Marks::STRANGER
    }

    /// The caller holds the lock of the slot.
    #[inline(always)]
    fn set_strangers(&self, count: u32) {
        let flags = self.0.load(Ordering::Relaxed) % Marks::STRANGER;
        self.0.store(flags + count * Marks::STRANGER, Ordering::Relaxed);
    }
}

const _: () = assert!(cfg!(sinew_loom) || size_of::<Slot>() == 64);

/// What a node in the list of a slot stands for.
pub(super) enum Waits {
    /// A fiber that is suspended.
    Suspended,
    /// One that has not started, and is to be submitted.
    Unstarted(Unstarted),
}

/// A fiber that has not started.
#[derive(Clone, Copy)]
pub(super) struct Unstarted(pub(super) *const Control);

impl Unstarted {
    /// Asks for its block.
    #[inline(always)]
    pub(super) fn fetch(self) {
        // SAFETY: blocks are never unmapped.
        unsafe { (*self.0).fetch() };
    }

    /// Gives it to its crew.
    ///
    /// # Safety
    /// The caller has taken it out of its slot.
    pub(super) unsafe fn submit(self) {
        // SAFETY: as the caller promised; blocks are never unmapped.
        unsafe { super::deferred::submit(&*self.0) };
    }
}

// SAFETY: the pointer to a reactor needs it, which any thread may use; so do the control blocks of
// unstarted fibers in the lists, which belong to whoever takes them out.
unsafe impl Send for State {}

/// After so many waits in a row from other carriers, the registration moves to theirs.
const STRANGERS: u32 = 8;

impl Slot {
    /// That of a descriptor.
    pub(crate) fn of(fd: RawFd) -> &'static Slot {
        table::slot(fd)
    }

    /// To be read before an attempt: the wait after it ends at once if there was an event since.
    #[inline(always)]
    pub(crate) fn tick(&self, direction: Direction) -> Tick {
        // Its Acquire shows the flag `special` as well, which is written before the tick advances.
        self.gates[direction as usize].tick()
    }

    /// Whether an attempt to read would be in vain: the last one found the end of what was there, and
    /// nothing has happened since `tick`.
    #[inline(always)]
    pub(crate) fn is_drained(&self, tick: Tick) -> bool {
        let drained = self.drained.load(Ordering::Relaxed);
        // The last tick before the count begins anew has no note: zero means that there is none.
        drained != 0 && drained == tick.mark() && !self.marks.has(Marks::SPECIAL)
    }

    /// Notes that an attempt to read that began at `tick` found the end of what was there.
    #[inline(always)]
    pub(crate) fn set_drained(&self, tick: Tick) {
        self.drained.store(tick.mark(), Ordering::Relaxed);
    }

    /// Whether something else than data or room was reported: a hang-up, an error, urgent data.
    pub(crate) fn saw_special(&self) -> bool {
        self.marks.has(Marks::SPECIAL)
    }

    /// Whether [`close`](Self::close) was called.
    pub(crate) fn is_closed(&self) -> bool {
        let _state = self.state.lock();
        self.marks.has(Marks::CLOSED)
    }

    /// Asks for the memory that an event will touch first.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        prefetch(ptr::from_ref(self).cast());
    }

    /// Asks for that of whoever waits for data.
    #[inline(always)]
    pub(super) fn fetch_reader(&self) {
        prefetch(self.reader.load(Ordering::Relaxed).cast());
    }

    /// Takes an event: wakes whoever waits for it, but for a fiber that the caller has to submit.
    #[must_use]
    pub(super) fn deliver(&self, token: Token, ready: Ready) -> Option<Unstarted> {
        let mut state = self.state.lock();
        if state.generation != token.generation() {
            return None;
        }
        if ready.has(Ready::SPECIAL) {
            self.marks.set(Marks::SPECIAL, true);
        }
        let mut ready = ready;
        if ready.has(Ready::ENDED) && !self.watch_again(token, &mut state) {
            ready = Ready::BOTH;
        }
        for direction in Direction::BOTH {
            if ready.has(Ready::direction(direction)) {
                self.advance(direction);
            }
        }
        // Hardly ever does more than one wait.
        let (first, more) = state.take_first(ready);
        drop(state);
        if let First::Suspended(first) = first {
            first.resume_in_turn();
        }
        if more {
            self.wake(ready);
        }
        if let First::Unstarted(first) = first { Some(first) } else { None }
    }

    /// Wakes the first fiber of this carrier that waits to read: somebody here has just written what it
    /// waits for, and the kernel need not be asked. It says so as well, later; that wakes in vain.
    pub(super) fn nudge(&self) {
        let here = current::carrier();
        let mut state = self.state.lock();
        let waits_here = state.waiters[Direction::Read as usize].first().is_some_and(|node| {
            let control = node.waiter().control();
            // SAFETY: who waits has a block, which is never unmapped; unstarted fibers have none here.
            !control.is_null() && ptr::eq(unsafe { (*control).carrier() }, here)
        });
        if here.is_null() || !waits_here {
            return;
        }
        self.advance(Direction::Read);
        let (first, _) = state.take_first(Ready::READ);
        drop(state);
        if let First::Suspended(first) = first {
            first.resume();
        }
    }

    /// Goes on watching, if that is possible. If it is not, all who wait have to begin anew.
    #[cold]
    fn watch_again(&self, token: Token, state: &mut State) -> bool {
        let again = Slot::ask_again(token.fd(), state).is_ok();
        if !again {
            self.forget(token.fd(), state);
        }
        again
    }

    /// Wakes whoever waits. Who comes back meanwhile, as those do who rest, is not waited for again.
    #[cold]
    fn wake(&self, ready: Ready) {
        let mut left = self.state.lock().count(ready);
        while left > 0 {
            let mut woken = Woken::none();
            let taken = self.state.lock().take_waiters(ready, left, &mut woken);
            left -= taken;
            woken.resume();
            if taken == 0 {
                return;
            }
        }
    }

    /// Acts as if an event had come.
    pub(super) fn feign(&self, direction: Direction) {
        let state = self.state.lock();
        self.advance(direction);
        drop(state);
    }

    /// Counts an event. The caller holds the lock.
    fn advance(&self, direction: Direction) {
        self.gates[direction as usize].advance();
    }

    /// Begins a new life of the number: what was seen before says nothing.
    fn renew(&self, state: &mut State) {
        state.generation = Token::next_generation(state.generation);
        self.marks.set_strangers(0);
        self.marks.set(Marks::SPECIAL, false);
        self.advance(Direction::Read);
        self.advance(Direction::Write);
    }

    /// Counts somebody who needs the descriptor to be watched from now on.
    ///
    /// If it is already, the kernel is asked: somebody may have closed it behind our back, and this
    /// is another one with its number. What it says from then on has a number of its own; what it has
    /// said before, and nobody has taken yet, it says again if it is still true.
    pub(super) fn join(&self, fd: RawFd, state: &mut State) -> io::Result<()> {
        Slot::ask_again(fd, state)?;
        state.users += 1;
        Ok(())
    }

    /// Has the kernel report anew what is ready, if the descriptor is watched. What it has reported
    /// before is of an older generation: among it may be the end of the watch that was renewed.
    pub(super) fn ask_again(fd: RawFd, state: &mut State) -> io::Result<()> {
        // SAFETY: the lock is held, and a reactor lets go of its slots, under it, before it goes.
        if let Some(reactor) = unsafe { state.reactor.as_ref() } {
            let next = Token::next_generation(state.generation);
            reactor.renew(fd, Token::new(fd, state.generation), Token::new(fd, next))?;
            state.generation = next;
            // Of what was reported before, nobody hears any more: a poller of levels, which asks once for each time
            // that it is told of somebody who waits, has to be told again.
            Slot::arm_all(fd, state);
        }
        Ok(())
    }

    /// The opposite of [`join`](Self::join): the last one ends the registration.
    pub(super) fn leave(&self, fd: RawFd) {
        let mut state = self.state.lock();
        state.users -= 1;
        if state.users == 0 {
            self.forget(fd, &mut state);
        }
    }

    /// Ends the registration, if there is one.
    fn forget(&self, fd: RawFd, state: &mut State) {
        // SAFETY: the lock is held, and a reactor lets go of its slots, under it, before it goes.
        if let Some(reactor) = unsafe { state.reactor.as_ref() } {
            reactor.remove(fd, Token::new(fd, state.generation));
            state.reactor = ptr::null();
        }
        self.renew(state);
    }

    /// Makes sure that an open reactor watches the descriptor: the one that does, or `here`.
    pub(super) fn watch(&self, fd: RawFd, here: &Reactor, state: &mut State) -> io::Result<()> {
        if state.reactor.is_null() {
            here.add(fd, Token::new(fd, state.generation))?;
            state.reactor = here;
            return Ok(());
        }
        if ptr::eq(state.reactor, here) {
            self.marks.set_strangers(0);
            return Ok(());
        }
        // SAFETY: the lock is held, and a reactor lets go of its slots, under it, before it goes.
        let reliable = unsafe { !(*state.reactor).of_loop };
        let strangers = STRANGERS.min(self.marks.strangers() + 1);
        self.marks.set_strangers(strangers);
        if reliable && (strangers < STRANGERS || state.has_waiters()) {
            return Ok(());
        }
        // It lives here from now on. The one before is forgotten when it is known that there is room here: from then
        // on that one may be gone. What is reported meanwhile waits for the lock.
        let next = Token::new(fd, Token::next_generation(state.generation));
        match here.add(fd, next) {
            Ok(()) => {}
            Err(_) if reliable => return Ok(()),
            Err(error) => return Err(error),
        }
        self.forget(fd, state);
        debug_assert_eq!(state.generation, next.generation(), "forgetting renews once");
        state.reactor = here;
        Slot::arm_all(fd, state);
        Ok(())
    }

    /// Tells the poller of all directions that are waited for.
    fn arm_all(fd: RawFd, state: &State) {
        for direction in Direction::BOTH {
            if state.waiters[direction as usize].first().is_some() {
                Slot::arm(fd, direction, state);
            }
        }
    }

    /// Tells the poller that the direction is waited for.
    #[inline(always)]
    fn arm(fd: RawFd, direction: Direction, state: &State) {
        // SAFETY: the lock is held, and a reactor lets go of its slots, under it, before it goes.
        if let Some(reactor) = unsafe { state.reactor.as_ref() } {
            reactor.arm(|| Token::new(fd, state.generation), direction);
        }
    }

    /// Enters the list of those who wait for `direction`, unless something happened since `tick`.
    #[inline(always)]
    pub(super) fn enter(
        &self,
        fd: RawFd,
        here: &Reactor,
        (direction, tick): (Direction, Tick),
        state: &mut State,
        node: Pin<&Node<Waits>>,
    ) -> Option<io::Result<()>> {
        if self.marks.has(Marks::CLOSED) || !ptr::eq(state.reactor, here) {
            if let Some(result) = self.prepare(fd, here, (direction, tick), state) {
                return Some(result);
            }
        } else {
            self.marks.set_strangers(0);
        }
        let (gate, list) =
            (&self.gates[direction as usize], &mut state.waiters[direction as usize]);
        // SAFETY: new nodes are in no list; it stays until it was taken out, as its owner promises.
        if !unsafe { gate.enter(tick, list, node) } {
            return Some(Ok(()));
        }
        if direction == Direction::Read {
            self.reader.store(ptr::from_ref(node.get_ref()).cast_mut().cast(), Ordering::Relaxed);
        }
        Slot::arm(fd, direction, state);
        None
    }

    /// Makes sure that the descriptor is watched by somebody. Something if there is nothing to wait
    /// for. If it has moved to another reactor, that counts as an event.
    #[cold]
    #[inline(never)]
    fn prepare(
        &self,
        fd: RawFd,
        here: &Reactor,
        (direction, tick): (Direction, Tick),
        state: &mut State,
    ) -> Option<io::Result<()>> {
        if self.marks.has(Marks::CLOSED) {
            return Some(Err(closed()));
        }
        if self.tick(direction) != tick {
            return Some(Ok(()));
        }
        self.watch(fd, here, state).err().map(Err)
    }

    /// Makes everything that others do with the descriptor fail from now on, and wakes them. It is
    /// watched no longer.
    pub(super) fn close(&self, fd: RawFd) {
        {
            let mut state = self.state.lock();
            self.marks.set(Marks::CLOSED, true);
            self.forget(fd, &mut state);
        }
        self.wake(Ready::BOTH);
    }

    /// The opposite of [`close`](Self::close), before the number is given back. It does not matter
    /// whether others are still counted: they may have been forgotten.
    pub(super) fn reopen(&self) {
        let _state = self.state.lock();
        self.marks.set(Marks::CLOSED, false);
    }

    /// Lets go of the slot if `reactor` watches it; true if it did.
    pub(super) fn part_from(&self, fd: RawFd, reactor: &Reactor) -> bool {
        {
            let mut state = self.state.lock();
            if !ptr::eq(state.reactor, reactor) {
                return false;
            }
            self.forget(fd, &mut state);
        }
        self.wake(Ready::BOTH);
        true
    }
}

/// What is said of a descriptor that was closed while somebody still has it.
pub(super) fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "the descriptor was closed by another fiber or thread",
    )
}

impl State {
    /// Who watches.
    pub(super) fn watcher<'a>(&self) -> Option<&'a Reactor> {
        // SAFETY: the lock is held as long as the caller uses it, and a reactor lets go of its slots,
        // under it, before it goes.
        unsafe { self.reactor.as_ref() }
    }

    fn has_waiters(&self) -> bool {
        self.waiters.iter().any(|list| list.first().is_some())
    }

    pub(super) fn remove(&mut self, direction: Direction, node: &Node<Waits>) {
        self.waiters[direction as usize].remove(node);
    }

    /// Takes out the first fiber that waits for what is ready, and says whether there are more who do.
    #[inline(always)]
    fn take_first(&mut self, ready: Ready) -> (First, bool) {
        let mut first = First::Nobody;
        let mut more = false;
        for direction in Direction::BOTH {
            let list = &mut self.waiters[direction as usize];
            if !ready.has(Ready::direction(direction)) {
                continue;
            }
            if let First::Nobody = first
                && let Some(node) = list.pop()
            {
                match node.payload() {
                    Waits::Suspended => {
                        if let Some(claimed) = node.claim() {
                            first = First::Suspended(claimed);
                            node.grant();
                        }
                    }
                    Waits::Unstarted(unstarted) => first = First::Unstarted(*unstarted),
                }
            }
            more |= list.first().is_some();
        }
        (first, more)
    }

    /// Takes out an unstarted fiber that waits to be readable; false if it does not.
    pub(super) fn take_unstarted(&mut self, control: &Control) -> bool {
        let list = &mut self.waiters[Direction::Read as usize];
        let is = |waits: &Waits| matches!(waits, Waits::Unstarted(who) if ptr::eq(who.0, control));
        let node = list.find(is).map(ptr::from_ref);
        if let Some(node) = node {
            // SAFETY: what is linked is alive, as long as the lock is held.
            list.remove(unsafe { &*node });
        }
        node.is_some()
    }

    /// How many wait for what is ready.
    fn count(&self, ready: Ready) -> usize {
        let directions = Direction::BOTH.into_iter();
        let wanted = directions.filter(|direction| ready.has(Ready::direction(*direction)));
        wanted.map(|direction| self.waiters[direction as usize].count()).sum()
    }

    /// Takes out who waits for what is ready, as long as there is room, and no more than `most`; returns how many
    /// there were.
    fn take_waiters(&mut self, ready: Ready, most: usize, woken: &mut Woken) -> usize {
        let mut taken = 0;
        for direction in Direction::BOTH {
            let list = &mut self.waiters[direction as usize];
            while ready.has(Ready::direction(direction))
                && taken < most
                && !woken.is_full()
                && let Some(node) = list.pop()
            {
                taken += 1;
                match node.payload() {
                    Waits::Suspended => {
                        if let Some(claimed) = node.claim() {
                            woken.suspended.push(claimed);
                            node.grant();
                        }
                    }
                    Waits::Unstarted(unstarted) => woken.unstarted = Some(*unstarted),
                }
            }
        }
        taken
    }
}

/// The first of those who wait for what is ready.
enum First {
    Nobody,
    Suspended(Claimed),
    Unstarted(Unstarted),
}

/// Who was taken out of the lists of a slot, to be made to run when its lock was released.
struct Woken {
    suspended: Wakes,
    unstarted: Option<Unstarted>,
}

impl Woken {
    #[inline(always)]
    fn none() -> Woken {
        Woken { suspended: Wakes::none(), unstarted: None }
    }

    fn is_full(&self) -> bool {
        self.suspended.is_full() || self.unstarted.is_some()
    }

    /// Makes them run.
    #[inline(always)]
    fn resume(&mut self) {
        self.suspended.resume_in_turn();
        if let Some(unstarted) = self.unstarted {
            // SAFETY: it was taken out of the list, under the lock, by us alone.
            unsafe { unstarted.submit() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::bell::Bell;
    use crate::reactor::sys::{Backend, Events};
    use core::pin::pin;
    use core::time::Duration;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn bell() -> &'static Bell {
        Box::leak(Box::new(Bell::new().unwrap()))
    }

    /// What the reactor's poller has to say of directions.
    fn reports(reactor: &Reactor) -> Vec<(Token, bool)> {
        let mut events = Events::new();
        reactor.poller().wait(Some(Duration::ZERO), &mut events).unwrap();
        let events = events.as_slice().iter().filter(|(token, _)| *token != Token::BELL);
        events.map(|(token, ready)| (*token, ready.has(Ready::WRITE))).collect()
    }

    /// An event that was taken and is not delivered yet is of no use to anybody when the registration is renewed.
    #[test]
    fn what_nobody_hears_of_is_said_again() {
        for backend in [Backend::Epoll, Backend::Poll] {
            if !backend.is_supported() {
                continue;
            }
            let (stream, _other) = UnixStream::pair().unwrap();
            let fd = stream.as_raw_fd();
            let reactor = Reactor::new(backend, bell());
            let slot = Slot::of(fd);
            let node = pin!(Node::marker(&Waits::Suspended));
            let node = node.into_ref();
            let mut state = slot.state.lock();
            slot.join(fd, &mut state).unwrap();
            let wait = (Direction::Write, slot.tick(Direction::Write));
            assert!(slot.enter(fd, &reactor, wait, &mut state, node).is_none());
            let before = Token::new(fd, state.generation);
            assert_eq!(reports(&reactor), [(before, true)], "{backend:?}");
            Slot::ask_again(fd, &mut state).unwrap();
            let after = Token::new(fd, state.generation);
            assert_ne!(before, after);
            assert_eq!(reports(&reactor), [(after, true)], "{backend:?}");
            state.remove(Direction::Write, &node);
            drop(state);
            slot.leave(fd);
        }
    }

    /// Whoever watched it may be gone as soon as it is told to watch no longer.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_descriptor_that_cannot_be_watched_elsewhere_stays_where_it_was() {
        for of_loop in [false, true] {
            let first = Reactor { of_loop, ..Reactor::new(Backend::Epoll, bell()) };
            let here = Reactor::new(Backend::Epoll, bell());
            // That of a poller cannot be watched by itself.
            let fd = here.poller().as_fd().unwrap().as_raw_fd();
            let slot = Slot::of(fd);
            let mut state = slot.state.lock();
            slot.join(fd, &mut state).unwrap();
            slot.watch(fd, &first, &mut state).unwrap();
            let (generation, tick) = (state.generation, slot.tick(Direction::Read));
            for _ in 0..2 * STRANGERS {
                let watched = slot.watch(fd, &here, &mut state);
                assert_eq!(watched.is_err(), of_loop);
                assert!(ptr::eq(state.reactor, &first));
            }
            assert_eq!((state.generation, slot.tick(Direction::Read)), (generation, tick));
            drop(state);
            slot.leave(fd);
        }
    }

    #[test]
    fn no_tick_finds_a_note_that_nobody_has_left() {
        // SAFETY: all zero is a slot that nobody has used.
        let slot: Slot = unsafe { core::mem::zeroed() };
        for tick in [0, 1, u32::MAX - 1, u32::MAX].map(Tick) {
            assert!(!slot.is_drained(tick), "{tick:?}");
        }
        slot.set_drained(Tick(u32::MAX - 1));
        assert!(slot.is_drained(Tick(u32::MAX - 1)) && !slot.is_drained(Tick(u32::MAX)));
        slot.set_drained(Tick(u32::MAX));
        assert!(!slot.is_drained(Tick(u32::MAX)) && !slot.is_drained(Tick(0)));
    }
}
