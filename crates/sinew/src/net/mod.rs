//! Sockets with the methods of `std::net`, for fibers.
//!
//! Changing `use std::net` to `use sinew::net` ports a program: names, signatures and errors match
//! the standard library. Where a socket of the standard library blocks its thread, a socket of this
//! module suspends the fiber. Plain threads may use these sockets too, and block.
//!
//! There are three differences:
//!
//! - [`close`](TcpStream::close) closes a socket while other fibers use it.
//! - [`ToSocketAddrs`] of this module looks up host names on another thread.
//! - The descriptors are in non-blocking mode. [`set_nonblocking`](TcpStream::set_nonblocking) does
//!   not change that.
//!
//! Socket options without a method here are in `socket2::SockRef::from(&socket)`.
//!
//! Unix sockets are in [`os::unix::net`](crate::os::unix::net). Other descriptors are in
//! [`io`](crate::io).

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
