//! Cancellation: ending a fiber from outside, and waits that take too long.
//!
//! # Protocol
//!
//! A request sets a mark that stays. The fiber sees the mark when it begins to wait, or when the
//! request ends its wait. The wait then *raises*: it unwinds the fiber with a payload of type
//! [`Cancelled`], so that destructors run. If the payload is caught and dropped, the next wait
//! raises again.
//!
//! Why the fiber cannot miss a request:
//!
//! - The carrier of a bound fiber acts on the request, on the fiber's own thread. The canceller
//!   sends that carrier a message, or acts itself if it runs on that carrier. So the request
//!   arrives either before a wait begins or during a wait. In the first case the wait sees the
//!   mark. In the second case the request ends the wait.
//! - A migratable fiber may be on any carrier. Both sides have a fence, so that either the waiter
//!   sees the mark or the canceller sees the wait.
//! - For an unstarted fiber, the carrier that starts it checks the mark.
//!
//! A wait never raises while its fiber is being unwound or is masked.
//!
//! The end of a wait raises through `park::raise`. Next: `sync` and `blocking`, whose waits can be
//! cancelled.

pub use crate::fiber::{Cancelled, is_cancel};

use crate::carrier::current;
use crate::carrier::tend::interrupt;
use crate::clock;
use crate::fiber::life::{CANCELLED, FINISHED, STARTED};
use crate::fiber::state::Outcome;
use crate::fiber::{Control, Fiber, FiberRef, Flags};
use crate::park::{self, pass_on};
use crate::primitive::{Ordering, fence};
use crate::queue::Delivery;
use core::time::Duration;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

impl Fiber {
    /// Asks the fiber to end. Its current or next wait unwinds it.
    ///
    /// Does nothing to a plain thread, or to a fiber that has ended.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let fiber = sinew::spawn(|| sinew::park());
    ///     fiber.fiber().cancel();
    ///     assert!(fiber.join().is_err());
    /// });
    /// ```
    pub fn cancel(&self) {
        if !self.control().flags().has(Flags::PROXY) {
            request(self.control());
        }
    }
}

/// Asks a fiber to end.
pub(crate) fn request(control: &Control) {
    let marks = control.life.set(CANCELLED);
    if marks & (CANCELLED | FINISHED) != 0 {
        return;
    }
    // ORDERING: SeqCst fence; pairs with the fences at the beginning of waits of migratable and of
    // pinned fibers, and with the one in `reactor::deferred::arm`. Either the fiber sees the mark,
    // or we see its wait.
    fence(Ordering::SeqCst);
    if marks & STARTED == 0 {
        let armed = control.extra().map(|extra| extra.armed.load(Ordering::Acquire));
        // SAFETY: null, or a pointer to a static.
        if let Some(disarm) = armed.and_then(|armed| unsafe { armed.as_ref() }) {
            (disarm.call)(control);
        }
        return;
    }
    let flags = control.flags();
    if flags.has(Flags::MIGRATABLE) {
        interrupt(control);
    } else {
        // SAFETY: a started fiber has a carrier, and carriers are never freed.
        let carrier = unsafe { &*control.carrier() };
        if carrier.is_here() {
            // A fiber that has rested meanwhile is unstarted: the carrier that starts it sees the
            // mark.
            if flags.has(Flags::ROAMING) || control.is_bound_to(carrier) {
                interrupt(control);
            }
        } else {
            let message = FiberRef::new(control).into_counted();
            // SAFETY: the message has a reference of its own. `CANCELLED` is set once, so the
            // message link is free.
            if unsafe { carrier.inbox.push(Delivery::Message(message)) } {
                carrier.ring();
            }
        }
    }
    park::wake_pinned(control, Outcome::Interrupted);
}

/// Whether the running fiber was asked to end. Always false on a plain thread.
///
/// Meant for loops that compute without waiting, and for programs built with `panic = "abort"`, in
/// which nothing can be unwound.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let fiber = sinew::spawn(|| {
///         while !sinew::is_cancelled() {
///             sinew::masked(|| sinew::sleep(std::time::Duration::from_millis(1)));
///         }
///         "cleaned up"
///     });
///     // A fiber that is cancelled before it begins never begins.
///     sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
///     fiber.cancel();
///     assert_eq!(fiber.join().unwrap(), "cleaned up");
/// });
/// ```
pub fn is_cancelled() -> bool {
    current::fiber().is_some_and(|(_, control)| control.life.marks() & CANCELLED != 0)
}

/// Runs `f` with cancellation and deadlines postponed: no wait in `f` raises.
///
/// The first wait after `f` raises whatever was postponed. On a plain thread only deadlines are
/// postponed.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let fiber = sinew::spawn(|| {
///         sinew::masked(|| {
///             sinew::sleep(std::time::Duration::from_millis(1)); // not cut short
///         });
///         sinew::yield_now(); // raises
///     });
///     sinew::yield_now();
///     fiber.cancel();
///     assert!(fiber.join().is_err());
/// });
/// ```
pub fn masked<R>(f: impl FnOnce() -> R) -> R {
    struct Unmask(FiberRef, Flags);
    impl Drop for Unmask {
        fn drop(&mut self) {
            self.0.restore_flags(self.1, Flags::MASKED);
        }
    }
    let who = current_or_proxy();
    let before = who.flags();
    who.set_flags(Flags::MASKED);
    let _unmask = Unmask(who, before);
    f()
}

fn current_or_proxy() -> FiberRef {
    match current::fiber() {
        Some((_, control)) => FiberRef::new(control),
        None => current::proxy(),
    }
}

/// The error of [`timeout`] and [`deadline`]: the time was over before the work was done.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let late = sinew::timeout(Duration::from_millis(1), || sinew::sleep(Duration::MAX));
/// assert_eq!(late, Err(sinew::Elapsed));
/// // `?` turns it into an I/O error where a function returns one.
/// assert_eq!(std::io::Error::from(sinew::Elapsed).kind(), std::io::ErrorKind::TimedOut);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline has passed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> Self {
        std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}

/// Runs `f`, and unwinds it out of its wait when `duration` is over.
///
/// Every wait in `f` ends at the deadline at the latest. Code in `f` that computes between waits is
/// not interrupted. Calls nest, and the earliest deadline counts. Destructors in `f` run before
/// this call returns.
///
/// It works by unwinding, so it has no effect where nothing may be unwound: in a destructor that
/// runs because of a panic or a cancellation, inside [`masked`], where a guard must take its lock
/// again ([`Mutex`](crate::sync::Mutex) says when), and in programs built with `panic = "abort"`.
/// There, use waits that have a timeout of their own, such as [`park_timeout`](crate::park_timeout)
/// or [`join_timeout`](crate::JoinHandle::join_timeout).
///
/// A standard library lock that `f` holds when it is unwound is poisoned.
///
/// Text that `f` has read and not handed on is lost if `f` is unwound in the middle of a line or a
/// text: `read_line`, `lines` and `read_to_string` of the standard library truncate their string
/// when they are unwound. `read_until` and `read_to_end` fill a vector, and keep the bytes that
/// they have read. All five keep them if they end with an error. So for slow clients, set a read
/// timeout on the socket instead: it ends the read with an error.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let slow = sinew::timeout(Duration::from_millis(1), || sinew::sleep(Duration::from_secs(3600)));
/// assert_eq!(slow, Err(sinew::Elapsed));
/// let quick = sinew::timeout(Duration::from_secs(3600), || 7);
/// assert_eq!(quick, Ok(7));
/// ```
pub fn timeout<R>(duration: Duration, f: impl FnOnce() -> R) -> Result<R, Elapsed> {
    until(clock::after(clock::now(), duration), f)
}

/// Runs `f`, and unwinds it out of its wait at `deadline`; see [`timeout`].
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
///
/// let soon = Instant::now() + Duration::from_millis(1);
/// assert_eq!(sinew::deadline(soon, || sinew::park()), Err(sinew::Elapsed));
/// ```
pub fn deadline<R>(deadline: Instant, f: impl FnOnce() -> R) -> Result<R, Elapsed> {
    until(clock::at(deadline), f)
}

fn until<R>(deadline: u64, f: impl FnOnce() -> R) -> Result<R, Elapsed> {
    struct Restore(FiberRef, Flags, u64);
    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.extra_or_new().deadline.set(self.2);
            self.0.restore_flags(self.1, Flags::DEADLINE);
        }
    }
    let who = current_or_proxy();
    let extra = who.extra_or_new();
    let outer = if who.flags().has(Flags::DEADLINE) { extra.deadline.get() } else { clock::NEVER };
    let restore = Restore(who.clone(), who.flags(), extra.deadline.get());
    extra.deadline.set(outer.min(deadline));
    who.set_flags(Flags::DEADLINE);
    let result = catch_unwind(AssertUnwindSafe(f));
    drop(restore);
    match result {
        Ok(result) => Ok(result),
        Err(payload) => {
            let ours = payload.downcast_ref::<Cancelled>().is_some_and(Cancelled::is_deadline)
                && deadline <= clock::now();
            if ours {
                return Err(Elapsed);
            }
            pass_on(payload)
        }
    }
}
