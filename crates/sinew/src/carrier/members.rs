//! One carrier: what it owns, and what others may reach of it.
//!
//! Carriers are recycled, never freed: whoever wakes a fiber may ring the bell of its carrier when
//! the fiber, and the runtime with it, is long gone.

use super::bell::Bell;
use super::crew::Crew;
use super::current;
use crate::fiber::life::STARTED;
use crate::fiber::slab::Slab;
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Control, Flags};
use crate::metrics::Counters;
use crate::primitive::{Alone, AtomicPtr, AtomicU32, AtomicU64, Ordering, SpinLock};
use crate::queue::{Deque, Entry, Fifo, Inbox, Timed, Timers, low_bits};
use core::cell::{Cell, OnceCell, UnsafeCell};
use core::ptr;
use sinew_context::stack::StackCache;
use std::io;
use std::sync::Arc;

/// An OS thread that runs fibers; see the page of this module.
///
/// The first part belongs to its thread; the second to everybody.
#[repr(C, align(128))]
pub(crate) struct Carrier {
    /// What runs: a fiber, or the root.
    current: AtomicPtr<Control>,
    /// The stack of the fiber that ended last, ready for the next one.
    pub(crate) spare: Cell<*mut ()>,
    /// The fiber that the running one has just woken: next, within bounds.
    pub(crate) slot: Cell<*const Control>,
    /// Fibers that stay here, most of them started: those that may move are in the deque.
    pub(crate) ready: Fifo<Control>,
    /// Dispatches until the carrier looks at its other duties.
    pub(crate) tick: Cell<u32>,
    /// How often the slot may still be used until then.
    pub(crate) slot_left: Cell<u32>,
    /// Whether unstarted fibers are taken newest first: set by a join of an unstarted fiber.
    pub(crate) depth_first: Cell<bool>,
    /// The last look at the clock.
    pub(crate) now: Cell<u64>,
    pub(crate) duties: super::tend::Duties,
    pub(super) observed: super::observe::Observed,
    pub(super) embedded: super::embed::Embedded,
    /// Fibers of this carrier that are suspended in the middle of an unwinding.
    pub(crate) unwinding: Cell<usize>,
    /// Fibers that wait for a predicate, to be asked at each tending.
    pub(crate) pollers: UnsafeCell<Vec<(*const Control, Epoch)>>,
    /// Operations of I/O until the fibers take turns.
    pub(crate) operations: Cell<u32>,
    /// Fibers that were cancelled in a wait while they may have been unwinding: to be told when
    /// nobody on this thread is.
    pub(crate) postponed: UnsafeCell<Vec<(*const Control, Epoch)>>,
    /// Fibers for which there was no stack.
    pub(crate) refused: Fifo<Control>,
    /// The stack on which those end.
    pub(super) reserve: super::refusal::Reserve,
    /// The carrier's own loop, as something to switch to.
    pub(crate) root: Control,
    /// Present while the thread runs.
    pub(crate) stacks: UnsafeCell<Option<StackCache>>,
    pub(crate) random: Cell<u64>,
    pub(crate) slab: Slab,
    /// When the slab may be trimmed again.
    pub(super) trim_at: Cell<u64>,
    /// Whether a fiber has run since the slab was trimmed.
    pub(super) trim_due: Cell<bool>,

    pub(crate) inbox: Alone<Inbox<Control>>,
    pub(crate) deque: Deque<Control>,
    pub(crate) timers: SpinLock<Timers<Control>>,
    /// When somebody last looked at the driver.
    pub(crate) polled: AtomicU64,
    /// The earliest deadline, so that a look needs no lock.
    pub(crate) earliest: AtomicU64,
    bell: OnceCell<Bell>,
    crew: AtomicPtr<Crew>,
    driver: AtomicPtr<()>,
    index: AtomicU64,
    /// The kernel's number of its thread; zero if it does not run.
    thread: AtomicU32,
    pub(crate) counters: Counters,
}

// SAFETY: the fields of the first part are used by the carrier's thread alone; `bell` is set before
// the carrier is shared.
unsafe impl Sync for Carrier {}
// SAFETY: the same.
unsafe impl Send for Carrier {}

impl Timed for Control {
    fn wait_number(&self) -> Option<u32> {
        self.wake.waiting().map(|epoch| low_bits(epoch.number()))
    }
}

/// Carriers whose runtimes are gone.
static SPARE: SpinLock<Vec<&'static Carrier>> = SpinLock::new(Vec::new());

impl Carrier {
    /// A carrier without a thread.
    pub(crate) fn take() -> io::Result<&'static Carrier> {
        if let Some(spare) = SPARE.lock().pop() {
            return Ok(spare);
        }
        let bell = Bell::new()?;
        let carrier = Box::leak(Box::new(Carrier {
            current: AtomicPtr::new(ptr::null_mut()),
            spare: Cell::new(ptr::null_mut()),
            slot: Cell::new(ptr::null()),
            ready: Fifo::new(),
            tick: Cell::new(1),
            slot_left: Cell::new(0),
            depth_first: Cell::new(false),
            now: Cell::new(0),
            duties: super::tend::Duties::new(),
            observed: super::observe::Observed::default(),
            embedded: super::embed::Embedded::new(),
            unwinding: Cell::new(0),
            pollers: UnsafeCell::new(Vec::new()),
            operations: Cell::new(0),
            postponed: UnsafeCell::new(Vec::new()),
            refused: Fifo::new(),
            reserve: super::refusal::Reserve::new(),
            root: Control::vacant(),
            stacks: UnsafeCell::new(None),
            random: Cell::new(0),
            slab: Slab::new(),
            trim_at: Cell::new(0),
            trim_due: Cell::new(false),
            inbox: Alone::new(Inbox::new()),
            deque: Deque::new(256),
            timers: SpinLock::new(Timers::new()),
            polled: AtomicU64::new(0),
            earliest: AtomicU64::new(u64::MAX),
            bell: OnceCell::from(bell),
            crew: AtomicPtr::new(ptr::null_mut()),
            driver: AtomicPtr::new(ptr::null_mut()),
            index: AtomicU64::new(0),
            thread: AtomicU32::new(0),
            counters: Counters::default(),
        }));
        carrier.root.occupy(0, &crate::fiber::task::Vtable::NONE, Flags::ROOT, 1, 0);
        carrier.root.set_carrier(carrier);
        carrier.set_current(&carrier.root);
        Ok(carrier)
    }

    /// Gives a carrier back whose thread has ended without a fiber left.
    pub(crate) fn give_back(&'static self) {
        SPARE.lock().push(self);
    }

    /// Makes the carrier a member of `crew`.
    pub(crate) fn assign(&self, crew: &Arc<Crew>, index: usize) {
        self.index.store(index as u64, Ordering::Relaxed);
        self.counters.reset();
        self.observed.reset();
        let driver = (&raw const *crew.drivers[index]).cast::<()>();
        self.driver.store(driver.cast_mut(), Ordering::Relaxed);
        // The thread that runs the carrier keeps the crew.
        self.crew.store(Arc::as_ptr(crew).cast_mut(), Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn crew(&self) -> &Crew {
        // SAFETY: set before the carrier is used; its thread keeps the crew as long as it runs, and
        // nobody else asks when it does not.
        unsafe { &*self.crew.load(Ordering::Relaxed) }
    }

    /// The crew, kept for the caller. The caller knows that it is alive.
    pub(crate) fn crew_counted(&self) -> Arc<Crew> {
        let crew = ptr::from_ref(self.crew());
        // SAFETY: the pointer came from an `Arc`, which somebody keeps at this moment.
        unsafe {
            Arc::increment_strong_count(crew);
            Arc::from_raw(crew)
        }
    }

    /// Where events come from, for who knows what that is. It is there as long as the crew is.
    #[inline(always)]
    pub(crate) fn driver(&self) -> *const () {
        self.driver.load(Ordering::Relaxed)
    }

    pub(crate) fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed) as usize
    }

    /// The kernel's number of its thread; zero if it does not run.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// The calling thread becomes the carrier's, or is no longer.
    pub(crate) fn set_thread(&self, runs: bool) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        // SAFETY: no preconditions.
        let me = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let me = 1;
        self.thread.store(if runs { me } else { 0 }, Ordering::Relaxed);
    }

    pub(crate) fn bell(&self) -> &Bell {
        self.bell.get().expect("set when the carrier was made")
    }

    /// What runs: a fiber, or the root.
    #[inline(always)]
    pub(crate) fn current(&self) -> *const Control {
        self.current.load(Ordering::Relaxed)
    }

    /// Only the carrier's thread calls this.
    #[inline(always)]
    pub(crate) fn set_current(&self, control: &Control) {
        self.current.store(ptr::from_ref(control).cast_mut(), Ordering::Relaxed);
    }

    /// Whether the calling thread is this carrier.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        ptr::eq(current::carrier(), self)
    }

    /// Wakes the carrier if it sleeps, to look around.
    pub(crate) fn alert(&self) {
        self.inbox.unpark();
        // Also if it was not marked: a ring too many does no harm.
        self.ring();
    }

    /// The next of the carrier's random numbers (xorshift).
    pub(crate) fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }

    /// Takes a fiber that the running one has woken.
    ///
    /// # Safety
    /// The caller runs on this carrier, and has ended the fiber's wait.
    #[inline(always)]
    pub(crate) unsafe fn woken_here(&self, control: &Control) {
        if self.slot.get().is_null() && self.slot_left.get() > 0 {
            self.slot_left.set(self.slot_left.get() - 1);
            self.slot.set(control);
        } else {
            // SAFETY: whoever ends a wait has the fiber, and its link is free.
            unsafe { self.ready.push(control) };
        }
    }

    /// Takes a fiber that an event has woken: it waits for its turn.
    ///
    /// # Safety
    /// As for [`woken_here`](Self::woken_here).
    unsafe fn woken_in_turn(&self, control: &Control) {
        // SAFETY: whoever ends a wait has the fiber, and its link is free.
        unsafe { self.ready.push(control) };
    }

    /// Puts the running fiber behind those that are ready.
    ///
    /// # Safety
    /// The fiber runs on this carrier, is in no queue, and stops next.
    pub(crate) unsafe fn behind(&self, me: &Control) {
        // SAFETY: as the caller promised. One that may move is published: it is marked as on its
        // stack until it has stopped.
        unsafe {
            if me.flags().has(Flags::MIGRATABLE) {
                self.publish(me);
            } else {
                self.ready.push(me);
            }
        }
    }

    /// Adds what may run anywhere: unstarted and migratable fibers.
    ///
    /// # Safety
    /// The caller runs on this carrier and has the fiber.
    #[inline(always)]
    pub(crate) unsafe fn publish(&self, control: &Control) {
        // Once it is in the deque, it is anybody's.
        let started = control.life.marks() & STARTED != 0;
        // SAFETY: the caller is the owner.
        let before = unsafe { self.deque.push(control) };
        let crew = self.crew();
        if crew.carriers.len() == 1 {
            return;
        }
        if before > 0 || started {
            // Work for another, or a fiber that has started: nobody is about to join that.
            crew.published();
        } else if !crew.sentinel.load(Ordering::Relaxed) && crew.idle.would_wake() {
            // A single one is better left to its maker, who will soon wait for it; but somebody
            // should look, in case the maker does something else for long.
            crew.wake_one();
        }
    }
}

/// A wait that the caller has ended, whose waiter is to be made to run soon.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct Claimed {
    control: *const Control,
    /// As they were in the wait.
    flags: Flags,
    carrier: *const Carrier,
    /// Whether the waiter is a bound fiber of the carrier that this thread is, and nobody wants to
    /// know when it was woken.
    here: bool,
}

impl Claimed {
    /// Who waited.
    pub(crate) fn control(&self) -> *const Control {
        self.control
    }

    /// Makes the waiter run, after those that are ready.
    #[inline(always)]
    pub(crate) fn resume_in_turn(self) {
        // SAFETY: as in `resume`.
        unsafe {
            if self.here && ptr::eq(self.carrier, current::carrier()) {
                (*self.carrier).woken_in_turn(&*self.control);
            } else {
                resume_elsewhere_in_turn(&*self.control, self.flags, self.carrier);
            }
        }
    }

    /// Makes the waiter run.
    #[inline(always)]
    pub(crate) fn resume(self) {
        // SAFETY: blocks are never unmapped; the claim succeeded.
        unsafe {
            // The caller may have moved since: a migratable fiber that was cancelled meanwhile.
            if self.here && ptr::eq(self.carrier, current::carrier()) {
                (*self.carrier).woken_here(&*self.control);
            } else {
                resume_elsewhere(&*self.control, self.flags, self.carrier);
            }
        }
    }
}

/// The same for one that is woken by an event.
#[inline(never)]
unsafe fn resume_elsewhere_in_turn(control: &Control, flags: Flags, carrier: *const Carrier) {
    // SAFETY: as in `resume_elsewhere`.
    unsafe {
        if flags.has(Flags::OBSERVED) {
            return resume_observed(control, flags, &*carrier, true);
        }
        resume_elsewhere(control, flags, carrier);
    }
}

/// Makes an observed fiber run.
#[cold]
#[inline(never)]
unsafe fn resume_observed(control: &Control, flags: Flags, carrier: &Carrier, in_turn: bool) {
    super::observe::note_wake(control, carrier, flags);
    let here = carrier.is_here() && !flags.has(Flags::MIGRATABLE);
    // SAFETY: the claim succeeded; one that is bound to this carrier is on its thread.
    unsafe {
        match (here, in_turn) {
            (true, true) => carrier.woken_in_turn(control),
            (true, false) => carrier.woken_here(control),
            (false, _) => {
                resume_elsewhere(control, Flags(flags.0 & !Flags::OBSERVED.0), carrier);
            }
        }
    }
}

#[inline(never)]
unsafe fn resume_elsewhere(control: &Control, flags: Flags, carrier: *const Carrier) {
    if flags.has(Flags(Flags::PROXY.0 | Flags::OBSERVED.0)) {
        if flags.has(Flags::OBSERVED) {
            // SAFETY: a fiber that has waited has a carrier, and those live for ever.
            return unsafe { resume_observed(control, flags, &*carrier, false) };
        }
        if flags.has(Flags::POLLS)
            && let Some(bell) = control.extra().and_then(|extra| extra.bell.get())
        {
            bell.ring();
        }
        return crate::primitive::futex::wake(control.wake.futex().0);
    }
    // SAFETY: a fiber that has waited has a carrier, and its crew is alive as long as it is.
    unsafe {
        let carrier = &*carrier;
        if flags.has(Flags::MIGRATABLE) {
            let here = current::carrier();
            if !here.is_null() && ptr::eq((*here).crew(), carrier.crew()) {
                return (*here).publish(control);
            }
            // Once the fiber is published it may end, and its runtime with it.
            let crew = carrier.crew_counted();
            return crew.inject(control);
        }
        if carrier.is_of_this_thread() {
            carrier.ready_from_outside(control);
        } else if carrier.inbox.push(Entry::Ready(control)) {
            carrier.ring();
        }
    }
}

/// Ends a wait: succeeds for exactly one caller.
#[inline(always)]
pub(crate) fn claim(control: &Control, epoch: Epoch, outcome: Outcome) -> Option<Claimed> {
    // Read first: a thread that sees the claim may end, and its block be another's. If the claim
    // succeeds, they are those of the wait.
    let (flags, carrier) = (control.flags(), control.carrier());
    let won = control.wake.claim(epoch, outcome);
    won.then(|| {
        let here = ptr::eq(carrier, current::carrier()) && !carrier.is_null();
        Claimed { control, flags, carrier, here: here && !flags.has(Flags::NOT_PLAIN) }
    })
}

/// Ends a wait that nobody else on another thread can end.
///
/// The caller has taken the waiter's registration out of the only place where it was, so that
/// others who could end the wait are the carrier's own: its timers, and messages to it. On that
/// carrier's thread no atomic read-modify-write is needed.
#[inline(always)]
pub(crate) fn claim_alone(control: &Control, epoch: Epoch, outcome: Outcome) -> Option<Claimed> {
    let (flags, carrier) = (control.flags(), control.carrier());
    if carrier.is_null() || !ptr::eq(carrier, current::carrier()) || flags.has(Flags::NOT_ALONE) {
        return claim(control, epoch, outcome);
    }
    let won = control.wake.claim_alone(epoch, outcome);
    won.then_some(Claimed { control, flags, carrier, here: true })
}

/// Ends a wait as [`claim_alone`] does, and makes the waiter run.
#[inline(always)]
pub(crate) fn wake_alone(control: &Control, epoch: Epoch, outcome: Outcome) -> bool {
    claim_alone(control, epoch, outcome).map(Claimed::resume).is_some()
}

/// Ends a wait and makes the waiter run: true for exactly one caller.
#[inline(always)]
pub(crate) fn wake(control: &Control, epoch: Epoch, outcome: Outcome) -> bool {
    claim(control, epoch, outcome).map(Claimed::resume).is_some()
}

/// The waits that deadlines will end, if nothing else does: whose they are, their numbers, and the deadlines, in
/// this order.
pub(crate) struct TimedWaits(Vec<(*const Control, u32, u64)>);

impl TimedWaits {
    /// Those of all carriers of all crews.
    pub(crate) fn collect() -> TimedWaits {
        let mut all = Vec::new();
        for crew in Crew::all() {
            for carrier in &crew.carriers {
                // Carriers wait for the lock: it is held for a copy, into memory that is there.
                let count = carrier.timers.lock().len();
                all.reserve(count + count / 8);
                all.extend(carrier.timers.lock().all());
            }
        }
        all.sort_unstable();
        TimedWaits(all)
    }

    /// Whether the wait that a fiber is in was one of them.
    pub(crate) fn has(&self, control: &Control) -> bool {
        control.wait_number().is_some_and(|number| self.find(control, number).is_some())
    }

    /// The deadline of the wait `epoch` of a fiber, if it has one.
    pub(crate) fn deadline(&self, control: &Control, epoch: Epoch) -> Option<u64> {
        self.find(control, low_bits(epoch.number()))
    }

    fn find(&self, control: &Control, number: u32) -> Option<u64> {
        let key = (ptr::from_ref(control), number);
        let at = self.0.partition_point(|(item, of, _)| (*item, *of) < key);
        self.0.get(at).filter(|(item, of, _)| (*item, *of) == key).map(|(.., deadline)| *deadline)
    }
}
