//! Locks, signals and channels that suspend fibers.
//!
//! All of them work between fibers of one carrier, fibers of different carriers and runtimes, and
//! plain threads. A wait suspends a fiber and blocks a thread. No wait allocates. A cancelled fiber
//! is unwound from its wait; it has then neither taken nor lost anything.
//!
//! | to | use |
//! | --- | --- |
//! | guard data | [`Mutex`], [`RwLock`] with a [`Priority`] or without, [`FairMutex`] |
//! | lock by key | [`MultiLock`] |
//! | wait until data has changed | [`Condvar`] |
//! | limit how many fibers enter at a time | [`Semaphore`] |
//! | signal one waiter once, or all waiters on and off | [`Baton`], [`Event`] |
//! | take turns by number | [`Sequencer`] |
//! | pass one value | [`FiberFuture`] |
//! | wait until all parts are done, or all fibers have arrived | [`WaitGroup`], [`Barrier`] |
//! | do or make something once | [`Once`], [`OnceLock`], [`LazyLock`] |
//! | pass messages | [`channel`] |
//! | end many fibers at once | [`CancellationToken`] |
//! | wait for the first of several operations | [`select!`](crate::select) |
//! | build a condition of your own | [`Futex`] |
//!
//! # Poisoning
//!
//! Locks are never poisoned. A cancelled fiber regularly unwinds through its guards, and poisoning
//! would make all other users of the lock pay for that. Code that must not leave data half changed
//! masks the section ([`masked`](crate::masked)), or repairs the data in a destructor.

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

/// Returns the moment at which a timeout that begins now ends.
fn moment(timeout: Duration) -> u64 {
    clock::after(clock::now(), timeout)
}
