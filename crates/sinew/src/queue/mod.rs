//! Where a fiber that could run waits for its turn.
//!
//! | queue | filled by | emptied by | holds |
//! | --- | --- | --- | --- |
//! | [`Fifo`] | its carrier | its carrier | started fibers of this carrier; no atomics |
//! | [`Deque`] | its carrier | its carrier, and any that has nothing to do | what may run anywhere |
//! | [`Inbox`] | anybody | its carrier, all at once | wakes from elsewhere, and messages |
//! | [`Timers`] | under a lock | under a lock | fibers with a deadline |
//! | [`Recent`] | its carrier | nobody | no fibers, but what is recorded of them |
//!
//! Nothing here knows what a fiber is: a queue moves pointers to what has a [`Linked`] word.
//!
//! Next: `carrier`, which decides where to look first.

mod deque;
mod fifo;
mod inbox;
mod recent;
mod timers;

pub(crate) use deque::{Deque, Steal};
pub(crate) use fifo::Fifo;
pub(crate) use inbox::{Entry, Inbox};
pub(crate) use recent::Recent;
pub(crate) use timers::{Timed, Timers, low_bits};

use crate::primitive::AtomicPtr;

/// What can be in a queue.
///
/// # Safety
/// Each link is in one queue at a time, and what it is in lives until it is taken out.
pub(crate) unsafe trait Linked: Sized {
    /// The link for [`Fifo`] and [`Inbox`].
    fn link(&self) -> &AtomicPtr<Self>;
    /// The link by which it is in an [`Inbox`] as a message, at the same time.
    fn message_link(&self) -> &AtomicPtr<Self>;
}
