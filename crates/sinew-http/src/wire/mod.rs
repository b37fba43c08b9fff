//! Bytes to and from the client of one connection, without any notion of requests.
//!
//! [`line`] is the socket, [`transport`] carries bytes over it, plain or encrypted (`tls`), and
//! [`buffers`] holds input that was not consumed and output that was not sent.
//!
//! This module uses nothing of the crate. Next: `message`, whose bodies read and write through it,
//! and `connection`, which owns a transport.

pub(crate) mod buffers;
pub(crate) mod line;
#[cfg(feature = "tls")]
mod tls;
pub(crate) mod transport;
