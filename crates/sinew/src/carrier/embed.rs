//! A carrier on a thread that belongs to a foreign loop, which steps it.
//!
//! The root of such a carrier is the stack from which the loop calls. Outside of a
//! [step](Carrier::step) the thread is a plain thread: no fiber runs, waits block the thread, and a
//! wake of one of the carrier's fibers goes to the inbox, as from any other thread. README.md of
//! `manager` has the protocol.
//!
//! A fiber of such a carrier can do two things that a fiber of a runtime cannot:
//!
//! - It *interrupts itself* for another fiber ([`run_now`](Carrier::run_now)). It waits in the
//!   slot, so that it goes on as soon as the other fiber stops for any reason.
//! - It has work done on the root ([`on_root`](Carrier::on_root)), which then switches straight
//!   back to it.
//!
//! Both nest, and are left in the reverse order.

use super::crew::{Crew, Phase};
use super::{Carrier, current, dispatch, launch};
use crate::clock;
use crate::fiber::{Control, Flags};
use crate::primitive::{AtomicBool, AtomicUsize, Ordering, SpinLock};
use crate::queue::Fifo;
use crate::report;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::ptr;
use sinew_context::stack::{StackCache, overflow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Called when the carrier has something to do and its loop may not know.
pub(crate) type Hook = dyn Fn() + Send + Sync;

/// An event in a fiber's life, for a watcher on the carrier's own thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    Starting,
    Runnable,
    Stopped,
}

/// The watcher of a carrier, called with the event and the id of the fiber. It must not wait.
pub(crate) type Watcher = dyn Fn(Moment, u64);

/// The state that only a carrier in a foreign loop uses. The plain fields belong to its thread.
pub(crate) struct Embedded {
    /// The number of the thread to which the carrier belongs; 0 if no foreign loop steps the
    /// carrier.
    thread: AtomicUsize,
    /// Whether the watcher is being called: between two fibers, on the stack of the first.
    telling: AtomicBool,
    /// Whether the current fiber has already stopped during that call.
    between: AtomicBool,
    hook: SpinLock<Option<Arc<Hook>>>,
    /// Whether the bell was rung for the loop and has to be cleared.
    rung: AtomicBool,
    /// Fibers that have yielded. They become ready when every other fiber has run.
    yielded: Fifo<Control>,
    /// The next work for the root.
    call: Cell<Option<Call>>,
    /// The fiber for which the root works.
    lender: Cell<*const Control>,
    /// How many contexts, fibers or the root, have interrupted themselves. The innermost is in the
    /// slot.
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
    owner: RefCell<Option<Weak<dyn Any>>>,
    watcher: RefCell<Option<Rc<Watcher>>>,
    /// Woken fibers of which the watcher has not been told.
    woken: RefCell<Vec<u64>>,
}

impl Embedded {
    pub(super) const fn new() -> Embedded {
        Embedded {
            thread: AtomicUsize::new(0),
            telling: AtomicBool::new(false),
            between: AtomicBool::new(false),
            hook: SpinLock::new(None),
            rung: AtomicBool::new(false),
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
            owner: RefCell::new(None),
            watcher: RefCell::new(None),
            woken: RefCell::new(Vec::new()),
        }
    }
}

/// How often a step polls for events while each poll finds more.
const MOST_ROUNDS: u32 = 16;

/// How often a step serves deadlines that have passed since it began. Without a limit, fibers
/// with short sleeps would keep the loop: if they compute in between, each is due as soon as the
/// others have run.
const MOST_TIMEOUTS: u32 = 64;

/// Work for the root. Its data lies in the frame of the fiber that asks for it, which stays in
/// place until the work is done.
#[derive(Clone, Copy)]
struct Call {
    run: unsafe fn(*mut ()),
    data: *mut (),
    who: *const Control,
    /// Whether the fiber goes on at once. If not, it is in a wait.
    back: bool,
}

/// The data of a [`Call`].
struct Asked<F, R> {
    work: Option<F>,
    result: Option<std::thread::Result<R>>,
}

impl<F: FnOnce() -> R, R> Asked<F, R> {
    fn new(work: F) -> Self {
        Asked { work: Some(work), result: None }
    }

    /// Runs the work and stores its result.
    ///
    /// # Safety
    /// `data` points to a value of this type, which no other code uses meanwhile.
    unsafe fn run(data: *mut ()) {
        // SAFETY: `data` points to such a value, and no other code uses it.
        let this = unsafe { &mut *data.cast::<Self>() };
        if let Some(work) = this.work.take() {
            this.result = Some(catch_unwind(AssertUnwindSafe(work)));
        }
    }

    /// Returns a call for a fiber that goes on at once.
    fn call(&mut self, who: &Control) -> Call {
        Call { run: Self::run, data: ptr::from_mut(self).cast(), who, back: true }
    }
}

/// Makes this thread run as the carrier. Dropping it restores the previous state.
pub(crate) struct Inside {
    carrier: &'static Carrier,
    outer: *const Carrier,
    unwinding: bool,
    activation: u64,
}

impl Inside {
    fn enter(carrier: &'static Carrier) -> Inside {
        let outer = current::carrier();
        // Panics are counted by thread. If the thread unwinds already, no fiber of this carrier
        // does. A fiber that is cancelled here must not believe that it is the one that unwinds.
        let unwinding = std::thread::panicking() && !ptr::eq(outer, carrier);
        if unwinding {
            carrier.unwinding.set(carrier.unwinding.get() + 1);
        }
        current::set_carrier(carrier);
        carrier.embedded.entered.set(carrier.embedded.entered.get() + 1);
        Inside { carrier, outer, unwinding, activation: carrier.activate() }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        current::set_carrier(self.outer);
        let embedded = &self.carrier.embedded;
        embedded.entered.set(embedded.entered.get() - 1);
        embedded.activation.set(self.activation);
        if self.unwinding {
            self.carrier.unwinding.set(self.carrier.unwinding.get() - 1);
        }
    }
}

impl Carrier {
    /// Makes this thread the carrier's thread, with a cache for `stacks` stacks.
    pub(crate) fn begin_embedded(&self, crew: &Crew, stacks: usize) {
        overflow::arm();
        self.set_thread(true);
        self.random.set(clock::now() | 1);
        self.now.set(clock::now());
        // SAFETY: this is the carrier's thread, and no fiber runs yet.
        unsafe { *self.stacks.get() = Some(StackCache::exact(&crew.pool, stacks)) };
        self.reserve.fill(crew);
    }

    /// Ends the carrier's work. No fiber is left, and the thread has not entered the carrier.
    /// [`Crew::thread_ended`] gives the carrier back, when no code uses it any more.
    pub(crate) fn end_embedded(&'static self, crew: &Crew) {
        let inside = Inside::enter(self);
        crew.advance(Phase::Closed);
        crew.drivers[0].close();
        launch::drop_spare(self);
        drop(inside);
        crew.pool.retire();
        // SAFETY: no fiber is left, so nothing uses the stacks.
        unsafe { *self.stacks.get() = None };
        self.reserve.empty();
        // SAFETY: this is the carrier's thread, which owns the slab.
        unsafe { self.slab.trim() };
        self.observed.reset();
        self.disembed();
        self.set_thread(false);
    }

    /// Returns the number of stacks that are kept for new fibers.
    pub(crate) fn pooled(&self) -> usize {
        // SAFETY: this is the carrier's thread.
        let cached = unsafe { (*self.stacks.get()).as_ref() }.map_or(0, StackCache::len);
        cached + usize::from(!self.spare.get().is_null())
    }

    /// Gives back stacks that were not needed since the last call, but keeps `most` stacks at hand.
    pub(crate) fn drop_unneeded_stacks(&self, most: usize) {
        // SAFETY: this is the carrier's thread.
        if let Some(stacks) = unsafe { (*self.stacks.get()).as_ref() } {
            stacks.drop_unneeded(most.saturating_sub(usize::from(!self.spare.get().is_null())));
        }
    }

    /// Gives back the stack that is kept for the next fiber. No fiber of the carrier runs.
    pub(crate) fn drop_spare(&'static self) {
        if !self.spare.get().is_null() {
            let _inside = Inside::enter(self);
            launch::drop_spare(self);
        }
    }

    /// Begins a period in which user code may run on the root. Returns the number of the previous
    /// one.
    fn activate(&self) -> u64 {
        // SAFETY: this is the carrier's thread.
        let id = unsafe { self.slab.next_id() };
        self.embedded.activation.replace(id)
    }

    /// Returns the number of the period in which user code runs on the root. It is never used
    /// twice, nor as a fiber's id.
    pub(crate) fn activation(&self) -> u64 {
        self.embedded.activation.get()
    }

    /// Embeds the carrier into a loop on this thread. `hook` tells the loop that there is work, and
    /// `owner` is the manager that [`owner`](Self::owner) returns.
    pub(crate) fn embed(&self, hook: Arc<Hook>, owner: Weak<dyn Any>) {
        *self.embedded.hook.lock() = Some(hook);
        *self.embedded.owner.borrow_mut() = Some(owner);
        self.embedded.thread.store(current::thread_number(), Ordering::Relaxed);
        self.slot_left.set(0);
        self.inbox.park();
    }

    /// Makes the carrier free to serve a runtime or another loop. No fiber is left.
    pub(crate) fn disembed(&self) {
        let embedded = &self.embedded;
        embedded.thread.store(0, Ordering::Relaxed);
        self.inbox.unpark();
        embedded.rung.store(false, Ordering::Relaxed);
        let hook = embedded.hook.lock().take();
        let (owner, watcher) = (embedded.owner.take(), embedded.watcher.take());
        embedded.woken.take();
        drop((hook, owner, watcher));
    }

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

    /// Makes a fiber ready that was woken on the carrier's thread while the thread did not run as
    /// the carrier.
    ///
    /// # Safety
    /// The caller has ended the fiber's wait, and this is the thread to which the carrier belongs.
    #[cold]
    pub(super) unsafe fn ready_from_outside(&self, control: &Control) {
        // SAFETY: the fiber is ours and in no queue. Code that is in the middle of using `ready`
        // runs as the carrier, and then wakes do not come here.
        unsafe { self.ready.push(control) };
        if !self.is_stepping() {
            self.ring();
        }
    }

    /// Whether the current fiber has already stopped.
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

    /// Clears the bell. Afterwards the caller looks for the work for which it was rung.
    pub(crate) fn silence(&self) {
        if self.embedded.rung.load(Ordering::Relaxed) {
            // A caller of `ring_for_loop` that comes now finds the mark set, and the swap below
            // then shows its work.
            self.bell().clear();
            // ORDERING: AcqRel; pairs with the swap in `ring_for_loop`.
            self.embedded.rung.swap(false, Ordering::AcqRel);
        }
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

    /// Whether the carrier has called the running code between two fibers.
    pub(crate) fn is_telling(&self) -> bool {
        self.embedded.telling.load(Ordering::Relaxed)
    }

    /// Returns the manager that owns this carrier.
    pub(crate) fn owner(&self) -> Option<Weak<dyn Any>> {
        self.embedded.owner.borrow().clone()
    }

    /// Returns the fiber for which the root works at present.
    pub(crate) fn lender(&self) -> *const Control {
        self.embedded.lender.get()
    }

    /// Whether a step is in progress on this thread.
    pub(crate) fn is_stepping(&self) -> bool {
        self.embedded.stepping.get()
    }

    /// Whether the carrier has something to run, as far as its thread knows.
    pub(crate) fn is_due(&self) -> bool {
        self.has_ready()
            || self.can_refuse()
            || !self.embedded.yielded.is_empty()
            || !self.inbox.is_empty()
    }

    /// Returns the number of fibers that are ready, or will be when the others have run.
    pub(crate) fn queued(&self) -> usize {
        let slot = usize::from(!self.slot.get().is_null());
        // A fiber in the slot that has interrupted itself is not queued.
        let slot = slot.saturating_sub(self.embedded.interrupted.get() as usize);
        slot + self.ready.len() + self.deque.len() + self.embedded.yielded.len()
    }

    /// Returns when the carrier must be stepped again, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> u64 {
        let mut earliest = self.earliest.load(Ordering::Relaxed);
        if earliest != clock::NEVER {
            let mut timers = self.timers.lock();
            // Skip stale entries: the loop must not wake up for fibers that no longer wait.
            earliest = timers.earliest_live().unwrap_or(clock::NEVER);
            self.earliest.store(earliest, Ordering::Relaxed);
        }
        self.ask_at().map_or(earliest, |ask_at| earliest.min(ask_at))
    }

    /// Sets the watcher, which is told of starts, stops and wakes from now on; `None` removes it.
    pub(crate) fn watch(&self, watcher: Option<Rc<Watcher>>) {
        let before = self.embedded.watcher.replace(watcher);
        drop(before);
    }

    /// Notes that a fiber was woken. The watcher is told later, when no lock is held.
    pub(super) fn note_woken(&self, fiber: u64) {
        if self.embedded.watcher.borrow().is_some() {
            self.embedded.woken.borrow_mut().push(fiber);
        }
    }

    /// Tells the watcher of the noted wakes and of this event.
    pub(super) fn tell(&self, moment: Moment, fiber: u64) {
        let watcher = self.embedded.watcher.borrow().clone();
        let Some(watcher) = watcher else { return };
        self.embedded.telling.store(true, Ordering::Relaxed);
        self.embedded.between.store(moment == Moment::Stopped, Ordering::Relaxed);
        let woken = self.embedded.woken.take();
        for (moment, fiber) in
            woken.into_iter().map(|woken| (Moment::Runnable, woken)).chain([(moment, fiber)])
        {
            if report::contain(|| watcher(moment, fiber)).is_none() {
                report::say(format_args!("an observer panicked when fiber {fiber} was {moment:?}"));
            }
        }
        self.embedded.between.store(false, Ordering::Relaxed);
        self.embedded.telling.store(false, Ordering::Relaxed);
    }

    /// Whether the next dispatch is already decided: the root has work, or a fiber in the slot has
    /// interrupted itself.
    #[inline(always)]
    pub(super) fn is_decided(&self) -> bool {
        self.is_embedded()
            && (self.embedded.call.get().is_some()
                || self.embedded.interrupted.get() > 0 && !self.slot.get().is_null())
    }

    /// Returns the decided next fiber, or the root.
    pub(super) fn decided(&self) -> *const Control {
        if self.embedded.call.get().is_some() { &raw const self.root } else { self.next_ready() }
    }

    /// Lets the running fiber wait until every other fiber has run and the loop has had its turn.
    ///
    /// # Safety
    /// The fiber runs on this carrier, is in no queue, and stops next.
    pub(crate) unsafe fn behind_all(&self, me: &Control) {
        me.set_flags(Flags::YIELDED);
        // SAFETY: the fiber is in no queue, so its link is free.
        unsafe { self.embedded.yielded.push(me) };
    }

    /// Runs ready fibers until there are none. Returns true if there is more to do, such as fibers
    /// that have yielded. The thread must not have entered the carrier before.
    pub(crate) fn step(&'static self) -> bool {
        let _inside = Inside::enter(self);
        debug_assert_eq!(self.embedded.entered.get(), 1, "steps do not nest");
        self.embedded.stepping.set(true);
        self.embedded.begun.set(clock::now());
        self.embedded.timeouts.set(MOST_TIMEOUTS);
        self.inbox.unpark();
        let again = self.run_all_ready();
        self.embedded.stepping.set(false);
        again
    }

    fn run_all_ready(&'static self) -> bool {
        let mut rounds = 0;
        loop {
            self.shorten_tick_if_observed();
            self.tend();
            self.run_ready();
            if !self.refused.is_empty() && self.refuse_some() {
                continue;
            }
            // Poll after fibers have run, so that the kernel knows all new waits. Poll until there
            // are no more events, because a loop with an edge-triggered watch is not told again of
            // earlier events. But bound the rounds, so that the loop gets its turn.
            if self.look_for_events() || self.has_ready() {
                rounds += 1;
                if rounds < MOST_ROUNDS {
                    continue;
                }
                self.ready_yielded();
                return true;
            }
            let earliest = self.earliest.load(Ordering::Relaxed);
            if earliest <= self.embedded.begun.get() {
                continue;
            }
            if earliest != clock::NEVER && earliest <= clock::now() {
                // Fibers with short sleeps must not keep the loop.
                self.ready_yielded();
                return true;
            }
            if !self.embedded.yielded.is_empty() {
                self.ready_yielded();
                return true;
            }
            if self.inbox.park() {
                return false;
            }
        }
    }

    /// Ends waits whose deadlines have passed. Deadlines that passed during this step are served a
    /// limited number of times.
    pub(super) fn expire_in_step(&self, now: u64) {
        let (begun, left) = (self.embedded.begun.get(), self.embedded.timeouts.get());
        let earliest = self.earliest.load(Ordering::Relaxed);
        if earliest <= begun || earliest > now {
            return self.expire(now);
        }
        if left > 0 {
            self.embedded.timeouts.set(left - 1);
            self.expire(now);
        }
    }

    /// Looks into the inbox `looks` times before the loop sleeps. Meanwhile pushers need not ring.
    /// Returns whether there is something to do.
    pub(crate) fn linger(&self, looks: u32) -> bool {
        self.inbox.unpark();
        for _ in 0..looks {
            if !self.inbox.is_empty() {
                return true;
            }
            core::hint::spin_loop();
        }
        !self.inbox.park()
    }

    fn ready_yielded(&self) {
        while let Some(control) = self.embedded.yielded.pop() {
            // SAFETY: fibers in the list are ours, and a popped fiber's link is free.
            unsafe {
                (*control).clear_flags(Flags::YIELDED);
                if self.observed.is_on() {
                    self.note_woken((*control).id());
                }
                self.ready.push(control);
            }
        }
    }

    /// Runs an unstarted fiber until it first stops, before the caller goes on.
    ///
    /// # Safety
    /// This is the carrier's thread. The fiber is in no queue, counted, and belongs to the caller.
    /// If a fiber of this carrier runs, it has no wait under way.
    pub(crate) unsafe fn run_now(&'static self, next: &Control) {
        let _inside = Inside::enter(self);
        self.shorten_tick_if_observed();
        // SAFETY: the running fiber, or the root, has a block.
        let me = unsafe { &*self.current() };
        let root = me.flags().has(Flags::ROOT);
        // SAFETY: this is the carrier's thread, and the fiber is in no queue.
        let started = unsafe { launch::try_start(self, next) }.ok();
        // SAFETY: this is the carrier's thread, the fiber is in no queue, and the closure is called
        // on the root.
        let start_or_refuse = || unsafe { self.start_or_refuse(next) };
        let context = started.or_else(|| match root {
            true => start_or_refuse(),
            // SAFETY: `me` runs on this carrier and has no wait under way.
            false => unsafe { self.on_root(me, start_or_refuse) }.ok().flatten(),
        });
        let Some(context) = context else {
            // There is no stack, and the reserve is in use. The loop will start or end the fiber.
            if !self.is_stepping() {
                self.ring();
            }
            return;
        };
        let outer = self.slot.replace(me);
        self.embedded.interrupted.set(self.embedded.interrupted.get() + 1);
        if !root {
            me.set_flags(Flags::IMMEDIATE);
        }
        if self.observed.is_on() {
            self.note_stop();
            self.note_start(next);
        }
        // SAFETY: `me` is in the slot, and is dispatched when `next` stops. If `me` is the root, it
        // is entered meanwhile only to do calls.
        unsafe {
            dispatch::switch(self, me, (next, context), dispatch::message_of(me, false));
            if root && self.embedded.call.get().is_some() {
                self.do_calls();
            }
        }
        if !root {
            me.clear_flags(Flags::IMMEDIATE);
        }
        self.embedded.interrupted.set(self.embedded.interrupted.get() - 1);
        self.slot.set(outer);
        if root && !self.embedded.stepping.get() {
            // Every other fiber has had its turn. And the kernel must know the new waits, as in a
            // step, because the loop may sleep next.
            self.ready_yielded();
            self.look_for_events();
        }
    }

    /// Runs `next`, and returns when the root has to pick the next fiber. Calls to the root are
    /// done before.
    ///
    /// # Safety
    /// As for [`dispatch::go`], from the root.
    #[inline(always)]
    pub(super) unsafe fn go_from_root(&self, next: &Control) {
        // SAFETY: the root runs on this carrier, and `next` is ours to run.
        unsafe {
            dispatch::go(self, &self.root, next);
            if self.embedded.call.get().is_some() {
                self.do_calls();
            }
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn do_calls(&self) {
        while let Some(call) = self.embedded.call.take() {
            let outer = self.embedded.lender.replace(call.who);
            let activation = self.activate();
            // SAFETY: the fiber that asked does not go on before the call was done. Then it is ours
            // to run, or it is in a wait and is dispatched like any other.
            unsafe {
                (call.run)(call.data);
                self.embedded.lender.set(outer);
                self.embedded.activation.set(activation);
                let next = if call.back { call.who } else { self.slot.get() };
                // The fiber in the slot goes on now only if it has interrupted itself.
                if !call.back {
                    if self.embedded.interrupted.get() == 0
                        || next.is_null()
                        || ptr::eq(next, &raw const self.root)
                    {
                        return;
                    }
                    self.slot.set(ptr::null());
                }
                dispatch::go(self, &self.root, &*next);
            }
        }
    }

    /// Does `work` on the root, and returns its result to the fiber.
    ///
    /// # Safety
    /// `me` runs on this carrier, and no wait of it is under way.
    pub(crate) unsafe fn on_root<R>(
        &self,
        me: &Control,
        work: impl FnOnce() -> R,
    ) -> std::thread::Result<R> {
        let mut asked = Asked::new(work);
        self.embedded.call.set(Some(asked.call(me)));
        me.set_flags(Flags::IMMEDIATE);
        // SAFETY: `me` runs on this carrier, and the root switches straight back to it.
        unsafe { dispatch::go(self, me, &self.root) };
        me.clear_flags(Flags::IMMEDIATE);
        asked.result.take().expect("the root has done what it was asked for")
    }

    /// Calls `run` with `data` on the root when `me` stops next, which it does in a wait.
    ///
    /// # Safety
    /// `me` runs on this carrier. `run` may be called with `data` until
    /// [`forget_call`](Self::forget_call).
    pub(crate) unsafe fn call_once_stopped(
        &self,
        me: &Control,
        run: unsafe fn(*mut ()),
        data: *mut (),
    ) {
        self.embedded.call.set(Some(Call { run, data, who: me, back: false }));
        // Makes the next dispatch look for the call.
        self.shorten_tick();
    }

    /// Takes back the call with `data`, if it was not done.
    pub(crate) fn forget_call(&self, data: *const ()) {
        if self.embedded.call.get().is_some_and(|call| ptr::eq(call.data, data)) {
            self.embedded.call.set(None);
        }
    }
}
