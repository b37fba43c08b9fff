//! Queues of fibers that could run, and timers.
//!
//! | queue | filled by | emptied by | holds |
//! | --- | --- | --- | --- |
//! | [`Fifo`] | its carrier | its carrier | started fibers of this carrier; no atomics |
//! | [`Deque`] | its carrier | its carrier, and any idle carrier | fibers that may run anywhere |
//! | [`Inbox`] | any thread | its carrier, all at once | wakes from elsewhere, and messages |
//! | [`Timers`] | under a lock | under a lock | fibers with a deadline |
//! | [`Recent`] | its carrier | never | no fibers, but records of them |
//!
//! No queue knows what a fiber is: it moves pointers to items with a [`Linked`] word.
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

/// An item that can be in a queue.
///
/// # Safety
/// Each link is in one queue at a time, and the item lives until it is taken out.
pub(crate) unsafe trait Linked: Sized {
    /// The link for [`Fifo`] and [`Inbox`].
    fn link(&self) -> &AtomicPtr<Self>;
    /// The link by which the item can be in an [`Inbox`] as a message, at the same time.
    fn message_link(&self) -> &AtomicPtr<Self>;
}
