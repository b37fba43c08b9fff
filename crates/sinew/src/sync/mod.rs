//! Locks, signals and channels that suspend fibers.
//!
//! All of them work between fibers of one carrier, of different carriers and runtimes, and plain
//! threads: a thread that waits is blocked, a fiber is suspended. No wait allocates. A cancelled
//! fiber is unwound from its wait, and has then neither taken nor lost anything.
//!
//! | to | use |
//! | --- | --- |
//! | guard data | [`Mutex`], [`RwLock`] with a [`Priority`] or without, [`FairMutex`] |
//! | lock by key | [`MultiLock`] |
//! | wait until data has changed | [`Condvar`] |
//! | let so many in at a time | [`Semaphore`] |
//! | signal something, to one once, or to all on and off | [`Baton`], [`Event`] |
//! | take turns by number | [`Sequencer`] |
//! | pass one value | [`FiberFuture`] |
//! | wait until all are done, or there | [`WaitGroup`], [`Barrier`] |
//! | do or make something once | [`Once`], [`OnceLock`], [`LazyLock`] |
//! | pass messages | [`channel`] |
//! | end many at once | [`CancellationToken`] |
//! | wait for the first of several operations | [`select!`](crate::select) |
//! | build a condition of one's own | [`Futex`] |
//!
//! # Poisoning
//!
//! There is none. A cancelled fiber unwinds through its guards as a matter of course, and a lock
//! that was poisoned by that would make every other user pay for it. Whoever must not leave data
//! half changed masks the section ([`masked`](crate::masked)), or repairs it in a destructor.

mod barrier;
mod baton;
pub mod channel;
mod condvar;
mod event;
mod fair_mutex;
mod futex;
mod future;
mod guard;
mod multi_lock;
mod mutex;
mod once;
mod priority;
mod raw;
mod rwlock;
pub(crate) mod select;
mod semaphore;
mod sequencer;
#[cfg(not(sinew_loom))]
mod token;
mod wait_group;

pub use barrier::{Barrier, BarrierWaitResult};
pub use baton::Baton;
pub use condvar::Condvar;
pub use event::Event;
pub use fair_mutex::{
    FairMutex, FairMutexGuard, FairMutexPlace, FairMutexTicket, RawFairMutex, TicketArm,
};
pub use futex::Futex;
pub use future::{
    FiberFuture, FutureArm, Subscription, Waitable, wait_for_multiple, wait_with_timeout,
};
pub use guard::Guard;
pub use multi_lock::{MultiLock, MultiLockGuard, MultiLockSlot};
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};
pub use once::{LazyLock, Once, OnceLock};
pub use priority::{InTurn, Priority, ReadersFirst, WritersFirst};
pub use rwlock::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard,
};
pub use select::{Arm, Patience, TimerArm, after, at, select};
pub use semaphore::{OwnedPermits, Permits, Semaphore, SemaphoreArm};
pub use sequencer::{Reached, Sequencer, SequencerTurn, SequencerWait};
#[cfg(not(sinew_loom))]
pub use token::{CancelOnDrop, CancellationToken, TokenArm};
pub use wait_group::WaitGroup;

use crate::clock;
use core::time::Duration;

/// The moment at which a timeout is over.
fn moment(timeout: Duration) -> u64 {
    clock::after(clock::now(), timeout)
}
