//! Bytes become requests: pure functions, which know nothing of connections.
//!
//! What is ambiguous is refused rather than guessed: who stands before us may have guessed differently,
//! and what one of the two takes for a body the other takes for a request.

pub(crate) mod authority;
pub(crate) mod chunked;
pub(crate) mod fields;
pub(crate) mod head;
pub(crate) mod target;

use http::StatusCode;

/// Why something that was received is refused, and with which answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// What was wrong, for who sent it.
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

/// Whether something begins with a percent sign and two digits.
fn is_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}
