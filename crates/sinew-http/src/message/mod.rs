//! What handlers take and give: requests, responses and their bodies.

pub(crate) mod body;
pub(crate) mod case;
pub(crate) mod outgoing;
pub(crate) mod request;
pub(crate) mod response;
