//! One carrier: the state that all threads share, and the state that its own thread owns.
//!
//! [`Carrier`] is a carrier as every thread sees it. [`Own`] is the state that only the carrier's
//! thread may touch. The way to it is a reference to the carrier's [`Owner`], which is the proof
//! that the calling thread is that thread. Only `current` gives such references, and the code that
//! makes a thread run as a carrier. So a function that takes an `&Owner` needs no comment about
//! threads, and a thief has no way to the owner's state.
//!
//! A migratable fiber may go on after a switch on another thread. So no code keeps an `&Owner` over
//! a switch, unless its context stays on its thread: the root, or a fiber that is bound. Code that
//! goes on asks `current` again.
//!
//! Carriers are recycled and never freed: a waker may ring the bell of a fiber's carrier long after
//! the fiber and its runtime are gone.

use super::bell::Bell;
use super::crew::Crew;
use super::placement::Load;
use super::{current, embed, observe, refusal, tend};
use crate::fiber::life::STARTED;
use crate::fiber::slab::Slab;
use crate::fiber::state::Epoch;
use crate::fiber::task::Vtable;
use crate::fiber::{Control, Flags};
use crate::metrics::Counters;
use crate::primitive::{Alone, AtomicPtr, AtomicU32, AtomicU64, Ordering, SpinLock};
use crate::queue::{Deque, Fifo, Inbox, OwnerDeque, Timed, Timers, low_bits};
use core::cell::{Cell, OnceCell, RefCell};
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr;
use sinew_context::stack::StackCache;
use std::io;
use std::sync::Arc;

/// An OS thread that runs fibers, as every thread sees it; see the page of this module.
#[repr(C, align(128))]
pub(crate) struct Carrier {
    /// The running fiber, or the root. Only the carrier's owner writes it.
    current: AtomicPtr<Control>,
    pub(super) load: Load,
    /// Private to this file: only an [`Owner`] leads to it.
    own: Own,
    pub(crate) inbox: Alone<Inbox<Control>>,
    pub(crate) deque: Deque<Control>,
    pub(crate) timers: SpinLock<Timers<Control>>,
    /// When a carrier last polled the driver.
    pub(crate) polled: AtomicU64,
    /// The earliest deadline, readable without the lock of the timers.
    pub(crate) earliest: AtomicU64,
    pub(super) embedded: embed::Shared,
    bell: OnceCell<Bell>,
    crew: AtomicPtr<Crew>,
    driver: AtomicPtr<()>,
    index: AtomicU64,
    /// The kernel's id of the carrier's thread; zero while no thread runs it.
    thread: AtomicU32,
    pub(crate) counters: Counters,
}

/// The state of a carrier that only its own thread may touch.
#[repr(C)]
pub(crate) struct Own {
    /// The launch of the fiber that ended last: its stack is ready for the next fiber.
    pub(super) spare: Cell<*mut ()>,
    /// The fiber that the running one has just woken. It runs next, a bounded number of times.
    pub(super) run_next: Cell<*const Control>,
    /// Ready fibers that stay on this carrier, most of them started. Fibers that may move are in
    /// the deque.
    pub(crate) ready: Fifo<Control>,
    /// Dispatches that are left of the stint.
    pub(super) stint_left: Cell<u32>,
    /// How often `run_next` may still be used before the carrier next tends its duties.
    pub(super) run_next_left: Cell<u32>,
    /// Whether unstarted fibers are taken newest first. A join of an unstarted fiber sets it.
    pub(crate) depth_first: Cell<bool>,
    /// The number of live fibers from which on the carrier compares loads before it starts another
    /// fiber; see `placement`.
    pub(super) start_limit: Cell<u32>,
    /// Whether this carrier has given fibers to others that may not have taken them.
    pub(super) has_given: Cell<bool>,
    /// The time of the last look at the clock.
    pub(crate) now: Cell<u64>,
    pub(super) duties: tend::Duties,
    pub(super) observed: observe::Observed,
    pub(super) embedded: embed::Own,
    /// The number of this carrier's fibers that are suspended in the middle of an unwinding.
    pub(crate) unwinding: Cell<usize>,
    /// Fibers that wait for a predicate. The carrier wakes them at times to evaluate it.
    pub(crate) pollers: RefCell<Vec<(*const Control, Epoch)>>,
    /// I/O operations that are left until the running fiber has to let others run.
    pub(crate) operations: Cell<u32>,
    /// Fibers whose wait was cancelled while they may have been unwinding. They are told when no
    /// fiber on this thread unwinds.
    pub(super) postponed: RefCell<Vec<(*const Control, Epoch)>>,
    /// Fibers for which there was no stack.
    pub(super) refused: Fifo<Control>,
    /// The stack on which the refused fibers end.
    pub(super) reserve: refusal::Reserve,
    /// The block of the carrier's own loop, so that fibers can switch to it.
    pub(super) root: Control,
    /// Present while the thread runs.
    pub(super) stacks: RefCell<Option<StackCache>>,
    pub(super) random: Cell<u64>,
    pub(crate) slab: Slab,
    /// The time from which on the slab may be trimmed again.
    pub(super) trim_at: Cell<u64>,
    /// Whether a fiber has run since the slab was trimmed.
    pub(super) trim_due: Cell<bool>,
}

// SAFETY: `own` and `bell` need this. `own` is private to this file, which gives access to it
// through an `Owner`, so on the carrier's thread alone. Two functions reach it from other threads:
// `root` returns a control block, which is `Sync`, and `progress_address` computes an address and
// reads nothing. `bell` is set before the carrier is shared.
unsafe impl Sync for Carrier {}
// SAFETY: as for `Sync`.
unsafe impl Send for Carrier {}

/// A carrier, seen by its own thread; see the page of this module.
///
/// Not `Sync`, so a reference to it stays on its thread.
#[repr(transparent)]
pub(crate) struct Owner {
    carrier: Carrier,
    _on_this_thread: PhantomData<*mut ()>,
}

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
            load: Load::new(),
            // SAFETY: the carrier is leaked, so its slab is neither moved nor freed.
            own: unsafe { Own::new() },
            inbox: Alone::new(Inbox::new()),
            deque: Deque::new(256),
            timers: SpinLock::new(Timers::new()),
            polled: AtomicU64::new(0),
            earliest: AtomicU64::new(u64::MAX),
            embedded: embed::Shared::new(),
            bell: OnceCell::from(bell),
            crew: AtomicPtr::new(ptr::null_mut()),
            driver: AtomicPtr::new(ptr::null_mut()),
            index: AtomicU64::new(0),
            thread: AtomicU32::new(0),
            counters: Counters::default(),
        }));
        let root = &carrier.own.root;
        root.occupy(0, &Vtable::NONE, Flags::ROOT, 1, 0);
        root.set_carrier(carrier);
        carrier.current.store(ptr::from_ref(root).cast_mut(), Ordering::Relaxed);
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

    /// Returns the block of the carrier's own loop.
    pub(crate) fn root(&self) -> &Control {
        &self.own.root
    }

    /// Returns the address of a number that changes with every dispatch while the carrier is not
    /// observed. Another thread may read the number only through the kernel.
    pub(crate) fn progress_address(&self) -> usize {
        (&raw const self.own.stint_left).addr()
    }

    /// Whether the calling thread runs as this carrier.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        ptr::eq(current::carrier(), self)
    }

    /// Returns the owner, if the calling thread runs as this carrier.
    #[inline(always)]
    pub(crate) fn owner_here(&'static self) -> Option<&'static Owner> {
        // SAFETY: the calling thread runs as this carrier.
        self.is_here().then(|| unsafe { Owner::of(self) })
    }

    /// Wakes the carrier if it sleeps, so that it looks at everything.
    pub(crate) fn alert(&self) {
        self.inbox.unpark();
        // Rings even if the carrier was not marked: an extra ring does no harm.
        self.ring();
    }
}

impl Own {
    /// # Safety
    /// The value is not moved after its first use, and never freed.
    unsafe fn new() -> Own {
        Own {
            spare: Cell::new(ptr::null_mut()),
            run_next: Cell::new(ptr::null()),
            ready: Fifo::new(),
            stint_left: Cell::new(1),
            run_next_left: Cell::new(0),
            depth_first: Cell::new(false),
            start_limit: Cell::new(u32::MAX),
            has_given: Cell::new(false),
            now: Cell::new(0),
            duties: tend::Duties::new(),
            observed: observe::Observed::default(),
            embedded: embed::Own::new(),
            unwinding: Cell::new(0),
            pollers: RefCell::new(Vec::new()),
            operations: Cell::new(0),
            postponed: RefCell::new(Vec::new()),
            refused: Fifo::new(),
            reserve: refusal::Reserve::new(),
            root: Control::vacant(),
            stacks: RefCell::new(None),
            random: Cell::new(0),
            // SAFETY: the caller neither moves nor frees the slab.
            slab: unsafe { Slab::new() },
            trim_at: Cell::new(0),
            trim_due: Cell::new(false),
        }
    }
}

impl Deref for Owner {
    type Target = Own;

    #[inline(always)]
    fn deref(&self) -> &Own {
        &self.carrier.own
    }
}

impl Owner {
    /// Returns a carrier as its own thread sees it.
    ///
    /// # Safety
    /// The calling thread runs as `carrier`, or is the thread to which an embedded carrier belongs.
    /// The caller does not use the result after a switch, unless its context stays on its thread.
    #[inline(always)]
    pub(super) unsafe fn of(carrier: &'static Carrier) -> &'static Owner {
        // SAFETY: an `Owner` has the layout of a `Carrier`. Its type allows more, which the caller
        // may do: it is on the carrier's thread.
        unsafe { &*ptr::from_ref(carrier).cast() }
    }

    /// Returns the owner of the carrier on which `me` runs, after a switch to `me`.
    ///
    /// # Safety
    /// `me` is the running fiber or the root, and its carrier field is right.
    #[inline(always)]
    pub(super) unsafe fn of_running(me: &Control) -> &'static Owner {
        // SAFETY: a running fiber has a carrier, and carriers are never freed. This is its thread.
        unsafe { Owner::of(&*me.carrier()) }
    }

    /// Returns the carrier as all threads see it.
    #[inline(always)]
    pub(crate) fn shared(&self) -> &'static Carrier {
        // SAFETY: carriers are never freed.
        unsafe { &*ptr::from_ref(&self.carrier) }
    }

    #[inline(always)]
    pub(crate) fn crew(&self) -> &'static Crew {
        self.shared().crew()
    }

    pub(crate) fn index(&self) -> usize {
        self.carrier.index()
    }

    /// Returns the running fiber, or the root.
    #[inline(always)]
    pub(crate) fn current(&self) -> *const Control {
        self.carrier.current()
    }

    /// Sets the running fiber.
    #[inline(always)]
    pub(super) fn set_current(&self, control: &Control) {
        self.carrier.current.store(ptr::from_ref(control).cast_mut(), Ordering::Relaxed);
    }

    /// Returns the owner's half of the deque.
    #[inline(always)]
    pub(super) fn deque(&self) -> OwnerDeque<'static, Control> {
        // SAFETY: this is the carrier's thread, which owns its deque.
        unsafe { self.shared().deque.owner() }
    }

    /// Whether other carriers may steal from this one.
    #[inline(always)]
    pub(super) fn has_thieves(&self) -> bool {
        self.crew().carriers.len() > 1
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
    /// The caller has ended the fiber's wait, and the fiber is bound to this carrier.
    #[inline(always)]
    pub(super) unsafe fn woken_here(&self, control: &Control) {
        if self.run_next.get().is_null() && self.run_next_left.get() > 0 {
            self.run_next_left.set(self.run_next_left.get() - 1);
            self.run_next.set(control);
        } else {
            // SAFETY: the caller has ended the fiber's wait, so it owns the fiber, and the link is
            // free.
            unsafe { self.ready.push(control) };
        }
    }

    /// Makes a fiber ready that an event has woken. The fiber does not use `run_next`.
    ///
    /// # Safety
    /// As for [`woken_here`](Self::woken_here).
    pub(super) unsafe fn woken_in_turn(&self, control: &Control) {
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
    /// The caller owns the fiber, which is in no queue.
    #[inline(always)]
    pub(crate) unsafe fn publish(&self, control: &Control) {
        // Read first: once the fiber is in the deque, a thief may own it.
        let started = control.life.marks() & STARTED != 0;
        let before = self.deque().push(control);
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
