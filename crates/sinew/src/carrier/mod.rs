//! The OS threads that run fibers: their queues, and the order in which they look at them.
//!
//! A carrier picks the next fiber on the stack of the one that stops (`dispatch`), and starts
//! unstarted fibers (`launch`). When no fiber is ready, it returns to its thread's own stack
//! (`run`), where it searches the other carriers' work and sleeps. README.md of this folder has the
//! protocol by which no wake is lost.
//!
//! A carrier does not know why a fiber stopped. Next: `park`, which does.

pub(crate) mod bell;
pub(crate) mod crew;
pub(crate) mod current;
pub(crate) mod dispatch;
pub(crate) mod driver;
pub(crate) mod embed;
pub(crate) mod idle;
pub(crate) mod launch;
pub(crate) mod observe;
mod owner;
pub(crate) mod placement;
mod random;
mod refusal;
pub(crate) mod run;
mod stint;
pub(crate) mod tend;
pub(crate) mod thread;
mod timed;
pub(crate) mod unwinding;
mod wake;

pub(crate) use crew::Crew;
pub(crate) use owner::{Carrier, Owner};
pub(crate) use random::random;
pub(crate) use timed::TimedWaits;
pub(crate) use wake::{Claimed, claim, claim_alone, wake, wake_alone};
