#![doc = include_str!("../README.md")]
//!
//! # Reading order
//!
//! Follow the path of a request. `server` listens and accepts, `connection` reads and writes, and
//! `parse` turns bytes into a head. A `handler` takes a request and returns a response; `message`
//! has both types. `router` chooses among handlers. `files` and `debug` are handlers. `client`
//! sends requests to other servers.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "client")]
pub mod client;
mod connection;
mod context;
mod date;
pub mod debug;
mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handler;
mod limits;
mod log;
mod message;
mod parse;
mod router;
mod server;
#[cfg(feature = "tls")]
mod tls;
mod upgrade;
mod wire;

pub use connection::counts::ServerMetrics;
pub use context::RequestContext;
pub use files::Files;
pub use handler::Handler;
pub use limits::Limits;
pub use log::{AccessEntry, Problem};
pub use message::body::Body;
pub use message::outgoing::BodyWriter;
pub use message::request::Request;
pub use message::response::{IntoResponse, Response};
pub use router::Router;
pub use server::{Server, ServerHandle, ShutdownError};
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use upgrade::Upgraded;

/// The crate `http`, with methods, statuses and header fields, in the version that this crate uses.
pub use http;
/// The crate `rustls`, which encrypts connections, in the version that this crate uses.
#[cfg(feature = "tls")]
pub use rustls;

/// Compiles and runs the examples of the pages outside this crate that use it.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/inspect.md")]
    struct Inspect;
}
