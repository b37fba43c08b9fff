//! A carrier on a thread that belongs to something else: somebody's loop steps it.
//!
//! Its root is whatever stack the loop calls from. Outside of a [step](Carrier::step) the thread is a plain
//! thread: nothing here runs, waits block it, and a wake of one of the carrier's fibers goes to the inbox,
//! as from any other thread. README.md of `manager` has the protocol.
//!
//! Two things can happen in the middle of a fiber that cannot on a carrier of a runtime:
//!
//! - it *interrupts itself* for another one ([`run_now`](Carrier::run_now)): it waits in the slot, so that it
//!   goes on as soon as the other one stops, however that is;
//! - it has something done on the root ([`on_root`](Carrier::on_root)), which goes straight back to it.
//!
//! Both nest, and are left in the order in which they were entered.

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

/// What is called when the carrier has something to do and its loop may not know.
pub(crate) type Hook = dyn Fn() + Send + Sync;

/// What happened to a fiber, for who observes a carrier from its own thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    Starting,
    Runnable,
    Stopped,
}

/// What somebody is told who observes: the moment, and the number of the fiber. It does not wait.
pub(crate) type Watcher = dyn Fn(Moment, u64);

/// The part of a carrier that only one in a foreign loop uses. All but the hook belongs to its thread.
pub(crate) struct Embedded {
    /// The thread to which the carrier belongs; 0 if it is not one of these.
    thread: AtomicUsize,
    /// Whether whoever observes is being told something: between two fibers, on the stack of the first.
    telling: AtomicBool,
    /// Whether the one that is current has stopped already then.
    between: AtomicBool,
    hook: SpinLock<Option<Arc<Hook>>>,
    /// Whether the bell was rung for the loop, and has to be silenced.
    rung: AtomicBool,
    /// Fibers that have yielded: they are ready when everything else has run.
    yielded: Fifo<Control>,
    /// What is to be done on the root next.
    call: Cell<Option<Call>>,
    /// The fiber for which the root does something.
    lender: Cell<*const Control>,
    /// Fibers, or the root, that have interrupted themselves. The innermost is in the slot.
    interrupted: Cell<u32>,
    stepping: Cell<bool>,
    /// When the step began.
    begun: Cell<u64>,
    /// How often a step may still end waits whose deadlines passed after it had begun.
    timeouts: Cell<u32>,
    /// How often this thread has entered the carrier, one inside of the other.
    entered: Cell<u32>,
    /// Whether a hook runs on this thread, as if it were not the carrier. Who is current may have ended.
    aside: Cell<bool>,
    /// Tells each time that code of the user's runs on the root from every other time.
    activation: Cell<u64>,
    owner: RefCell<Option<Weak<dyn Any>>>,
    watcher: RefCell<Option<Rc<Watcher>>>,
    /// Fibers that were woken, of which the watcher has not been told.
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

/// How often a step looks for events, if there are more each time.
const MOST_ROUNDS: u32 = 16;

/// How often a step ends waits whose deadlines have passed since it began. Fibers that wait for moments would keep the
/// loop otherwise: if they compute in between, each of them is due as soon as the others have run.
const MOST_TIMEOUTS: u32 = 64;

/// Something to be done on the root. It lies in the frame of the fiber that asks for it, which stays where
/// it is until that is done.
#[derive(Clone, Copy)]
struct Call {
    run: unsafe fn(*mut ()),
    data: *mut (),
    who: *const Control,
    /// Whether the fiber goes on at once; otherwise it is in a wait.
    back: bool,
}

/// What a [`Call`] works on.
struct Asked<F, R> {
    work: Option<F>,
    result: Option<std::thread::Result<R>>,
}

impl<F: FnOnce() -> R, R> Asked<F, R> {
    fn new(work: F) -> Self {
        Asked { work: Some(work), result: None }
    }

    /// # Safety
    /// `data` is one of these, and nobody else's for as long.
    unsafe fn run(data: *mut ()) {
        // SAFETY: as the caller promised.
        let this = unsafe { &mut *data.cast::<Self>() };
        if let Some(work) = this.work.take() {
            this.result = Some(catch_unwind(AssertUnwindSafe(work)));
        }
    }

    /// For a fiber that goes on at once.
    fn call(&mut self, who: &Control) -> Call {
        Call { run: Self::run, data: ptr::from_mut(self).cast(), who, back: true }
    }
}

/// Makes this thread the carrier for a while; then it is again what it was.
pub(crate) struct Inside {
    carrier: &'static Carrier,
    outer: *const Carrier,
    unwinding: bool,
    activation: u64,
}

impl Inside {
    fn enter(carrier: &'static Carrier) -> Inside {
        let outer = current::carrier();
        // The thread counts panics. If it is unwinding already, that is not a fiber of this carrier: one
        // that is told to end must not take itself for the one that unwinds.
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
    /// Makes this thread that of the carrier, with a cache for so many stacks.
    pub(crate) fn begin_embedded(&self, crew: &Crew, stacks: usize) {
        overflow::arm();
        self.set_thread(true);
        self.random.set(clock::now() | 1);
        self.now.set(clock::now());
        // SAFETY: nobody else looks at what belongs to the thread.
        unsafe { *self.stacks.get() = Some(StackCache::exact(&crew.pool, stacks)) };
        self.reserve.fill(crew);
    }

    /// Ends the carrier's work. No fiber is left, and nothing of it runs on this thread. It is given back with
    /// [`Crew::thread_ended`], when nobody looks at it any more.
    pub(crate) fn end_embedded(&'static self, crew: &Crew) {
        let inside = Inside::enter(self);
        crew.advance(Phase::Closed);
        crew.drivers[0].close();
        launch::drop_spare(self);
        drop(inside);
        crew.pool.retire();
        // SAFETY: no fiber is left, so nobody uses them.
        unsafe { *self.stacks.get() = None };
        self.reserve.empty();
        // SAFETY: this is the carrier's thread, which owns the slab.
        unsafe { self.slab.trim() };
        self.observed.reset();
        self.disembed();
        self.set_thread(false);
    }

    /// Stacks that are kept for fibers to come.
    pub(crate) fn pooled(&self) -> usize {
        // SAFETY: this is the carrier's thread.
        let cached = unsafe { (*self.stacks.get()).as_ref() }.map_or(0, StackCache::len);
        cached + usize::from(!self.spare.get().is_null())
    }

    /// Gives back the stacks that were not needed since this was last called, but for so many.
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

    /// Begins a time in which code of the user's may run on the root; returns the one before.
    fn activate(&self) -> u64 {
        // SAFETY: this is the carrier's thread.
        let id = unsafe { self.slab.next_id() };
        self.embedded.activation.replace(id)
    }

    /// A number for the time in which the user's code on the root runs: never used twice, not for a fiber either.
    pub(crate) fn activation(&self) -> u64 {
        self.embedded.activation.get()
    }

    /// Makes a carrier of this thread that `hook` tells its loop about. Those who ask on this thread whose it
    /// is are told `owner`.
    pub(crate) fn embed(&self, hook: Arc<Hook>, owner: Weak<dyn Any>) {
        *self.embedded.hook.lock() = Some(hook);
        *self.embedded.owner.borrow_mut() = Some(owner);
        self.embedded.thread.store(current::thread_number(), Ordering::Relaxed);
        self.slot_left.set(0);
        self.inbox.park();
    }

    /// The carrier is to serve a runtime again, or another loop. No fiber is left.
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

    /// Whether the calling thread is that to which the carrier belongs, also outside of a step.
    #[inline(always)]
    pub(crate) fn is_of_this_thread(&self) -> bool {
        let thread = self.embedded.thread.load(Ordering::Relaxed);
        thread != 0 && thread == current::thread_number()
    }

    /// Has a fiber run that was woken on the carrier's thread, but not by the carrier.
    ///
    /// # Safety
    /// The caller has ended its wait, and this is the thread to which the carrier belongs.
    #[cold]
    pub(super) unsafe fn ready_from_outside(&self, control: &Control) {
        // SAFETY: as the caller promised: it is ours, and in no queue. What else uses the list is not in the middle
        // of that, or this would be called by the carrier.
        unsafe { self.ready.push(control) };
        if !self.is_stepping() {
            self.ring();
        }
    }

    /// Whether the one that is current has stopped already.
    pub(crate) fn is_between(&self) -> bool {
        self.embedded.between.load(Ordering::Relaxed)
    }

    /// Tells the carrier that there is something in its inbox; called by who has found it marked as parked.
    ///
    /// That may be in the middle of a wait, or of the end of a fiber: the hook runs as if on a thread that has
    /// nothing to do with fibers.
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

    /// Rings the bell for a loop that sleeps in the driver, or watches its descriptor.
    pub(crate) fn ring_for_loop(&self) {
        // ORDERING: AcqRel: what the caller did before is seen by the one who silences it, or it rings.
        if !self.embedded.rung.swap(true, Ordering::AcqRel) {
            self.bell().ring();
        }
    }

    /// Takes back the ring of the bell. The caller looks afterwards for what it was rung for.
    pub(crate) fn silence(&self) {
        if self.embedded.rung.load(Ordering::Relaxed) {
            // Whoever rings meanwhile finds the mark, and that is removed next.
            self.bell().clear();
            // ORDERING: AcqRel; pairs with that in `ring_for_loop`.
            self.embedded.rung.swap(false, Ordering::AcqRel);
        }
    }

    /// Makes this thread the carrier, to sleep in its driver.
    pub(crate) fn enter(&'static self) -> Inside {
        Inside::enter(self)
    }

    /// Whether something of the carrier is under way on this thread: a step, or what one has called.
    pub(crate) fn is_entered(&self) -> bool {
        self.embedded.entered.get() > 0
    }

    /// Has the thread be no carrier for a while, or be it again.
    pub(super) fn set_aside(&self, aside: bool) {
        self.embedded.aside.set(aside);
    }

    /// Whether a hook runs that was called by what is current, which may have ended.
    pub(crate) fn is_aside(&self) -> bool {
        self.embedded.aside.get()
    }

    /// Whether the running code is called by the carrier between two fibers.
    pub(crate) fn is_telling(&self) -> bool {
        self.embedded.telling.load(Ordering::Relaxed)
    }

    /// Whose this carrier is.
    pub(crate) fn owner(&self) -> Option<Weak<dyn Any>> {
        self.embedded.owner.borrow().clone()
    }

    /// The fiber that has something done on the root at present.
    pub(crate) fn lender(&self) -> *const Control {
        self.embedded.lender.get()
    }

    /// Whether a step is under way on this thread.
    pub(crate) fn is_stepping(&self) -> bool {
        self.embedded.stepping.get()
    }

    /// Whether there is something to run, as far as the carrier's thread knows.
    pub(crate) fn is_due(&self) -> bool {
        self.has_ready()
            || self.can_refuse()
            || !self.embedded.yielded.is_empty()
            || !self.inbox.is_empty()
    }

    /// Fibers that are ready to run, or will be when the others have run.
    pub(crate) fn queued(&self) -> usize {
        let slot = usize::from(!self.slot.get().is_null());
        // The slot of one that has interrupted itself is not a place in a queue.
        let slot = slot.saturating_sub(self.embedded.interrupted.get() as usize);
        slot + self.ready.len() + self.deque.len() + self.embedded.yielded.len()
    }

    /// When the carrier is to be stepped again, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> u64 {
        let mut earliest = self.earliest.load(Ordering::Relaxed);
        if earliest != clock::NEVER {
            let mut timers = self.timers.lock();
            // A loop is not to be woken for those who no longer wait.
            earliest = timers.earliest_live().unwrap_or(clock::NEVER);
            self.earliest.store(earliest, Ordering::Relaxed);
        }
        self.ask_at().map_or(earliest, |ask_at| earliest.min(ask_at))
    }

    /// Has whoever observes told of starts, stops and wakes from here on; nobody, if there is none.
    pub(crate) fn watch(&self, watcher: Option<Rc<Watcher>>) {
        let before = self.embedded.watcher.replace(watcher);
        drop(before);
    }

    /// Notes that a fiber was woken; the watcher is told when no lock is held.
    pub(super) fn note_woken(&self, fiber: u64) {
        if self.embedded.watcher.borrow().is_some() {
            self.embedded.woken.borrow_mut().push(fiber);
        }
    }

    /// Tells the watcher.
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

    /// Whether the next dispatch is decided: by a call to the root, or by one who interrupted itself.
    #[inline(always)]
    pub(super) fn is_decided(&self) -> bool {
        self.is_embedded()
            && (self.embedded.call.get().is_some()
                || self.embedded.interrupted.get() > 0 && !self.slot.get().is_null())
    }

    /// What that is.
    pub(super) fn decided(&self) -> *const Control {
        if self.embedded.call.get().is_some() { &raw const self.root } else { self.next_ready() }
    }

    /// Lets the running fiber wait until everything else has run, and the loop has had its turn.
    ///
    /// # Safety
    /// The fiber runs on this carrier, is in no queue, and stops next.
    pub(crate) unsafe fn behind_all(&self, me: &Control) {
        me.set_flags(Flags::YIELDED);
        // SAFETY: as the caller promised.
        unsafe { self.embedded.yielded.push(me) };
    }

    /// Runs what is ready, until nothing is. True if there is more to do: fibers that have yielded. Nothing of the
    /// carrier is under way.
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
            // Looked for after fibers have run, so that the kernel has heard of all they want; and until there are no
            // more: a loop that watches for changes is not told of those that were there before. But it has its turn.
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
                // A fiber that waits for moments does not keep the loop.
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

    /// Ends waits whose deadlines have passed: of those that did so during this step, only so many times.
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

    /// Looks so many times whether somebody puts something into the inbox, before the loop sleeps: nobody has to
    /// ring meanwhile. True if there is something to do.
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
            // SAFETY: what was in the list is ours, and its link is free.
            unsafe {
                (*control).clear_flags(Flags::YIELDED);
                if self.observed.is_on() {
                    self.note_woken((*control).id());
                }
                self.ready.push(control);
            }
        }
    }

    /// Runs an unstarted fiber before the caller goes on, until it first stops.
    ///
    /// # Safety
    /// This is the carrier's thread; the fiber is in no queue, counted, and the caller's. If a fiber of this
    /// carrier runs, no wait of it is under way.
    pub(crate) unsafe fn run_now(&'static self, next: &Control) {
        let _inside = Inside::enter(self);
        self.shorten_tick_if_observed();
        // SAFETY: what runs has a block.
        let me = unsafe { &*self.current() };
        let root = me.flags().has(Flags::ROOT);
        // SAFETY: this is the carrier's thread, and the fiber is in no queue.
        let started = unsafe { launch::try_start(self, next) }.ok();
        // SAFETY: the same, on the root.
        let start_or_refuse = || unsafe { self.start_or_refuse(next) };
        let context = started.or_else(|| match root {
            true => start_or_refuse(),
            // SAFETY: as the caller promised.
            false => unsafe { self.on_root(me, start_or_refuse) }.ok().flatten(),
        });
        let Some(context) = context else {
            // There is no stack, and the reserve is in use: the loop comes to it.
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
        // SAFETY: `me` is in the slot, from where it is dispatched when `next` stops. If this is the root, it
        // is entered for nothing else meanwhile but calls.
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
            // Everything else has had its turn; and the kernel hears of what was wanted of it, as in a step: the loop
            // may sleep next.
            self.ready_yielded();
            self.look_for_events();
        }
    }

    /// Goes on in `next`, and returns when there is something for the root to decide. Calls to the root are
    /// done before.
    ///
    /// # Safety
    /// As for [`dispatch::go`], from the root.
    #[inline(always)]
    pub(super) unsafe fn go_from_root(&self, next: &Control) {
        // SAFETY: as the caller promised.
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
            // SAFETY: the fiber that asked does not go on before this was done. It then is ours to run, or in
            // a wait, from where it is dispatched like any other.
            unsafe {
                (call.run)(call.data);
                self.embedded.lender.set(outer);
                self.embedded.activation.set(activation);
                let next = if call.back { call.who } else { self.slot.get() };
                // The slot has one who goes on now only if that has interrupted itself.
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

    /// Has `work` done on the root, and goes on when it was.
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
        // SAFETY: the root comes straight back.
        unsafe { dispatch::go(self, me, &self.root) };
        me.clear_flags(Flags::IMMEDIATE);
        asked.result.take().expect("the root has done what it was asked for")
    }

    /// Has `run` called with `data` on the root when `me` has stopped next: it is in a wait then.
    ///
    /// # Safety
    /// `me` runs on this carrier. `run` may be called with `data` until [`forget_call`](Self::forget_call).
    pub(crate) unsafe fn call_once_stopped(
        &self,
        me: &Control,
        run: unsafe fn(*mut ()),
        data: *mut (),
    ) {
        self.embedded.call.set(Some(Call { run, data, who: me, back: false }));
        // The next dispatch looks for it.
        self.shorten_tick();
    }

    /// Takes back a call with `data` that was not done.
    pub(crate) fn forget_call(&self, data: *const ()) {
        if self.embedded.call.get().is_some_and(|call| ptr::eq(call.data, data)) {
            self.embedded.call.set(None);
        }
    }
}
