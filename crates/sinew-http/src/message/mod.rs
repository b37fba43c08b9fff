//! Requests, responses and their bodies, as handlers see them.

pub(crate) mod body;
pub(crate) mod case;
pub(crate) mod outgoing;
pub(crate) mod request;
pub(crate) mod response;
