//! What a carrier asks for events that come from outside of the crate.

use super::bell::Bell;
use core::time::Duration;

/// A source of wakes that a carrier polls while it is busy, and sleeps in when it is not.
///
/// Each carrier has one of its own and calls it from its own thread.
pub(crate) trait Driver {
    /// Waits for events until `timeout` is over (for ever without one) or `bell` rings, and makes
    /// runnable whoever waited for what happened.
    fn wait(&self, bell: &Bell, timeout: Option<Duration>);

    /// Looks for events without waiting. Called only while [`is_active`](Self::is_active).
    fn poll(&self) {}

    /// Whether anybody waits for events, so that a busy carrier should look for them.
    fn is_active(&self) -> bool {
        false
    }
}

/// The driver that knows no events: it sleeps until the bell rings.
pub(crate) struct Asleep;

impl Driver for Asleep {
    fn wait(&self, bell: &Bell, timeout: Option<Duration>) {
        bell.wait(timeout);
    }
}
