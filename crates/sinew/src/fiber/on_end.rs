//! How an ending fiber tells the layer above of its end.
//!
//! Waiters for the end of a fiber are in a table of `park`, which this layer does not know. `park`
//! sets the function that wakes them before it sets the first mark `WATCHED`. A fiber that finds
//! the mark at its end also finds the function: the mark is set with Release and read with Acquire
//! (`life`).

use std::sync::OnceLock;

/// Wakes the waiters for the end of a fiber, given the address of its block and its id.
type Announce = fn(address: usize, id: u64);

static ANNOUNCE: OnceLock<Announce> = OnceLock::new();

/// Sets the function that wakes the waiters for the end of a fiber. Later calls change nothing.
pub(crate) fn announce_through(announce: Announce) {
    ANNOUNCE.get_or_init(|| announce);
}

/// Wakes the waiters for the end of a fiber.
pub(crate) fn announce(address: usize, id: u64) {
    // If the function is not set, no waiter for the end of a fiber has ever been in the table.
    if let Some(announce) = ANNOUNCE.get() {
        announce(address, id);
    }
}
