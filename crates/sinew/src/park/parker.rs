//! `park` and `unpark`: a token that one fiber or thread waits for.
//!
//! The token is a word of its own: `EMPTY`, `NOTIFIED`, `PINNED`, or the epoch of the wait that
//! parks. Parking is one compare-exchange from `EMPTY` to the epoch. Unparking is one exchange to
//! `NOTIFIED`, and a claim of the wait if the exchange returned an epoch.
//!
//! Each fiber and thread has a token for `park`. A wait for a future has a separate one, its
//! [`Signal`]: a `park` or a second `block_on` inside a poll must not take the wake of the outer
//! wait.

use super::{Wait, carrier, raise};
use crate::clock;
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Control, Fiber, Flags, Signal, WaitKind};
use crate::primitive::{AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::task::Wake;

const EMPTY: u64 = 0;
const NOTIFIED: u64 = 1;
/// A pinned fiber is parked: the proxy of its thread waits.
const PINNED: u64 = 2;

/// Stops the running fiber until [`Fiber::unpark`](crate::Fiber::unpark) is called on it.
///
/// Returns at once if `unpark` was called before. Several calls before one `park` count as one. A
/// plain thread is stopped in the same way; [`current`](crate::current) gives its handle.
///
/// As with [`std::thread::park`], the call may return without an `unpark`, so the caller checks its
/// condition in a loop. A cancelled fiber is unwound from here.
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

/// Stops the running fiber until it is unparked, but at most for `timeout`. See [`park`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// sinew::park_timeout(Duration::from_millis(1)); // no unpark comes: returns after a millisecond
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
    // ORDERING: AcqRel. Release publishes the wait, whose epoch `notify` finds; Acquire shows the
    // writes before an `unpark` that came first. Both pair with the AcqRel in `notify`.
    if token.compare_exchange(EMPTY, epoch, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // ORDERING: Acquire: another `unpark` may have come since, and its writes must be seen.
        token.swap(EMPTY, Ordering::Acquire);
        wait.withdraw();
        return raise::check_here(who);
    }
    let outcome = wait.suspend(deadline);
    // The token is used up, whatever ended the wait.
    // ORDERING: Acquire; pairs with the Release in `notify`.
    token.swap(EMPTY, Ordering::Acquire);
    raise::settle(who, outcome);
}

/// Parks a pinned fiber: its thread sleeps, and checks the fiber's token when it is woken.
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
    raise::settle(who, outcome);
}

impl Fiber {
    /// Lets the current or the next [`park`](crate::park) of this fiber return.
    ///
    /// May be called from any thread or fiber, also when the fiber has ended.
    ///
    /// # Examples
    /// ```
    /// sinew::current().unpark();
    /// sinew::park(); // returns at once
    /// ```
    pub fn unpark(&self) {
        unpark(self.control());
    }
}

/// Lets the `park` that `control` is in return, or else its next one.
pub(crate) fn unpark(control: &Control) {
    notify(&control.token, || control);
}

/// Sets a token, and wakes the fiber or thread that waits for it.
#[inline(always)]
fn notify<'a>(token: &AtomicU64, who: impl FnOnce() -> &'a Control) {
    // ORDERING: AcqRel. Release publishes the caller's writes; Acquire shows the wait. Both pair
    // with the exchanges in `park_until`.
    match token.swap(NOTIFIED, Ordering::AcqRel) {
        EMPTY | NOTIFIED => {}
        PINNED => wake_pinned(who(), Outcome::Notified),
        // The wait was registered only in the token, and the swap took it out, as `wake_alone`
        // requires.
        epoch => {
            carrier::wake_alone(who(), Epoch::from_bits(epoch), Outcome::Notified);
        }
    }
}

impl Signal {
    pub(crate) const fn new() -> Signal {
        Signal { token: AtomicU64::new(EMPTY), who: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Discards a wake that came too late for the previous wait.
    pub(crate) fn reset(&mut self) {
        self.token.store(EMPTY, Ordering::Relaxed);
    }

    /// Suspends the running fiber, or blocks the thread, until the signal is given. Returns at once
    /// if it was given since the last call.
    #[track_caller]
    pub(crate) fn wait(&self) {
        park_until(WaitKind::Future, clock::NEVER, |who| {
            // ORDERING: Relaxed: the exchange of the token in `park_until` publishes it.
            self.who.store(core::ptr::from_ref(who).cast_mut(), Ordering::Relaxed);
            &self.token
        });
    }

    /// Ends the wait under way, or else the next one.
    fn give(&self) {
        // SAFETY: the pointer is read only if the token shows a waiter, which wrote it before it
        // registered. Blocks are never unmapped. If the wait has ended meanwhile, its epoch matches
        // nothing.
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

/// Wakes a pinned fiber that waits by blocking its thread.
///
/// May end a later wait of the fiber than the caller meant. That is harmless: every wait checks
/// whether it is over.
pub(crate) fn wake_pinned(fiber: &Control, outcome: Outcome) {
    let Some(extra) = fiber.extra() else { return };
    let proxy = extra.pinned_as.load(Ordering::Acquire);
    // SAFETY: blocks are never unmapped.
    let Some(proxy) = (unsafe { proxy.as_ref() }) else { return };
    // ORDERING: Acquire keeps the second load of `pinned_as` after this one.
    let epoch = Epoch::from_bits(extra.pinned_epoch.load(Ordering::Acquire));
    if !core::ptr::eq(extra.pinned_as.load(Ordering::Relaxed), proxy) {
        // The fiber has gone on, perhaps on another thread: the epoch may belong to another wait.
        return;
    }
    // The flags are set before the wait begins, so they are read after the wait was seen.
    if outcome == Outcome::Interrupted && fiber.flags().has(Flags::DEAF) {
        return;
    }
    carrier::wake(proxy, epoch, outcome);
}
