//! Locks, signals and channels that suspend fibers.
//!
//! All types of this module work between fibers of one carrier, fibers of different carriers and
//! runtimes, and plain threads. A wait suspends a fiber and blocks a thread. No wait allocates. A
//! cancelled fiber is unwound from its wait; it has then neither taken nor lost anything.
//!
//! | to | use |
//! | --- | --- |
//! | guard data | [`Mutex`], [`RwLock`] (with a [`Priority`] to serve readers or writers first), [`FairMutex`] |
//! | lock by key | [`MultiLock`] |
//! | wait until data has changed | [`Condvar`] |
//! | limit how many fibers enter at a time | [`Semaphore`] |
//! | signal one waiter once | [`Baton`] |
//! | set and reset a signal for any number of waiters | [`Event`] |
//! | take turns by number | [`Sequencer`] |
//! | pass one value | [`FiberFuture`] |
//! | wait until all parts of some work are done | [`WaitGroup`] |
//! | wait until all fibers have arrived | [`Barrier`] |
//! | run an action once, or make a value once | [`Once`], [`OnceLock`], [`LazyLock`] |
//! | pass messages | [`channel`] |
//! | end many fibers at once | [`CancellationToken`] |
//! | wait for the first of several operations | [`select!`](crate::select) |
//! | build a condition of your own | [`Futex`] |
//!
//! # Poisoning
//!
//! Locks are never poisoned. A cancelled fiber unwinds through its guards, which is normal
//! operation. With poisoning, every other user of such a lock would have to handle the error. Code
//! that must not leave data half changed puts the change into [`masked`](crate::masked), or repairs
//! the data in a destructor.
//!
//! # Reading order
//!
//! The waits are built on `park::list` and `park::table`. Start with `raw` (the lock under
//! [`Mutex`] and [`RwLock`]), `future::word` (the word under objects that are set once),
//! `channel::core` and `select`. `README.md` of this folder lists the claims that the loom models
//! check.

mod barrier;
mod baton;
pub mod channel;
mod condvar;
mod event;
mod fair_mutex;
mod forward;
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
pub use future::{FiberFuture, FutureArm, Subscription, Waitable, wait_for_multiple, wait_timeout};
pub use guard::Guard;
pub use multi_lock::{MultiLock, MultiLockGuard, MultiLockPlace};
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
