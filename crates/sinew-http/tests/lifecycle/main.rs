//! The life of a server: start, service and end.

#[path = "../client/mod.rs"]
mod client;

mod ending;
mod failing;
mod handling;
mod limits;
mod logging;
mod starting;

use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
