//! `park` and `unpark`: a token that one fiber or thread waits for.
//!
//! The token is the primitive's own word: `EMPTY`, `NOTIFIED`, `PINNED`, or the epoch of the wait that parks.
//! Parking is one compare-exchange from `EMPTY` to the epoch; unparking one exchange to `NOTIFIED`, and if an epoch
//! was there, a claim of that wait.
//!
//! Each fiber and thread has a token of its own, for `park`. A wait for a future has another one, its [`Signal`]: a
//! `park` or a second `block_on` inside a poll must not take the wake of the first.

use super::{Wait, carrier};
use crate::cancel;
use crate::clock;
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Control, Flags, WaitKind};
use crate::primitive::{AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::task::Wake;

const EMPTY: u64 = 0;
const NOTIFIED: u64 = 1;
/// A pinned fiber parks: its thread's proxy waits.
const PINNED: u64 = 2;

/// Stops the running fiber until [`Fiber::unpark`](crate::Fiber::unpark) is called on it.
///
/// Returns at once if that happened before; one call lets one `park` pass, however many come
/// before it. A plain thread is stopped likewise; its handle is [`current`](crate::current).
///
/// As with [`std::thread::park`], it may return without an `unpark`, so the caller looks at what it
/// waits for in a loop. A cancelled fiber is unwound from here.
///
/// # Examples
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::sync::Arc;
///
/// sinew::run(|| {
///     let ready = Arc::new(AtomicBool::new(false));
///     let seen = ready.clone();
///     let waiter = sinew::spawn(move || {
///         while !seen.load(Ordering::Acquire) {
///             sinew::park();
///         }
///     });
///     ready.store(true, Ordering::Release);
///     waiter.fiber().unpark();
///     waiter.join().unwrap();
/// });
/// ```
#[track_caller]
pub fn park() {
    park_until(WaitKind::Park, clock::NEVER, |who| &who.token);
}

/// As [`park`], but returns after `timeout` at the latest.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// sinew::park_timeout(Duration::from_millis(1)); // nobody unparks: returns after a millisecond
/// ```
#[track_caller]
pub fn park_timeout(timeout: Duration) {
    park_until(WaitKind::Park, clock::after(clock::now(), timeout), |who| &who.token);
}

/// Suspends the waiter until its token is set. `token` finds the token of a waiter.
#[inline(always)]
#[track_caller]
fn park_until<'a>(
    kind: WaitKind,
    deadline: u64,
    token: impl FnOnce(&'static Control) -> &'a AtomicU64,
) {
    let wait = Wait::begin(kind, 0);
    let who = wait.who();
    let token = token(who);
    if !core::ptr::eq(who, wait.waiter().control()) {
        return park_pinned(wait, token, deadline);
    }
    let epoch = wait.waiter().epoch().bits();
    // ORDERING: AcqRel: Release publishes the wait, whose epoch `unpark` finds; Acquire shows what
    // was written before an `unpark` that came first.
    if token.compare_exchange(EMPTY, epoch, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // ORDERING: Acquire: another may have come since, whose writes must be seen.
        token.swap(EMPTY, Ordering::Acquire);
        wait.withdraw();
        return cancel::check_here(who);
    }
    let outcome = wait.suspend(deadline);
    // Whatever ended the wait, the token is used up.
    // ORDERING: Acquire: pairs with the Release in `unpark`.
    token.swap(EMPTY, Ordering::Acquire);
    cancel::settle(who, outcome);
}

/// Parks a pinned fiber: the thread sleeps, and looks at the fiber's token when it is woken.
#[cold]
#[track_caller]
fn park_pinned(wait: Wait, token: &AtomicU64, deadline: u64) {
    let who = wait.who();
    // ORDERING: as in `park_until`.
    if token.compare_exchange(EMPTY, PINNED, Ordering::AcqRel, Ordering::Acquire).is_err() {
        token.swap(EMPTY, Ordering::Acquire);
        wait.withdraw();
        return;
    }
    let outcome = wait.suspend(deadline);
    token.swap(EMPTY, Ordering::Acquire);
    cancel::settle(who, outcome);
}

/// Lets the next `park` of `control` pass, or the one under way.
pub(crate) fn unpark(control: &Control) {
    notify(&control.token, || control);
}

/// Sets a token, and wakes the one that waits for it.
#[inline(always)]
fn notify<'a>(token: &AtomicU64, who: impl FnOnce() -> &'a Control) {
    // ORDERING: AcqRel: Release publishes what the caller wrote before; Acquire shows the wait.
    match token.swap(NOTIFIED, Ordering::AcqRel) {
        EMPTY | NOTIFIED => {}
        PINNED => wake_pinned(who(), Outcome::Notified),
        // The token was the only place where the wait was registered, and we have taken it.
        epoch => {
            carrier::wake_alone(who(), Epoch::from_bits(epoch), Outcome::Notified);
        }
    }
}

/// The token of one wait for a future, which its wakers set.
///
/// It serves one call of `block_on` at a time: it is reused only when no waker is left that could set it.
pub(crate) struct Signal {
    token: AtomicU64,
    /// The fiber or thread that waits. Written before the token says that it does.
    who: AtomicPtr<Control>,
}

impl Signal {
    pub(crate) const fn new() -> Signal {
        Signal { token: AtomicU64::new(EMPTY), who: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Forgets a wake that came too late for the wait before.
    pub(crate) fn reset(&mut self) {
        self.token.store(EMPTY, Ordering::Relaxed);
    }

    /// Suspends the running fiber, or blocks the thread, until the signal is given. Returns at once if it was given
    /// since the last call.
    #[track_caller]
    pub(crate) fn wait(&self) {
        park_until(WaitKind::Future, clock::NEVER, |who| {
            // ORDERING: Relaxed: published by the exchange of the token in `park_until`.
            self.who.store(core::ptr::from_ref(who).cast_mut(), Ordering::Relaxed);
            &self.token
        });
    }

    /// Ends the wait under way, or the next.
    fn give(&self) {
        // SAFETY: read only if the token says that a fiber waits; the waiter publishes the pointer before that. Blocks
        // are never unmapped; if the wait has ended meanwhile, its epoch matches nothing.
        notify(&self.token, || unsafe { &*self.who.load(Ordering::Relaxed) });
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.give();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.give();
    }
}

/// Wakes the thread of a pinned fiber that waits as its thread. May end a later wait of the same
/// fiber than was meant: every wait looks whether it is over.
pub(crate) fn wake_pinned(fiber: &Control, outcome: Outcome) {
    let Some(extra) = fiber.extra() else { return };
    let proxy = extra.pinned_as.load(Ordering::Acquire);
    // SAFETY: blocks are never unmapped.
    let Some(proxy) = (unsafe { proxy.as_ref() }) else { return };
    // ORDERING: Acquire, so that the look after it is one.
    let epoch = Epoch::from_bits(extra.pinned_epoch.load(Ordering::Acquire));
    if !core::ptr::eq(extra.pinned_as.load(Ordering::Relaxed), proxy) {
        // It has gone on, and perhaps to another thread: the number would be that of somebody else's wait.
        return;
    }
    // The flags are set before the wait begins, so they are read after it was seen.
    if outcome == Outcome::Interrupted && fiber.flags().has(Flags::DEAF) {
        return;
    }
    carrier::wake(proxy, epoch, outcome);
}
