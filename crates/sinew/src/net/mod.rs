//! Sockets with the methods of `std::net`, for fibers.
//!
//! Changing `use std::net` to `use sinew::net` ports a program: names, signatures and errors are the
//! same. Where a socket of the standard library would block its thread, a fiber is suspended. Plain
//! threads use the same sockets, and block.
//!
//! What differs: [`close`](TcpStream::close) ends what others do with a socket; names of hosts are
//! looked up by [`ToSocketAddrs`] of this module, on another thread; the descriptors are in
//! non-blocking mode, which [`set_nonblocking`](TcpStream::set_nonblocking) does not change.
//! `socket2::SockRef::from(&socket)` has the options for which there is no method.
//!
//! Unix sockets are in [`os::unix::net`](crate::os::unix::net).

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
