//! The layer below `park::list`, `park::table` and `sync` in their models: threads of loom instead
//! of fibers and carriers.
//!
//! Each thread has a block with the real word that decides which thread ends a wait. A thread of a
//! model waits like a plain thread: it may see the end of its wait before the waker makes it run.
//! That is the hardest case, because a fiber sees nothing before it runs.
//!
//! All *deadlines* are one moment, [`DEADLINE`], which comes when a thread of the model calls
//! [`deadline_passes`]. [`Control::cancel`] requests a *cancellation*. The wait of the cancelled
//! thread then raises, as a fiber's wait does, and [`cancellable`] catches the unwinding.

use crate::fiber::state::{Epoch, Outcome, WakeWord};
use crate::park::table::{self, Key};
use crate::primitive::{self, AtomicBool, Ordering, SpinLock, fence};
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::pin::Pin;
use core::ptr;
use loom::cell::UnsafeCell;
use loom::sync::mpsc;
use loom::thread::JoinHandle;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The moment at which every wait with a deadline ends.
pub(crate) const DEADLINE: u64 = 2_000_000;

/// The block of a thread of a model, in place of a fiber's.
#[repr(align(64))]
pub(crate) struct Control {
    pub(crate) wake: WakeWord,
    /// A channel with one message for each time that the thread was made to run.
    runs: (mpsc::Sender<()>, mpsc::Receiver<()>),
    cancelled: AtomicBool,
    /// Owned by the thread: whether it may be cancelled at all, whether cancellation is masked, and
    /// whether it is being unwound.
    may_be_cancelled: Cell<bool>,
    masked: Cell<bool>,
    unwinding: Cell<bool>,
    /// Whether cancellation must not end the thread's wait. The thread writes it before the wait
    /// begins.
    deaf: Cell<bool>,
    /// How many random numbers the thread has drawn.
    drawn: Cell<usize>,
}

/// Values that live as long as an execution, and whether all threads count as fibers of one
/// carrier.
struct Blocks(RefCell<Vec<Box<dyn Any>>>, Cell<bool>);

// SAFETY: loom runs one thread at a time, and switches only inside of its own objects.
unsafe impl Sync for Blocks {}
// SAFETY: loom runs one thread at a time, and switches only inside of its own objects.
unsafe impl Sync for Control {}
// SAFETY: loom runs one thread at a time, and switches only inside of its own objects.
unsafe impl<T> Send for Kept<T> {}

struct Clock {
    now: u64,
    waits: Vec<Waiter>,
}

loom::lazy_static! {
    static ref BLOCKS: Blocks = Blocks(RefCell::new(Vec::new()), Cell::new(false));
    static ref CLOCK: SpinLock<Clock> = SpinLock::new(Clock { now: 0, waits: Vec::new() });
}

loom::thread_local! {
    static ME: Cell<*const Control> = Cell::new(ptr::null());
}

/// Checks a model. The calling thread has a block as well.
pub(crate) fn check(model: impl Fn() + Sync + Send + 'static) {
    check_within(usize::MAX, model);
}

/// Checks a model with at most `preemptions` preemptions, or fewer if the environment says so.
pub(crate) fn check_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    primitive::check_within(preemptions, move || {
        let _: &SpinLock<Clock> = &CLOCK;
        // The first use of the table makes it, and must be in this thread.
        let _ = table::bucket(Key::of(&()));
        ME.with(|me| me.set(Control::new()));
        model();
    });
}

/// Starts a thread of a model.
pub(crate) fn spawn<R: 'static>(f: impl FnOnce() -> R + 'static) -> JoinHandle<R> {
    spawn_as(Control::new(), f)
}

/// Starts a thread of a model that may be cancelled. It returns `None` if it was.
pub(crate) fn spawn_cancellable<R: 'static>(
    f: impl FnOnce() -> R + 'static,
) -> (&'static Control, JoinHandle<Option<R>>) {
    let control = Control::new();
    control.may_be_cancelled.set(true);
    (control, spawn_as(control, || cancellable(f)))
}

fn spawn_as<R: 'static>(
    control: &'static Control,
    f: impl FnOnce() -> R + 'static,
) -> JoinHandle<R> {
    loom::thread::spawn(move || {
        ME.with(|me| me.set(control));
        f()
    })
}

/// The payload that unwinds a cancelled thread.
struct Cancelled;

fn cancellable<R>(f: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Cancelled>() => {
            me().unwinding.set(false);
            None
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// Lets the deadline pass: ends all waits that have one.
pub(crate) fn deadline_passes() {
    let waits = {
        let mut clock = CLOCK.lock();
        clock.now = DEADLINE;
        core::mem::take(&mut clock.waits)
    };
    for waiter in waits {
        // SAFETY: blocks live as long as the execution.
        let control = unsafe { &*waiter.control };
        if let Some(claimed) = claim(control, waiter.epoch, Outcome::TimedOut) {
            claimed.resume();
        }
    }
}

fn me() -> &'static Control {
    let me = ME.with(Cell::get);
    assert!(!me.is_null(), "neither `check` nor `spawn` gave this thread a block");
    // SAFETY: blocks live as long as the execution.
    unsafe { &*me }
}

impl Control {
    fn new() -> &'static Control {
        let control = Box::new(Control {
            wake: WakeWord::new(),
            runs: mpsc::channel(),
            cancelled: AtomicBool::new(false),
            may_be_cancelled: Cell::new(false),
            masked: Cell::new(false),
            unwinding: Cell::new(false),
            deaf: Cell::new(false),
            drawn: Cell::new(0),
        });
        keep(control)
    }

    pub(crate) fn carrier(&self) -> *const () {
        current::carrier()
    }

    /// Asks a thread of [`spawn_cancellable`] to end.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        // ORDERING: SeqCst fence; pairs with the one in `Wait::suspend`, as in `crate::cancel`.
        fence(Ordering::SeqCst);
        let Some(epoch) = self.wake.waiting() else { return };
        if self.deaf.get() {
            return;
        }
        if let Some(claimed) = claim(self, epoch, Outcome::Interrupted) {
            claimed.resume();
        }
    }
}

fn keep<T: 'static>(value: Box<T>) -> &'static T {
    let address = ptr::from_ref(&*value);
    BLOCKS.0.borrow_mut().push(value);
    // SAFETY: `BLOCKS` keeps the box as long as the execution.
    unsafe { &*address }
}

/// A value whose memory is kept when it is dropped, so that a late use is noticed.
#[derive(Debug)]
pub(crate) struct Kept<T: 'static>(&'static core::cell::UnsafeCell<ManuallyDrop<T>>);

impl<T> Kept<T> {
    pub(crate) fn new(value: T) -> Kept<T> {
        Kept(keep(Box::new(ManuallyDrop::new(value).into())))
    }

    /// Drops the value for all threads that have a copy of the handle.
    pub(crate) fn drop(self) {
        // SAFETY: a model drops the value once. A later use of its atomics or cells panics.
        unsafe { ManuallyDrop::drop(&mut *self.0.get()) };
    }

    /// Pins the value, for one thread alone.
    pub(crate) fn pin(self) -> Pin<&'static mut T> {
        // SAFETY: a model pins the value once, and the value does not move, because `BLOCKS` keeps
        // its box.
        unsafe { Pin::new_unchecked(&mut *self.0.get()) }
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Kept<T> {}

impl<T> Deref for Kept<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the memory is kept as long as the execution.
        unsafe { &*self.0.get() }
    }
}

/// A value for which loom reports a read that is not ordered after the write, and two unordered
/// writes.
#[derive(Debug)]
pub(crate) struct Tracked(UnsafeCell<usize>);

// SAFETY: loom reports unordered uses.
unsafe impl Sync for Tracked {}

impl Tracked {
    pub(crate) fn new(value: usize) -> Tracked {
        Tracked(UnsafeCell::new(value))
    }

    #[track_caller]
    pub(crate) fn get(&self) -> usize {
        // SAFETY: loom runs one thread at a time.
        self.0.with(|value| unsafe { *value })
    }

    #[track_caller]
    pub(crate) fn add(&self, more: usize) {
        // SAFETY: loom runs one thread at a time.
        self.0.with_mut(|value| unsafe { *value += more });
    }
}

/// A thread to wake, and the wait to wake it from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    control: *const Control,
    epoch: Epoch,
}

// SAFETY: blocks live as long as the execution.
unsafe impl Send for Waiter {}

impl Waiter {
    pub(crate) const NONE: Waiter = Waiter { control: ptr::null(), epoch: Epoch::NEVER };

    pub(crate) fn claim(self) -> Option<Claimed> {
        // SAFETY: blocks live as long as the execution.
        claim(unsafe { &*self.control }, self.epoch, Outcome::Notified)
    }

    pub(crate) fn claim_alone(self) -> Option<Claimed> {
        self.claim()
    }

    pub(crate) fn control(self) -> *const Control {
        self.control
    }

    pub(crate) fn epoch(self) -> Epoch {
        self.epoch
    }
}

/// A wait that has begun. It must be suspended on or withdrawn.
#[must_use]
pub(crate) struct Wait {
    control: &'static Control,
    epoch: Epoch,
}

impl Wait {
    pub(crate) fn begin(_: WaitKind, _: usize) -> Wait {
        let control = me();
        control.deaf.set(control.masked.get() || control.unwinding.get());
        Wait { control, epoch: control.wake.begin() }
    }

    pub(crate) fn begin_anyhow(kind: WaitKind, address: usize) -> Wait {
        Wait::begin(kind, address)
    }

    pub(crate) fn begin_plainly(kind: WaitKind, address: usize) -> Option<Wait> {
        Some(Wait::begin(kind, address))
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter { control: self.control, epoch: self.epoch }
    }

    pub(crate) fn who(&self) -> &'static Control {
        self.control
    }

    pub(crate) fn claim_for_itself(&self) -> bool {
        self.control.wake.claim(self.epoch, Outcome::Notified)
    }

    pub(crate) fn abandon(self) {
        self.withdraw();
    }

    pub(crate) fn withdraw(self) -> bool {
        if self.claim_for_itself() {
            return true;
        }
        self.suspend(clock::NEVER);
        false
    }

    /// Blocks until the wait was ended. The thread may see the end before it is made to run.
    pub(crate) fn suspend(self, deadline: u64) -> Outcome {
        let Wait { control, epoch } = self;
        if control.may_be_cancelled.get() && !control.deaf.get() {
            // ORDERING: SeqCst fence; pairs with the one in `Control::cancel`.
            fence(Ordering::SeqCst);
            if control.cancelled.load(Ordering::Relaxed) {
                control.wake.claim(epoch, Outcome::Interrupted);
            }
        }
        if deadline != clock::NEVER {
            let mut clock = CLOCK.lock();
            if clock.now < deadline {
                clock.waits.push(self.waiter());
            } else {
                drop(clock);
                control.wake.claim(epoch, Outcome::TimedOut);
            }
        }
        while control.wake.is_waiting(epoch) {
            control.runs.1.recv().expect("the block keeps the sender");
        }
        control.wake.outcome()
    }
}

/// A wait that the caller has ended. The waiter must now be made to run.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct Claimed(*const Control);

impl Claimed {
    pub(crate) fn resume(self) {
        // SAFETY: blocks live as long as the execution.
        unsafe { &*self.0 }.runs.0.send(()).expect("the block keeps the receiver");
    }

    /// Makes the waiter run. Models have no order of turns, because it belongs to the queues.
    pub(crate) fn resume_in_turn(self) {
        self.resume();
    }
}

pub(crate) fn claim(control: &Control, epoch: Epoch, outcome: Outcome) -> Option<Claimed> {
    control.wake.claim(epoch, outcome).then_some(Claimed(control))
}

pub(crate) fn wake(control: &Control, epoch: Epoch, outcome: Outcome) -> bool {
    claim(control, epoch, outcome).map(Claimed::resume).is_some()
}

pub(crate) fn wake_alone(control: &Control, epoch: Epoch, outcome: Outcome) -> bool {
    wake(control, epoch, outcome)
}

/// The operation that a thread waits in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitKind {
    Lock,
    Key,
    Condvar,
    Semaphore,
    Event,
    Value,
    Send,
    Receive,
    Select,
}

/// Returns a number below `end`. A thread gets 0 first, then 1, and so on in turn.
pub(crate) fn random(end: usize) -> usize {
    let drawn = &me().drawn;
    drawn.set(drawn.get() + 1);
    (drawn.get() - 1) % end
}

/// Makes all threads of this execution count as fibers of one carrier. Only decisions about cost
/// depend on it.
pub(crate) fn all_are_near() {
    BLOCKS.1.set(true);
}

pub(crate) mod current {
    use super::{BLOCKS, Control};
    use core::ptr;

    pub(crate) fn carrier() -> *const () {
        if BLOCKS.1.get() { ptr::dangling() } else { ptr::null() }
    }

    pub(crate) fn block() -> *const Control {
        super::me()
    }

    /// Returns false, so that a model does not spin for the holder of a lock.
    ///
    /// # Safety
    /// There is no requirement in a model.
    pub(crate) unsafe fn runs_elsewhere(_: &Control) -> bool {
        false
    }

    pub(crate) fn is_host() -> bool {
        false
    }

    pub(crate) fn is_guest(_: *const Control) -> bool {
        false
    }
}

/// Work for the root of a fiber of a manager. No thread of a model has a root, so there is none.
pub(crate) enum Parting {}

impl Parting {
    pub(crate) fn new<F: FnOnce()>(work: F) -> Result<Parting, F> {
        Err(work)
    }

    /// # Safety
    /// There is no requirement in a model.
    pub(crate) unsafe fn arm(&mut self, _: Epoch) {
        match *self {}
    }

    pub(crate) fn finish(&mut self) -> std::thread::Result<()> {
        match *self {}
    }
}

/// Describes a thread of a model, for panic messages.
pub(crate) fn number_of(_: &Control) -> &'static str {
    "another waiter"
}

pub(crate) mod raise {
    use super::{Cancelled, Control, Outcome, resume_unwind};
    pub(crate) use std::panic::resume_unwind as pass_on;

    pub(crate) fn settle(who: &Control, outcome: Outcome) {
        if outcome == Outcome::Interrupted {
            assert!(!who.deaf.get(), "a cancellation ended a wait that must not be interrupted");
            who.unwinding.set(true);
            resume_unwind(Box::new(Cancelled));
        }
    }
}

pub(crate) mod cancel {
    use super::me;

    pub(crate) fn masked<R>(f: impl FnOnce() -> R) -> R {
        let before = me().masked.replace(true);
        let result = f();
        me().masked.set(before);
        result
    }
}

pub(crate) mod clock {
    use super::{CLOCK, DEADLINE};
    use core::time::Duration;
    use std::time::Instant;

    pub(crate) const NEVER: u64 = u64::MAX;

    pub(crate) fn now() -> u64 {
        CLOCK.lock().now
    }

    pub(crate) fn after(_: u64, _: Duration) -> u64 {
        DEADLINE
    }

    pub(crate) fn at(_: Instant) -> u64 {
        DEADLINE
    }
}

pub(crate) mod report {
    pub(crate) fn say(what: core::fmt::Arguments<'_>) {
        panic!("{what}");
    }

    pub(crate) fn abort(what: core::fmt::Arguments<'_>) -> ! {
        panic!("{what}");
    }

    pub(crate) struct NeverUnwinds(pub(crate) &'static str);

    impl Drop for NeverUnwinds {
        fn drop(&mut self) {
            abort(format_args!("{}", self.0));
        }
    }
}
