//! One carrier: the state that its thread owns, and the state that other threads may reach.
//!
//! Carriers are recycled and never freed: a waker may ring the bell of a fiber's carrier long after
//! the fiber and its runtime are gone.

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
/// The first group of fields belongs to the carrier's thread, the second to all threads.
#[repr(C, align(128))]
pub(crate) struct Carrier {
    /// The running fiber, or the root.
    current: AtomicPtr<Control>,
    /// The launch of the fiber that ended last: its stack is ready for the next fiber.
    pub(crate) spare: Cell<*mut ()>,
    /// The fiber that the running one has just woken. It runs next, a bounded number of times.
    pub(crate) slot: Cell<*const Control>,
    /// Ready fibers that stay on this carrier, most of them started. Fibers that may move are in
    /// the deque.
    pub(crate) ready: Fifo<Control>,
    /// Dispatches until the carrier looks at its other duties.
    pub(crate) tick: Cell<u32>,
    /// How often the slot may still be used until then.
    pub(crate) slot_left: Cell<u32>,
    /// Whether unstarted fibers are taken newest first. A join of an unstarted fiber sets it.
    pub(crate) depth_first: Cell<bool>,
    /// The time of the last look at the clock.
    pub(crate) now: Cell<u64>,
    pub(crate) duties: super::tend::Duties,
    pub(super) observed: super::observe::Observed,
    pub(super) embedded: super::embed::Embedded,
    /// The number of this carrier's fibers that are suspended in the middle of an unwinding.
    pub(crate) unwinding: Cell<usize>,
    /// Fibers that wait for a predicate. The carrier wakes them at times to evaluate it.
    pub(crate) pollers: UnsafeCell<Vec<(*const Control, Epoch)>>,
    /// I/O operations that are left until the running fiber has to let others run.
    pub(crate) operations: Cell<u32>,
    /// Fibers whose wait was cancelled while they may have been unwinding. They are told when no
    /// fiber on this thread unwinds.
    pub(crate) postponed: UnsafeCell<Vec<(*const Control, Epoch)>>,
    /// Fibers for which there was no stack.
    pub(crate) refused: Fifo<Control>,
    /// The stack on which the refused fibers end.
    pub(super) reserve: super::refusal::Reserve,
    /// The block of the carrier's own loop, so that fibers can switch to it.
    pub(crate) root: Control,
    /// Present while the thread runs.
    pub(crate) stacks: UnsafeCell<Option<StackCache>>,
    pub(crate) random: Cell<u64>,
    pub(crate) slab: Slab,
    /// The time from which on the slab may be trimmed again.
    pub(super) trim_at: Cell<u64>,
    /// Whether a fiber has run since the slab was trimmed.
    pub(super) trim_due: Cell<bool>,

    pub(crate) inbox: Alone<Inbox<Control>>,
    pub(crate) deque: Deque<Control>,
    pub(crate) timers: SpinLock<Timers<Control>>,
    /// When a carrier last polled the driver.
    pub(crate) polled: AtomicU64,
    /// The earliest deadline, readable without the lock of the timers.
    pub(crate) earliest: AtomicU64,
    bell: OnceCell<Bell>,
    crew: AtomicPtr<Crew>,
    driver: AtomicPtr<()>,
    index: AtomicU64,
    /// The kernel's id of the carrier's thread; zero while no thread runs it.
    thread: AtomicU32,
    pub(crate) counters: Counters,
}

// SAFETY: only the carrier's thread uses the first group of fields. `bell` is set before the
// carrier is shared.
unsafe impl Sync for Carrier {}
// SAFETY: as for `Sync`.
unsafe impl Send for Carrier {}

impl Timed for Control {
    fn wait_number(&self) -> Option<u32> {
        self.wake.waiting().map(|epoch| low_bits(epoch.number()))
    }
}

/// Carriers that belong to no runtime.
static SPARE: SpinLock<Vec<&'static Carrier>> = SpinLock::new(Vec::new());

impl Carrier {
    /// Returns a carrier without a thread: a recycled one, or a new one.
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

    /// Gives back a carrier. Its thread has ended, with no fiber left.
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
        // The crew is not counted here: the thread that runs the carrier keeps it.
        self.crew.store(Arc::as_ptr(crew).cast_mut(), Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn crew(&self) -> &Crew {
        // SAFETY: the pointer is set before the carrier is used. The carrier's thread keeps the
        // crew as long as it runs, and no other thread asks after that.
        unsafe { &*self.crew.load(Ordering::Relaxed) }
    }

    /// Returns a counted reference to the crew. The caller knows that the crew is alive.
    pub(crate) fn crew_counted(&self) -> Arc<Crew> {
        let crew = ptr::from_ref(self.crew());
        // SAFETY: the pointer came from an `Arc`, and the caller knows that a reference to it
        // exists.
        unsafe {
            Arc::increment_strong_count(crew);
            Arc::from_raw(crew)
        }
    }

    /// Returns the carrier's driver without its type, for the reactor, which knows the type. Valid
    /// as long as the crew.
    #[inline(always)]
    pub(crate) fn driver(&self) -> *const () {
        self.driver.load(Ordering::Relaxed)
    }

    pub(crate) fn index(&self) -> usize {
        self.index.load(Ordering::Relaxed) as usize
    }

    /// Returns the kernel's id of the carrier's thread; zero while no thread runs it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Records the calling thread as the carrier's thread, or clears the record.
    pub(crate) fn set_thread(&self, runs: bool) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        // SAFETY: `gettid` has no preconditions.
        let me = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let me = 1;
        self.thread.store(if runs { me } else { 0 }, Ordering::Relaxed);
    }

    pub(crate) fn bell(&self) -> &Bell {
        self.bell.get().expect("set when the carrier was made")
    }

    /// Returns the running fiber, or the root.
    #[inline(always)]
    pub(crate) fn current(&self) -> *const Control {
        self.current.load(Ordering::Relaxed)
    }

    /// Sets the running fiber. Only the carrier's thread calls this.
    #[inline(always)]
    pub(crate) fn set_current(&self, control: &Control) {
        self.current.store(ptr::from_ref(control).cast_mut(), Ordering::Relaxed);
    }

    /// Whether the calling thread runs as this carrier.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        ptr::eq(current::carrier(), self)
    }

    /// Wakes the carrier if it sleeps, so that it looks at everything.
    pub(crate) fn alert(&self) {
        self.inbox.unpark();
        // Rings even if the carrier was not marked: an extra ring does no harm.
        self.ring();
    }

    /// Returns the carrier's next random number (xorshift).
    pub(crate) fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }

    /// Makes a fiber ready that the running fiber has woken.
    ///
    /// # Safety
    /// The caller runs on this carrier, and has ended the fiber's wait.
    #[inline(always)]
    pub(crate) unsafe fn woken_here(&self, control: &Control) {
        if self.slot.get().is_null() && self.slot_left.get() > 0 {
            self.slot_left.set(self.slot_left.get() - 1);
            self.slot.set(control);
        } else {
            // SAFETY: the caller has ended the fiber's wait, so it owns the fiber, and the link is
            // free.
            unsafe { self.ready.push(control) };
        }
    }

    /// Makes a fiber ready that an event has woken. The fiber does not use the slot.
    ///
    /// # Safety
    /// As for [`woken_here`](Self::woken_here).
    unsafe fn woken_in_turn(&self, control: &Control) {
        // SAFETY: the caller has ended the fiber's wait, so it owns the fiber, and the link is
        // free.
        unsafe { self.ready.push(control) };
    }

    /// Puts the running fiber behind the ready fibers.
    ///
    /// # Safety
    /// The fiber runs on this carrier, is in no queue, and stops next.
    pub(crate) unsafe fn behind(&self, me: &Control) {
        // SAFETY: the fiber is in no queue, so its link is free. A migratable fiber has `ON_STACK`
        // until it has stopped, so no carrier resumes it before.
        unsafe {
            if me.flags().has(Flags::MIGRATABLE) {
                self.publish(me);
            } else {
                self.ready.push(me);
            }
        }
    }

    /// Adds a fiber that may run on any carrier: an unstarted or a migratable one.
    ///
    /// # Safety
    /// The caller runs on this carrier and owns the fiber.
    #[inline(always)]
    pub(crate) unsafe fn publish(&self, control: &Control) {
        // Read first: once the fiber is in the deque, a thief may own it.
        let started = control.life.marks() & STARTED != 0;
        // SAFETY: the caller runs on this carrier, which owns the deque.
        let before = unsafe { self.deque.push(control) };
        let crew = self.crew();
        if crew.carriers.len() == 1 {
            return;
        }
        if before > 0 || started {
            // There is work for another carrier, or the fiber has started, so that no maker is
            // about to join it.
            crew.published();
        } else if !crew.sentinel.load(Ordering::Relaxed) && crew.idle.would_wake() {
            // A lone fiber is better left to its maker, which will soon join it. But a sentinel
            // should look, in case the maker does something else for long.
            crew.wake_one();
        }
    }
}

/// A wait that the caller has ended. The waiter must now be made to run.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct Claimed {
    control: *const Control,
    /// The waiter's flags, as they were in the wait.
    flags: Flags,
    carrier: *const Carrier,
    /// Whether the waiter is a bound, unobserved fiber of the carrier that this thread runs as.
    here: bool,
}

impl Claimed {
    /// Returns the waiter.
    pub(crate) fn control(&self) -> *const Control {
        self.control
    }

    /// Makes the waiter run after the fibers that are ready.
    #[inline(always)]
    pub(crate) fn resume_in_turn(self) {
        // SAFETY: blocks are never unmapped, and the claim succeeded.
        unsafe {
            if self.here && ptr::eq(self.carrier, current::carrier()) {
                (*self.carrier).woken_in_turn(&*self.control);
            } else {
                resume_elsewhere_in_turn(&*self.control, self.flags, self.carrier);
            }
        }
    }

    /// Makes the waiter run, in the slot if that is free.
    #[inline(always)]
    pub(crate) fn resume(self) {
        // SAFETY: blocks are never unmapped, and the claim succeeded.
        unsafe {
            // Checked again, because a migratable caller may have moved to another carrier since
            // the claim.
            if self.here && ptr::eq(self.carrier, current::carrier()) {
                (*self.carrier).woken_here(&*self.control);
            } else {
                resume_elsewhere(&*self.control, self.flags, self.carrier);
            }
        }
    }
}

/// The slow path of [`Claimed::resume_in_turn`]: the waiter is observed, or not bound to the
/// carrier of this thread.
#[inline(never)]
unsafe fn resume_elsewhere_in_turn(control: &Control, flags: Flags, carrier: *const Carrier) {
    // SAFETY: the claim succeeded. An observed fiber has a carrier, and carriers are never freed.
    unsafe {
        if flags.has(Flags::OBSERVED) {
            return resume_observed(control, flags, &*carrier, true);
        }
        resume_elsewhere(control, flags, carrier);
    }
}

/// Notes the wake of an observed fiber, and makes it run.
#[cold]
#[inline(never)]
unsafe fn resume_observed(control: &Control, flags: Flags, carrier: &Carrier, in_turn: bool) {
    super::observe::note_wake(control, carrier, flags);
    let here = carrier.is_here() && !flags.has(Flags::MIGRATABLE);
    // SAFETY: the claim succeeded. If `here` is true, this is the thread of the fiber's carrier.
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
            // SAFETY: a fiber that has waited has a carrier, and carriers are never freed.
            return unsafe { resume_observed(control, flags, &*carrier, false) };
        }
        if flags.has(Flags::POLLS)
            && let Some(bell) = control.extra().and_then(|extra| extra.bell.get())
        {
            bell.ring();
        }
        return crate::primitive::futex::wake(control.wake.futex().0);
    }
    // SAFETY: a fiber that has waited has a carrier, and the crew lives as long as the fiber.
    unsafe {
        let carrier = &*carrier;
        if flags.has(Flags::MIGRATABLE) {
            let here = current::carrier();
            if !here.is_null() && ptr::eq((*here).crew(), carrier.crew()) {
                return (*here).publish(control);
            }
            // Keep the crew: once the fiber is published, it may end, and its runtime with it.
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

/// Ends a wait. Succeeds for exactly one caller.
#[inline(always)]
pub(crate) fn claim(control: &Control, epoch: Epoch, outcome: Outcome) -> Option<Claimed> {
    // Read before the claim: a thread that sees the claim may end, and its block may then serve
    // another fiber. If the claim succeeds, the values are from the wait.
    let (flags, carrier) = (control.flags(), control.carrier());
    let won = control.wake.claim(epoch, outcome);
    won.then(|| {
        let here = ptr::eq(carrier, current::carrier()) && !carrier.is_null();
        Claimed { control, flags, carrier, here: here && !flags.has(Flags::NOT_PLAIN) }
    })
}

/// Ends a wait that no other thread can end.
///
/// The caller has removed the waiter's only registration. Apart from the caller, only the waiter's
/// own carrier can end the wait, for its timers or for messages to it. So on that carrier's thread
/// no atomic read-modify-write is needed.
#[inline(always)]
pub(crate) fn claim_alone(control: &Control, epoch: Epoch, outcome: Outcome) -> Option<Claimed> {
    let (flags, carrier) = (control.flags(), control.carrier());
    if carrier.is_null() || !ptr::eq(carrier, current::carrier()) || flags.has(Flags::NOT_ALONE) {
        return claim(control, epoch, outcome);
    }
    let won = control.wake.claim_alone(epoch, outcome);
    won.then_some(Claimed { control, flags, carrier, here: true })
}

/// Ends a wait as [`claim_alone`] does, and makes the waiter run. Returns whether this call ended
/// the wait.
#[inline(always)]
pub(crate) fn wake_alone(control: &Control, epoch: Epoch, outcome: Outcome) -> bool {
    claim_alone(control, epoch, outcome).map(Claimed::resume).is_some()
}

/// Ends a wait and makes the waiter run. Returns true for exactly one caller.
#[inline(always)]
pub(crate) fn wake(control: &Control, epoch: Epoch, outcome: Outcome) -> bool {
    claim(control, epoch, outcome).map(Claimed::resume).is_some()
}

/// Waits that have a deadline, as tuples of fiber, number of the wait, and deadline. Sorted.
pub(crate) struct TimedWaits(Vec<(*const Control, u32, u64)>);

impl TimedWaits {
    /// Collects the timed waits of all carriers of all crews.
    pub(crate) fn collect() -> TimedWaits {
        let mut all = Vec::new();
        for crew in Crew::all() {
            for carrier in &crew.carriers {
                // Carriers wait for this lock, so it is held only for a copy into reserved memory.
                let count = carrier.timers.lock().len();
                all.reserve(count + count / 8);
                all.extend(carrier.timers.lock().all());
            }
        }
        all.sort_unstable();
        TimedWaits(all)
    }

    /// Whether the fiber's current wait had a deadline when the waits were collected.
    pub(crate) fn has(&self, control: &Control) -> bool {
        control.wait_number().is_some_and(|number| self.find(control, number).is_some())
    }

    /// Returns the deadline of the fiber's wait `epoch`, if it has one.
    pub(crate) fn deadline(&self, control: &Control, epoch: Epoch) -> Option<u64> {
        self.find(control, low_bits(epoch.number()))
    }

    fn find(&self, control: &Control, number: u32) -> Option<u64> {
        let key = (ptr::from_ref(control), number);
        let at = self.0.partition_point(|(item, of, _)| (*item, *of) < key);
        self.0.get(at).filter(|(item, of, _)| (*item, *of) == key).map(|(.., deadline)| *deadline)
    }
}
