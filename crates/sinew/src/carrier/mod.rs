//! The OS threads that run fibers: their queues, and the order in which they look at them.
//!
//! A carrier picks the next fiber on the stack of the one that stops (`dispatch`), and starts
//! unstarted fibers (`launch`). When no fiber is ready, it returns to its thread's own stack
//! (`run`), where it searches the other carriers' work and sleeps. README.md of this folder has the
//! protocol by which no wake is lost.
//!
//! A carrier does not know why a fiber stopped. Next: `park`, which does.

#[cfg(not(sinew_loom))]
pub(crate) mod bell;
#[cfg(not(sinew_loom))]
pub(crate) mod crew;
#[cfg(not(sinew_loom))]
pub(crate) mod current;
#[cfg(not(sinew_loom))]
pub(crate) mod dispatch;
#[cfg(not(sinew_loom))]
pub(crate) mod driver;
#[cfg(not(sinew_loom))]
pub(crate) mod embed;
pub(crate) mod idle;
#[cfg(not(sinew_loom))]
pub(crate) mod launch;
#[cfg(not(sinew_loom))]
mod members;
#[cfg(not(sinew_loom))]
pub(crate) mod observe;
#[cfg(not(sinew_loom))]
mod refusal;
#[cfg(not(sinew_loom))]
pub(crate) mod run;
#[cfg(not(sinew_loom))]
pub(crate) mod tenants;
#[cfg(not(sinew_loom))]
pub(crate) mod tend;
#[cfg(not(sinew_loom))]
pub(crate) mod thread;

#[cfg(not(sinew_loom))]
pub(crate) use crew::Crew;
#[cfg(not(sinew_loom))]
pub(crate) use members::{Carrier, Claimed, TimedWaits, claim, claim_alone, wake, wake_alone};

#[cfg(sinew_loom)]
pub(crate) use crate::model::{Claimed, current, wake, wake_alone};
