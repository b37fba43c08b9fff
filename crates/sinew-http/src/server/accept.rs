//! Opens the listening sockets, and accepts connections.
//!
//! Next: `connection::accepted`, which starts the fiber of a connection.

use super::At;
use crate::connection::{self, shared::Shared};
use crate::log::Problem;
use core::sync::atomic::Ordering;
use sinew::net::TcpListener;
use sinew::sync::Semaphore;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Listens with `count` sockets at the first address that works. A listener that the user passed in
/// is returned as it is.
pub(super) fn listen(at: At, count: usize) -> io::Result<Vec<TcpListener>> {
    let addresses = match at {
        At::Addresses(addresses) => addresses?,
        At::Listener(listener) => return Ok(vec![listener.into()]),
    };
    let mut problem =
        io::Error::new(io::ErrorKind::InvalidInput, "there is no address to listen at");
    for address in addresses {
        match listen_at(address, count) {
            Ok(listeners) => return Ok(listeners),
            Err(error) => {
                let message = format!("cannot listen at {address}: {error}");
                problem = io::Error::new(error.kind(), message);
            }
        }
    }
    Err(problem)
}

fn listen_at(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let first = open(address, count > 1)?;
    // If the port was 0, the other sockets listen at the port that the first one got.
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..count {
        listeners.push(open(address, true)?);
    }
    Ok(listeners)
}

fn open(address: SocketAddr, shares: bool) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shares {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    // The kernel caps the backlog at its own maximum.
    socket.listen(i32::MAX)?;
    Ok(TcpListener::from(std::net::TcpListener::from(socket)))
}

/// Accepts connections until the fiber is cancelled.
///
/// When the server is full, one accepted connection waits here for a permit, and further ones wait
/// in the kernel. A permit is acquired only after a connection has come, so an idle listener holds
/// none.
pub(super) fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let begun = listener.accept().and_then(|accepted| {
            let permit = Semaphore::acquire_owned(&shared.room, 1);
            let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
            connection::accepted(shared, accepted, number, permit)
        });
        if let Err(error) = begun {
            shared.tell(&Problem::Accept(&error));
        }
    }
}
