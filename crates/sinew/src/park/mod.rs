//! The mechanism under every wait: a fiber stops, and a waker makes it run again.
//!
//! A wait is begun, registered with its wakers, and then suspended. `README.md` of this folder says
//! why no wake is lost on the way.
//!
//! OS threads wait through these functions too. A *proxy*, a control block of the thread's own,
//! stands for the thread, and suspending it blocks the thread. A pinned fiber also waits by
//! blocking its thread.
//!
//! Next: `time`, `spawn` and the other modules that register a [`Waiter`].

pub(crate) mod end;
pub(crate) mod list;
mod parker;
mod pinned;
pub(crate) mod raise;
pub(crate) mod slots;
pub(crate) mod table;
pub(crate) mod yielding;

pub(crate) use parker::wake_pinned;
pub use parker::{park, park_timeout};
pub(crate) use pinned::{blocks_here, is_refused, without_waiting};
pub use pinned::{can_yield, pinned};
pub(crate) use raise::pass_on;
pub use slots::ContextSlot;
pub use yielding::yield_now;

use crate::carrier::bell::Bell;
use crate::carrier::tend::postpone;
use crate::carrier::unwinding::{begin_unwound_wait, end_unwound_wait, is_unwinding};
use crate::carrier::{self, Carrier, Claimed, Owner, current, dispatch};
use crate::clock;
use crate::fiber::life::CANCELLED;
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Control, FiberRef, Flags, WaitKind};
use crate::primitive::{Ordering, fence, futex};
use crate::queue::low_bits;
use core::ptr;
use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// A fiber or thread to be woken, and the wait from which to wake it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    control: *const Control,
    epoch: Epoch,
}

// SAFETY: control blocks are never unmapped, and the epoch of an ended wait matches nothing.
unsafe impl Send for Waiter {}

impl Waiter {
    /// A placeholder that must not be woken.
    const NONE: Waiter = Waiter { control: ptr::null(), epoch: Epoch::NEVER };

    /// Ends the wait and makes the waiter run, unless the wait was ended before. Returns true to
    /// exactly one caller.
    #[inline(always)]
    pub(crate) fn wake(self) -> bool {
        // SAFETY: control blocks are never unmapped.
        carrier::wake(unsafe { &*self.control }, self.epoch, Outcome::Notified)
    }

    /// Ends the wait, unless it was ended before; the waiter runs after the fibers that are ready.
    #[cfg(target_os = "linux")]
    pub(crate) fn wake_in_turn(self) -> bool {
        self.claim().map(Claimed::resume_in_turn).is_some()
    }

    /// Ends the wait, unless it was ended before. The caller makes the waiter run.
    #[inline(always)]
    pub(crate) fn claim(self) -> Option<Claimed> {
        // SAFETY: control blocks are never unmapped.
        carrier::claim(unsafe { &*self.control }, self.epoch, Outcome::Notified)
    }

    /// Ends the wait as [`claim`](Self::claim) does, for a caller that has taken the wait out of
    /// the only place where it was registered.
    #[inline(always)]
    pub(crate) fn claim_alone(self) -> Option<Claimed> {
        // SAFETY: control blocks are never unmapped.
        carrier::claim_alone(unsafe { &*self.control }, self.epoch, Outcome::Notified)
    }

    pub(crate) fn control(self) -> *const Control {
        self.control
    }

    pub(crate) fn epoch(self) -> Epoch {
        self.epoch
    }
}

/// A wait that has begun. It must be suspended, withdrawn or abandoned.
///
/// It has no destructor: a value that must be dropped would be kept in memory across the switch.
/// For the same reason the usual path passes no reference to it to a function that is not inlined:
/// see [`long_way`].
#[must_use]
pub(crate) struct Wait {
    control: &'static Control,
    /// `None` if a thread waits. The wait then has a counted reference to the thread's proxy.
    owner: Option<&'static Owner>,
    epoch: Epoch,
    /// The fiber, if it is pinned and waits by blocking its thread.
    pinned: Option<&'static Control>,
    /// Whether this wait has set `UNWINDING` and must clear it. A migratable fiber is bound to its
    /// thread until then.
    marked: bool,
}

impl Wait {
    /// Begins a wait of the running fiber or thread.
    ///
    /// # Panics
    /// Where waiting is an error: in a predicate or a hook, or pinned under the policy `Error`.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn begin(kind: WaitKind, address: usize) -> Wait {
        #[cfg(sinew_force_yield)]
        yielding::before_a_wait();
        Wait::begin_of(current::fiber(), kind, address)
    }

    /// Begins a wait of `fiber`, the running fiber, which the caller has looked up. If `fiber` is
    /// `None`, begins a wait of the thread.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn begin_of(
        fiber: Option<(&'static Owner, &'static Control)>,
        kind: WaitKind,
        address: usize,
    ) -> Wait {
        match fiber.and_then(|(owner, control)| Wait::plain(owner, control, kind, address)) {
            Some(wait) => wait,
            None => Wait::begin_special(fiber, kind, address),
        }
    }

    /// Begins a wait of a fiber that has no [special](SPECIAL) flags. Returns `None` if the fiber
    /// has one, or if a thread runs.
    #[inline(always)]
    pub(crate) fn begin_plainly(kind: WaitKind, address: usize) -> Option<Wait> {
        #[cfg(sinew_force_yield)]
        yielding::before_a_wait();
        let (owner, control) = current::fiber()?;
        Wait::plain(owner, control, kind, address)
    }

    /// Begins a wait of a fiber. Returns `None` if the fiber has [special](SPECIAL) flags.
    #[inline(always)]
    fn plain(
        owner: &'static Owner,
        control: &'static Control,
        kind: WaitKind,
        address: usize,
    ) -> Option<Wait> {
        if control.flags().has(SPECIAL) {
            return None;
        }
        control.record_wait(kind, address, owner.now.get());
        let epoch = control.wake.begin();
        Some(Wait { control, owner: Some(owner), epoch, pinned: None, marked: false })
    }

    /// Begins a wait that must not fail: blocks the thread where a fiber cannot be suspended.
    pub(crate) fn begin_anyhow(kind: WaitKind, address: usize) -> Wait {
        match current::fiber() {
            Some((owner, control))
                if control.flags().has(Flags(Flags::PINNED.0 | Flags::NO_WAIT.0)) =>
            {
                if !control.flags().has(Flags::NO_WAIT) {
                    pinned::about_to_block(owner.shared(), control, kind, true);
                }
                Wait::begin_as_thread(Some(control), kind, address)
            }
            _ => Wait::begin(kind, address),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn begin_special(
        fiber: Option<(&'static Owner, &'static Control)>,
        kind: WaitKind,
        address: usize,
    ) -> Wait {
        let Some((owner, control)) = fiber else {
            return Wait::begin_as_thread(None, kind, address);
        };
        let flags = control.flags();
        if flags.has(Flags::NO_WAIT) {
            panic!("{} called in a predicate or a hook, where nothing may wait", kind.operation());
        }
        if flags.has(Flags::PINNED) {
            pinned::about_to_block(owner.shared(), control, kind, false);
            return Wait::begin_as_thread(Some(control), kind, address);
        }
        // A migratable fiber stays on its thread while it unwinds, because the count of panics
        // belongs to the thread. Other threads must see that it does not migrate before they see
        // the wait.
        let marked = flags.has(Flags::MIGRATABLE) && std::thread::panicking();
        if marked {
            control.clear_flags(Flags::MIGRATABLE);
            control.set_flags(Flags::UNWINDING);
        }
        control.record_wait(kind, address, owner.now.get());
        let epoch = control.wake.begin();
        if flags.has(Flags::MIGRATABLE) {
            // ORDERING: SeqCst fence; pairs with the one in `cancel::request`. Either this wait
            // sees the request before it stops, or the canceller sees the wait.
            fence(Ordering::SeqCst);
        }
        Wait { control, owner: Some(owner), epoch, pinned: None, marked }
    }

    fn begin_as_thread(pinned: Option<&'static Control>, kind: WaitKind, address: usize) -> Wait {
        // SAFETY: `ended` gives the reference up when the wait is over; blocks are never unmapped.
        let control: &'static Control = unsafe { &*current::proxy().into_counted() };
        control.record_wait(kind, address, clock::now());
        if let Some(fiber) = pinned {
            // Before the wait begins, so that an observer of this wait does not see the deadline of
            // an earlier one.
            // ORDERING: Release; as in `publish_deadline`.
            fiber.extra_or_new().pinned_until.store(clock::NEVER, Ordering::Release);
        }
        let epoch = control.wake.begin();
        let mut marked = false;
        if let Some(fiber) = pinned {
            // A hook may run in the middle of an outer wait, which may have set the flag.
            marked = std::thread::panicking() && !fiber.flags().has(Flags::UNWINDING);
            if marked {
                fiber.set_flags(Flags::UNWINDING);
            }
            // The record of an outer wait does not change before that wait has ended.
            if fiber.wake.waiting().is_none() {
                fiber.record_wait(kind, address, clock::now());
            }
            let extra = fiber.extra_or_new();
            // ORDERING: Release: a reader of the new epoch sees that the previous wait is over;
            // pairs with the Acquire in `wake_pinned`.
            extra.pinned_epoch.store(epoch.bits(), Ordering::Release);
            // ORDERING: Release publishes the epoch; pairs with the Acquire in `wake_pinned`.
            extra.pinned_as.store(ptr::from_ref(control).cast_mut(), Ordering::Release);
            // ORDERING: SeqCst fence; pairs with the one in `cancel::request`.
            fence(Ordering::SeqCst);
        }
        Wait { control, owner: None, epoch, pinned, marked }
    }

    /// Returns the waiter to register.
    #[inline(always)]
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter { control: self.control, epoch: self.epoch }
    }

    /// Returns the owner of the waiter's carrier; `None` if a thread waits.
    pub(crate) fn owner(&self) -> Option<&'static Owner> {
        self.owner
    }

    /// Returns the block of the waiter: the fiber, also if it is pinned, or the thread's proxy.
    #[inline(always)]
    pub(crate) fn who(&self) -> &'static Control {
        self.pinned.unwrap_or(self.control)
    }

    /// Ends the wait in favour of an action of its own fiber, unless it was ended before. If it
    /// returns true, the wait must not be suspended.
    pub(crate) fn claim_for_itself(&self) -> bool {
        let won = self.control.wake.claim(self.epoch, Outcome::Notified);
        if won {
            self.ended();
        }
        won
    }

    /// Ends a wait that was not registered anywhere.
    #[inline(always)]
    pub(crate) fn abandon(self) {
        let Wait { control, owner, epoch, pinned, marked } = self;
        let plain = owner.is_some() && !control.flags().has(Flags::ROAMING) && !marked;
        // Only this thread can end a plain wait that is not registered, and only while the fiber
        // does not run.
        if !plain || !control.wake.claim_alone(epoch, Outcome::Notified) {
            withdraw(control, owner, epoch, pinned, marked);
        }
    }

    /// Ends a wait that is not needed. Returns false if a waker has ended the wait meanwhile; that
    /// wake is used up.
    pub(crate) fn withdraw(self) -> bool {
        if self.control.wake.claim(self.epoch, Outcome::Notified) {
            self.ended();
            return true;
        }
        // The fiber is in a queue, or will be in a moment: stop until it is dispatched from there.
        self.suspend(clock::NEVER);
        false
    }

    /// Stops until a waker ends the wait, the deadline passes, or the fiber is cancelled.
    ///
    /// Does not raise a cancellation: the caller decides about the outcome.
    #[inline(always)]
    pub(crate) fn suspend(self, deadline: u64) -> Outcome {
        self.suspend_for(deadline, None)
    }

    /// Stops as [`suspend`](Self::suspend) does, by the longer path, which every wait with a
    /// deadline takes. The shorter path is not compiled into the caller.
    pub(crate) fn suspend_until(self, deadline: u64) -> Outcome {
        let Wait { control, owner, epoch, pinned, marked } = self;
        long_way(control, owner, epoch, pinned, marked, deadline)
    }

    /// Stops as [`suspend`](Self::suspend) does. If the wait is for the end of `newest`, an
    /// unstarted fiber, the carrier may run `newest` next.
    #[inline(always)]
    pub(crate) fn suspend_for(self, deadline: u64, newest: Option<&Control>) -> Outcome {
        let flags = self.control.flags();
        let short = deadline == clock::NEVER
            && !flags.has(LONG_WAY)
            && self.control.life.marks() & CANCELLED == 0
            && !std::thread::panicking();
        match self.owner {
            // SAFETY: the fiber runs, and its wait is registered.
            Some(owner) if short => unsafe {
                match newest {
                    Some(newest) => dispatch::suspend_for(owner, self.control, newest),
                    None => dispatch::suspend(owner, self.control),
                }
            },
            _ => {
                let Wait { control, owner, epoch, pinned, marked } = self;
                return long_way(control, owner, epoch, pinned, marked, deadline);
            }
        }
        self.control.wake.outcome()
    }

    fn suspend_long_way(self, deadline: u64) -> Outcome {
        let Some(owner) = self.owner else {
            return self.suspend_thread(deadline);
        };
        let control = self.control;
        let carrier = owner.shared();
        let unwinding = is_unwinding(owner, control);
        let deaf = DEAF || unwinding || control.flags().has(Flags::MASKED);
        let deadline = if deaf { deadline } else { deadline.min(scope_deadline(control)) };
        if !deaf && control.life.marks() & CANCELLED != 0 {
            // If the claim fails, a waker was faster and has queued this fiber.
            if control.wake.claim(self.epoch, Outcome::Interrupted) {
                self.ended();
                return Outcome::Interrupted;
            }
        } else if deadline != clock::NEVER
            && deadline <= owner.now.get()
            && control.wake.claim(self.epoch, Outcome::TimedOut)
        {
            // The deadline has passed. The fiber still goes through the queue: a loop around such a
            // wait must let other fibers run.
            // SAFETY: the claim succeeded, and the fiber stops next.
            unsafe {
                owner.behind_others(control);
            }
        }
        let timed = deadline != clock::NEVER && control.wake.is_waiting(self.epoch);
        if timed {
            set_timer(carrier, control, self.epoch, deadline);
        }
        if unwinding {
            begin_unwound_wait(owner, control);
            if !control.flags().has(Flags::MASKED) && control.life.marks() & CANCELLED != 0 {
                postpone(carrier, control, self.epoch);
            }
        }
        let slots = control.flags().has(Flags::SLOTS);
        if slots {
            slots::swap_out(control);
        }
        // SAFETY: the fiber runs on its carrier, and its wait is registered or ended.
        unsafe { dispatch::suspend(owner, control) };
        if unwinding {
            end_unwound_wait(control);
        }
        self.ended();
        let outcome = control.wake.outcome();
        if timed && outcome != Outcome::TimedOut {
            // The timer belongs to the carrier on which it was set, even if the fiber has migrated.
            carrier.timers.lock().leave();
        }
        if slots {
            slots::swap_in(control);
        }
        outcome
    }

    /// Publishes the deadline of a thread that is about to block, and ends the wait of a pinned
    /// fiber that was cancelled before. Returns the deadline, cut short by the scopes of the
    /// waiter. Neither scopes nor a cancellation end the wait of a waiter that is masked or
    /// unwinding.
    fn before_blocking(&self, deadline: u64) -> u64 {
        let who = self.who();
        let deaf = DEAF || who.flags().has(Flags::MASKED) || std::thread::panicking();
        let deadline = if deaf { deadline } else { deadline.min(scope_deadline(who)) };
        self.publish_deadline(deadline);
        if !deaf && self.pinned.is_some_and(|fiber| fiber.life.marks() & CANCELLED != 0) {
            self.control.wake.claim(self.epoch, Outcome::Interrupted);
        }
        deadline
    }

    #[cold]
    fn suspend_thread(self, deadline: u64) -> Outcome {
        let control = self.control;
        let deadline = self.before_blocking(deadline);
        let (word, expected) = control.wake.futex();
        if deadline == clock::NEVER {
            control.set_flags(Flags::ASLEEP);
        }
        while control.wake.is_waiting(self.epoch) {
            let now = clock::now();
            if deadline <= now {
                control.wake.claim(self.epoch, Outcome::TimedOut);
                break;
            }
            futex::wait(word, expected(self.epoch), clock::until(now, deadline));
        }
        control.clear_flags(Flags::ASLEEP);
        let outcome = control.wake.outcome();
        self.ended();
        outcome
    }

    /// Begins a wait of a thread, or of a pinned fiber, that
    /// [`suspend_polling`](Self::suspend_polling) suspends.
    ///
    /// # Panics
    /// Where waiting is an error: see [`begin`](Self::begin).
    #[track_caller]
    pub(crate) fn begin_polling(kind: WaitKind, address: usize) -> Wait {
        // Set first, so that a waker that learns of the wait sees the flag. If a panic leaves the
        // flag set, a later waker rings in vain.
        current::proxy().set_flags(Flags::POLLS);
        Wait::begin(kind, address)
    }

    /// Blocks the thread in `poll` until the wait has ended. If `poll` returns true, the wait ends.
    ///
    /// `poll` gets a descriptor that becomes readable when another thread ends the wait, and the
    /// longest time that it may take.
    pub(crate) fn suspend_polling(
        self,
        deadline: u64,
        mut poll: impl FnMut(Option<RawFd>, Option<Duration>) -> bool,
    ) -> Outcome {
        let control = self.control;
        let deadline = self.before_blocking(deadline);
        // Only the thread itself ends this wait of a plain thread, so a plain thread needs no bell.
        let bell = if self.pinned.is_some() { bell_of(control) } else { None };
        while control.wake.is_waiting(self.epoch) {
            let now = clock::now();
            if deadline <= now {
                control.wake.claim(self.epoch, Outcome::TimedOut);
                break;
            }
            let mut timeout = clock::until(now, deadline);
            if self.pinned.is_some() && bell.is_none() {
                timeout = Some(timeout.unwrap_or(LOOK).min(LOOK));
            }
            if poll(bell.map(|bell| bell.as_fd().as_raw_fd()), timeout) {
                control.wake.claim(self.epoch, Outcome::Notified);
            }
        }
        if let Some(bell) = bell {
            bell.clear();
        }
        control.clear_flags(Flags::POLLS);
        let outcome = control.wake.outcome();
        self.ended();
        outcome
    }

    /// Publishes the deadline of a pinned fiber's wait for `inspect`. The deadlines of other fibers
    /// are among the timers of their carriers.
    fn publish_deadline(&self, deadline: u64) {
        if let Some(extra) = self.pinned.and_then(Control::extra) {
            // ORDERING: Release publishes that the previous wait is over; pairs with the Acquire
            // fence in `inspect::snapshot::pinned_wait_of`.
            extra.pinned_until.store(deadline, Ordering::Release);
        }
    }

    /// Undoes the changes of `begin`.
    fn ended(&self) {
        if self.marked {
            self.who().clear_flags(Flags::UNWINDING);
        }
        if let Some(fiber) = self.pinned {
            if let Some(extra) = fiber.extra() {
                extra.pinned_as.store(ptr::null_mut(), Ordering::Release);
            }
            if fiber.wake.waiting().is_none() {
                fiber.record_wait(WaitKind::None, 0, 0);
            }
        } else if self.marked {
            self.control.set_flags(Flags::MIGRATABLE);
        }
        if self.owner.is_none() {
            // SAFETY: `begin_as_thread` counted the reference. The wait has ended, and its outcome
            // was read.
            drop(unsafe { FiberRef::from_counted(self.control) });
        }
    }
}

/// Calls [`Wait::suspend_long_way`] with the fields of the wait by value. A reference would force
/// the wait out of registers.
#[inline(never)]
fn long_way(
    control: &'static Control,
    owner: Option<&'static Owner>,
    epoch: Epoch,
    pinned: Option<&'static Control>,
    marked: bool,
    deadline: u64,
) -> Outcome {
    Wait { control, owner, epoch, pinned, marked }.suspend_long_way(deadline)
}

/// Calls [`Wait::withdraw`] with the fields of the wait by value, as [`long_way`] does.
#[cold]
#[inline(never)]
fn withdraw(
    control: &'static Control,
    owner: Option<&'static Owner>,
    epoch: Epoch,
    pinned: Option<&'static Control>,
    marked: bool,
) {
    Wait { control, owner, epoch, pinned, marked }.withdraw();
}

/// Flags that make the beginning of a wait take [`Wait::begin_special`].
const SPECIAL: Flags = Flags(Flags::PINNED.0 | Flags::NO_WAIT.0 | Flags::MIGRATABLE.0);
/// Flags that make suspending take [`long_way`].
const LONG_WAY: Flags = Flags(
    Flags::SLOTS.0 | Flags::PANICKED.0 | Flags::DEADLINE.0 | Flags::MASKED.0 | Flags::MIGRATABLE.0,
);

/// How often a thread without a bell checks whether its wait was ended.
const LOOK: Duration = Duration::from_millis(10);

/// Returns the bell of a thread's proxy, or `None` if there is no descriptor left for one.
fn bell_of(proxy: &Control) -> Option<&Bell> {
    let bell = &proxy.extra_or_new().bell;
    if bell.get().is_none() {
        // Only the thread itself makes its bell.
        let _ = bell.set(Bell::new().ok()?);
    }
    bell.get()
}

/// Whether waits ignore cancellation because this build cannot unwind.
const DEAF: bool = cfg!(panic = "abort");

/// Returns the nearest deadline of the scopes that a fiber or thread is in.
fn scope_deadline(who: &Control) -> u64 {
    if !who.flags().has(Flags::DEADLINE) {
        return clock::NEVER;
    }
    who.extra().map_or(clock::NEVER, |extra| extra.deadline.get())
}

fn set_timer(carrier: &Carrier, control: &Control, epoch: Epoch, deadline: u64) {
    let mut timers = carrier.timers.lock();
    // SAFETY: blocks are never unmapped.
    unsafe { timers.insert(deadline, control, low_bits(epoch.number())) };
    carrier.earliest.store(timers.earliest().unwrap_or(clock::NEVER), Ordering::Relaxed);
}
