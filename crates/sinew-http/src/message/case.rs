//! The facts about one request, shared by the serving fiber, the handler, and code far from both.

use crate::parse::head::{Head, Outline};
use std::net::SocketAddr;
use std::sync::Arc;

/// The unchanging facts about a request. The kit keeps it after the request. If no other reference
/// is left then, the next request that uses the kit reuses the memory.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) head: Head,
    pub(crate) origin: Origin,
    /// The number of the request within its connection, counted from one.
    pub(crate) number: u64,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) is_secure: bool,
}

/// A head with a larger buffer is not kept for reuse.
const LARGEST: usize = 2 * 1024;

impl Case {
    /// Makes the case of a request. Reuses the memory of `before` if no other reference to it is
    /// left.
    pub(crate) fn new(
        before: Option<Arc<Case>>,
        (outline, raw): (Outline, &[u8]),
        origin: &Origin,
        number: u64,
    ) -> Arc<Case> {
        if let Some(mut case) = before
            && let Some(place) = Arc::get_mut(&mut case)
        {
            place.head.replace(outline, raw);
            place.origin = *origin;
            place.number = number;
            return case;
        }
        Arc::new(Case { head: Head::new(outline, raw), origin: *origin, number })
    }

    /// Whether the memory is small enough to keep for reuse.
    pub(crate) fn is_small(&self) -> bool {
        self.head.capacity() <= LARGEST
    }
}
