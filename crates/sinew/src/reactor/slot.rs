//! One descriptor number: the reactor that watches it, and the fibers that wait for it.
//!
//! README.md in this folder has the protocol.

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

/// One descriptor number, in one cache line. All zero means that it was never used.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// How often each direction was reported ready. Changed under the lock, read without it.
    gates: [Gate; 2],
    /// One more than the tick at which a reader found the stream empty; zero if there is no such
    /// note.
    drained: AtomicU32,
    /// Further marks. Changed under the lock, read without it.
    marks: Marks,
    /// The node of the fiber that last began to wait for data. The node may be gone, so the address
    /// is only good for prefetching.
    reader: AtomicPtr<()>,
    pub(super) state: SpinLock<State>,
}

/// The state that the lock guards.
#[repr(C)]
pub(crate) struct State {
    /// The reactor that watches the descriptor, or null. It is not freed before it has let go of
    /// the slot.
    reactor: *const Reactor,
    /// The number of the registration, which is part of each event.
    generation: u32,
    /// Number of users of the registration.
    users: u32,
    waiters: [List<Waits>; 2],
}

/// Flags in the lowest bits, and a count above them.
struct Marks(AtomicU32);

impl Marks {
    /// A hang-up, an error or urgent data was seen.
    const SPECIAL: u32 = 1;
    /// The descriptor was closed while others still use it.
    const CLOSED: u32 = 2;
    /// The unit of the count: one wait from another carrier.
    const STRANGER: u32 = 4;

    #[inline(always)]
    fn has(&self, mark: u32) -> bool {
        self.0.load(Ordering::Relaxed) & mark != 0
    }

    /// Sets or clears a mark. The caller holds the lock of the slot.
    fn set(&self, mark: u32, is: bool) {
        let others = self.0.load(Ordering::Relaxed) & !mark;
        self.0.store(if is { others | mark } else { others }, Ordering::Relaxed);
    }

    /// How many waits in a row came from other carriers.
    fn strangers(&self) -> u32 {
        self.0.load(Ordering::Relaxed) / Marks::STRANGER
    }

    /// Sets the count of waits from other carriers. The caller holds the lock of the slot.
    #[inline(always)]
    fn set_strangers(&self, count: u32) {
        let flags = self.0.load(Ordering::Relaxed) % Marks::STRANGER;
        self.0.store(flags + count * Marks::STRANGER, Ordering::Relaxed);
    }
}

const _: () = assert!(size_of::<Slot>() == 64);

/// The meaning of a node in the list of a slot.
pub(super) enum Waits {
    /// A suspended fiber.
    Suspended,
    /// An unstarted fiber, which has to be submitted.
    Unstarted(Unstarted),
}

/// A fiber that has not started.
#[derive(Clone, Copy)]
pub(super) struct Unstarted(pub(super) *const Control);

impl Unstarted {
    /// Prefetches the fiber's block.
    #[inline(always)]
    pub(super) fn fetch(self) {
        // SAFETY: control blocks are never unmapped.
        unsafe { (*self.0).fetch() };
    }

    /// Gives the fiber to its crew.
    ///
    /// # Safety
    /// The caller has taken the fiber out of its slot.
    pub(super) unsafe fn submit(self) {
        // SAFETY: the caller has taken the fiber out of its slot. Control blocks are never
        // unmapped.
        unsafe { super::deferred::submit(&*self.0) };
    }
}

// SAFETY: two kinds of pointers need it. `reactor` leads to a reactor, which any thread may use.
// `waiters` leads to nodes, which are used only under the slot's lock, and to unstarted fibers,
// which belong to the thread that takes them out.
unsafe impl Send for State {}

/// After this many waits in a row from other carriers, the registration moves to the carrier of the
/// last of these waits.
const STRANGERS: u32 = 8;

impl Slot {
    /// Returns the slot of a descriptor.
    pub(crate) fn of(fd: RawFd) -> &'static Slot {
        table::slot(fd)
    }

    /// Returns the tick. The caller reads it before an attempt: a wait with this tick ends at once
    /// if an event came since.
    #[inline(always)]
    pub(crate) fn tick(&self, direction: Direction) -> Tick {
        // The Acquire in `Gate::tick` also shows `SPECIAL`, which is set before the tick advances.
        self.gates[direction as usize].tick()
    }

    /// Whether an attempt to read would be in vain: the last one found the stream empty, and
    /// nothing has happened since `tick`.
    #[inline(always)]
    pub(crate) fn is_drained(&self, tick: Tick) -> bool {
        let drained = self.drained.load(Ordering::Relaxed);
        // The last tick before the count wraps has no note, because zero means that there is none.
        drained != 0 && drained == tick.mark() && !self.marks.has(Marks::SPECIAL)
    }

    /// Notes that an attempt to read that began at `tick` found the stream empty.
    #[inline(always)]
    pub(crate) fn set_drained(&self, tick: Tick) {
        self.drained.store(tick.mark(), Ordering::Relaxed);
    }

    /// Whether a report was about more than data or room: a hang-up, an error, urgent data.
    pub(crate) fn saw_special(&self) -> bool {
        self.marks.has(Marks::SPECIAL)
    }

    /// Whether a user of the descriptor has [closed](super::Source::close) it.
    pub(crate) fn is_closed(&self) -> bool {
        let _state = self.state.lock();
        self.marks.has(Marks::CLOSED)
    }

    /// Prefetches the memory that an event touches first.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        prefetch(ptr::from_ref(self).cast());
    }

    /// Prefetches the node of the fiber that waits for data.
    #[inline(always)]
    pub(super) fn fetch_reader(&self) {
        prefetch(self.reader.load(Ordering::Relaxed).cast());
    }

    /// Counts an event of the current generation, and wakes its waiters. Returns an unstarted
    /// fiber, if there was one, for the caller to submit.
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
        // There is hardly ever more than one waiter.
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

    /// Wakes the first reader, if it is a fiber of this carrier. The caller has just written the
    /// data that the reader waits for, so the kernel need not be asked. The kernel reports the data
    /// as well, later. A fiber that this report wakes tries in vain.
    pub(super) fn nudge(&self) {
        let here = current::carrier();
        let mut state = self.state.lock();
        let waits_here = state.waiters[Direction::Read as usize].first().is_some_and(|node| {
            let control = node.waiter().control();
            // SAFETY: a waiter has a control block, which is never unmapped. The pointer of an
            // unstarted fiber's node is null.
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

    /// Watches the descriptor again after the kernel has ended its watch. Returns false if that
    /// fails. Then the caller wakes all waiters, which register again.
    #[cold]
    fn watch_again(&self, token: Token, state: &mut State) -> bool {
        let again = Slot::ask_again(token.fd(), state).is_ok();
        if !again {
            self.forget(token.fd(), state);
        }
        again
    }

    /// Wakes all waiters of the directions that are ready. Waiters that register again during this
    /// call are not woken a second time.
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

    /// Counts an event that did not come, for `io::faults`. Wakes no waiter.
    pub(crate) fn feign(&self, direction: Direction) {
        let state = self.state.lock();
        self.advance(direction);
        drop(state);
    }

    /// Counts an event. The caller holds the lock.
    fn advance(&self, direction: Direction) {
        self.gates[direction as usize].advance();
    }

    /// Begins a new generation of the number, for which earlier reports do not count.
    fn renew(&self, state: &mut State) {
        state.generation = Token::next_generation(state.generation);
        self.marks.set_strangers(0);
        self.marks.set(Marks::SPECIAL, false);
        self.advance(Direction::Read);
        self.advance(Direction::Write);
    }

    /// Counts a user that needs the descriptor to be watched.
    ///
    /// If the slot has a reactor already, asks the kernel again: another thread may have closed the
    /// old descriptor without telling the reactor, and this may be a new descriptor with the same
    /// number. Events from then on have a new generation. Events that were not delivered yet are
    /// reported again if they still hold.
    pub(super) fn join(&self, fd: RawFd, state: &mut State) -> io::Result<()> {
        Slot::ask_again(fd, state)?;
        state.users += 1;
        Ok(())
    }

    /// Makes the kernel report the present readiness again, if the descriptor is watched. Reports
    /// from before this call have an older generation, and are dropped. With io_uring, the end of
    /// the old watch may be among them.
    pub(super) fn ask_again(fd: RawFd, state: &mut State) -> io::Result<()> {
        // SAFETY: the slot's lock is held. A reactor lets go of its slots under that lock before it
        // is freed.
        if let Some(reactor) = unsafe { state.reactor.as_ref() } {
            let next = Token::next_generation(state.generation);
            reactor.renew(fd, Token::new(fd, state.generation), Token::new(fd, next))?;
            state.generation = next;
            // Reports from before are dropped. A level-triggered poller reports once for each
            // arming, so arm it again.
            Slot::arm_all(fd, state);
        }
        Ok(())
    }

    /// Undoes [`join`](Self::join). The last user ends the registration.
    pub(super) fn leave(&self, fd: RawFd) {
        let mut state = self.state.lock();
        state.users -= 1;
        if state.users == 0 {
            self.forget(fd, &mut state);
        }
    }

    /// Ends the registration, if there is one.
    fn forget(&self, fd: RawFd, state: &mut State) {
        // SAFETY: the slot's lock is held. A reactor lets go of its slots under that lock before it
        // is freed.
        if let Some(reactor) = unsafe { state.reactor.as_ref() } {
            reactor.remove(fd, Token::new(fd, state.generation));
            state.reactor = ptr::null();
        }
        self.renew(state);
    }

    /// Makes sure that a reactor watches the descriptor: the present one, or `here`. Moves the
    /// registration to `here` if the present reactor belongs to a foreign loop. Also moves it after
    /// many waits from other carriers, if no fiber waits.
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
        // SAFETY: the slot's lock is held. A reactor lets go of its slots under that lock before it
        // is freed.
        let reliable = unsafe { !(*state.reactor).of_loop };
        let strangers = STRANGERS.min(self.marks.strangers() + 1);
        self.marks.set_strangers(strangers);
        if reliable && (strangers < STRANGERS || state.has_waiters()) {
            return Ok(());
        }
        // Move the registration here. The old reactor forgets it only after it was added here,
        // because the old reactor may be freed as soon as it has forgotten it. The delivery of
        // reports waits for the lock meanwhile.
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

    /// Arms the poller for all directions that have waiters.
    fn arm_all(fd: RawFd, state: &State) {
        for direction in Direction::BOTH {
            if state.waiters[direction as usize].first().is_some() {
                Slot::arm(fd, direction, state);
            }
        }
    }

    /// Arms the poller for a direction that has a waiter.
    #[inline(always)]
    fn arm(fd: RawFd, direction: Direction, state: &State) {
        // SAFETY: the slot's lock is held. A reactor lets go of its slots under that lock before it
        // is freed.
        if let Some(reactor) = unsafe { state.reactor.as_ref() } {
            reactor.arm(|| Token::new(fd, state.generation), direction);
        }
    }

    /// Enters the list of waiters of `direction`, unless an event came since `tick`. Returns `Some`
    /// if the caller must not wait: `Ok` if it has to try again, or an error.
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
        // SAFETY: the node is new, so it is in no list. Its owner keeps it in place until it is
        // taken out of this list.
        if !unsafe { gate.enter(tick, list, node) } {
            return Some(Ok(()));
        }
        if direction == Direction::Read {
            self.reader.store(ptr::from_ref(node.get_ref()).cast_mut().cast(), Ordering::Relaxed);
        }
        Slot::arm(fd, direction, state);
        None
    }

    /// Makes sure that a reactor watches the descriptor. Returns `Some` if the caller must not
    /// wait: the descriptor is closed or cannot be watched, or an event came since `tick`. A move
    /// to another reactor counts as an event.
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

    /// Makes every use of the descriptor fail from now on, wakes all waiters, and ends the
    /// registration.
    pub(super) fn close(&self, fd: RawFd) {
        {
            let mut state = self.state.lock();
            self.marks.set(Marks::CLOSED, true);
            self.forget(fd, &mut state);
        }
        self.wake(Ready::BOTH);
    }

    /// Undoes [`close`](Self::close), before the number is given back to the kernel. Other users
    /// may still be counted, because they were leaked.
    pub(super) fn reopen(&self) {
        let _state = self.state.lock();
        self.marks.set(Marks::CLOSED, false);
    }

    /// Ends the registration if `reactor` has it. Returns whether it had.
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

/// Returns the error of a descriptor that was closed while others still use it.
pub(super) fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "the socket is closed: a fiber or thread has called `close`",
    )
}

impl State {
    /// Returns the reactor that watches the descriptor.
    pub(super) fn watcher<'a>(&self) -> Option<&'a Reactor> {
        // SAFETY: the caller holds the slot's lock as long as it uses the reactor. A reactor lets
        // go of its slots under that lock before it is freed.
        unsafe { self.reactor.as_ref() }
    }

    fn has_waiters(&self) -> bool {
        self.waiters.iter().any(|list| list.first().is_some())
    }

    pub(super) fn remove(&mut self, direction: Direction, node: &Node<Waits>) {
        self.waiters[direction as usize].remove(node);
    }

    /// Takes out the first waiter of the directions that are ready. The flag says whether there are
    /// more.
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

    /// Takes out an unstarted fiber that waits for data. Returns false if it is not in the list.
    pub(super) fn take_unstarted(&mut self, control: &Control) -> bool {
        let list = &mut self.waiters[Direction::Read as usize];
        let is = |waits: &Waits| matches!(waits, Waits::Unstarted(who) if ptr::eq(who.0, control));
        let node = list.find(is).map(ptr::from_ref);
        if let Some(node) = node {
            // SAFETY: a linked node is alive as long as the lock is held.
            list.remove(unsafe { &*node });
        }
        node.is_some()
    }

    /// Counts the waiters of the directions that are ready.
    fn count(&self, ready: Ready) -> usize {
        let directions = Direction::BOTH.into_iter();
        let wanted = directions.filter(|direction| ready.has(Ready::direction(*direction)));
        wanted.map(|direction| self.waiters[direction as usize].count()).sum()
    }

    /// Moves waiters of the directions that are ready to `woken`, while there is room in it, and
    /// `most` at most. Returns how many it took.
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

/// The first waiter of the directions that are ready.
enum First {
    Nobody,
    Suspended(Claimed),
    Unstarted(Unstarted),
}

/// Waiters that were taken out of a slot. The caller makes them run after it has released the
/// slot's lock.
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

    /// Makes the waiters run.
    #[inline(always)]
    fn resume(&mut self) {
        self.suspended.resume_in_turn();
        if let Some(unstarted) = self.unstarted {
            // SAFETY: this thread alone took the fiber out of the list, under the lock.
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

    /// Returns the reports of the reactor's poller, except the bell.
    fn reports(reactor: &Reactor) -> Vec<(Token, bool)> {
        let mut events = Events::new();
        reactor.poller().wait(Some(Duration::ZERO), &mut events).unwrap();
        let events = events.as_slice().iter().filter(|(token, _)| *token != Token::BELL);
        events.map(|(token, ready)| (*token, ready.has(Ready::WRITE))).collect()
    }

    /// A renewal voids events that were harvested and not delivered yet, so they are reported
    /// again.
    #[test]
    fn an_undelivered_event_is_reported_again_after_a_renewal() {
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

    /// The old reactor may be freed as soon as it has forgotten the descriptor, so it must not
    /// forget too early.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_descriptor_that_cannot_be_watched_elsewhere_stays_where_it_was() {
        for of_loop in [false, true] {
            let first = Reactor { of_loop, ..Reactor::new(Backend::Epoll, bell()) };
            let here = Reactor::new(Backend::Epoll, bell());
            // A poller cannot watch its own descriptor.
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
    fn an_unused_slot_is_drained_at_no_tick() {
        // SAFETY: all zero is an unused slot.
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
