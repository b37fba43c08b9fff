//! Connections come in.

use super::At;
use super::shared::Shared;
use crate::connection;
use crate::log::Problem;
use core::sync::atomic::Ordering;
use sinew::net::TcpListener;
use sinew::sync::Semaphore;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Listens with `count` sockets at the first of several addresses that can be listened at, or with the one
/// socket that listens already.
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
    // If any port will do, the others take the same.
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
    // As many may wait to be accepted as the system allows.
    socket.listen(i32::MAX)?;
    Ok(TcpListener::from(std::net::TcpListener::from(socket)))
}

/// Accepts connections until it is cancelled. One that there is no room for waits here until there is, and others behind
/// it, in the kernel: who waits for a connection to come keeps no room from the other listeners.
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
