//! Sockets with the methods of `std::net`, for fibers.
//!
//! Changing `use std::net` to `use sinew::net` ports a program: names, signatures and errors match
//! the standard library. Where a socket of the standard library blocks its thread, a socket of this
//! module suspends the fiber. Plain threads may use these sockets too, and block.
//!
//! Differences from the standard library:
//!
//! - [`close`](TcpStream::close) closes a socket while other fibers use it.
//! - A cancelled fiber is unwound from its wait, never from an operation that has succeeded.
//! - [`ToSocketAddrs`] of this module looks up host names on another thread.
//! - The descriptors are always in non-blocking mode.
//!   [`set_nonblocking(true)`](TcpStream::set_nonblocking) makes operations fail instead of wait.
//! - A listener lets as many connections wait to be accepted as the system allows, not only 128.
//! - An `accept` that fails because the process has no descriptors left pauses before it returns.
//! - A read with an empty buffer returns at once.
//!
//! For socket options without a method here, use `socket2::SockRef::from(&socket)`.
//!
//! Unix sockets are in [`os::unix::net`](crate::os::unix::net). Other descriptors are in
//! [`io`](crate::io).

// `socket.rs` has the parts that all sockets share. It waits through `io/attempt.rs`, which waits
// through `reactor`.

mod addresses;
mod backoff;
mod calls;
mod socket;
mod tcp_listener;
mod tcp_stream;
mod udp_socket;
pub(crate) mod unix;

pub use addresses::ToSocketAddrs;
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
};
pub use tcp_listener::{Incoming, TcpListener};
pub use tcp_stream::TcpStream;
pub use udp_socket::UdpSocket;
