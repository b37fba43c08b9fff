//! The crate of the loom models: the lock-free parts of sinew, above a model of the layers below.
//!
//! `ci/loom.sh` builds it, with `--cfg sinew_loom`; without that, it is empty. Its modules are the
//! files of sinew, under their own paths. Each file has its models in a child module `loom`. The
//! rest of sinew does not build on loom, so `model` takes its place.
#![cfg(sinew_loom)]
#![allow(dead_code, unused_imports, reason = "only what is modelled is used")]
#![allow(clippy::modulo_one, clippy::absurd_extreme_comparisons, reason = "models are small")]

mod model;
mod primitive;
mod queue;
pub mod sync;

mod fiber {
    pub(crate) use crate::model::{Control, WaitKind, number_of};
    pub(crate) mod state;
}

mod carrier {
    pub(crate) use crate::model::{Claimed, current, random, wake, wake_alone};
    pub(crate) mod idle;
    pub(crate) mod embed {
        pub(crate) mod on_root {
            pub(crate) use crate::model::Parting;
        }
    }
}

mod park {
    pub(crate) use crate::model::{Wait, Waiter, raise};
    pub(crate) mod list;
    pub(crate) mod table;
}

mod reactor {
    mod gate;
}

use model::{cancel, clock, report};
