//! The payload of a cancellation, and the marks of a panic that ended a fiber.
//!
//! `park` raises the payload, and `cancel` has the protocol of a cancellation.

use super::life::FAILED;
use super::{Control, Flags};
use crate::carrier::current;
use crate::primitive::{AtomicBool, Ordering};
use core::any::Any;
use std::fmt;

/// The payload that unwinds a cancelled fiber, and the `Err` of its `join`.
///
/// [`is_cancel`] recognises it in a caught panic.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let fiber = sinew::spawn(|| sinew::park());
///     fiber.cancel();
///     assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
/// });
/// ```
#[derive(Debug)]
pub struct Cancelled {
    /// The fiber in which the payload was raised; zero if the fiber never began.
    fiber: u64,
    /// Whether a deadline scope raised it.
    deadline: bool,
}

impl Cancelled {
    /// Creates the payload that is raised in `fiber`.
    pub(crate) fn raised_in(fiber: &Control, deadline: bool) -> Cancelled {
        Cancelled { fiber: fiber.id(), deadline }
    }

    /// Creates the payload of a fiber that was cancelled before it began.
    pub(crate) fn before_start() -> Box<dyn Any + Send> {
        Box::new(Cancelled { fiber: 0, deadline: false })
    }

    /// Whether a passed deadline of [`timeout`](crate::timeout()) or
    /// [`deadline`](crate::deadline()) raised this, rather than a request.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// sinew::run(|| {
    ///     let fiber = sinew::spawn(sinew::park);
    ///     fiber.cancel();
    ///     let payload = fiber.join().unwrap_err();
    ///     assert!(!payload.downcast_ref::<sinew::Cancelled>().unwrap().is_deadline());
    /// });
    /// ```
    pub fn is_deadline(&self) -> bool {
        self.deadline
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.deadline {
            "the deadline has passed"
        } else {
            "the fiber was cancelled"
        })
    }
}

impl std::error::Error for Cancelled {}

impl Drop for Cancelled {
    fn drop(&mut self) {
        // The payload was caught and dropped, so this unwinding is over.
        if let Some((_, control)) = current::fiber()
            && control.id() == self.fiber
        {
            control.clear_flags(Flags::PANICKED);
        }
    }
}

/// Whether a caught panic is a cancellation or a passed deadline, rather than a failure.
///
/// Code that catches panics and goes on should raise such a payload again. If it does not, the next
/// wait raises the cancellation again.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let fiber = sinew::spawn(|| {
///         let caught = std::panic::catch_unwind(|| sinew::park());
///         let payload = caught.unwrap_err();
///         assert!(sinew::is_cancel(&*payload));
///         std::panic::resume_unwind(payload);
///     });
///     sinew::yield_now();
///     fiber.cancel();
///     assert!(fiber.join().is_err());
/// });
/// ```
pub fn is_cancel(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Cancelled>()
}

/// Whether a panic has ended a fiber without having been seen to begin.
static PANICS_UNSEEN: AtomicBool = AtomicBool::new(false);

/// Notes that a panic with this payload has ended a fiber.
#[cold]
pub(crate) fn panic_ended(control: &Control, payload: &(dyn Any + Send)) {
    if !is_cancel(payload) {
        control.life.set(FAILED);
    }
    if !control.flags().has(Flags::PANICKED) {
        PANICS_UNSEEN.store(true, Ordering::Relaxed);
    }
}

/// Whether a panic has ended a fiber without having been seen to begin, because another panic hook
/// has replaced sinew's.
pub(crate) fn panics_unseen() -> bool {
    PANICS_UNSEEN.load(Ordering::Relaxed)
}
