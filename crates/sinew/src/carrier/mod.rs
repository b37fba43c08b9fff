//! The OS thread that runs fibers: its queues, and the order in which it looks at them.
//!
//! A carrier decides what runs next on the stack of the fiber that stops (`dispatch`), starts what
//! has not run yet (`launch`), and falls back to its thread's own stack (`run`) when there is
//! nothing to do: there it looks at the others' work, and sleeps. README.md of this folder has the
//! protocol by which no wake is lost.
//!
//! It knows nothing of why a fiber stopped: that is `park`.

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
