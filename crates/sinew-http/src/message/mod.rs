//! Requests, responses and their bodies, as handlers see them.
//!
//! `connection` makes a [`Request`](request::Request) of each head that `parse` accepts, and sends
//! the [`Response`](response::Response) of the handler. Next: `request`, then `response`.

pub(crate) mod body;
pub(crate) mod case;
pub(crate) mod outgoing;
pub(crate) mod params;
pub(crate) mod request;
pub(crate) mod response;
