//! The interface through which a carrier gets events from the kernel. The reactor implements it.

use core::time::Duration;
use std::os::fd::BorrowedFd;

/// A source of wakes, which a busy carrier polls and an idle carrier sleeps in.
///
/// Each carrier has its own driver. If a carrier does not get to its driver, other carriers of the
/// crew poll it.
pub(crate) trait Driver: Send + Sync {
    /// Waits for events until `timeout` is over (for ever if `None`) or the carrier's bell rings,
    /// and wakes the fibers that waited for the events.
    fn wait(&self, timeout: Option<Duration>);

    /// Polls for events without waiting. Returns whether there were any.
    fn poll(&self) -> bool;

    /// Whether any fiber may wait for events, so that a busy carrier should poll.
    fn is_active(&self) -> bool;

    /// Returns the number of descriptors from which events may come.
    fn registered(&self) -> usize;

    /// Returns the number of events so far.
    fn events(&self) -> u64;

    /// Returns a descriptor that is readable when there are events or the bell has rung, if the
    /// driver has one. The descriptor changes when a fiber first waits for events, and when
    /// [`open`](Self::open) is called.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Creates everything that events need, before any fiber waits for them. The carrier must not
    /// be asleep.
    fn open(&self);

    /// Tells the driver that its carrier polls no more. Fibers that wait for events must use
    /// another driver.
    fn close(&self);
}
