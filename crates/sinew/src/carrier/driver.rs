//! What a carrier asks for events that come from outside of the crate.

use core::time::Duration;
use std::os::fd::BorrowedFd;

/// A source of wakes that a carrier looks at while it is busy, and sleeps in when it is not.
///
/// Each carrier has one of its own. Its neighbours look at it as well if the carrier does not get to
/// it.
pub(crate) trait Driver: Send + Sync {
    /// Waits for events until `timeout` is over (for ever without one) or the carrier's bell rings,
    /// and makes runnable whoever waited for what happened.
    fn wait(&self, timeout: Option<Duration>);

    /// Looks for events without waiting; true if there were any.
    fn poll(&self) -> bool;

    /// Whether anybody may wait for events, so that a busy carrier should look for them.
    fn is_active(&self) -> bool;

    /// How many events there were so far.
    fn events(&self) -> u64;

    /// A descriptor that is readable when there are events or the bell has rung, if there is one. It is
    /// another one when somebody has first waited for events, or [`open`](Self::open) was called.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Makes everything that is needed for events, before anybody waits for them. The carrier does not sleep.
    fn open(&self);

    /// The carrier looks no longer: those who wait must look elsewhere.
    fn close(&self);
}
