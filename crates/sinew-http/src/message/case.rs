//! One request, as all who deal with it know it: who serves it, its handler, and code far from both.

use crate::parse::head::{Head, Outline};
use std::net::SocketAddr;
use std::sync::Arc;

/// What does not change of a request. Its memory is used again when nobody has it any more.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) head: Head,
    pub(crate) origin: Origin,
    /// Which of its connection it is, counted from one.
    pub(crate) number: u64,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) is_secure: bool,
}

/// The bytes of a head that is kept for the next one are no more than so many.
const LARGEST: usize = 2 * 1024;

impl Case {
    /// One with this head, in the memory of `before` if nobody else has that.
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

    /// Whether its memory is worth keeping.
    pub(crate) fn is_small(&self) -> bool {
        self.head.capacity() <= LARGEST
    }
}
