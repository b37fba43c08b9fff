//! Turns bytes into requests. All functions are pure, and know nothing of connections.
//!
//! The parsers refuse ambiguous input instead of guessing. A proxy in front of the server may guess
//! differently; then one of the two would take a part of a body for a request.
//!
//! Next: `head`, which parses the head of a request; `chunked`, which decodes bodies.

pub(crate) mod authority;
pub(crate) mod chunked;
pub(crate) mod fields;
pub(crate) mod head;
pub(crate) mod target;

use http::StatusCode;

/// Why received bytes are refused, and the status of the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// The reason, for the client.
    pub(crate) reason: &'static str,
}

impl Refusal {
    pub(crate) const fn new(status: StatusCode, reason: &'static str) -> Refusal {
        Refusal { status, reason }
    }

    pub(crate) const fn bad(reason: &'static str) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, reason)
    }
}

/// Whether the bytes begin with a percent sign and two hexadecimal digits.
fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}
