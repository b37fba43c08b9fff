//! Queues of fibers that are ready to run, and timers.
//!
//! | queue | filled by | emptied by | holds |
//! | --- | --- | --- | --- |
//! | [`Fifo`] | its carrier | its carrier | fibers that stay on this carrier, most of them started; no atomic exchanges |
//! | [`Deque`] | its carrier | its carrier, and any idle carrier | fibers that may run anywhere |
//! | [`Inbox`] | any thread | its carrier, all at once | wakes from elsewhere, and messages |
//! | [`Inbox`] as a carrier's offers or a crew's injector | any thread | any carrier of the crew, all at once | fibers that may run anywhere |
//! | [`Timers`] | any holder of its lock | any holder of its lock | fibers with a deadline |
//! | [`Recent`] | its carrier | never: new records replace old ones | no fibers, but records of events |
//!
//! No queue knows what a fiber is: a queue moves pointers to items. A list links its items through
//! [`Linked`], and the timers ask an item through [`Timed`].
//!
//! This module uses only `primitive`. Next: `carrier`, which owns the queues and decides where to
//! look first.

mod deque;
mod fifo;
mod inbox;
mod recent;
mod timers;

pub(crate) use deque::{Deque, OwnerDeque, Steal};
pub(crate) use fifo::Fifo;
pub(crate) use inbox::{Delivery, Inbox};
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
    /// The link for an [`Inbox`] entry that is a message. An item can be in one queue by `link`,
    /// and at the same time in an inbox as a message.
    fn message_link(&self) -> &AtomicPtr<Self>;
}
