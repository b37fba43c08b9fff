//! A carrier on a thread that belongs to a foreign loop, which steps it.
//!
//! All that distinguishes such a carrier from a carrier of a runtime is in this folder:
//!
//! - this file: the state, and the carrier's beginning and end;
//! - `turns`: where the order of dispatch differs;
//! - `step`: what the loop calls, and how a context interrupts itself for a fiber;
//! - `on_root`: work that the root does for a fiber;
//! - `watch`: the watcher, which is told of starts, stops and wakes;
//! - `tenants`: the managers of a thread, and the end of a thread with a leaked manager.
//!
//! The root of such a carrier is the stack from which the loop calls. Outside of a
//! [step](Owner::step) the thread is a plain thread: no fiber runs, waits block the thread, and a
//! wake of one of the carrier's fibers goes to the inbox, as from any other thread. README.md of
//! `manager` has the protocol.
//!
//! A fiber of such a carrier can do two things that a fiber of a runtime cannot:
//!
//! - It *interrupts itself* for another fiber ([`run_now`](Owner::run_now)). It waits in
//!   `run_next`, so that it goes on as soon as the other fiber stops for any reason.
//! - It asks the root to do some work ([`on_root`](on_root::on_root)). The root then switches
//!   straight back to the fiber.
//!
//! Both nest, and are left in the reverse order.

pub(crate) mod on_root;
mod step;
pub(crate) mod tenants;
mod turns;
mod watch;

pub(crate) use watch::{Moment, Watcher};

use super::crew::{Crew, Phase};
use super::{Carrier, Owner, current, launch};
use crate::clock;
use crate::fiber::Control;
use crate::primitive::{AtomicBool, AtomicUsize, Ordering, SpinLock};
use crate::queue::Fifo;
use crate::report;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::ptr;
use on_root::Call;
use sinew_context::stack::{StackCache, overflow};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The hook by which a carrier tells its foreign loop that there is something to do, when the loop
/// may not know.
pub(crate) type Hook = dyn Fn() + Send + Sync;

/// The part of an embedded carrier's state that all threads share.
pub(crate) struct Shared {
    /// The number of the thread to which the carrier belongs; 0 if no foreign loop steps the
    /// carrier.
    thread: AtomicUsize,
    /// Whether the watcher is being called: between two fibers, on the stack of the first.
    telling: AtomicBool,
    /// Whether the watcher is being told at this moment that the current fiber has stopped.
    between: AtomicBool,
    hook: SpinLock<Option<Arc<Hook>>>,
    /// Whether the bell was rung for the loop and has to be cleared.
    rung: AtomicBool,
}

/// The part of an embedded carrier's state that only the carrier's thread may touch.
pub(crate) struct Own {
    /// Fibers that have yielded. They become ready when every other fiber has run.
    yielded: Fifo<Control>,
    /// The next work for the root.
    call: Cell<Option<Call>>,
    /// The fiber for which the root works.
    lender: Cell<*const Control>,
    /// How many contexts, fibers or the root, have interrupted themselves. The innermost is in
    /// `run_next`.
    interrupted: Cell<u32>,
    stepping: Cell<bool>,
    /// When the step began.
    begun: Cell<u64>,
    /// How often the step may still serve deadlines that passed after it had begun.
    timeouts: Cell<u32>,
    /// How many entries into the carrier are open on this thread, one inside of the other.
    entered: Cell<u32>,
    /// Whether a hook runs on this thread as if the thread were not the carrier. The current fiber
    /// may have ended.
    aside: Cell<bool>,
    /// Distinguishes each period in which user code runs on the root.
    activation: Cell<u64>,
    manager: RefCell<Option<Weak<dyn Any>>>,
    watcher: RefCell<Option<Rc<Watcher>>>,
    /// Woken fibers of which the watcher has not been told.
    woken: RefCell<Vec<u64>>,
}

impl Shared {
    pub(super) const fn new() -> Shared {
        Shared {
            thread: AtomicUsize::new(0),
            telling: AtomicBool::new(false),
            between: AtomicBool::new(false),
            hook: SpinLock::new(None),
            rung: AtomicBool::new(false),
        }
    }
}

impl Own {
    pub(super) const fn new() -> Own {
        Own {
            yielded: Fifo::new(),
            call: Cell::new(None),
            lender: Cell::new(ptr::null()),
            interrupted: Cell::new(0),
            stepping: Cell::new(false),
            begun: Cell::new(0),
            timeouts: Cell::new(0),
            entered: Cell::new(0),
            aside: Cell::new(false),
            activation: Cell::new(0),
            manager: RefCell::new(None),
            watcher: RefCell::new(None),
            woken: RefCell::new(Vec::new()),
        }
    }
}

/// Makes this thread run as the carrier. Dropping it restores the previous state.
pub(crate) struct Inside {
    owner: &'static Owner,
    outer: *const Carrier,
    unwinding: bool,
    activation: u64,
}

impl Inside {
    fn enter(owner: &'static Owner) -> Inside {
        let outer = current::carrier();
        // Panics are counted by thread. If the thread unwinds already, no fiber of this carrier
        // does. A fiber that is cancelled here must not believe that it is the one that unwinds.
        let unwinding = std::thread::panicking() && !ptr::eq(outer, owner.shared());
        if unwinding {
            owner.unwinding.set(owner.unwinding.get() + 1);
        }
        current::set_carrier(owner.shared());
        owner.embedded.entered.set(owner.embedded.entered.get() + 1);
        let activation = owner.activate();
        Inside { owner, outer, unwinding, activation }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        current::set_carrier(self.outer);
        let embedded = &self.owner.embedded;
        embedded.entered.set(embedded.entered.get() - 1);
        embedded.activation.set(self.activation);
        if self.unwinding {
            self.owner.unwinding.set(self.owner.unwinding.get() - 1);
        }
    }
}

impl Carrier {
    #[inline(always)]
    pub(crate) fn is_embedded(&self) -> bool {
        self.embedded.thread.load(Ordering::Relaxed) != 0
    }

    /// Whether the calling thread is the thread to which the carrier belongs, also outside of a
    /// step.
    #[inline(always)]
    pub(crate) fn is_of_this_thread(&self) -> bool {
        let thread = self.embedded.thread.load(Ordering::Relaxed);
        thread != 0 && thread == current::thread_number()
    }

    /// Whether the watcher is being told at this moment that the current fiber has stopped.
    pub(crate) fn is_between(&self) -> bool {
        self.embedded.between.load(Ordering::Relaxed)
    }

    /// Tells the carrier that its inbox has something. Called by a pusher that found the inbox
    /// marked as parked.
    ///
    /// The pusher may be in the middle of a wait, or of a fiber's end. So the hook runs as if on a
    /// plain thread.
    pub(crate) fn ring(&self) {
        if !self.is_embedded() {
            return self.bell().ring();
        }
        let hook = self.embedded.hook.lock().clone();
        let Some(hook) = hook else { return };
        current::as_plain_thread(|| {
            let told = report::contain(|| {
                hook();
                drop(hook);
            });
            if told.is_none() {
                report::say(format_args!("the scheduling of a manager panicked"));
            }
        });
    }

    /// Rings the bell for a loop that sleeps in the driver, or that polls the driver's descriptor.
    pub(crate) fn ring_for_loop(&self) {
        // ORDERING: AcqRel; pairs with the swap in `silence`. Either this call rings, or `silence`
        // sees what the caller did before.
        if !self.embedded.rung.swap(true, Ordering::AcqRel) {
            self.bell().ring();
        }
    }

    /// Returns the owner, if the calling thread is the thread to which the carrier belongs.
    pub(crate) fn owner_of_this_thread(&'static self) -> Option<&'static Owner> {
        // SAFETY: the carrier belongs to this thread.
        self.is_of_this_thread().then(|| unsafe { Owner::of(self) })
    }

    /// Makes the calling thread the carrier's thread.
    ///
    /// # Safety
    /// The carrier belongs to no thread. From now on the calling thread alone steps it, until
    /// [`Owner::end_embedded`].
    pub(crate) unsafe fn adopt(&'static self) -> &'static Owner {
        // SAFETY: the carrier belongs to this thread from now on.
        unsafe { Owner::of(self) }
    }
}

impl Owner {
    /// Makes this thread the carrier's thread, with a cache for `stacks` stacks.
    pub(crate) fn begin_embedded(&self, crew: &Crew, stacks: usize) {
        overflow::arm();
        self.shared().set_thread(true);
        self.random.set(clock::now() | 1);
        self.now.set(clock::now());
        self.stacks.replace(Some(StackCache::exact(&crew.pool, stacks)));
        self.reserve.fill(crew);
    }

    /// Ends the carrier's work. No fiber is left, and the thread has not entered the carrier.
    /// [`Crew::thread_ended`] gives the carrier back, when no code uses it any more.
    pub(crate) fn end_embedded(&'static self, crew: &Crew) {
        let inside = Inside::enter(self);
        crew.advance(Phase::Closed);
        crew.drivers[0].close();
        // SAFETY: no fiber of the carrier runs, so this is the root.
        unsafe { launch::drop_spare(self) };
        drop(inside);
        crew.pool.retire();
        self.stacks.take();
        self.reserve.empty();
        self.slab.trim();
        self.observed.reset();
        self.disembed();
        self.shared().set_thread(false);
    }

    /// Returns the number of stacks that are kept for new fibers.
    pub(crate) fn pooled(&self) -> usize {
        let cached = self.stacks.borrow().as_ref().map_or(0, StackCache::len);
        cached + usize::from(!self.spare.get().is_null())
    }

    /// Gives back stacks that were not needed since the last call, but keeps `most` stacks at hand.
    pub(crate) fn drop_unneeded_stacks(&self, most: usize) {
        if let Some(stacks) = &*self.stacks.borrow() {
            stacks.drop_unneeded(most.saturating_sub(usize::from(!self.spare.get().is_null())));
        }
    }

    /// Gives back the stack that is kept for the next fiber. No fiber of the carrier runs.
    pub(crate) fn drop_spare(&'static self) {
        if !self.spare.get().is_null() {
            let _inside = Inside::enter(self);
            // SAFETY: no fiber of the carrier runs, so this is the root.
            unsafe { launch::drop_spare(self) };
        }
    }

    /// Begins a period in which user code may run on the root. Returns the number of the previous
    /// one.
    fn activate(&self) -> u64 {
        self.embedded.activation.replace(self.slab.next_id())
    }

    /// Returns the number of the period in which user code runs on the root. It is never used
    /// twice, nor as a fiber's id.
    pub(crate) fn activation(&self) -> u64 {
        self.embedded.activation.get()
    }

    /// Embeds the carrier into a loop on this thread. `hook` tells the loop that there is work, and
    /// [`manager`](Self::manager) returns `manager` from now on.
    pub(crate) fn embed(&self, hook: Arc<Hook>, manager: Weak<dyn Any>) {
        let shared = &self.shared().embedded;
        *shared.hook.lock() = Some(hook);
        *self.embedded.manager.borrow_mut() = Some(manager);
        shared.thread.store(current::thread_number(), Ordering::Relaxed);
        self.run_next_left.set(0);
        self.shared().inbox.park();
    }

    /// Makes the carrier free to serve a runtime or another loop. No fiber is left.
    pub(crate) fn disembed(&self) {
        let (own, shared) = (&self.embedded, &self.shared().embedded);
        shared.thread.store(0, Ordering::Relaxed);
        self.shared().inbox.unpark();
        shared.rung.store(false, Ordering::Relaxed);
        let hook = shared.hook.lock().take();
        let (manager, watcher) = (own.manager.take(), own.watcher.take());
        own.woken.take();
        drop((hook, manager, watcher));
    }

    /// Whether a foreign loop steps the carrier.
    #[inline(always)]
    pub(crate) fn is_embedded(&self) -> bool {
        self.shared().is_embedded()
    }

    /// Whether the running code is the watcher, which the carrier has called between two fibers.
    pub(crate) fn is_telling(&self) -> bool {
        self.shared().embedded.telling.load(Ordering::Relaxed)
    }

    /// Makes this thread run as the carrier, to sleep in its driver.
    pub(crate) fn enter(&'static self) -> Inside {
        Inside::enter(self)
    }

    /// Whether this thread has entered the carrier, by a step or by code that the step has called.
    pub(crate) fn is_entered(&self) -> bool {
        self.embedded.entered.get() > 0
    }

    /// Records whether this thread runs a hook as if it were not the carrier.
    pub(super) fn set_aside(&self, aside: bool) {
        self.embedded.aside.set(aside);
    }

    /// Whether the current fiber has called a hook that runs now. The fiber may have ended.
    pub(crate) fn is_aside(&self) -> bool {
        self.embedded.aside.get()
    }

    /// Returns the manager to which this carrier belongs.
    pub(crate) fn manager(&self) -> Option<Weak<dyn Any>> {
        self.embedded.manager.borrow().clone()
    }
}
